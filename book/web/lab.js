// The laboratory: one aligned chain in the reader's hands. Its state is a few short texts, the same
// in the fields, in the address and in "Copy as Python", and a number of steps taken from there.
import * as S from "./spectrum.js";
import { drawing } from "./live.js";

const FRAME_LIMIT = 12000; // parameters whose spectrum is computed between two frames
const MOST = 2000000;
const MODES = 6; // sliders per layer
const LEAP = 20; // steps of "Play" for readers who want no motion
const FIELDS = ["widths", "layers", "data", "target", "ridge", "eta"];
const START = { widths: "10,20,20,16", layers: "0.9,0.8,0.7,0.6", data: "1*10", target: "1*4", ridge: "0", eta: "0.1", steps: 0 };

/** "0.5, 1*3, 0~1*5" as numbers: a value, a value three times, five values from 0 to 1. */
export function numbers(text, name) {
  const fail = (part) => { throw new Error(`${name}: “${part}” is not a number, n*count or a~b*count, with a count up to 5000.`); };
  const number = (part) => (part.trim() === "" || !Number.isFinite(Number(part)) ? fail(part) : Number(part));
  if (text.trim() === "") return [];
  return text.split(",").flatMap((part) => {
    const [what, times] = part.split("*"), [from, to] = what.split("~");
    const count = times === undefined ? 1 : number(times);
    if (!(Number.isInteger(count) && count >= 0 && count <= 5000) || (to !== undefined && times === undefined)) fail(part);
    return Array.from({ length: count }, (_, k) =>
      to === undefined || count === 1 ? number(from) : number(from) + ((number(to) - number(from)) * k) / (count - 1));
  });
}

/** The one number that a field holds. */
function single(text, name) {
  const found = numbers(text, name);
  if (found.length !== 1) throw new Error(`${name} must be one number, not “${text}”.`);
  return found[0];
}

/** A state with other widths: lists that are too long for them end sooner, equal data stay equal. */
function fitted(state) {
  try {
    const widths = numbers(state.widths, "Widths"), data = numbers(state.data, "Data spectrum"), lists = state.layers.split(";");
    const cut = (text, size) => { const values = numbers(text, "List"); return values.length > size ? listed(values.slice(0, size)) : text; };
    const equal = data.length && data.every((x) => x === data[0]);
    return {
      ...state, data: equal ? listed(new Array(widths[0]).fill(data[0])) : cut(state.data, widths[0]),
      target: cut(state.target, Math.min(widths[0], widths[widths.length - 1])),
      layers: lists.map((text, l) => cut(text, lists.length > 1 ? Math.min(widths[l], widths[l + 1]) : Math.min(...widths))).join(";"),
    };
  } catch {
    return state; // which is refused, with a sentence
  }
}

/** The chain and the step that a state describes; refused with a sentence. */
export function parsed(state) {
  const widths = numbers(state.widths, "Widths"), L = widths.length - 1;
  if (L > 12) throw new Error(`At most 12 layers, please, not ${L}.`);
  let layers = state.layers.split(";").map((text, l) => numbers(text, `Layer ${l + 1}`));
  if (layers.length === 1) layers = new Array(Math.max(L, 0)).fill(layers[0]);
  const eta = single(state.eta, "The step η"), ridge = single(state.ridge, "The ridge λ");
  if (!(eta > 0)) throw new Error(`The step η must be positive, not ${state.eta}.`);
  if (!(ridge >= 0)) throw new Error(`The ridge λ cannot be negative, got ${state.ridge}.`);
  const target = numbers(state.target, "Target"), data = numbers(state.data, "Data spectrum");
  const chain = S.checked({ widths, layers, data, target, ridge });
  const blind = chain.target.findIndex((y, i) => y && !chain.data[i]);
  if (blind >= 0) throw new Error(`Mode ${blind + 1} has a target but no data: without inputs, nothing can be learnt.`);
  chain.halfY2 = target.reduce((sum, y, i) => sum + (y ? (y * y) / (2 * (data[i] || 1)) : 0), 0);
  if (S.size(chain) > MOST) throw new Error(`${S.size(chain)} parameters are too many for a page; at most ${MOST}.`);
  return { chain, eta };
}

/** A state as an address that any script may take for the name of an element: "_3d" is "=". */
export const encoded = (state) => "lab-" + [...FIELDS, "steps"].map((name) => `${name}=${state[name]}`).join("&")
  .replace(/[^A-Za-z0-9]/g, (c) => "_" + c.charCodeAt(0).toString(16).padStart(2, "0").slice(-2));

/** The state that an address holds, with defaults for what it leaves out; null if it holds none. */
export function decoded(address) {
  if (!address.startsWith("lab-")) return null;
  const text = address.slice(4).replace(/_([0-9a-f]{2})/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
  const state = { ...START };
  for (const [name, value] of text.split("&").map((pair) => pair.split("="))) {
    if (!Object.hasOwn(START, name) || value === undefined) throw new Error(`The address holds “${name}”, which means nothing here.`);
    state[name] = name === "steps" ? Number(value) : value;
  }
  if (!(Number.isInteger(state.steps) && state.steps >= 0 && state.steps <= 2000))
    throw new Error("The steps in the address must be a whole number up to 2000.");
  return state;
}

const listed = (values) => {
  const runs = [];
  for (const v of values) {
    if (runs.length && runs[runs.length - 1][0] === v) runs[runs.length - 1][1]++;
    else runs.push([v, 1]);
  }
  return runs.map(([v, n]) => (n > 1 ? `${v}*${n}` : `${v}`)).join(",");
};

/** Lines that reproduce a state with the package. */
export function python(state) {
  const { chain, eta } = parsed(state);
  const array = (values, text) => {
    const range = /^([^~*,]+)~([^*,]+)\*(\d+)$/.exec(text.replace(/\s/g, ""));
    if (range && Number(range[3]) === values.length) return `np.linspace(${range[1]}, ${range[2]}, ${range[3]})`;
    return new Set(values).size === 1 && values.length > 1
      ? `np.full(${values.length}, ${values[0]})` : `np.array([${values.join(", ")}])`;
  };
  const texts = state.layers.split(";");
  const same = texts.length === 1 && new Set(chain.layers.map((s) => s.length)).size === 1;
  const layers = same ? `(${array(chain.layers[0], state.layers)},) * ${chain.layers.length}`
    : `(${chain.layers.map((s, l) => array(s, texts[l] ?? texts[0])).join(", ")},)`;
  return [
    "import numpy as np", "from exacthessian import AlignedChain", "",
    "chain = AlignedChain(", `    widths=(${chain.widths.join(", ")}),`, `    singular_values=${layers},`,
    `    data=${array(chain.data, state.data)},`, `    target=${array(chain.target, state.target)},`,
    `    half_y2=${chain.halfY2},`, `    ridge=${chain.ridge[0]},`, ")",
    ...(state.steps ? [`for _ in range(${state.steps}):`, `    chain = chain.step(${eta})`] : []),
    "print(chain.spectrum().clusters(1e-9))", `print(chain.loss())${state.steps ? "" : `  # step: ${eta}`}`,
  ].join("\n");
}

/** A round number of the form 1, 2 or 5 times a power of ten that is not below `value`. */
export function above(value) {
  if (!(value > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value * 0.999999);
}

const nice = (v) => String(Number(v.toPrecision(3))).replace("-", "−");
const ticksBetween = (from, to) => {
  const gap = above((to - from) / 6), found = [];
  for (let k = Math.ceil(from / gap); k * gap <= to * 1.0001; k++) found.push([k * gap, nice(k * gap)]);
  return found;
};
const powers = (from, to) => {
  const low = Math.ceil(Math.log10(from) - 1e-9), high = Math.floor(Math.log10(to) + 1e-9), every = Math.ceil((high - low) / 6) || 1, found = [];
  for (let k = low; k <= high; k += every) found.push([10 ** k, k > -4 && k < 7 ? String(Number((10 ** k).toPrecision(1))) : `1e${k}`.replace("-", "−")]);
  return found;
};

/** Bars: exact clusters when there are few, else counts in 300 intervals of the axis. */
export function levels(spectrum, low, high) {
  if (spectrum.values.length <= 4000) {
    const found = S.clusters(S.sorted(spectrum));
    if (found.length <= 600) return found;
  }
  const bins = [0, 1, 2].map(() => new Float64Array(300));
  spectrum.values.forEach((value, n) => {
    const k = Math.min(299, Math.max(0, Math.floor(((value - low) / (high - low)) * 300)));
    bins[spectrum.kinds[n]][k] += spectrum.counts[n];
  });
  return bins.flatMap((bin, kind) => Array.from(bin, (count, k) => ({ count, kind, value: low + ((k + 0.5) / 300) * (high - low) }))
    .filter((entry) => entry.count)).sort((p, q) => q.value - p.value);
}

/** Count, least and largest of each kind. */
function kindsOf(spectrum) {
  const found = [0, 1, 2].map((kind) => ({ kind, count: 0, low: Infinity, high: -Infinity }));
  spectrum.values.forEach((value, n) => {
    const mine = found[spectrum.kinds[n]];
    mine.count += spectrum.counts[n];
    mine.low = Math.min(mine.low, value);
    mine.high = Math.max(mine.high, value);
  });
  return found;
}

/** A chord for a spectrum: pitch is the eigenvalue, loudness the multiplicity. */
export function chord(clusters) {
  const positive = clusters.filter((c) => c.value > 1e-9).slice(0, 12);
  const total = positive.reduce((sum, c) => sum + c.count, 0);
  return positive.map((c) => ({
    pitch: Math.min(4000, Math.max(60, 220 * c.value)), loudness: 0.25 * Math.sqrt(c.count / total),
  }));
}

export function laboratory(root, makeWorker) {
  const part = (name) => root.querySelector(`[data-part=${name}]`);
  const field = (name) => root.querySelector(`[name=${name}]`);
  let state = { ...START }, chain, eta, spectrum, history, axis, running = false, worker = null, sound = null, waiting = false, moved = false;

  const say = (text) => { part("error").textContent = text; };

  /** Takes a state if it is good, and keeps the last good one if not. */
  function take(next, keepAxis = false) {
    try {
      const read = parsed(next);
      let at = read.chain;
      const past = [[0, S.loss(at), S.product(at)]];
      for (let t = 1; t <= next.steps; t++) {
        at = S.step(at, read.eta);
        past.push([t, S.loss(at), S.product(at)]);
      }
      state = next;
      ({ eta } = read);
      chain = at;
      history = past;
      if (!keepAxis) axis = null;
      say("");
    } catch (error) {
      stop();
      say(`${error.message} The last good state stays.`);
      return;
    }
    solve();
  }

  /** Computes the spectrum, here or in a worker, and shows it. */
  function solve() {
    if (S.size(chain) <= FRAME_LIMIT) {
      spectrum = S.spectrum(chain);
      show();
      return;
    }
    if (waiting) return;
    waiting = true;
    const asked = chain, started = performance.now();
    part("words").textContent = `Computing ${S.size(chain)} eigenvalues…`;
    worker ??= makeWorker();
    worker.onmessage = ({ data }) => {
      waiting = false;
      if (asked !== chain) { solve(); return; }
      spectrum = data;
      show(performance.now() - started);
    };
    worker.postMessage(chain);
  }

  function show(milliseconds) {
    const kinds = kindsOf(spectrum), values = kinds.filter((k) => k.count);
    const top = Math.max(...values.map((k) => k.high), 0), low = Math.min(...values.map((k) => k.low), 0);
    axis ??= { high: 0, low: 0, loss: [Infinity, 0], value: 0 };
    axis.high = Math.max(axis.high, above(Math.max(top, 1e-12) * 1.05));
    axis.low = Math.min(axis.low, low < -1e-9 * top ? -above(-low) : 0);
    const bars = levels(spectrum, axis.low, axis.high), P = S.size(chain), most = above(P);
    const pad = 0.04 * (axis.high - axis.low);
    const edge = 2 / eta;
    svg("spectrum", {
      height: 340,
      x: { from: 0.7, to: most * 1.3, log: true, label: "number of eigenvalues", ticks: powers(1, most) },
      y: { from: axis.low - pad, to: axis.high + pad, label: "eigenvalue of H", ticks: ticksBetween(axis.low, axis.high) },
      marks: [
        ...[2, 1, 0].map((kind) => ({ as: "bar", kind, points: bars.filter((b) => b.kind === kind).map((b) => [b.count, b.value]) })),
        ...(edge <= axis.high + pad ? [{ as: "level", kind: 3, points: [[1, edge]], label: "2/η" }] : []),
      ],
    });
    const last = Math.max(20, above(history.length - 1));
    const time = { from: 0, to: last, label: "step", ticks: ticksBetween(0, last) };
    const losses = history.map(([t, loss]) => [t, Math.max(loss, 1e-16)]);
    const bounds = losses.map(([, loss]) => loss);
    axis.loss = [Math.min(axis.loss[0], 10 ** Math.floor(Math.log10(Math.min(...bounds)))), Math.max(axis.loss[1], 10 ** Math.ceil(Math.log10(Math.max(...bounds)) + 1e-9))];
    if (axis.loss[0] === axis.loss[1]) axis.loss[0] /= 10;
    svg("loss", {
      height: 220, x: time,
      y: { from: axis.loss[0], to: axis.loss[1], log: true, label: "loss", ticks: powers(...axis.loss) },
      marks: [{ as: "line", kind: 3, points: losses }, { as: "dot", kind: 3, points: losses.slice(-1) }],
    });
    const shown = Math.min(MODES, chain.target.length);
    axis.value = Math.max(axis.value, above(Math.max(...history.flatMap(([, , p]) => p.slice(0, shown).map(Math.abs)), ...chain.target.slice(0, shown).map(Math.abs), 1e-9)));
    const least = history.some(([, , p]) => p.slice(0, shown).some((v) => v < -1e-12)) ? -axis.value : 0;
    svg("orbit", {
      height: 220, x: time,
      y: { from: least, to: axis.value, label: "singular values of W", ticks: ticksBetween(least, axis.value) },
      marks: Array.from({ length: shown }, (_, i) => {
        const points = history.map(([t, , p]) => [t, p[i]]);
        return [{ as: "line", kind: chain.target[i] ? 0 : 2, points }, { as: "dot", kind: chain.target[i] ? 0 : 2, points: points.slice(-60) }];
      }).flat(),
    });
    const small = 1e-9 * Math.max(top, -low), exact = (v) => nice(Math.abs(v) <= small ? 0 : v);
    const where = ({ low: least, high }) => (high - least <= small ? `at ${exact(high)}` : `from ${exact(least)} to ${exact(high)}`);
    kinds.forEach((k) => { part(`kind${k.kind}`).textContent = k.count ? `${k.count} ${where(k)}` : "none"; });
    const [, loss] = history[history.length - 1];
    const said = values.map((k) => `${k.count} ${S.KINDS[k.kind]} ${where(k)}`).join("; ");
    part("words").textContent = `${P} eigenvalue${P > 1 ? "s" : ""}${milliseconds ? `, computed in ${(milliseconds / 1000).toFixed(1)} s` : ""}: ${said}. Step ${history.length - 1}, loss ${nice(loss)}. The edge 2/η is ${nice(edge)}; the largest eigenvalue is ${top > edge ? "above" : "below"} it.`;
    if (!running) fill();
    if (sound) sing(bars);
  }

  function svg(name, frame) {
    const place = part(name);
    place.innerHTML = place.querySelector("title").outerHTML + drawing(frame);
  }

  /** Writes the state into the fields, the sliders and the address. */
  function fill() {
    for (const name of FIELDS) if (document.activeElement !== field(name)) field(name).value = state[name];
    field("depth").value = chain.layers.length;
    if (document.activeElement !== field("knob")) field("knob").value = Math.log10(eta);
    field("knob").setAttribute("aria-valuetext", `η = ${nice(eta)}`);
    part("knob").textContent = nice(eta);
    drawSliders();
    if (moved) globalThis.history.replaceState(null, "", `#${encoded(state)}`);
    moved = true; // the first state, without an address, leaves the address alone
  }

  function drawSliders() {
    const balanced = !state.layers.includes(";"), place = part("sliders");
    const rows = balanced ? [["all layers", numbers(state.layers, "Layers")]] : chain.layers.map((s, l) => [`layer ${l + 1}`, numbers(state.layers.split(";")[l] ?? "", "Layers"), s]);
    const key = JSON.stringify(rows.map(([name, s]) => [name, Math.min(MODES, s.length)]));
    if (place.dataset.key !== key) {
      place.dataset.key = key;
      place.innerHTML = rows.map(([name, s], l) => `<fieldset><legend>Singular values, ${name}</legend>${s.slice(0, MODES).map((_, i) =>
        `<label><span>mode ${i + 1}</span><input type="range" min="0" max="2.5" step="0.01" data-layer="${l}" data-mode="${i}"><output></output></label>`).join("")}</fieldset>`).join("");
      place.querySelectorAll("input").forEach((input) => input.addEventListener("input", () => {
        const lists = state.layers.split(";").map((text) => numbers(text, "Layers"));
        lists[input.dataset.layer][input.dataset.mode] = Number(input.value);
        take({ ...state, layers: lists.map(listed).join(";"), steps: 0 }, true);
      }));
    }
    place.querySelectorAll("input").forEach((input) => {
      const value = rows[input.dataset.layer][1][input.dataset.mode];
      if (document.activeElement !== input) input.value = value;
      input.setAttribute("aria-valuetext", nice(value));
      input.parentElement.querySelector("output").textContent = nice(value);
    });
  }

  /** One step from where the chain is. */
  function advance() {
    try {
      const next = S.step(chain, eta), loss = S.loss(next);
      if (!Number.isFinite(loss)) throw new Error(`The step η = ${eta} makes the weights overflow.`);
      chain = next;
      history.push([history.length, loss, S.product(chain)]);
      state = { ...state, steps: history.length - 1 };
      say("");
      solve();
    } catch (error) {
      stop();
      say(`${error.message} The last good state stays.`);
    }
  }

  function stop() {
    if (!running) return;
    running = false;
    part("play").textContent = "Play";
    part("words").setAttribute("aria-live", "polite");
    if (spectrum) fill();
  }

  /** The state where descent is now becomes the start: for a new step η in the middle of a run. */
  function rebased(change) {
    const fewer = chain.layers.every((s) => s.length === chain.layers[0].length && s.every((v, i) => v === chain.layers[0][i]));
    const layers = state.steps ? (fewer ? listed(chain.layers[0]) : chain.layers.map(listed).join(";")) : state.layers;
    return { ...state, layers, steps: 0, ...change };
  }

  function sing(clusters) {
    sound.gain.gain.value = 0;
    sound.voices.forEach((voice) => voice.stop());
    sound.voices = chord(clusters).map(({ pitch, loudness }) => {
      const voice = sound.context.createOscillator(), level = sound.context.createGain();
      voice.frequency.value = pitch;
      level.gain.value = loudness;
      voice.connect(level).connect(sound.gain);
      voice.start();
      return voice;
    });
    sound.gain.gain.value = 0.4;
  }

  const still = matchMedia("(prefers-reduced-motion: reduce)");
  part("play").addEventListener("click", () => {
    if (running) return stop();
    if (still.matches) return take({ ...state, steps: Math.min(2000, state.steps + LEAP) }, true); // no film
    running = true;
    part("play").textContent = "Pause";
    part("words").setAttribute("aria-live", "off");
    const tick = () => {
      if (!running) return;
      if (!waiting) advance();
      if (history.length > 2000) return stop();
      setTimeout(() => requestAnimationFrame(tick), 60);
    };
    tick();
  });
  part("step").addEventListener("click", () => { stop(); advance(); });
  part("reset").addEventListener("click", () => { stop(); take({ ...state, steps: 0 }); });
  part("fit").addEventListener("click", () => { axis = null; show(); });
  part("copy").addEventListener("click", async () => {
    const text = python(state);
    part("python").textContent = text;
    part("python").hidden = false;
    try { await navigator.clipboard.writeText(text); part("copied").textContent = "Copied."; }
    catch { part("copied").textContent = "Select the lines below to copy them."; }
  });
  part("sound").addEventListener("click", () => {
    const button = part("sound");
    if (sound) {
      sound.context.close();
      sound = null;
    } else {
      const context = new AudioContext(), gain = context.createGain();
      gain.connect(context.destination);
      sound = { context, gain, voices: [] };
      sing(levels(spectrum, axis.low, axis.high));
    }
    button.setAttribute("aria-pressed", String(Boolean(sound)));
  });
  for (const name of FIELDS)
    field(name).addEventListener("change", () => {
      const change = { [name]: field(name).value }, changed = { ...state, ...change, steps: 0 };
      if (name === "eta") take(rebased(change), true);
      else take(name === "widths" ? fitted(changed) : changed);
    });
  field("knob").addEventListener("input", () => {
    const value = String(Number((10 ** Number(field("knob").value)).toPrecision(3)));
    if (running) { eta = Number(value); chain = { ...chain }; state = rebased({ eta: value }); history = [[0, S.loss(chain), S.product(chain)]]; part("knob").textContent = value; solve(); }
    else take(rebased({ eta: value }), true);
  });
  field("depth").addEventListener("change", () => {
    const wanted = Number(field("depth").value), widths = [...chain.widths], hidden = widths.length > 2 ? widths[1] : widths[0];
    if (!(Number.isInteger(wanted) && wanted >= 1 && wanted <= 12)) { say(`The depth must be a whole number from 1 to 12, not ${field("depth").value}. The last good state stays.`); return; }
    const inner = widths.slice(1, -1);
    while (inner.length < wanted - 1) inner.push(hidden);
    const texts = state.layers.split(";");
    take({ ...state, widths: listed([widths[0], ...inner.slice(0, wanted - 1), widths[widths.length - 1]]).replace(/(\d+)\*(\d+)/g, (_, d, n) => new Array(Number(n)).fill(d).join(",")), layers: texts[0], steps: 0 });
  });

  function fromAddress() {
    const address = location.hash.slice(1);
    if (chain && address === encoded(state)) return;
    let next = null, said = "";
    try { next = decoded(address); } catch (error) { said = `${error.message} The last good state stays.`; }
    stop();
    if (next) take(next);
    if (!chain) {
      said ||= part("error").textContent;
      take({ ...START });
    }
    if (said) say(said);
  }
  addEventListener("hashchange", fromAddress);
  root.querySelectorAll("[data-script]").forEach((element) => { element.hidden = false; });
  fromAddress();
  return { get state() { return state; }, get spectrum() { return spectrum; }, get chain() { return chain; } };
}
