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
    const seen = mark.as === "line" ? points : points.filter(inside);
    if (!seen.length) continue;
    let d = "";
    if (mark.as === "bar") for (const [to, at] of seen) d += `M${LEFT} ${n(y(at))}H${n(x(to))}`;
    if (mark.as === "dot") for (const [at, v] of seen) d += `M${n(x(at))} ${n(y(v))}h0`;
    if (mark.as === "line") d = seen.map(([at, v], k) => `${k ? "L" : "M"}${n(x(at))} ${n(y(v))}`).join("");
    if (mark.as === "level") d = `M${LEFT} ${n(y(seen[0][1]))}H${WIDTH - RIGHT}`;
    parts.push(`<path class="eh-${mark.as} eh-${COLOURS[mark.kind]}" d="${d}"/>`);
    if (mark.label) {
      const [at, v] = seen[0];
      const [px, anchor] = mark.as === "level" ? [WIDTH - RIGHT, "end"] : [x(at) + 8, "start"];
      parts.push(`<text class="eh-label" x="${n(px)}" y="${n(y(v) - 6)}" text-anchor="${anchor}">${escaped(mark.label)}</text>`);
    }
  }
  return parts.join("");
}

const ticks = (...values) => values.map((v) => [v, String(v).replace("-", "−")]);
const range = (n) => Array.from({ length: n }, (_, k) => k);
const short = (value) => {
  const text = Math.abs(value) < 5e-7 ? "0" : String(Number(value.toPrecision(4)));
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
    const [top, low] = [mine[0].value, mine[mine.length - 1].value];
    const where = mine.length === 1 ? `at ${short(top)}` : `from ${short(low)} to ${short(top)}`;
    return `${total} ${NAMES[kind]} ${where}`;
  }).filter(Boolean).join("; ");
}

const counted = { from: 0.7, to: 3000, log: true, label: "number of eigenvalues", ticks: ticks(1, 10, 100, 1000) };
const network = (L) => ({
  widths: [10, ...new Array(L - 1).fill(20), 16],
  layers: new Array(L).fill([0.9, 0.8, 0.7, 0.6]), target: [1, 1, 1, 1],
});

// The spectra of the network on the front page after 0, 1, 2, … steps, kept while η stays.
const film = { eta: null, chain: null, states: [] };
function trained(eta, steps) {
  if (film.eta !== eta) {
    const chain = { widths: [6, 7, 7, 5], layers: new Array(3).fill([0.55, 0.5, 0.45]), target: [1, 0.95, 0.9] };
    Object.assign(film, { eta, chain, states: [] });
  }
  while (film.states.length <= steps) {
    film.states.push(S.clusters(S.sorted(S.spectrum(film.chain)), 1e-6));
    film.chain = S.step(film.chain, eta);
  }
  return film.states;
}

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
        ? `At ${short(ratio)} times the edge the layers visit ${short(levels[0])} and ${short(levels[1])} in turn.`
        : `At ${short(ratio)} times the edge the layers settle at 1.`,
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
      text: `Width ${width}, target ${short(target)}: two outliers at ${short(top)} and ${short(second)}, and a bulk of ${copies} at ${short(d)} and ${copies} at ${short(-d)}.`,
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
    const states = trained(eta, step), found = states[step];
    const points = [[], [], []];
    for (let t = 0; t <= step; t++) for (const { kind, value } of states[t]) points[kind].push([t, value]);
    return {
      x: { from: 0, to: 120, label: "step of training", ticks: ticks(0, 30, 60, 90, 120) },
      y: { from: -1.2, to: 5, label: "eigenvalue of H", ticks: ticks(-1, 0, 1, 2, 3, 4, 5) },
      marks: [
        ...[2, 1, 0].map((kind) => ({ as: "dot", kind, points: points[kind] })),
        { as: "level", kind: 3, points: [[0, 2 / eta]], label: "2/η" },
      ],
      text: `After ${step} steps with η = ${short(eta)}: ${words(found)}; the edge 2/η is at ${short(2 / eta)}.`,
    };
  },
};

/** Brings one figure, written by the directive, to life. */
export function enliven(root) {
  const svg = root.querySelector("svg"), text = root.querySelector(".eh-live-text");
  const make = FIGURES[root.dataset.figure];
  const inputs = [...root.querySelectorAll("input[type=range]")];
  const show = () => {
    const state = {};
    for (const input of inputs) {
      state[input.name] = Number(input.value);
      const said = (input.dataset.text ?? "{}").replace("{}", short(state[input.name]));
      input.setAttribute("aria-valuetext", said);
      root.querySelector(`output[for="${input.id}"]`).textContent = said;
    }
    try {
      const frame = make(state);
      svg.innerHTML = svg.querySelector("title").outerHTML + drawing(frame);
      text.textContent = frame.text;
    } catch (error) {
      text.textContent = error.message;
    }
  };
  inputs.forEach((input) => input.addEventListener("input", show));
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
    play.hidden = false;
    play.addEventListener("click", () => {
      if (running) return stop();
      running = true;
      play.textContent = "Pause";
      if (clock.value === clock.max) clock.value = clock.min;
      tick();
    });
  }
  root.querySelectorAll("[data-script]").forEach((part) => { part.hidden = false; });
  show();
}
