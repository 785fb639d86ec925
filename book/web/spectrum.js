// Exact Hessian spectra of small models, as in the Python package. No dependencies.
//
// A chain is {widths: [d_0..d_L], layers: [[s_1, s_2, ..] per layer], data: [x_i], target: [y_i],
// ridge: [λ_l], halfY2}: W_l = diag(layers[l]), Σxx = diag(data), Σyx = diag(target). Its Hessian
// splits into blocks {i, j} of size at most 2L. Modes that agree in everything share their blocks,
// so equal singular values cost nothing, and repeated eigenvalues come out exactly equal.

export const KINDS = ["dominant", "bulk", "zero"];

/** Turns a symmetric n×n matrix (row-major; only its upper triangle is used) into diagonal form in
 * place, by cyclic Jacobi rotations; the n entries of each of `rows` turn with it. */
function diagonalise(a, n, rows, count) {
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0, all = 0;
    for (let i = 0; i < n; i++) {
      all += a[i * n + i] * a[i * n + i];
      for (let j = i + 1; j < n; j++) off += a[i * n + j] * a[i * n + j];
    }
    if (off <= 1e-31 * (all + off)) return;
    for (let p = 0; p < n - 1; p++) for (let q = p + 1; q < n; q++) {
      const apq = a[p * n + q];
      if (apq * apq <= 1e-36 * all) continue;
      const theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
      const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
      const c = 1 / Math.sqrt(t * t + 1), s = t * c;
      a[p * n + p] -= t * apq;
      a[q * n + q] += t * apq;
      a[p * n + q] = 0;
      for (let k = 0; k < p; k++) {
        const x = a[k * n + p], y = a[k * n + q];
        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
      }
      for (let k = p + 1; k < q; k++) {
        const x = a[p * n + k], y = a[k * n + q];
        a[p * n + k] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
      }
      for (let k = q + 1; k < n; k++) {
        const x = a[p * n + k], y = a[q * n + k];
        a[p * n + k] = c * x - s * y;
        a[q * n + k] = s * x + c * y;
      }
      for (let r = 0; r < count * n; r += n) {
        const x = rows[r + p], y = rows[r + q];
        rows[r + p] = c * x - s * y;
        rows[r + q] = s * x + c * y;
      }
    }
  }
}

/** The eigenvalues of a symmetric n×n matrix (row-major), descending. */
export function jacobi(matrix, n) {
  const a = Float64Array.from(matrix);
  diagonalise(a, n, a, 0);
  return Array.from({ length: n }, (_, i) => a[i * n + i]).sort((p, q) => q - p);
}

const padded = (values, size) => Array.from({ length: size }, (_, i) => values[i] ?? 0);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const dot = (u, v) => sum(u.map((x, i) => x * v[i]));

/** Refuses a chain that is not one, with a sentence; fills in what is left out. */
export function checked(chain) {
  const { widths, layers } = chain;
  const fail = (text) => { throw new Error(text); };
  if (!Array.isArray(widths) || widths.length < 2) fail("A network needs at least two widths.");
  for (const d of widths)
    if (!Number.isInteger(d) || d < 1) fail(`A width must be a whole number of at least 1, not ${d}.`);
  const L = widths.length - 1;
  if (!Array.isArray(layers) || layers.length !== L) fail(`There must be ${L} layers.`);
  const ends = Math.min(widths[0], widths[L]);
  const fits = (name, values, size) => {
    if (!Array.isArray(values) || values.length > size)
      fail(`${name} can have at most ${size} values for these widths.`);
    if (!values.every(Number.isFinite)) fail(`${name} must be numbers.`);
    return padded(values, size);
  };
  const data = fits("The data spectrum", chain.data ?? new Array(widths[0]).fill(1), widths[0]);
  if (data.some((x) => x < 0)) fail("The data spectrum cannot be negative.");
  const ridge = chain.ridge ?? 0;
  return {
    widths, data, ridge: Array.isArray(ridge) ? ridge : new Array(L).fill(ridge),
    layers: layers.map((s, l) => fits(`Layer ${l + 1}`, s, Math.min(widths[l], widths[l + 1]))),
    target: fits("The target", chain.target ?? [], ends), halfY2: chain.halfY2 ?? 0,
  };
}

export const size = ({ widths }) => sum(widths.slice(1).map((d, l) => d * widths[l]));

/** Everything the blocks need of mode i (from 0): s_l, x, y, ω, a_l, b_l, and where it exists. */
function mode(chain, i) {
  const L = chain.layers.length;
  const s = chain.layers.map((layer) => layer[i] ?? 0);
  const x = chain.data[i] ?? 0, y = chain.target[i] ?? 0;
  const b = new Array(L).fill(1), a = new Array(L).fill(1);
  for (let l = 1; l < L; l++) b[l] = b[l - 1] * s[l - 1];
  for (let l = L - 2; l >= 0; l--) a[l] = a[l + 1] * s[l + 1];
  const ends = i < Math.min(chain.widths[0], chain.widths[L]);
  const omega = ends ? x * b[L - 1] * s[L - 1] - y : 0;
  const c = new Float64Array(L * L); // c_lk = Π_{k<m<l} s_m for l > k
  for (let k = 0; k < L; k++) for (let l = k + 1, p = 1; l < L; p *= s[l], l++) c[l * L + k] = p;
  return { i, s, x, y, a, b, c, omega, exists: chain.widths.map((d) => i < d), count: 1 };
}

/** The modes, equal ones once with their count. */
function modes(chain) {
  const found = new Map();
  for (let i = 0; i < Math.max(...chain.widths); i++) {
    const here = mode(chain, i);
    const key = [...here.s, here.x, here.y, ...here.exists].join();
    if (found.has(key)) found.get(key).count++;
    else found.set(key, here);
  }
  return [...found.values()];
}

/** All eigenvalues: {values, counts, kinds, ones, twos}, where values[n] has the multiplicity
 * counts[n] and the kind KINDS[kinds[n]], and comes from the block {ones[n], twos[n]}; `sorted`
 * puts them in order. In each block as many eigenvectors as W can move in ways, those closest to
 * moving it, are dominant (both modes have a target) or bulk (one has); the others keep W: zero. */
export function spectrum(given) {
  const chain = checked(given), all = modes(chain), L = chain.layers.length, { ridge } = chain;
  const room = all.length * (all.length + 1) * L + 2 * L * all.length;
  const values = new Float64Array(room), counts = new Float64Array(room), kinds = new Uint8Array(room);
  const ones = new Uint32Array(room), twos = new Uint32Array(room);
  const matrix = new Float64Array(4 * L * L), moves = new Float64Array(4 * L);
  const place = new Int32Array(2 * L), g = new Float64Array(2 * L), close = new Float64Array(2 * L);
  let filled = 0;

  const add = (one, two, same, count) => {
    if (count === 0) return;
    let n = 0;
    for (let l = 0; l < L; l++) if (one.exists[l + 1] && two.exists[l]) place[n++] = l;
    const half = n;
    if (!same) for (let l = 0; l < L; l++) if (two.exists[l + 1] && one.exists[l]) place[n++] = l;
    for (let p = 0; p < n; p++) {
      const l = place[p];
      g[p] = p < half ? one.a[l] * two.b[l] : two.a[l] * one.b[l];
    }
    for (let p = 0; p < n; p++) for (let q = p; q < n; q++) {
      const l = place[p], k = place[q], inside = p < half === q < half;
      let value = inside ? (p < half ? two.x : one.x) * g[p] * g[q] : 0;
      if (same || !inside) { // l belongs to e^{ij}, k to e^{ji}
        if (l > k) value += one.omega * one.a[l] * two.c[l * L + k] * one.b[k];
        if (l < k) value += two.omega * two.a[k] * one.c[k * L + l] * two.b[l];
      }
      if (p === q) value += ridge[l];
      matrix[p * n + q] = value;
    }
    let ways = 0;
    for (let side = 0; side < (same ? 1 : 2); side++) {
      const [from, to] = side ? [half, n] : [0, half];
      let square = 0;
      for (let p = from; p < to; p++) square += g[p] * g[p];
      if (square === 0 || (side ? one.x : two.x) === 0) continue;
      for (let p = 0; p < n; p++) moves[ways * n + p] = p >= from && p < to ? g[p] / Math.sqrt(square) : 0;
      ways++;
    }
    diagonalise(matrix, n, moves, ways);
    const start = filled;
    for (let p = 0; p < n; p++) {
      values[filled] = matrix[p * n + p];
      counts[filled] = count;
      kinds[filled] = 2;
      ones[filled] = one.i + 1;
      twos[filled++] = two.i + 1;
      close[p] = ways === 0 ? 0 : moves[p] * moves[p] + (ways === 2 ? moves[n + p] * moves[n + p] : 0);
    }
    const kind = 2 - (one.y !== 0) - (two.y !== 0);
    for (let way = 0; way < ways; way++) {
      let best = 0;
      for (let p = 1; p < n; p++) if (close[p] > close[best]) best = p;
      close[best] = -1;
      kinds[start + best] = kind;
    }
  };

  for (let p = 0; p < all.length; p++) {
    const one = all[p];
    add(one, one, true, one.count);
    add(one, one, false, (one.count * (one.count - 1)) / 2);
    for (let q = p + 1; q < all.length; q++) add(one, all[q], false, one.count * all[q].count);
  }
  return {
    values: values.subarray(0, filled), counts: counts.subarray(0, filled),
    kinds: kinds.subarray(0, filled), ones: ones.subarray(0, filled), twos: twos.subarray(0, filled),
  };
}

/** The entries of a spectrum as [{value, count, kind, pair}], descending. */
export function sorted({ values, counts, kinds, ones, twos }) {
  return Array.from(values, (value, n) => ({
    value, count: counts[n], kind: kinds[n], pair: [ones[n], twos[n]],
  })).sort((p, q) => q.value - p.value);
}

/** Joins values of one kind that agree to `tolerance` of the largest. */
export function clusters(entries, tolerance = 1e-9) {
  const scale = tolerance * Math.max(...entries.map((e) => Math.abs(e.value)), 1e-300);
  const joined = [];
  for (const kind of [0, 1, 2])
    for (const e of entries.filter((entry) => entry.kind === kind)) {
      const last = joined[joined.length - 1];
      if (last && last.kind === kind && Math.abs(last.value - e.value) <= scale) last.count += e.count;
      else joined.push({ value: e.value, count: e.count, kind });
    }
  return joined.sort((p, q) => q.value - p.value);
}

/** Π_l s_{l,i}, the singular values of W. */
export function product(given) {
  const chain = checked(given);
  return chain.target.map((_, i) => chain.layers.reduce((p, s) => p * (s[i] ?? 0), 1));
}

/** ½E‖Wx − y‖² + ½Σ λ_l‖W_l‖². */
export function loss(given) {
  const chain = checked(given);
  const fit = sum(product(chain).map((p, i) => p * ((chain.data[i] * p) / 2 - chain.target[i])));
  return fit + chain.halfY2 + sum(chain.layers.map((s, l) => (chain.ridge[l] * dot(s, s)) / 2));
}

/** One step of gradient descent; refused when it overflows. */
export function step(given, eta) {
  const chain = checked(given);
  if (!(eta > 0)) throw new Error(`The step η must be positive, not ${eta}.`);
  const all = Array.from({ length: Math.max(...chain.widths) }, (_, i) => mode(chain, i));
  const layers = chain.layers.map((s, l) =>
    s.map((v, i) => v - eta * (all[i].omega * all[i].a[l] * all[i].b[l] + chain.ridge[l] * v)));
  if (!layers.every((s) => s.every(Number.isFinite)))
    throw new Error(`The step η = ${eta} makes the weights overflow.`);
  return { ...chain, layers };
}

/** The zero of an increasing function between low and high, to the last digit. */
export function root(f, low, high) {
  for (let n = 0; n < 200; n++) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    if (f(middle) < 0) low = middle; else high = middle;
  }
  return (low + high) / 2;
}

/** The edge of one balanced mode, 2/(Lσ^{2−2/L}). */
export const edge = (L, sigma) => 2 / (L * sigma ** (2 - 2 / L));

/** The two values ρ_1 < ρ_2 that a balanced mode visits beyond the edge. */
export function twoCycle(L, sigma, eta) {
  if (!(L >= 2)) throw new Error("A two-cycle needs at least two layers.");
  if (!(eta > edge(L, sigma))) throw new Error(`There is no two-cycle below the edge ${edge(L, sigma)}.`);
  const scaled = eta * sigma ** (2 - 2 / L);
  const excess = (t) => {
    const wide = Math.cosh((2 * L - 1) * t), narrow = Math.cosh((L - 1) * t);
    return (2 * Math.sinh(t) / Math.sinh(L * t)) * wide * (wide / narrow) ** (1 - 2 / L) - scaled;
  };
  let high = 1 / L;
  while (excess(high) < 0) high *= 2;
  const z = Math.exp(2 * root(excess, 1e-9 / L, high));
  const low = (sigma * (1 + z ** (L - 1)) / (1 + z ** (2 * L - 1))) ** (1 / L);
  return [low, z * low];
}

/** Two linear layers with one input and output: [λ_1, λ_2, d]; the bulk is ±d, m − 1 times each. */
export function twoLayer(w, v, s2, yx) {
  const c = dot(w, v), d = c * s2 - yx;
  const p = w.map((x, i) => x + v[i]), r = w.map((x, i) => x - v[i]);
  const across = (s2 * Math.sqrt(dot(p, p) * dot(r, r))) / 2;
  const top = (s2 * (dot(w, w) + dot(v, v))) / 2 + Math.hypot(d + s2 * c, across);
  return [top, top ? (-d * (d + 2 * s2 * c)) / top : 0, d];
}

/** One attention head on one sequence of numbers x with targets y, `sink` added to every score of
 * the first token: the three outliers, descending, then γ; the bulk is ±γ, d_K − 1 times each. */
export function attention(value, query, key, x, y, sink = 0) {
  const n = x.length, width = query.length, c = dot(query, key);
  let alpha = 0, beta = 0, gamma = 0, zeta = 0, loss = 0;
  const rows = x.map((xi, i) => {
    const scores = x.map((xj, j) => (c / Math.sqrt(width)) * xi * xj + (j === 0 ? sink : 0));
    const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
    const total = sum(powers), row = powers.map((power) => power / total);
    const m1 = dot(row, x);
    const m2 = sum(row.map((p, j) => p * (x[j] - m1) ** 2));
    const m3 = sum(row.map((p, j) => p * (x[j] - m1) ** 3));
    const first = (xi * m2) / Math.sqrt(width), second = (xi * xi * m3) / width;
    const delta = value * m1 - y[i];
    alpha += (m1 * m1) / n;
    beta += ((value * m1 + delta) * first) / n;
    gamma += (value * delta * first) / n;
    zeta += (value * value * first * first + value * delta * second) / n;
    loss += (delta * delta) / (2 * n);
    return row;
  });
  const P = Math.sqrt(sum(query.map((q, i) => (q + key[i]) ** 2)) / 2);
  const R = Math.sqrt(sum(query.map((q, i) => (q - key[i]) ** 2)) / 2);
  const matrix = [alpha, beta * P, beta * R,
    beta * P, zeta * P * P + gamma, zeta * P * R,
    beta * R, zeta * P * R, zeta * R * R - gamma];
  return { outliers: jacobi(matrix, 3), gamma, loss, rows };
}

/** The optimum of a deep linear unconstrained feature model with K classes of n samples, L layers
 * of width d and one λ, as a chain of L + 1 layers; C is the size of its outputs. */
export function collapsed(K, n, L, d, lambda) {
  const power = (L - 1) / (L + 1), b = K * n ** (1 / (L + 1)) * lambda;
  if (!(d >= K)) throw new Error(`The width must be at least the number of classes, ${K}.`);
  const turn = (L - 1) / (2 * L);
  if (!(lambda > 0 && b < (1 - turn) * turn ** power))
    throw new Error(`λ = ${lambda} is beyond the fold: no collapsed network is left there.`);
  const misfit = power ? root((u) => u * (1 - u) ** power - b, b / 2, (L + 1) / (2 * L)) : b;
  const t = Math.sqrt(((1 - misfit) * misfit) / (K * lambda));
  const chain = checked({
    widths: [K * n, ...new Array(L).fill(d), K],
    layers: new Array(L + 1).fill(new Array(K).fill(t)),
    data: new Array(K * n).fill(1 / (K * n)), target: new Array(K).fill(1 / (K * Math.sqrt(n))),
    ridge: lambda, halfY2: 0.5,
  });
  return { chain, C: 1 - misfit };
}

/** The eigenvalues of the Hessian of one layer of K×K entries under cross-entropy, at collapsed
 * logits α(I − 1/K), from softmax itself; descending, in units of the largest level. */
export function softmaxLayer(K, alpha) {
  const n = K * K, matrix = new Float64Array(n * n), total = Math.exp(alpha) + K - 1;
  for (let c = 0; c < K; c++) {
    const z = Array.from({ length: K }, (_, i) => alpha * ((i === c) - 1 / K));
    const p = z.map((_, i) => (i === c ? Math.exp(alpha) : 1) / total);
    for (let i = 0; i < K; i++) for (let j = 0; j < K; j++) {
      const curve = ((i === j) * p[i] - p[i] * p[j]) / K;
      for (let u = 0; u < K; u++) for (let v = 0; v < K; v++)
        matrix[(i * K + u) * n + j * K + v] += curve * z[u] * z[v];
    }
  }
  const values = jacobi(matrix, n);
  return values.map((value) => value / values[0]);
}

/** The step above which two modes of two layers swing their singular vectors: 2/(σ_1 + σ_2). */
export const rotatingEdge = (first, second) => 2 / (first + second);

/** One of the two states of the rotating cycle of two layers; the other has −1 off the diagonals. */
export function rotatingCycle(first, second, eta) {
  if (!(eta > rotatingEdge(first, second) && eta * (first - second) < 2))
    throw new Error(`There is no rotating cycle at η = ${eta}.`);
  const phi = Math.acosh((eta * (first + second) + 2) / 4) / 2;
  const [c, s] = [Math.cosh(phi), Math.sinh(phi)];
  const sizes = [1, -1].map((sign) => Math.sqrt(1 / eta + (sign * (first - second)) / 2));
  const [[a, b], [d, e]] = [[sizes[0] * c, sizes[0] * s], [sizes[1] * s, sizes[1] * c]];
  return [[[a, b], [d, e]], [[a, d], [b, e]]];
}
