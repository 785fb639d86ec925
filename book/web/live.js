// Live figures: a figure is a function from the values of its sliders to a frame, which says in
// numbers what is drawn. The package computes the same frames (book/_ext/live_figure.py): the first
// one is drawn when the book is built, and tests compare all others.
import * as S from "./spectrum.js";

const WIDTH = 640, LEFT = 62, RIGHT = 14, TOP = 14, BOTTOM = 46;
const COLOURS = ["dominant", "bulk", "zero", "plain"];

/** Where a value lies on an axis {from, to, log} that spans the pixels low..high. */
function place(axis, low, high) {
  const f = axis.log ? Math.log10 : (v) => v;
  const [from, to] = [f(axis.from), f(axis.to)];
  return (value) => low + ((high - low) * (f(value) - from)) / (to - from);
}

const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");

/** The inside of the SVG of a frame {x, y, marks, height}. */
export function drawing(frame) {
  const height = frame.height ?? 300;
  const x = place(frame.x, LEFT, WIDTH - RIGHT), y = place(frame.y, height - BOTTOM, TOP);
  const n = (value) => value.toFixed(1), parts = [];
  for (const [value, label] of frame.y.ticks)
    parts.push(`<path class="eh-grid" d="M${LEFT} ${n(y(value))}H${WIDTH - RIGHT}"/><text x="${LEFT - 8}" y="${n(y(value) + 4)}" text-anchor="end">${escaped(label)}</text>`);
  for (const [value, label] of frame.x.ticks)
    parts.push(`<path class="eh-grid" d="M${n(x(value))} ${TOP}V${height - BOTTOM}"/><text x="${n(x(value))}" y="${height - BOTTOM + 18}" text-anchor="middle">${escaped(label)}</text>`);
  parts.push(`<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${height - 6}" text-anchor="middle">${escaped(frame.x.label)}</text>`);
  parts.push(`<text transform="translate(15 ${(height - BOTTOM + TOP) / 2}) rotate(-90)" text-anchor="middle">${escaped(frame.y.label)}</text>`);
  const inside = ([at, v]) => v >= frame.y.from && v <= frame.y.to && at <= frame.x.to;
  for (const { points, ...mark } of frame.marks) {
    const seen = points.filter(inside);
    if (!seen.length) continue;
    let d = "";
    if (mark.as === "bar") for (const [to, at] of seen) d += `M${LEFT} ${n(y(at))}H${n(x(to))}`;
    if (mark.as === "dot") for (const [at, v] of seen) d += `M${n(x(at))} ${n(y(v))}h0`;
    if (mark.as === "tick") for (const [at, v] of seen) d += `M${n(x(at) - 9)} ${n(y(v))}h18`;
    if (mark.as === "line") points.forEach(([at, v], k) => {
      if (inside(points[k])) d += `${k && inside(points[k - 1]) ? "L" : "M"}${n(x(at))} ${n(y(v))}`;
    });
    if (mark.as === "level") d = `M${LEFT} ${n(y(seen[0][1]))}H${WIDTH - RIGHT}`;
    parts.push(`<path class="eh-${mark.as} eh-${COLOURS[mark.kind]}" d="${d}"/>`);
    if (mark.label) {
      const [at, v] = seen[0];
      const px = mark.as === "level" ? WIDTH - RIGHT : x(at) - 8;
      parts.push(`<text class="eh-label" x="${n(px)}" y="${n(y(v) - 6)}" text-anchor="end">${escaped(mark.label)}</text>`);
    }
  }
  return parts.join("");
}

const ticks = (...values) => values.map((v) => [v, String(v).replace("-", "−")]);
const range = (n) => Array.from({ length: n }, (_, k) => k);
const short = (value) => {
  const text = Math.abs(value) < 1e-6 ? "0" : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
};

/** Bars for the distinct eigenvalues of each kind, as long as their multiplicity. */
function bars(clusters) {
  return [2, 1, 0].map((kind) => ({
    as: "bar", kind,
    points: clusters.filter((c) => c.kind === kind).map((c) => [c.count, c.value]),
  }));
}

const NAMES = ["dominant", "bulk", "zero"];

/** A spectrum in words: "16 dominant at 3; 72 bulk at 1; 832 zero at 0". */
export function words(clusters) {
  return [0, 1, 2].map((kind) => {
    const mine = clusters.filter((c) => c.kind === kind);
    const total = mine.reduce((sum, c) => sum + c.count, 0);
    if (!total) return null;
    const [top, low] = [mine[0], mine[mine.length - 1]].map((c) => short(c.value));
    const where = top === low ? `at ${top}` : `from ${low} to ${top}`;
    return `${total} ${NAMES[kind]} ${where}`;
  }).filter(Boolean).join("; ");
}

const counted = { from: 0.7, to: 3000, log: true, label: "number of eigenvalues", ticks: ticks(1, 10, 100, 1000) };
const network = (L) => ({
  widths: [10, ...new Array(L - 1).fill(20), 16],
  layers: new Array(L).fill([0.9, 0.8, 0.7, 0.6]), target: [1, 1, 1, 1],
});

const spectrumOf = (chain) => S.clusters(S.sorted(S.spectrum(chain)), 1e-6);

/** The spectra of a network after 0, 1, 2, … steps, kept until another network is asked for. */
const film = {};
function filmed(chain, eta, steps) {
  const key = JSON.stringify([chain, eta]);
  if (film.key !== key) Object.assign(film, { key, chain, states: [] });
  while (film.states.length <= steps) {
    film.states.push(spectrumOf(film.chain));
    film.chain = S.step(film.chain, eta);
  }
  const points = [[], [], []];
  for (let t = 0; t <= steps; t++) for (const { kind, value } of film.states[t]) points[kind].push([t, value]);
  return { found: film.states[steps], marks: [2, 1, 0].map((kind) => ({ as: "dot", kind, points: points[kind] })) };
}

const kept = new Map();
/** What `make` returns, computed once for each key. */
function once(key, make) {
  if (!kept.has(key)) kept.set(key, make());
  return kept.get(key);
}

const after = (chain, steps) => range(steps).reduce((now) => S.step(now, 0.1), chain);
const stepped = (s, L, eta) => s + eta * (1 - s ** L) * s ** (L - 1);
const numbered = (label, from, to, ...marks) => ({ from, to, label, ticks: ticks(...marks) });
const depthLine = (depth) => ({ as: "level", kind: 3, points: [[1, depth]], label: `the depth, ${depth}` });
const unit = (values) => { const size = Math.hypot(...values); return values.map((v) => v / size); };

export const FIGURES = {
  gap({ depth, step }) {
    let chain = network(depth);
    for (let t = 0; t < step; t++) chain = S.step(chain, 0.1);
    const found = S.clusters(S.sorted(S.spectrum(chain)), 1e-6);
    return {
      x: { ...counted, to: 10000, ticks: ticks(1, 10, 100, 1000, 10000) },
      y: { from: -1.5, to: 8.5, label: "eigenvalue of H", ticks: ticks(0, 1, 2, 4, 6, 8) },
      marks: [...bars(found), { as: "level", kind: 3, points: [[1, depth]], label: `the depth, ${depth}` }],
      text: `Depth ${depth}, after ${step} steps: ${words(found)}.`,
    };
  },

  "two-cycle"({ depth, ratio }) {
    const eta = ratio * S.edge(depth, 1), points = [];
    let s = 0.9;
    for (let t = 0; t <= 60; t++) {
      points.push([t, s]);
      s += eta * (1 - s ** depth) * s ** (depth - 1);
    }
    const levels = ratio > 1.0005 ? S.twoCycle(depth, 1, eta) : [1];
    return {
      x: { from: 0, to: 60, label: "step t", ticks: ticks(0, 20, 40, 60) },
      y: { from: 0.6, to: 1.3, label: "singular value of a layer", ticks: ticks(0.6, 0.8, 1, 1.2) },
      marks: [
        ...levels.map((v) => ({ as: "level", kind: 3, points: [[0, v]] })),
        { as: "line", kind: 0, points }, { as: "dot", kind: 0, points },
      ],
      text: levels.length === 2
        ? `Depth ${depth}, at ${short(ratio)} times the edge: the layers visit ${short(levels[0])} and ${short(levels[1])} in turn.`
        : `Depth ${depth}, at ${short(ratio)} times the edge: the layers settle at 1.`,
    };
  },

  rotating({ ratio, second }) {
    const [[[a, b], [c, d]], [[e, f], [g, h]]] = S.rotatingCycle(1, second, ratio * S.rotatingEdge(1, second));
    const W = [[e * a + f * c, e * b + f * d], [g * a + h * c, g * b + h * d]]; // W_2 W_1
    const state = (sign) => [[sign * W[0][1], W[1][1]], [0, 0], [W[0][0], sign * W[1][0]]];
    return {
      x: { from: -0.8, to: 1.6, label: "first output", ticks: ticks(-0.5, 0, 0.5, 1, 1.5) },
      y: { from: -0.6, to: 1.2, label: "second output", ticks: ticks(-0.5, 0, 0.5, 1) },
      marks: [
        { as: "line", kind: 3, points: [[0, second], [0, 0], [1, 0]] },
        { as: "line", kind: 1, points: state(-1) }, { as: "dot", kind: 1, points: state(-1) },
        { as: "line", kind: 0, points: state(1) }, { as: "dot", kind: 0, points: state(1) },
      ],
      text: `At ${short(ratio)} times the edge of the pair, W sends the two inputs to (${short(W[0][0])}, ${short(W[1][0])}) and (${short(W[0][1])}, ${short(W[1][1])}), and one step later to their mirror images; the target is (1, 0) and (0, ${short(second)}).`,
    };
  },

  "one-bulk"({ width, target }) {
    const w = range(width).map((k) => Math.cos(k) / Math.sqrt(width)), v = range(width).map((k) => Math.sin(k + 1) / Math.sqrt(width));
    const [top, second, d] = S.twoLayer(w, v, 1, target);
    const copies = width - 1;
    return {
      x: { from: 0.7, to: 200, log: true, label: "number of eigenvalues", ticks: ticks(1, 10, 100) },
      y: { from: -3.5, to: 4.5, label: "eigenvalue of H", ticks: ticks(-3, -2, -1, 0, 1, 2, 3, 4) },
      marks: [
        { as: "bar", kind: 1, points: copies ? [[copies, d], [copies, -d]] : [] },
        { as: "bar", kind: 0, points: [[1, top], [1, second]] },
      ],
      text: `Width ${width}, target ${short(target)}: two outliers at ${short(top)} and ${short(second)}, ${copies ? `and a bulk of ${copies} at ${short(d)} and ${copies} at ${short(-d)}` : "and no bulk"}.`,
    };
  },

  collapse({ depth, strength }) {
    const classes = 3, samples = 5, width = 8;
    const limit = ((depth - 1) / depth) ** ((depth - 1) / (depth + 1)) / depth;
    const lambda = (strength * limit) / (classes * samples ** (1 / (depth + 1)));
    const { chain, C } = S.collapsed(classes, samples, depth, width, lambda);
    const found = S.clusters(S.sorted(S.spectrum(chain)), 1e-6);
    return {
      x: counted,
      y: { from: -0.05, to: 1.45, label: "eigenvalue of H", ticks: ticks(0, 0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4) },
      marks: bars(found),
      text: `Depth ${depth}, λ = ${short(lambda)}: the outputs reach C = ${short(C)} of their targets; ${words(found)}.`,
    };
  },

  sink({ strength }) {
    const { outliers, gamma, rows } = S.attention(1.5, [1, 0.5, 0, 0.2], [0.5, 1, 0.3, 0], [1, -0.5, 2, 0.5], [1, 1, -1, 0.5], strength);
    const share = rows.reduce((sum, row) => sum + row[0], 0) / rows.length;
    return {
      x: { from: 0.7, to: 10, log: true, label: "number of eigenvalues", ticks: ticks(1, 3, 10) },
      y: { from: -2, to: 3, label: "eigenvalue of H", ticks: ticks(-2, -1, 0, 1, 2, 3) },
      marks: [
        { as: "bar", kind: 1, points: [[3, gamma], [3, -gamma]] },
        { as: "bar", kind: 0, points: outliers.map((v) => [1, v]) },
      ],
      text: `With ${short(100 * share)} % of the attention on the first token: outliers at ${outliers.map(short).join(", ")}; a bulk of 3 at ${short(gamma)} and 3 at ${short(-gamma)}.`,
    };
  },

  hero({ step, eta }) {
    const net = { widths: [6, 7, 7, 5], layers: new Array(3).fill([0.55, 0.5, 0.45]), target: [1, 0.95, 0.9] };
    const { found, marks } = filmed(net, eta, step);
    return {
      x: numbered("step of training", 0, 120, 0, 30, 60, 90, 120),
      y: numbered("eigenvalue of H", -1.2, 5, -1, 0, 1, 2, 3, 4, 5),
      marks: [...marks, { as: "level", kind: 3, points: [[0, 2 / eta]], label: "2/η" }],
      text: `After ${step} steps with η = ${short(eta)}: ${words(found)}; the edge 2/η is at ${short(2 / eta)}.`,
    };
  },

  chain({ depth, step }) {
    const net = { widths: [6, ...new Array(depth - 1).fill(8), 5], layers: new Array(depth).fill([0.5, 0.4]), target: [1, 1] };
    const found = spectrumOf(after(net, step));
    return {
      x: { ...counted, to: 500, ticks: ticks(1, 10, 100) },
      y: numbered("eigenvalue of H", -1.2, 5.3, -1, 0, 1, 2, 3, 4, 5),
      marks: [...bars(found), depthLine(depth)],
      text: `Depth ${depth}, after ${step} steps: ${words(found)}.`,
    };
  },

  film({ depth, step }) {
    const net = { ...network(depth), layers: new Array(depth).fill([0.85, 0.75, 0.65, 0.55]) };
    const { found, marks } = filmed(net, 0.1, step);
    return {
      x: numbered("step of training", 0, 60, 0, 10, 20, 30, 40, 50, 60),
      y: numbered("eigenvalue of H", -1.5, 5.5, -1, 0, 1, 2, 3, 4, 5),
      marks,
      text: `Depth ${depth}, after ${step} steps: ${words(found)}.`,
    };
  },

  stretch({ depth, factor }) {
    const scales = [1 / factor, ...new Array(depth - 2).fill(1), factor];
    const found = spectrumOf({ widths: [4, ...new Array(depth - 1).fill(4), 6], layers: scales.map((s) => [s, s]), target: [1, 1] });
    return {
      x: { ...counted, to: 200, ticks: ticks(1, 10, 100) },
      y: numbered("eigenvalue of H", -0.5, 13, 0, 2, 4, 6, 8, 10, 12),
      marks: [...bars(found), depthLine(depth)],
      text: `Depth ${depth}, the first layer divided by ${short(factor)}, the last multiplied: ${words(found)}.`,
    };
  },

  cobweb({ ratio }) {
    const eta = ratio * S.edge(3, 1), values = [0.9];
    for (let t = 0; t < 40; t++) values.push(stepped(values[t], 3, eta));
    const web = range(40).flatMap((t) => [[values[t], values[t]], [values[t], values[t + 1]]]);
    const last = values.slice(-8).map((v) => Number(v.toFixed(3))).sort((p, q) => p - q);
    const ends = last.filter((v, k) => v !== (k ? last[k - 1] : 0));
    return {
      x: numbered("singular value of a layer now", 0.55, 1.25, 0.6, 0.8, 1, 1.2),
      y: numbered("one step later", 0.55, 1.25, 0.6, 0.8, 1, 1.2),
      marks: [
        { as: "line", kind: 3, points: [[0.55, 0.55], [1.25, 1.25]] },
        { as: "line", kind: 1, points: range(71).map((k) => [0.55 + 0.01 * k, stepped(0.55 + 0.01 * k, 3, eta)]) },
        { as: "line", kind: 0, points: web },
        { as: "dot", kind: 0, points: web.slice(-16).filter((_, k) => k % 2 === 0) },
      ],
      text: `At ${short(ratio)} times the edge the last eight of 40 steps visit ${ends.map(short).join(", ")}.`,
    };
  },

  breathing({ ratio }) {
    const target = [10, 6, 3], eta = ratio * S.edge(3, 10), sides = [[], []], counts = [];
    let chain = { widths: [5, 5, 5, 5], layers: new Array(3).fill(target.map((s) => 0.9 * s ** (1 / 3))), target };
    for (let t = 0; t < 17; t++) {
      const found = spectrumOf(chain);
      found.forEach(({ value }) => sides[value > 2 / eta ? 0 : 1].push([t, value]));
      counts.push(found.reduce((sum, { value, count }) => sum + (value > 2 / eta ? count : 0), 0));
      chain = S.step(chain, eta);
    }
    const seen = counts.slice(-8);
    return {
      x: numbered("step t", -0.7, 16.7, 0, 4, 8, 12, 16),
      y: numbered("eigenvalue of H", -30, 160, 0, 40, 80, 120, 160),
      marks: [
        { as: "tick", kind: 1, points: sides[1] }, { as: "tick", kind: 0, points: sides[0] },
        { as: "level", kind: 3, points: [[0, 2 / eta]], label: "2/η" },
      ],
      text: `At ${short(ratio)} times the edge, between ${Math.min(...seen)} and ${Math.max(...seen)} of 75 eigenvalues lie above 2/η = ${short(2 / eta)} in the last eight states.`,
    };
  },

  phases({ a, b }) {
    const at = (place) => S.twoLayer([b, 0, 0, 0], [place, 0, 0, 0], 1, 1);
    const places = range(69).map((k) => Number((-1.7 + 0.05 * k).toFixed(2))), curves = places.map(at);
    const along = (kind, value) => ({ as: "line", kind, points: places.map((p, k) => [p, value(curves[k])]) });
    const [top, second, d] = at(a), name = a * b <= 1 / 3 ? "early" : a * b <= 1 ? "late" : "divergent";
    return {
      x: numbered("weight a of the first layer", -1.7, 1.7, -1.5, -1, -0.5, 0, 0.5, 1, 1.5),
      y: numbered("eigenvalue of H", -4.5, 10, -4, -2, 0, 2, 4, 6, 8, 10),
      marks: [
        along(1, (c) => c[2]), along(1, (c) => -c[2]), along(0, (c) => c[0]), along(0, (c) => c[1]),
        { as: "dot", kind: 1, points: [[a, d], [a, -d]] }, { as: "dot", kind: 0, points: [[a, top], [a, second]] },
        { as: "level", kind: 3, points: [[-1.7, 0]] },
      ],
      text: `a = ${short(a)}, b = ${short(b)}: ${name} phase. Outliers at ${short(top)} and ${short(second)}, a bulk of 3 at ${short(d)} and 3 at ${short(-d)}.`,
    };
  },

  cells({ neurons, share }) {
    const xs = range(40).map((k) => (k < share ? 1 : -1) * (2 - (1.9 * k) / 39)), bulk = [], outliers = [];
    const said = ["plus", "minus"].map((name, side) => {
      const own = range(10).filter((k) => (k < neurons) === (side === 0)), sign = side ? -1 : 1;
      if (!own.length) return `the ${name} cell has no neuron`;
      const mine = xs.filter((x) => x * sign > 0), mean = (f) => mine.reduce((sum, x) => sum + f(x), 0) / 40;
      const v = own.map((k) => sign * (0.8 + 0.5 * Math.sin(3 * k))), w = own.map((k) => Math.cos(2 * k));
      const [top, second, d] = S.twoLayer(w, v, mean((x) => x * x), mean((x) => x * Math.abs(x)));
      const place = side + 1, copies = own.length - 1;
      outliers.push([place, top], [place, second]);
      if (copies) bulk.push([place, d], [place, -d]);
      return `the ${name} cell has outliers at ${short(top)} and ${short(second)}${copies ? ` and a bulk of ${copies} at plus and minus ${short(Math.abs(d))}` : ""}`;
    });
    return {
      x: { from: 0.4, to: 2.6, label: "cell", ticks: [[1, "plus cell"], [2, "minus cell"]] },
      y: numbered("eigenvalue of H", -2, 20, 0, 4, 8, 12, 16, 20),
      marks: [{ as: "tick", kind: 1, points: bulk }, { as: "tick", kind: 0, points: outliers }],
      text: `${neurons} of 10 neurons and ${share} of 40 samples in the plus cell: ${said.join("; ")}.`,
    };
  },

  knobs({ norm, value, strength }) {
    const [query, key] = [(k) => Math.cos(k), (k) => Math.sin(2 * k + 1)].map((f) => unit(range(10).map(f)).map((v) => norm * v));
    const { outliers, gamma } = S.attention(value, query, key, [2, -1.6, 1.4, 1.1, -1.3, 0.7], [-1, 1, -1, -1.2, 1.8, -1.3], strength);
    return {
      x: { ...counted, to: 20, ticks: ticks(1, 3, 10) },
      y: numbered("eigenvalue of H", -6, 6, -6, -4, -2, 0, 2, 4, 6),
      marks: [
        { as: "bar", kind: 1, points: [[9, gamma], [9, -gamma]] },
        { as: "bar", kind: 0, points: outliers.map((v) => [1, v]) },
      ],
      text: `Norm ${short(norm)}, value ${short(value)}, sink ${short(strength)}: outliers at ${outliers.map(short).join(", ")}; a bulk of 9 at ${short(gamma)} and 9 at ${short(-gamma)}.`,
    };
  },

  fold({ depth, share }) {
    const strength = (fit) => (1 - fit) * fit ** ((depth - 1) / (depth + 1));
    const largest = strength((depth - 1) / (2 * depth));
    const at = (place) => {
      const lambda = (place * largest) / (2 * 2 ** (1 / (depth + 1)));
      const { chain, C } = S.collapsed(2, 2, depth, 3, lambda);
      const scaled = S.clusters(S.sorted(S.spectrum(chain))).map((c) => ({ kind: c.kind, value: c.value / lambda }));
      return { C, found: scaled.filter((c) => c.value > 1e-7).reverse() };
    };
    const places = range(49).map((k) => Number((0.02 * (k + 1)).toFixed(2)));
    const curves = once(`fold ${depth}`, () => places.map((place) => at(place).found));
    const { C, found } = at(share), marks = [];
    const own = (entries, kind) => entries.filter((c) => c.kind === kind).map((c) => c.value);
    for (const kind of [2, 1, 0]) {
      const rows = curves.map((curve) => own(curve, kind));
      for (let n = 0; n < rows[0].length; n++) marks.push({ as: "line", kind, points: places.map((p, k) => [p, rows[k][n]]) });
      marks.push({ as: "dot", kind, points: own(found, kind).map((v) => [share, v]) });
    }
    for (const [fit, label] of [[0.5, "C = 1/2"], ...(depth > 1 ? [[(depth - 1) / depth, ""]] : [])]) {
      const place = strength(fit) / largest;
      marks.push({ as: "line", kind: 3, points: [[place, 500], [place, 0.3]], label });
    }
    return {
      x: numbered("λ / largest λ", 0, 1, 0, 0.2, 0.4, 0.6, 0.8, 1),
      y: { ...numbered("eigenvalue / λ", 0.3, 1000, 1, 10, 100, 1000), log: true },
      marks,
      text: `Depth ${depth}, λ at ${short(share)} of its largest value: C = ${short(C)}; the symmetric outliers are at ${short(Math.min(...own(found, 0)))} λ, ${C > 0.5 ? "above" : "not above"} the balance eigenvalues at 2 λ.`,
    };
  },

  confidence({ classes, alpha }) {
    const found = once(`confidence ${classes} ${alpha}`, () => {
      const K = classes, levels = S.softmaxLayer(K, alpha), learnt = K === 2 ? 1 : K;
      const entries = levels.map((value, n) => ({ value, count: 1, kind: n < learnt ? 0 : n < (K - 1) ** 2 ? 1 : 2 }));
      return S.clusters(entries, 1e-6);
    });
    return {
      x: { ...counted, to: 100, ticks: ticks(1, 10, 100) },
      y: numbered("eigenvalue / β", -0.1, 1.4, 0, 0.2, 0.4, 0.6, 0.8, 1, 1.2),
      marks: bars(found),
      text: `${classes} classes, logit scale ${short(alpha)}: ${words(found)}, in units of β.`,
    };
  },
};

/** What a figure does with the places of its knobs: computes its frame and draws it. */
function computes(root, inputs) {
  const svg = root.querySelector("svg"), make = FIGURES[root.dataset.figure];
  return () => {
    const frame = make(Object.fromEntries(inputs.map((input) => [input.name, Number(input.value)])));
    svg.innerHTML = svg.querySelector("title").outerHTML + drawing(frame);
    return frame.text;
  };
}

/** Or, where a page can't compute it: shows one of the pictures that the book drew, which the
 * browser fetches when it is shown for the first time. */
function turns(root, inputs) {
  const frames = [...root.querySelectorAll(".eh-frame")];
  return () => {
    const place = inputs.reduce((sum, input) => sum * (Number(input.max) + 1) + Number(input.value), 0);
    frames.forEach((frame, n) => { frame.hidden = n !== place; });
    return frames[place].querySelector("img").alt;
  };
}

/** The knobs of a figure as the end of its address, "strength_3d4" for strength = 4; and back. */
const encodedKnobs = (inputs) => inputs.map((input) => `${input.name}=${input.value}`).join("&")
  .replace(/[^A-Za-z0-9]/g, (c) => "_" + c.charCodeAt(0).toString(16).padStart(2, "0"));
const decodedKnobs = (text) => new URLSearchParams(text.replace(/_([0-9a-f]{2})/g, (_, code) => String.fromCharCode(parseInt(code, 16))));

/** Brings one figure, written by the directive or by a cell, to life. */
export function enliven(root) {
  const text = root.querySelector(".eh-live-text");
  const inputs = [...root.querySelectorAll("input[type=range]")];
  const set = (state) => { for (const input of inputs) if (state[input.name] !== undefined) input.value = state[input.name]; };
  set(JSON.parse(root.dataset.state ?? "{}"));
  const link = root.querySelector(".headerlink"), place = `#${root.id}-`;
  const draw = (root.dataset.figure ? computes : turns)(root, inputs);
  const show = () => {
    for (const input of inputs) {
      const { values, text: words = "{}" } = input.dataset;
      const said = values ? JSON.parse(values)[input.value] : words.replace("{}", short(Number(input.value)));
      input.setAttribute("aria-valuetext", said);
      root.querySelector(`output[for="${input.id}"]`).textContent = said;
    }
    try {
      text.textContent = draw();
    } catch (error) {
      text.textContent = error.message;
    }
  };
  inputs.forEach((input) => input.addEventListener("input", () => {
    show();
    if (root.dataset.figure) link.href = place + encodedKnobs(inputs);
  }));
  const fromAddress = () => {
    if (!location.hash.startsWith(place) || !location.hash.includes("_3d")) return;
    set(Object.fromEntries(decodedKnobs(location.hash.slice(place.length))));
    show();
    root.scrollIntoView();
  };
  addEventListener("hashchange", fromAddress);
  const play = root.querySelector("button.eh-play");
  if (play) {
    const clock = inputs.find((input) => input.name === "step");
    let running = false;
    const tick = () => {
      if (!running) return;
      clock.value = Number(clock.value) >= Number(clock.max) ? clock.min : Number(clock.value) + 1;
      show();
      if (clock.value === clock.max) return stop();
      setTimeout(() => requestAnimationFrame(tick), 40);
    };
    const stop = () => { running = false; play.textContent = "Play"; };
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    play.hidden = false;
    play.addEventListener("click", () => {
      if (running) return stop();
      if (still.matches) { // no film: from the start to the end at once, and back
        clock.value = clock.value === clock.max ? clock.min : clock.max;
        return show();
      }
      running = true;
      play.textContent = "Pause";
      if (clock.value === clock.max) clock.value = clock.min;
      tick();
    });
  }
  root.querySelectorAll("[data-script]").forEach((part) => { part.hidden = false; });
  show();
  fromAddress();
}
