"""Beyond "Cracking the Hessian": any loss of a product W₂W₁, several inputs, sharpness and norms.

W₁ is m×D and W₂ is K×m, so that m is the hidden width, and G is the K×D gradient of the loss with
respect to the product W₂W₁; for the squared loss G = W₂W₁Σxx − Σyx, the chain's `residual`. The
Hessian acts on a displacement (Ẇ₁, Ẇ₂) as

    (Ẇ₂ᵀG + W₂ᵀĠ, GẆ₁ᵀ + ĠW₁ᵀ),    Ġ = φ″[Ẇ₂W₁ + W₂Ẇ₁].                                          (1)

A displacement that does not move the product feels only G: that is the bulk. A `LinearChain` of
two layers is the network with its data; several networks at once are stacks of shape (n, ·, ·).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number
from exacthessian.spectrum import Spectrum

RANK_TOLERANCE = 1e-12
REFRESH = 20  # steps of gradient descent between two looks at the sharpness
SCHEMES = ("SP", "muP", "NTP")


# The bulk of any loss that depends on W₂W₁


def bulk(gradient: ArrayLike, width: int) -> Spectrum:
    """The eigenvalues that every loss φ(W₂W₁, ψ) with ∂φ/∂(W₂W₁) = G has at hidden width m:
    +σ_i(G) and −σ_i(G), each at least m − D − K + 1 times, and 0 at least
    (D − rank G)(m − K) + (K − rank G)(m − D) times. `gradient` is G (K, D).

    >>> bulk([[3.0, 4.0]], width=6)
    Spectrum(5 × 4, 0 × 5, -5 × 4)
    """
    g = real_array("gradient", gradient, ndim=2)
    outputs, inputs = g.shape
    m = whole_number("width", width, least=1)
    sigma = _positive_singular_values(g)
    copies = m - inputs - outputs + 1
    zeros = (inputs - len(sigma)) * max(m - outputs, 0) + (outputs - len(sigma)) * max(
        m - inputs, 0
    )
    sides = np.concatenate([sigma, -sigma])
    return Spectrum.merge([*_repeated(sides, copies, "bulk"), *_repeated([0.0], zeros, "zero")])


def bulk_vectors(
    first: ArrayLike, second: ArrayLike, gradient: ArrayLike, index: int, sign: int
) -> Array:
    """Eigenvectors (P, n) with the eigenvalue sign·σ_index(G), n ≥ m − D − K + 1, P = mD + Km.

    With Gv = σu and Gᵀu = σv the columns are (z vᵀ, ±u zᵀ), layer by layer and row-major, for a
    basis of those z (m,) that have W₁ᵀz = t v and W₂z = ∓t u for some t.

    >>> vectors = bulk_vectors([[1.0], [0.0], [0.0]], [[0.0, 1.0, 0.0]], [[2.0]], 0, sign=-1)
    >>> vectors.shape
    (6, 2)
    """
    w1, w2 = _pair(first, second)
    g = real_array("gradient", gradient, ndim=2)
    if g.shape != (len(w2), w1.shape[1]):
        raise ValueError(
            f"gradient must be {len(w2)}×{w1.shape[1]} to match second ({_by(w2)}) and first "
            f"({_by(w1)}), got {_by(g)}"
        )
    if sign not in (1, -1):
        raise ValueError(f"sign must be 1 or -1, got {sign!r}")
    left, sigma, right = np.linalg.svd(g)
    if whole_number("index", index, least=0) >= len(sigma):
        raise ValueError(f"index must be below {len(sigma)}, the singular values of G, got {index}")
    u, v = left[:, index], right[index]
    conditions = np.vstack([np.column_stack([w1.T, -v]), np.column_stack([w2, sign * u])])
    z = _kernel(conditions)[:-1]
    columns = [
        np.concatenate([np.outer(one, v).ravel(), np.outer(sign * u, one).ravel()]) for one in z.T
    ]
    return np.array(columns).reshape(len(columns), w1.size + w2.size).T


def reduced(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    """The same two layers written in an orthonormal basis of the hidden directions they use.

    `first` (…, m, D) and `second` (…, K, m), possibly stacks, become (…, r, D) and (…, K, r) with
    r = min(m, D + K). The product, the gradient and gradient descent are the same; see
    `spectrum_by_reduction` for the Hessian.

    >>> first, second = reduced([[3.0], [0.0], [4.0]], [[1.0, 0.0, 1.0]])
    >>> (second @ first).round(12).item(), first.shape, second.shape
    (7.0, (2, 1), (1, 2))
    """
    w1, w2 = real_array("first", first, ndim=None), real_array("second", second, ndim=None)
    if w1.ndim < 2 or w2.ndim < 2 or w1.shape[-2] != w2.shape[-1]:
        raise ValueError(
            "first must have as many rows as second has columns, the hidden width, "
            f"got shapes {w1.shape} and {w2.shape}"
        )
    columns = np.concatenate([w1, w2.swapaxes(-1, -2)], axis=-1)
    triangle = np.asarray(np.linalg.qr(columns, mode="r"))
    inputs = w1.shape[-1]
    return triangle[..., :inputs], triangle[..., inputs:].swapaxes(-1, -2)


def spectrum_by_reduction(chain: LinearChain) -> Spectrum:
    """The whole spectrum of two linear layers: that of the `reduced` network, and for each hidden
    direction it leaves out once the eigenvalues ±σ_i(G) and |D − K| + 2(min(D, K) − rank) zeros
    of the (D+K)×(D+K) matrix [[0, Gᵀ], [G, 0]].

    >>> chain = LinearChain([[[1.0], [1.0], [0.0]], [[1.0, 0.0, 2.0]]], [[1.0]], [[0.0]])
    >>> spectrum_by_reduction(chain).distance(Spectrum.from_matrix(chain.hessian())) < 1e-14
    True
    """
    w1, w2 = _two_layers(chain)
    small = LinearChain(reduced(w1, w2), chain.sigma_xx, chain.sigma_yx)
    inside = Spectrum.from_matrix(small.hessian(), "reduced")
    spare = len(w1) - small.widths[1]
    sigma = np.linalg.svd(chain.residual, compute_uv=False)
    sides = np.concatenate([sigma, -sigma])
    outputs, inputs = chain.residual.shape
    outside = _repeated(sides, spare, "bulk")
    outside += _repeated([0.0], spare * abs(inputs - outputs), "zero")
    return Spectrum.merge([inside, *outside])


# Several inputs, one output: f(x) = wᵀVx


def outlier_matrix(chain: LinearChain) -> Array:
    """A symmetric matrix of size 2·min(m, D) + D − 1 whose eigenvalues are the outliers of wᵀVx.

    With g = s e₁ after a rotation of the inputs, P = (V + w e₁ᵀ)/√2 and R = (V − w e₁ᵀ)/√2 it is

        diag(s, …, s, −s, …, −s, 0, …, 0) + B Σxx Bᵀ,   B = [P̂; R̂; ‖w‖ (e₂, …, e_D)ᵀ],

    where P̂, R̂ are the triangular factors of P and R. No assumption on data or weights.

    >>> chain = LinearChain([[[1.0], [0.0]], [[0.0, 1.0]]], [[1.0]], [[-2.0]])
    >>> np.linalg.eigvalsh(outlier_matrix(chain)).round(12)
    array([-1.23606798,  3.23606798])
    """
    v, w, s, axes = _one_output(chain)
    towards = np.outer(w, axes[:, 0])
    plus = np.linalg.qr((v + towards) / np.sqrt(2), mode="r")
    minus = np.linalg.qr((v - towards) / np.sqrt(2), mode="r")
    across = np.linalg.norm(w) * axes[:, 1:].T
    factor = np.vstack([plus, minus, across])
    diagonal = np.repeat([s, -s, 0.0], [len(plus), len(minus), len(across)])
    matrix: Array = np.diag(diagonal) + factor @ chain.sigma_xx @ factor.T
    return (matrix + matrix.T) / 2


def spectrum_one_output(chain: LinearChain) -> Spectrum:
    """All m(D + 1) eigenvalues of wᵀVx for any data and weights: ±s each m − min(m, D) times,
    0 (m − 1)(D − 1) times, and the eigenvalues of the `outlier_matrix`; s = ‖VᵀwΣxx − Σyx‖.

    >>> chain = LinearChain([[[1.0], [0.0], [0.0]], [[0.0, 1.0, 0.0]]], [[1.0]], [[-2.0]])
    >>> spectrum_one_output(chain)
    Spectrum(3.23607 × 1, 2 × 2, -1.23607 × 1, -2 × 2)
    """
    v, _, s, _ = _one_output(chain)
    width, inputs = v.shape
    parts = [Spectrum.from_matrix(outlier_matrix(chain), "outlier")]
    parts += _repeated([s, -s], width - inputs, "bulk")
    parts += _repeated([0.0], (width - 1) * (inputs - 1), "zero")
    return Spectrum.merge(parts)


def secular_determinant(chain: LinearChain, values: ArrayLike) -> Array:
    """det[(λ² − s²)(λI − ‖w‖²Σ) − (λ²VᵀV + λ(hgᵀ + ghᵀ) + ‖w‖²ggᵀ)Σ] at each λ of `values` (n,),
    with h = Vᵀw, g = Σh − E[xy]: for m ≥ D it is λ times the characteristic polynomial of the
    outliers, of degree 3D. Shape (n,).

    >>> chain = LinearChain([[[1.0], [0.0]], [[0.0, 1.0]]], [[1.0]], [[-2.0]])
    >>> secular_determinant(chain, [0.0, 1.0, 1 + np.sqrt(5)]).round(12)
    array([ 0., -5.,  0.])
    """
    v, w, s, _ = _one_output(chain)
    g, h, sigma, norm2 = chain.residual[0], v.T @ w, chain.sigma_xx, w @ w
    lam = real_array("values", values, ndim=1)[:, None, None]
    moved = lam**2 * (v.T @ v) + lam * (np.outer(h, g) + np.outer(g, h)) + norm2 * np.outer(g, g)
    straight = (lam**2 - s**2) * (lam * np.eye(len(g)) - norm2 * sigma)
    determinants: Array = np.linalg.det(straight - moved @ sigma)
    return determinants


def pair(nu2: float, w2: float, s: float, k: float) -> Array:
    """The roots of λ² − (ν² + ‖w‖²)λ − (1 + 2k)s² = 0, descending: (2,). `nu2` is ν².

    >>> pair(nu2=1.0, w2=1.0, s=1.0, k=1.0)
    array([ 3., -1.])
    """
    half = (nonnegative_number("nu2", nu2) + nonnegative_number("w2", w2)) / 2
    inner = half**2 + (1 + 2 * k) * nonnegative_number("s", s) ** 2
    if inner < 0:
        raise ValueError(f"k must satisfy |k|s ≤ ν‖w‖, got k = {k} with s = {s}")
    roots: Array = half + np.array([1.0, -1.0]) * np.sqrt(inner)
    return roots


def triple(nu2: float, w2: float, s: float) -> Array:
    """The roots of λ³ − (ν² + ‖w‖²)λ² − s²λ + s²‖w‖² = 0, descending: (3,), as the eigenvalues of
    [[ν², ν‖w‖, s], [ν‖w‖, ‖w‖², 0], [s, 0, 0]].

    >>> triple(nu2=1.0, w2=1.0, s=0.0).round(12)
    array([2., 0., 0.])
    """
    a, b = nonnegative_number("nu2", nu2), nonnegative_number("w2", w2)
    c, cross = nonnegative_number("s", s), np.sqrt(a * b)
    block = np.array([[a, cross, c], [cross, b, 0.0], [c, 0.0, 0.0]])
    values: Array = np.linalg.eigvalsh(block)[::-1]
    return values


def solvable_spectrum(width: int, nu2: ArrayLike, w2: float, s: float, k: float) -> Spectrum:
    """White inputs, Vᵀw = k g, and g an eigenvector of VᵀV with the eigenvalue nu2[0], the others
    being nu2[1:]: one `pair`, `triple` D − 1 times, ±s each m − D times and 0 (m − 1)(D − 1)
    times.

    `nu2` is (D,), `width` m ≥ D, `w2` = ‖w‖², `s` = ‖g‖. For D = 2 it is Theorem B.1.

    >>> solvable_spectrum(3, [1.0, 1.0], w2=1.0, s=0.0, k=1.0)
    Spectrum(2 × 2, 0 × 7)
    """
    squares = real_array("nu2", nu2, ndim=1)
    inputs, m = len(squares), whole_number("width", width, least=1)
    if inputs == 0 or m < inputs:
        raise ValueError(f"width must be at least D = {inputs}, with D ≥ 1, got {m}")
    if squares.min() < 0:
        raise ValueError(f"nu2 must not be negative, got {squares.min()}")
    if (k * s) ** 2 > squares[0] * w2 * (1 + 1e-12):
        raise ValueError(
            f"k must satisfy (k s)² ≤ nu2[0]·w2 = {squares[0] * w2:.6g}, because k s = ⟨w, Ve₁⟩, "
            f"got (k s)² = {(k * s) ** 2:.6g}"
        )
    parts = [Spectrum.from_values(pair(squares[0], w2, s, k), "pair")]
    parts += [Spectrum.from_values(triple(one, w2, s), "triple") for one in squares[1:]]
    parts += _repeated([s, -s], m - inputs, "bulk")
    parts += _repeated([0.0], (m - 1) * (inputs - 1), "zero")
    return Spectrum.merge(parts)


def solvable_chain(
    width: int, nu2: ArrayLike, w2: float, s: float, k: float, rng: np.random.Generator
) -> LinearChain:
    """A network with the data of `solvable_spectrum`, in random bases; m > D.

    >>> chain = solvable_chain(4, [2.0, 1.0], 3.0, 0.5, 1.0, np.random.default_rng(0))
    >>> theorem = solvable_spectrum(4, [2.0, 1.0], w2=3.0, s=0.5, k=1.0)
    >>> theorem.distance(Spectrum.from_matrix(chain.hessian())) < 1e-13
    True
    """
    squares = real_array("nu2", nu2, ndim=1)
    inputs, m = len(squares), whole_number("width", width, least=1)
    if m <= inputs:
        raise ValueError(f"width must exceed D = {inputs}, got {m}")
    solvable_spectrum(m, squares, w2, s, k)  # refuses what is not in the family
    hidden = np.linalg.qr(rng.standard_normal((m, inputs + 1)))[0]
    seen = np.linalg.qr(rng.standard_normal((inputs, inputs)))[0]
    first = (hidden[:, :inputs] * np.sqrt(squares)) @ seen.T
    along = k * s / np.sqrt(squares[0]) if squares[0] > 0 else 0.0
    across = np.sqrt(max(w2 - along**2, 0.0))
    second = along * hidden[:, 0] + across * hidden[:, inputs]
    return LinearChain(
        (first, second[None]), np.eye(inputs), (first.T @ second - s * seen[:, 0])[None]
    )


def quintic(nu2: float, w2: float, s: float, along: float, across: float) -> Array:
    """White inputs, VᵀV = ν²I, any targets: the five outliers that replace the pair and one
    triple, descending (5,). They solve

        (λ² − Tλ − s² − 2s a)(λ³ − Tλ² − s²λ + s²‖w‖²) = s² c² λ,   T = ν² + ‖w‖²,

    where `along` a = ⟨h, g⟩/s and `across` c = ‖h − a g/s‖ are the parts of h = Vᵀw; s > 0.

    >>> quintic(1.0, 1.0, 1.0, along=1.0, across=0.0).round(6)
    array([ 3.      ,  2.24698 ,  0.554958, -0.801938, -1.      ])
    """
    a, b = nonnegative_number("nu2", nu2), nonnegative_number("w2", w2)
    c, e = nonnegative_number("s", s), nonnegative_number("across", across)
    if along**2 + e**2 > a * b * (1 + 1e-12):
        raise ValueError(
            f"along and across must satisfy along² + across² ≤ nu2·w2 = {a * b:.6g}, because they "
            f"are the parts of Vᵀw, got {along**2 + e**2:.6g}"
        )
    slope = e / np.sqrt(a) if a > 0 else 0.0
    rows = [
        [np.sqrt(max(a + b + 2 * along - slope**2, 0.0) / 2), 0.0],
        [slope / np.sqrt(2), np.sqrt(a / 2)],
        [np.sqrt(max(a + b - 2 * along - slope**2, 0.0) / 2), 0.0],
        [-slope / np.sqrt(2), np.sqrt(a / 2)],
        [0.0, np.sqrt(b)],
    ]
    factor = np.array(rows)
    values: Array = np.linalg.eigvalsh(np.diag([c, c, -c, -c, 0.0]) + factor @ factor.T)[::-1]
    return values


def orthogonal_spectrum(chain: LinearChain) -> Spectrum:
    """White inputs, VᵀV = ν²I, any targets, D ≥ 2 and m ≥ D: one `quintic`, `triple` D − 2 times,
    ±s each m − D times and 0 (m − 1)(D − 1) times.

    >>> chain = LinearChain([np.eye(3)[:, :2], [[1.0, 2.0, 0.0]]], np.eye(2), [[0.0, 1.0]])
    >>> orthogonal_spectrum(chain).distance(Spectrum.from_matrix(chain.hessian())) < 1e-14
    True
    """
    v, w, s, axes = _one_output(chain)
    width, inputs = v.shape
    nu2 = float(v[:, 0] @ v[:, 0])
    if inputs < 2 or width < inputs:
        raise ValueError(f"weights[0] must be m×D with m ≥ D ≥ 2, got {_by(v)}")
    if np.abs(chain.sigma_xx - np.eye(inputs)).max() > RANK_TOLERANCE:
        raise ValueError("sigma_xx must be the identity for the quintic")
    if np.abs(v.T @ v - nu2 * np.eye(inputs)).max() > RANK_TOLERANCE * max(nu2, 1.0):
        raise ValueError("weights[0] must have orthogonal columns of one length for the quintic")
    h, w2 = v.T @ w, float(w @ w)
    along = float(h @ axes[:, 0])
    across = float(np.linalg.norm(h - along * axes[:, 0]))
    parts = [Spectrum.from_values(quintic(nu2, w2, s, along, across), "quintic")]
    parts += [Spectrum.from_values(triple(nu2, w2, s), "triple")] * (inputs - 2)
    parts += _repeated([s, -s], width - inputs, "bulk")
    parts += _repeated([0.0], (width - 1) * (inputs - 1), "zero")
    return Spectrum.merge(parts)


def aligned_spectrum(width: int, a: ArrayLike, b: ArrayLike, g: ArrayLike) -> Spectrum:
    """D inputs and D outputs, white inputs, W₁ = Q diag(a) Rᵀ, W₂ = L diag(b) Qᵀ and
    G = L diag(g) Rᵀ with shared orthonormal Q, R, L; `a`, `b`, `g` are (D,), `width` m ≥ D:

    pairs [[a_i², a_i b_i + g_i], [·, b_i²]]; for i < j quartets
    [[a_j², a_j b_i, 0, g_i], [·, b_i², g_j, 0], [·, ·, a_i², a_i b_j], [·, ·, ·, b_j²]];
    and ±g_i, each m − D times.

    >>> aligned_spectrum(3, a=[1.0], b=[1.0], g=[0.5])
    Spectrum(2.5 × 1, 0.5 × 2, -0.5 × 3)
    """
    a, b, g = (real_array(name, one, ndim=1) for name, one in (("a", a), ("b", b), ("g", g)))
    size, m = len(a), whole_number("width", width, least=1)
    if len(b) != size or len(g) != size:
        raise ValueError(f"a, b and g must have one length, got {size}, {len(b)} and {len(g)}")
    if size == 0 or m < size:
        raise ValueError(f"width must be at least D = {size}, with D ≥ 1, got {m}")
    parts = []
    for i in range(size):
        off = a[i] * b[i] + g[i]
        parts.append(Spectrum.from_matrix([[a[i] ** 2, off], [off, b[i] ** 2]], "pair"))
        for j in range(i + 1, size):
            block = [
                [a[j] ** 2, a[j] * b[i], 0.0, g[i]],
                [a[j] * b[i], b[i] ** 2, g[j], 0.0],
                [0.0, g[j], a[i] ** 2, a[i] * b[j]],
                [g[i], 0.0, a[i] * b[j], b[j] ** 2],
            ]
            parts.append(Spectrum.from_matrix(block, "quartet"))
    parts += _repeated(np.concatenate([g, -g]), m - size, "bulk")
    return Spectrum.merge(parts)


# Sharpness and trace


def gauss_newton_spectrum(chain: LinearChain) -> Spectrum:
    """All eigenvalues of the Gauss–Newton matrix of two linear layers, for any Σ: those of
    Σ^{1/2}(β_i I + W₁ᵀW₁)Σ^{1/2} for the K eigenvalues β_i of W₂W₂ᵀ, and zeros for the rest.

    >>> gauss_newton_spectrum(LinearChain([[[3.0], [0.0]], [[0.0, 2.0]]], [[1.0]], [[0.0]]))
    Spectrum(13 × 1, 0 × 3)
    """
    w1, w2 = _two_layers(chain)
    root = _root(chain.sigma_xx)
    data, inner = root @ root, (w1 @ root).T @ (w1 @ root)
    betas = np.zeros(len(w2))
    found = np.linalg.svd(w2, compute_uv=False) ** 2
    betas[: len(found)] = found
    values = np.concatenate([np.linalg.eigvalsh(beta * data + inner) for beta in betas])
    values = np.sort(np.maximum(values, 0.0))[::-1][: chain.size]
    parts = [Spectrum.from_values(values, "kernel")]
    parts += _repeated([0.0], chain.size - len(values), "zero")
    return Spectrum.merge(parts)


def sharpness_law(first: ArrayLike, second: ArrayLike, sigma_xx: ArrayLike) -> Array:
    """The largest Gauss–Newton eigenvalue of two linear layers, λ_max(Σ^{1/2}(‖W₂‖² I +
    W₁ᵀW₁)Σ^{1/2}); for Σ = I it is ‖W₁‖² + ‖W₂‖², spectral norms. At a minimum with zero residual
    it is the sharpness; elsewhere it differs from it by at most ‖G‖.

    `first` (…, m, D), `second` (…, K, m), `sigma_xx` (D, D); the result has the stack's shape.

    >>> sharpness_law([[3.0], [0.0]], [[0.0, 2.0]], [[1.0]]).item()
    13.0
    """
    w1, w2 = real_array("first", first, ndim=None), real_array("second", second, ndim=None)
    root = _root(real_array("sigma_xx", sigma_xx, ndim=2))
    if w1.shape[-1] != len(root):
        raise ValueError(
            f"sigma_xx must be {w1.shape[-1]}×{w1.shape[-1]} to match first, got {_by(root)}"
        )
    seen = w1 @ root
    beta = np.linalg.norm(w2, ord=2, axis=(-2, -1)) ** 2
    inner = beta[..., None, None] * (root @ root) + seen.swapaxes(-1, -2) @ seen
    top: Array = np.linalg.eigvalsh(inner)[..., -1]
    return top


def deep_sharpness_law(weights: Sequence[ArrayLike], sigma_xx: ArrayLike) -> Array:
    """The largest Gauss–Newton eigenvalue of a linear network of any depth: that of the K·D×K·D
    kernel Σ_i A_iA_iᵀ ⊗ Σ^{1/2}B_iᵀB_iΣ^{1/2}, A_i the layers after i, B_i those before it.

    `weights` are in order of application, (…, d_{l+1}, d_l). For one input and one output the
    kernel is the number σ² Σ_i ‖A_i‖²‖B_i‖².

    >>> deep_sharpness_law([[[2.0]], [[3.0]], [[5.0]]], [[1.0]]).item()
    361.0
    """
    layers = _stacks(weights)
    root = _root(real_array("sigma_xx", sigma_xx, ndim=2))
    after, before = knocked_out(layers)
    kernel = np.zeros(1)
    for a, b in zip(after, before, strict=True):
        seen = b @ root
        left, right = a @ a.swapaxes(-1, -2), seen.swapaxes(-1, -2) @ seen
        size = left.shape[-1] * right.shape[-1]
        product = left[..., :, None, :, None] * right[..., None, :, None, :]
        kernel = kernel + product.reshape(*left.shape[:-2], size, size)
    top: Array = np.linalg.eigvalsh(np.asarray(kernel, dtype=np.float64))[..., -1]
    return top


def knocked_out(weights: Sequence[ArrayLike]) -> tuple[list[Array], list[Array]]:
    """A_i = W_B ⋯ W_{i+1} and B_i = W_{i−1} ⋯ W_1 for every layer i, in order of application.

    >>> after, before = knocked_out([[[2.0]], [[3.0]], [[5.0]]])
    >>> [a.item() for a in after], [b.item() for b in before]
    ([15.0, 5.0, 1.0], [1.0, 2.0, 6.0])
    """
    return _knocked_out(_stacks(weights))


def trace(chain: LinearChain) -> float:
    """tr H = tr(Σ) ‖W₂‖_F² + K tr(W₁ΣW₁ᵀ) for two linear layers, at every point and for any data.

    >>> trace(LinearChain([[[3.0], [0.0]], [[0.0, 2.0]]], [[2.0]], [[7.0]]))
    26.0
    """
    w1, w2 = _two_layers(chain)
    inner = np.trace(w1 @ chain.sigma_xx @ w1.T)
    return float(np.trace(chain.sigma_xx) * np.sum(w2**2) + len(w2) * inner)


# The pair hypothesis


def pair_sums(eigenvalues: ArrayLike) -> Array:
    """λ_i + λ_j for all i < j, ascending.

    >>> pair_sums([1.0, 2.0, 5.0])
    array([3., 6., 7.])
    """
    values = real_array("eigenvalues", eigenvalues, ndim=1)
    i, j = np.triu_indices(len(values), 1)
    return np.sort(values[i] + values[j])


def distances(sums: ArrayLike, targets: ArrayLike) -> Array:
    """The distance of each target (n,) from the nearest of the ascending `sums`: (n,).

    >>> distances([3.0, 6.0, 7.0], [4.0, 6.75, 10.0])
    array([1.  , 0.25, 3.  ])
    """
    places, wanted = real_array("sums", sums, ndim=1), real_array("targets", targets, ndim=1)
    if len(places) == 0:
        raise ValueError("sums must not be empty: a pair needs two eigenvalues")
    right = np.searchsorted(places, wanted).clip(0, len(places) - 1)
    left = (right - 1).clip(0)
    nearest: Array = np.minimum(np.abs(wanted - places[left]), np.abs(wanted - places[right]))
    return nearest


def chance_level(sums: ArrayLike, target: float, rng: np.random.Generator, draws: int) -> float:
    """The share of random targets, uniform between ½ and 1½ times `target`, that some pair meets
    better than it meets `target`: near 0 if `target` is special, ½ on average if it is not.

    >>> chance_level([1.0, 2.0], 1.0, np.random.default_rng(0), draws=100)
    0.0
    """
    own = distances(sums, [target])[0]
    others = target * rng.uniform(0.5, 1.5, whole_number("draws", draws, least=1))
    return float(np.mean(distances(sums, others) < own))


def normalised_data(
    inputs: int, samples: int, decorrelated: bool, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Random features (D, N) and one target (1, N), all with mean 0 and variance 1 over the N
    samples; `decorrelated` makes all their correlations vanish: Σxx = I and Σyx = 0.

    >>> x, y = normalised_data(2, 9, decorrelated=True, rng=np.random.default_rng(0))
    >>> bool(np.abs(x @ x.T / 9 - np.eye(2)).max() + np.abs(y @ x.T).max() < 1e-14)
    True
    """
    size, count = whole_number("inputs", inputs, least=1), whole_number("samples", samples, least=1)
    if count < size + 2:
        raise ValueError(f"samples must be at least {size + 2} for {size} inputs, got {count}")
    rows = rng.standard_normal((size + 1, count))
    rows -= rows.mean(axis=1, keepdims=True)
    if decorrelated:
        rows = np.sqrt(count) * np.linalg.qr(rows.T)[0].T
    else:
        rows /= rows.std(axis=1, keepdims=True)
    return rows[:-1], rows[-1:]


def orthonormal_start(widths: Sequence[int], rng: np.random.Generator) -> list[Array]:
    """Layers (d_{l+1}, d_l) with orthonormal columns or, if there are more columns, rows.

    >>> first, second = orthonormal_start((2, 5, 1), np.random.default_rng(0))
    >>> bool(np.abs(first.T @ first - np.eye(2)).max() < 1e-15), second.shape
    (True, (1, 5))
    """
    sizes = [whole_number("widths", width, least=1) for width in widths]
    layers = []
    for fan, out in pairwise(sizes):
        basis = np.linalg.qr(rng.standard_normal((max(out, fan), min(out, fan))))[0]
        layers.append(basis if out >= fan else basis.T)
    return layers


# Experiments: many networks at once


def start(
    scheme: str, widths: Sequence[int], networks: int, rng: np.random.Generator
) -> list[Array]:
    """Random layers of many networks, weights[l] of shape (networks, d_{l+1}, d_l).

    "SP": uniform in ±1/√d_l, torch's default. "muP": normal with standard deviation
    min(1, √(d_{l+1}/d_l))/√d_l. "NTP": standard normal with factors d_l^{−1/2} in the network; all
    layers are multiplied by the same c = (d_0 ⋯ d_{L−1})^{−1/2L} instead, which divides the
    Hessian by c² and changes no correlation.

    >>> [w.shape for w in start("SP", (2, 7, 3), 5, np.random.default_rng(0))]
    [(5, 7, 2), (5, 3, 7)]
    """
    sizes = [whole_number("widths", width, least=1) for width in widths]
    count = whole_number("networks", networks, least=1)
    shapes = [(count, out, fan) for fan, out in pairwise(sizes)]
    if _scheme(scheme) == "SP":
        return [rng.uniform(-1, 1, shape) / np.sqrt(shape[2]) for shape in shapes]
    scale = float(np.prod(sizes[:-1])) ** (-0.5 / len(shapes))
    layers = []
    for count, out, fan in shapes:
        spread = scale if scheme == "NTP" else min(1.0, np.sqrt(out / fan)) / np.sqrt(fan)
        layers.append(spread * rng.standard_normal((count, out, fan)))
    return layers


def rates(scheme: str, widths: Sequence[int]) -> list[float]:
    """Relative learning rates of the layers: d_{l+1}/d_l for "muP", 1 for the other schemes.

    >>> rates("muP", (2, 100, 2)), rates("SP", (2, 100, 2))
    ([50.0, 0.02], [1.0, 1.0])
    """
    sizes = [whole_number("widths", width, least=1) for width in widths]
    layerwise = _scheme(scheme) == "muP"
    return [out / fan if layerwise else 1.0 for fan, out in pairwise(sizes)]


def cautious_step(weights: Sequence[ArrayLike], relative: Sequence[float]) -> Array:
    """½ / (B (Π_l rate_l)^{1/B} + Σ_l rate_l ‖A_l‖²‖B_l‖²) for each network of a stack (n,): half
    the inverse of the sharpness of a balanced minimum of unit size plus a bound of that now, for
    white inputs and in the metric of the rates.

    >>> cautious_step([[[[2.0]]], [[[1.0]]]], [1.0, 1.0]).round(6)
    array([0.071429])
    """
    after, before = knocked_out(weights)
    step: Array = 0.5 / (_balanced_sharpness(relative) + _kernel_bound(after, before, relative))
    return step


def descend(
    weights: Sequence[ArrayLike],
    sigma_xx: ArrayLike,
    sigma_yx: ArrayLike,
    relative: Sequence[float],
    steps: int,
) -> list[Array]:
    """Gradient descent on ½E‖Wx − y‖² of a stack of linear networks, each with a step that is half
    the inverse of an upper bound of its (rescaled) Gauss–Newton sharpness, renewed every 20 steps,
    plus that of a balanced minimum.

    `weights` (n, d_{l+1}, d_l) in order of application, `relative` one rate per layer.

    >>> trained = descend([[[[0.5]]], [[[0.5]]]], [[1.0]], [[2.0]], [1.0, 1.0], steps=200)
    >>> round(float(trained[0].item() * trained[1].item()), 9)
    2.0
    """
    layers = [weight.copy() for weight in _stacks(weights)]
    data, target = real_array("sigma_xx", sigma_xx, ndim=2), real_array("sigma_yx", sigma_yx, 2)
    largest, depth = float(np.linalg.eigvalsh(data)[-1]), len(layers)
    learnt = np.linalg.norm(target @ np.linalg.pinv(data), ord=2)
    final = _balanced_sharpness(relative) * float(learnt) ** (2 - 2 / depth)
    step = np.zeros(1)
    for time in range(whole_number("steps", steps, least=0)):
        after, before = _knocked_out(layers)
        if time % REFRESH == 0:
            step = 0.5 / (largest * (_kernel_bound(after, before, relative) + final))
        error = (layers[-1] @ before[-1]) @ data - target
        for layer, a, b, rate in zip(layers, after, before, relative, strict=True):
            gradient = a.swapaxes(-1, -2) @ error @ b.swapaxes(-1, -2)
            layer -= (rate * step)[:, None, None] * gradient
    return layers


def sharpness(
    weights: Sequence[ArrayLike],
    sigma_xx: ArrayLike,
    sigma_yx: ArrayLike,
    rng: np.random.Generator,
    krylov: int = 60,
) -> Array:
    """The largest Hessian eigenvalue of each linear network of a stack, by `krylov` Lanczos steps
    with full reorthogonalisation on all of them at once. `weights` (n, d_{l+1}, d_l); result (n,).

    >>> one = [np.array([[[3.0]]]), np.array([[[5.0]]])]
    >>> sharpness(one, [[1.0]], [[7.0]], np.random.default_rng(0)).round(6)
    array([41.351591])
    """
    layers = _stacks(weights)
    data, target = real_array("sigma_xx", sigma_xx, ndim=2), real_array("sigma_yx", sigma_yx, 2)
    after, before = knocked_out(layers)
    error = (layers[-1] @ before[-1]) @ data - target
    errors = [a.swapaxes(-1, -2) @ error for a in after]
    count, sizes = len(layers[0]), [layer[0].size for layer in layers]
    ends = np.cumsum([0, *sizes])
    steps = min(whole_number("krylov", krylov, least=1), int(ends[-1]))

    def product(vectors: Array) -> Array:
        moves = [
            vectors[:, low:high].reshape(layer.shape)
            for layer, low, high in zip(layers, ends, ends[1:], strict=False)
        ]
        ahead = [np.zeros_like(before[0])]
        for layer, move, state in zip(layers, moves, before, strict=True):
            ahead.append(layer @ ahead[-1] + move @ state)
        back, parts = ahead[-1] @ data, []
        for i in reversed(range(len(layers))):
            part = back @ before[i].swapaxes(-1, -2) + errors[i] @ ahead[i].swapaxes(-1, -2)
            parts.append(part.reshape(count, -1))
            back = layers[i].swapaxes(-1, -2) @ back + moves[i].swapaxes(-1, -2) @ errors[i]
        return np.concatenate(parts[::-1], axis=1)

    basis = np.zeros((count, steps, int(ends[-1])))
    matrix = np.zeros((count, steps, steps))
    vector = rng.standard_normal((count, int(ends[-1])))
    for k in range(steps):
        known = basis[:, :k]
        for _ in range(2):
            vector = vector - np.einsum("nk,nkp->np", np.einsum("nkp,np->nk", known, vector), known)
        size = np.linalg.norm(vector, axis=1, keepdims=True)
        # A remainder of rounding size means that the Krylov space is complete: nothing is added.
        floor = 1e-10 * np.abs(matrix).max(axis=(1, 2))[:, None]
        basis[:, k] = np.where(size > floor, vector / np.maximum(size, floor + 1e-300), 0.0)
        vector = product(basis[:, k])
        matrix[:, : k + 1, k] = np.einsum("nkp,np->nk", basis[:, : k + 1], vector)
        matrix[:, k, : k + 1] = matrix[:, : k + 1, k]
    top: Array = np.linalg.eigvalsh(np.asarray(matrix, dtype=np.float64))[:, -1]
    return top


def relu_descend(
    weights: Sequence[ArrayLike],
    inputs: ArrayLike,
    targets: ArrayLike,
    masses: ArrayLike,
    relative: Sequence[float],
    steps: int,
    step: ArrayLike,
) -> list[Array]:
    """Gradient descent on ½ Σ_n masses[n] ‖f(x_n) − y_n‖² of a stack of ReLU networks without bias:
    `inputs` (D, N), `targets` (K, N), `masses` (N,), and steps `step`·relative[l], where `step` is
    one number for each network (n,).

    >>> trained = relu_descend([[[[0.5]]], [[[0.5]]]], [[1.0]], [[2.0]], [1.0], [1, 1], 500, [0.1])
    >>> round(float(trained[0].item() * trained[1].item()), 9)
    2.0
    """
    layers = [weight.copy() for weight in _stacks(weights)]
    x, y = real_array("inputs", inputs, ndim=2), real_array("targets", targets, ndim=2)
    mass = real_array("masses", masses, ndim=1)
    if not x.shape[1] == y.shape[1] == len(mass) > 0:
        raise ValueError(
            "inputs, targets and masses must have the same number of samples, at least 1, "
            f"got {x.shape[1]}, {y.shape[1]} and {len(mass)}"
        )
    pace = real_array("step", step, ndim=1)[:, None, None]
    for _ in range(whole_number("steps", steps, least=0)):
        states = _relu_states(layers, x)
        error = mass * (layers[-1] @ states[-1] - y)
        gradients = []
        for layer, state in zip(layers[::-1], states[::-1], strict=True):
            gradients.append(error @ state.swapaxes(-1, -2))
            error = (layer.swapaxes(-1, -2) @ error) * (state > 0)
        for layer, gradient, rate in zip(layers, gradients[::-1], relative, strict=True):
            layer -= rate * pace * gradient
    return layers


def relu_hessian(weights: Sequence[ArrayLike], inputs: ArrayLike, targets: ArrayLike) -> Array:
    """The Hessian (P, P) of 1/(2N) Σ_n ‖W_B(⋯(W₁x_n)₊⋯)₊ − y_n‖², where no preactivation is zero.

    `weights` (d_{l+1}, d_l) in order of application, `inputs` (D, N), `targets` (K, N). The rows
    are the displacements of the gradient, as in `LinearChain.hvp`, with the ReLUs' masks fixed.

    >>> relu_hessian([[[3.0], [-1.0]], [[5.0, 1.0]]], [[1.0]], [[7.0]])
    array([[25.,  0., 23.,  0.],
           [ 0.,  0.,  0.,  0.],
           [23.,  0.,  9.,  0.],
           [ 0.,  0.,  0.,  0.]])
    """
    layers = _stacks(weights)
    x, y = real_array("inputs", inputs, ndim=2), real_array("targets", targets, ndim=2)
    if not x.shape[1] == y.shape[1] > 0:
        raise ValueError(
            "inputs and targets must have the same number of samples, at least 1, "
            f"got {x.shape[1]} and {y.shape[1]}"
        )
    ends = np.cumsum([0, *(layer.size for layer in layers)])
    every = np.eye(int(ends[-1]))
    moves = [
        every[:, low:high].reshape(-1, *layer.shape)
        for layer, (low, high) in zip(layers, pairwise(ends), strict=True)
    ]
    states, ahead = [x], [np.zeros((len(every), *x.shape))]
    for layer, move in zip(layers[:-1], moves[:-1], strict=True):
        on = layer @ states[-1] > 0
        ahead.append(on * (layer @ ahead[-1] + move @ states[-1]))
        states.append(on * (layer @ states[-1]))
    error = (layers[-1] @ states[-1] - y) / x.shape[1]
    back = (layers[-1] @ ahead[-1] + moves[-1] @ states[-1]) / x.shape[1]
    rows = []
    for i in reversed(range(len(layers))):
        rows.append(
            (back @ states[i].T + error @ ahead[i].swapaxes(-1, -2)).reshape(len(every), -1)
        )
        on = states[i] > 0
        back = on * (layers[i].T @ back + moves[i].swapaxes(-1, -2) @ error)
        error = on * (layers[i].T @ error)
    hessian = np.concatenate(rows[::-1], axis=1)
    symmetric: Array = (hessian + hessian.T) / 2
    return symmetric


def relu_sharpness_law(weights: Sequence[ArrayLike], inputs: ArrayLike, masses: ArrayLike) -> Array:
    """The largest Gauss–Newton eigenvalue of a stack of ReLU networks with one output, without
    bias: that of the N×N kernel with entries √(μ_nμ_n') ⟨∇f(x_n), ∇f(x_n')⟩. Shape (n,).

    >>> relu_sharpness_law([[[[2.0]]], [[[3.0]]]], [[1.0, -1.0]], [0.5, 0.5])
    array([6.5])
    """
    layers = _stacks(weights)
    x, mass = real_array("inputs", inputs, ndim=2), real_array("masses", masses, ndim=1)
    states = _relu_states(layers, x)
    error = np.ones((len(layers[0]), 1, x.shape[1]))
    kernel = np.zeros((len(layers[0]), x.shape[1], x.shape[1]))
    for layer, state in zip(layers[::-1], states[::-1], strict=True):
        kernel += (error.swapaxes(-1, -2) @ error) * (state.swapaxes(-1, -2) @ state)
        error = (layer.swapaxes(-1, -2) @ error) * (state > 0)
    roots = np.sqrt(mass)
    values = np.linalg.eigvalsh(roots[:, None] * kernel * roots)
    return np.asarray(values[:, -1], dtype=np.float64)


def norms2(weights: ArrayLike) -> dict[str, Array]:
    """The squared spectral, Frobenius and nuclear norm of each matrix of a stack (n, a, b).

    >>> {name: value.item() for name, value in norms2([[[3.0, 0.0], [0.0, 4.0]]]).items()}
    {'spectral': 16.0, 'Frobenius': 25.0, 'nuclear': 49.0}
    """
    sigma = np.linalg.svd(real_array("weights", weights, ndim=3), compute_uv=False)
    return {
        "spectral": sigma[:, 0] ** 2,
        "Frobenius": np.sum(sigma**2, axis=1),
        "nuclear": np.sum(sigma, axis=1) ** 2,
    }


def alignments(first: ArrayLike, second: ArrayLike) -> dict[str, Array]:
    """The absolute alignments of W₁ and W₂ᵀ in a stack, from W₂W₁ (n, D, D): its largest singular
    value, its trace in absolute value, the sum of its singular values.

    >>> {name: value.item() for name, value in alignments([[[2.0]]], [[[-3.0]]]).items()}
    {'spectral': 6.0, 'Frobenius': 6.0, 'nuclear': 6.0}
    """
    product = real_array("second", second, ndim=3) @ real_array("first", first, ndim=3)
    sigma = np.linalg.svd(product, compute_uv=False)
    return {
        "spectral": sigma[:, 0],
        "Frobenius": np.abs(np.trace(product, axis1=1, axis2=2)),
        "nuclear": np.sum(sigma, axis=1),
    }


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's correlation coefficient of two samples (n,).

    >>> round(correlation([1.0, 2.0, 3.0], [2.0, 4.0, 7.0]), 4)
    0.9934
    """
    a, b = real_array("x", x, ndim=1), real_array("y", y, ndim=1)
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"x and y must have one length, at least 2, got {len(a)} and {len(b)}")
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def _repeated(values: ArrayLike, count: int, label: str) -> list[Spectrum]:
    """Each value `count` times; nothing where there is no count."""
    numbers = np.asarray(values, dtype=np.float64)
    if count <= 0 or len(numbers) == 0:
        return []
    counts = np.full(len(numbers), count, dtype=np.int64)
    return [Spectrum(numbers, counts, (label,) * len(numbers))]


def _positive_singular_values(matrix: Array) -> Array:
    sigma = np.linalg.svd(matrix, compute_uv=False)
    positive: Array = np.asarray(sigma[sigma > RANK_TOLERANCE * sigma.max(initial=0.0)], np.float64)
    return positive


def _kernel(matrix: Array) -> Array:
    """An orthonormal basis (columns) of the null space."""
    _, sigma, right = np.linalg.svd(matrix)
    rank = int(np.sum(sigma > RANK_TOLERANCE * sigma.max(initial=0.0)))
    return right[rank:].T


def _root(sigma_xx: Array) -> Array:
    """Σ^{1/2}, symmetric, for a positive semidefinite Σ."""
    values, vectors = np.linalg.eigh(sigma_xx)
    root: Array = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    w1, w2 = real_array("first", first, ndim=2), real_array("second", second, ndim=2)
    if w2.shape[1] != len(w1):
        raise ValueError(
            f"second must have {len(w1)} columns to match first ({_by(w1)}), got {_by(w2)}"
        )
    return w1, w2


def _two_layers(chain: LinearChain) -> tuple[Array, Array]:
    if chain.depth != 2:
        raise ValueError(f"chain must have 2 layers, got {chain.depth}")
    if any(np.atleast_1d(chain.ridge)):
        raise ValueError(f"chain must have no ridge, got {chain.ridge}")
    return chain.weights[0], chain.weights[1]


def _one_output(chain: LinearChain) -> tuple[Array, Array, float, Array]:
    """V (m, D), w (m,), s = ‖g‖ and an orthogonal matrix with first column g/s (e₁ if s = 0)."""
    v, w = _two_layers(chain)
    if len(w) != 1:
        raise ValueError(f"chain must have 1 output, got {len(w)}")
    g = chain.residual[0]
    s = float(np.linalg.norm(g))
    start = g / s if s > 0 else np.eye(len(g))[0]
    axes = np.linalg.svd(start[None])[2].T
    axes[:, 0] = start
    return v, w[0], s, axes


def _stacks(weights: Sequence[ArrayLike]) -> list[Array]:
    if len(weights) == 0:
        raise ValueError("weights must hold at least one layer, got none")
    layers = [real_array(f"weights[{i}]", weight, ndim=None) for i, weight in enumerate(weights)]
    for i, (low, high) in enumerate(pairwise(layers), start=1):
        if high.shape[-1] != low.shape[-2]:
            raise ValueError(
                f"weights[{i}] must have {low.shape[-2]} columns to match weights[{i - 1}], "
                f"got shape {high.shape}"
            )
    return layers


def _knocked_out(layers: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    stack = layers[0].shape[:-2]
    before = [np.broadcast_to(np.eye(layers[0].shape[-1]), (*stack, *[layers[0].shape[-1]] * 2))]
    after = [np.broadcast_to(np.eye(layers[-1].shape[-2]), (*stack, *[layers[-1].shape[-2]] * 2))]
    for weight in layers[:-1]:
        before.append(weight @ before[-1])
    for weight in layers[:0:-1]:
        after.append(after[-1] @ weight)
    return after[::-1], before


def _kernel_bound(
    after: Sequence[Array], before: Sequence[Array], relative: Sequence[float]
) -> Array:
    """Σ_i rate_i ‖A_i‖²‖B_i‖² ≥ the sharpness of the rescaled Gauss–Newton matrix for Σ = I."""
    terms = [
        rate
        * np.linalg.norm(a, ord=2, axis=(-2, -1)) ** 2
        * np.linalg.norm(b, ord=2, axis=(-2, -1)) ** 2
        for a, b, rate in zip(after, before, relative, strict=True)
    ]
    bound: Array = np.sum(terms, axis=0)
    return bound


def _balanced_sharpness(relative: Sequence[float]) -> float:
    """The sharpness B (Π_l rate_l)^{1/B} of a balanced minimum ‖W‖ = 1, in the rates' metric."""
    depth = len(relative)
    return float(depth * np.prod(relative) ** (1 / depth))


def _relu_states(layers: Sequence[Array], x: Array) -> list[Array]:
    """What each layer receives: x, then the hidden states after the ReLU."""
    states = [np.broadcast_to(x, (len(layers[0]), *x.shape))]
    for layer in layers[:-1]:
        states.append(np.maximum(layer @ states[-1], 0.0))
    return states


def _scheme(scheme: str) -> str:
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    return scheme


def _by(matrix: Array) -> str:
    return f"{matrix.shape[0]}×{matrix.shape[1]}"
