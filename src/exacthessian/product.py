"""Any loss that sees two matrices through their product: its bulk, and what is known of the rest.

W₁ is m×D and W₂ is K×m, so that m is the hidden width, and G is the K×D gradient of the loss with
respect to the product W₂W₁; for the squared loss G = W₂W₁Σxx − Σyx, the chain's `residual`. The
Hessian acts on a displacement (Ẇ₁, Ẇ₂) as

    (Ẇ₂ᵀG + W₂ᵀĠ, GẆ₁ᵀ + ĠW₁ᵀ),    Ġ = φ″[Ẇ₂W₁ + W₂Ẇ₁].                                          (1)

A displacement that does not move the product feels only G: that is the bulk. A `LinearChain` of
two layers is the network with its data; several networks at once are stacks of shape (n, ·, ·).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array
from exacthessian.spectrum import Spectrum

RANK_TOLERANCE = 1e-12


def bulk(gradient: ArrayLike, width: int) -> Spectrum:
    """The eigenvalues that every loss φ(W₂W₁, ψ) with ∂φ/∂(W₂W₁) = G has at hidden width m:
    +σ_i(G) and −σ_i(G), each at least m − D − K + 1 times, and 0 at least
    (D − rank G)(m − K) + (K − rank G)(m − D) times. `gradient` is G (K, D).

    >>> bulk([[3.0, 4.0]], width=6)
    Spectrum(5 × 4, 0 × 5, -5 × 4)
    """
    g = np.asarray(gradient, dtype=float)
    outputs, inputs = g.shape
    sigma = np.linalg.svd(g, compute_uv=False)
    sigma = sigma[sigma > RANK_TOLERANCE * sigma.max(initial=0.0)]
    rank, copies = len(sigma), max(width - inputs - outputs + 1, 0)
    zeros = (inputs - rank) * max(width - outputs, 0) + (outputs - rank) * max(width - inputs, 0)
    sides = [(sign * value, copies, "bulk") for value in sigma for sign in (1, -1)]
    return Spectrum.of(*sides, (0.0, zeros, "zero"))


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
    w1, w2 = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    left, _, right = np.linalg.svd(np.asarray(gradient, dtype=float))
    u, v = left[:, index], right[index]
    conditions = np.vstack([np.column_stack([w1.T, -v]), np.column_stack([w2, sign * u])])
    _, sizes, basis = np.linalg.svd(conditions)
    rank = int(np.sum(sizes > RANK_TOLERANCE * sizes.max(initial=0.0)))
    columns = [
        np.concatenate([np.outer(z, v).ravel(), np.outer(sign * u, z).ravel()])
        for z in basis[rank:, :-1]
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
    w1, w2 = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    columns = np.concatenate([w1, w2.swapaxes(-1, -2)], axis=-1)
    triangle = np.asarray(np.linalg.qr(columns, mode="r"))
    inputs = w1.shape[-1]
    return triangle[..., :inputs], triangle[..., inputs:].swapaxes(-1, -2)


def spectrum_by_reduction(chain: LinearChain) -> Spectrum:
    """The whole spectrum of two linear layers: that of the `reduced` network, and for each hidden
    direction it leaves out once the eigenvalues of the (D+K)×(D+K) matrix [[0, Gᵀ], [G, 0]], which
    are ±σ_i(G) and |D − K| zeros.

    >>> chain = LinearChain([[[1.0], [1.0], [0.0]], [[1.0, 0.0, 2.0]]], [[1.0]], [[0.0]])
    >>> spectrum_by_reduction(chain).distance(Spectrum.from_matrix(chain.hessian())) < 1e-14
    True
    """
    w1, w2 = _two_layers(chain)
    small = LinearChain(reduced(w1, w2), chain.sigma_xx, chain.sigma_yx)
    spare = len(w1) - small.widths[1]
    outputs, inputs = chain.residual.shape
    sigma = np.linalg.svd(chain.residual, compute_uv=False)
    outside = Spectrum.of(
        *((sign * value, spare, "bulk") for value in sigma for sign in (1, -1)),
        (0.0, spare * abs(inputs - outputs), "zero"),
    )
    return Spectrum.merge([Spectrum.from_matrix(small.hessian(), "reduced"), outside])


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
    matrix = np.diag(diagonal) + factor @ chain.sigma_xx @ factor.T
    return (matrix + matrix.T) / 2


def spectrum_one_output(chain: LinearChain) -> Spectrum:
    """All m(D + 1) eigenvalues of wᵀVx for any data and weights: ±s each m − min(m, D) times,
    0 (m − 1)(D − 1) times, and the eigenvalues of the `outlier_matrix`; s = ‖VᵀwΣxx − Σyx‖.

    >>> chain = LinearChain([[[1.0], [0.0], [0.0]], [[0.0, 1.0, 0.0]]], [[1.0]], [[-2.0]])
    >>> spectrum_one_output(chain)
    Spectrum(3.23607 × 1, 2 × 2, -1.23607 × 1, -2 × 2)
    """
    v, _, s, _ = _one_output(chain)
    outliers = Spectrum.from_matrix(outlier_matrix(chain), "outlier")
    return Spectrum.merge([outliers, _rest(v, s)])


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
    lam = np.asarray(values, dtype=float)[:, None, None]
    moved = lam**2 * (v.T @ v) + lam * (np.outer(h, g) + np.outer(g, h)) + norm2 * np.outer(g, g)
    straight = (lam**2 - s**2) * (lam * np.eye(len(g)) - norm2 * sigma)
    return np.linalg.det(straight - moved @ sigma)


def solvable_spectrum(chain: LinearChain) -> Spectrum:
    """White inputs, Vᵀw = k g, and g an eigenvector of VᵀV: one pair, D − 1 triples, ±s each m − D
    times and 0 (m − 1)(D − 1) times, m ≥ D. For D = 2 it is Theorem B.1 of "Cracking the Hessian".

    With ν_j² the eigenvalues of VᵀV, ν_1² that of g, and ω = ‖w‖² they are the roots of

        λ² − (ν_1² + ω)λ − (1 + 2k)s² = 0,   λ³ − (ν_j² + ω)λ² − s²λ + s²ω = 0  (j ≥ 2).

    >>> chain = LinearChain([np.eye(3)[:, :2], [[1.0, 2.0, 0.0]]], np.eye(2), [[0.0, 0.0]])
    >>> solvable_spectrum(chain).distance(Spectrum.from_matrix(chain.hessian())) < 1e-14
    True
    """
    v, w, s, axes = _one_output(chain)
    _refuse(np.abs(chain.sigma_xx - np.eye(len(axes))).max(), "sigma_xx must be the identity")
    gram, h, w2 = axes.T @ (v.T @ v) @ axes, axes.T @ (v.T @ w), float(w @ w)
    _refuse(np.abs(h[1:]).max(initial=0.0), "Vᵀw must be parallel to the residual")
    _refuse(np.abs(gram[0, 1:]).max(initial=0.0), "the residual must be an eigenvector of VᵀV")
    half = (gram[0, 0] + w2) / 2
    root = np.sqrt(max(half**2 + s**2 + 2 * s * h[0], 0.0))
    parts = [Spectrum.from_values([half + root, half - root], "pair")]
    parts += [_triple(nu2, w2, s) for nu2 in np.linalg.eigvalsh(gram[1:, 1:])]
    return Spectrum.merge([*parts, _rest(v, s)])


def orthogonal_spectrum(chain: LinearChain) -> Spectrum:
    """White inputs, VᵀV = ν²I, any targets, D ≥ 2 and m ≥ D: the five roots of

        (λ² − Tλ − s² − 2s a)(λ³ − Tλ² − s²λ + s²ω) = s² c² λ,   T = ν² + ω, ω = ‖w‖²,

    where a = ⟨h, g⟩/s and c = ‖h − a g/s‖ are the parts of h = Vᵀw, next to D − 2 triples, ±s each
    m − D times and 0 (m − 1)(D − 1) times.

    >>> chain = LinearChain([np.eye(3)[:, :2], [[1.0, 2.0, 0.0]]], np.eye(2), [[0.0, 1.0]])
    >>> orthogonal_spectrum(chain).distance(Spectrum.from_matrix(chain.hessian())) < 1e-14
    True
    """
    v, w, s, axes = _one_output(chain)
    nu2, w2, h = float(v[:, 0] @ v[:, 0]), float(w @ w), axes.T @ (v.T @ w)
    _refuse(np.abs(chain.sigma_xx - np.eye(len(h))).max(), "sigma_xx must be the identity")
    _refuse(np.abs(v.T @ v - nu2 * np.eye(len(h))).max(), "VᵀV must be a multiple of the identity")
    along, slope = h[0], np.linalg.norm(h[1:]) / np.sqrt(nu2)
    factor = np.array(
        [
            [np.sqrt(max(nu2 + w2 + 2 * along - slope**2, 0.0)), 0.0],
            [slope, np.sqrt(nu2)],
            [np.sqrt(max(nu2 + w2 - 2 * along - slope**2, 0.0)), 0.0],
            [-slope, np.sqrt(nu2)],
            [0.0, np.sqrt(2 * w2)],
        ]
    )
    quintic = np.diag([s, s, -s, -s, 0.0]) + factor @ factor.T / 2
    parts = [Spectrum.from_matrix(quintic, "quintic")]
    parts += [_triple(nu2, w2, s)] * (len(h) - 2)
    return Spectrum.merge([*parts, _rest(v, s)])


def knocked_out(weights: Sequence[ArrayLike]) -> tuple[list[Array], list[Array]]:
    """A_i = W_B ⋯ W_{i+1} and B_i = W_{i−1} ⋯ W_1 for every layer i, in order of application;
    `weights` (…, d_{l+1}, d_l), possibly stacks.

    >>> after, before = knocked_out([[[2.0]], [[3.0]], [[5.0]]])
    >>> [a.item() for a in after], [b.item() for b in before]
    ([15.0, 5.0, 1.0], [1.0, 2.0, 6.0])
    """
    layers = [np.asarray(weight, dtype=float) for weight in weights]
    stack = layers[0].shape[:-2]
    before = [np.broadcast_to(np.eye(layers[0].shape[-1]), (*stack, *[layers[0].shape[-1]] * 2))]
    after = [np.broadcast_to(np.eye(layers[-1].shape[-2]), (*stack, *[layers[-1].shape[-2]] * 2))]
    for weight in layers[:-1]:
        before.append(weight @ before[-1])
    for weight in layers[:0:-1]:
        after.append(after[-1] @ weight)
    return after[::-1], before


def sharpness_law(weights: Sequence[ArrayLike], sigma_xx: ArrayLike) -> Array:
    """The largest Gauss–Newton eigenvalue of a linear network: that of the K·D×K·D kernel
    Σ_i A_iA_iᵀ ⊗ Σ^{1/2}B_iᵀB_iΣ^{1/2}, A_i the layers after i, B_i those before it.

    For two layers it is λ_max(Σ^{1/2}(‖W₂‖² I + W₁ᵀW₁)Σ^{1/2}), and ‖W₁‖² + ‖W₂‖² for Σ = I; for
    one input and one output σ² Σ_i ‖A_i‖²‖B_i‖². At a minimum with zero residual it is the
    sharpness. `weights` (…, d_{l+1}, d_l); the result has the stack's shape.

    >>> sharpness_law([[[3.0], [0.0]], [[0.0, 2.0]]], [[1.0]]).item()
    13.0
    >>> sharpness_law([[[2.0]], [[3.0]], [[5.0]]], [[1.0]]).item()
    361.0
    """
    return np.asarray(np.linalg.eigvalsh(_kernel(weights, sigma_xx))[..., -1])


def trace(weights: Sequence[ArrayLike], sigma_xx: ArrayLike) -> Array:
    """tr H = Σ_i ‖A_i‖_F² tr(B_iΣB_iᵀ) for a linear network, at every point and for any targets;
    for two layers tr(Σ) ‖W₂‖_F² + K tr(W₁ΣW₁ᵀ). Stacks as in `sharpness_law`.

    >>> trace([[[3.0], [0.0]], [[0.0, 2.0]]], [[2.0]]).item()
    26.0
    """
    data = np.asarray(sigma_xx, dtype=float)
    pairs = zip(*knocked_out(weights), strict=True)
    terms = [np.sum(a**2, axis=(-2, -1)) * np.sum((b @ data) * b, axis=(-2, -1)) for a, b in pairs]
    return np.sum(terms, axis=0)


def _kernel(weights: Sequence[ArrayLike], sigma_xx: ArrayLike) -> Array:
    """A symmetric matrix with the largest eigenvalue of the Gauss–Newton kernel (…, n, n)."""
    root = _root(np.asarray(sigma_xx, dtype=float))
    after, before = knocked_out(weights)
    total = np.zeros(1)
    for a, b in zip(after, before, strict=True):
        seen = b @ root
        left, right = a @ a.swapaxes(-1, -2), seen.swapaxes(-1, -2) @ seen
        if len(after) == 2:  # one term is a multiple of the identity on the left: the top suffices
            left = np.asarray(np.linalg.eigvalsh(left)[..., -1:, None])
        product = left[..., :, None, :, None] * right[..., None, :, None, :]
        size = left.shape[-1] * right.shape[-1]
        total = total + product.reshape(*left.shape[:-2], size, size)
    return total


def _triple(nu2: float, w2: float, s: float) -> Spectrum:
    """The roots of λ³ − (ν² + ω)λ² − s²λ + s²ω, ω = ‖w‖²."""
    cross = np.sqrt(max(nu2, 0.0) * w2)
    return Spectrum.from_matrix([[nu2, cross, s], [cross, w2, 0.0], [s, 0.0, 0.0]], "triple")


def _rest(v: Array, s: float) -> Spectrum:
    """±s each m − min(m, D) times and 0 (m − 1)(D − 1) times."""
    width, inputs = v.shape
    spare = max(width - inputs, 0)
    zeros = (width - 1) * (inputs - 1)
    return Spectrum.of((s, spare, "bulk"), (-s, spare, "bulk"), (0.0, zeros, "zero"))


def _root(sigma_xx: Array) -> Array:
    """Σ^{1/2}, symmetric, for a positive semidefinite Σ."""
    values, vectors = np.linalg.eigh(sigma_xx)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def _two_layers(chain: LinearChain) -> tuple[Array, Array]:
    if chain.depth != 2 or np.any(chain.ridge):
        raise ValueError(f"chain must have 2 layers and no ridge, got {chain!r}")
    return chain.weights[0], chain.weights[1]


def _one_output(chain: LinearChain) -> tuple[Array, Array, float, Array]:
    """V (m, D), w (m,), s = ‖g‖ and an orthogonal matrix with first column g/s, g the gradient with
    respect to wᵀV; if g = 0, along Vᵀw instead.
    """
    v, w = _two_layers(chain)
    if len(w) != 1:
        raise ValueError(f"chain must have 1 output, got {len(w)}")
    g = chain.residual[0]
    s = float(np.linalg.norm(g))
    start = g / s if s > 0 else _first_axis(v, w[0])
    axes = np.linalg.svd(start[None])[2].T
    axes[:, 0] = start
    return v, w[0], s, axes


def _first_axis(v: Array, w: Array) -> Array:
    h = v.T @ w
    size = np.linalg.norm(h)
    return h / size if size > 0 else np.linalg.eigh(v.T @ v)[1][:, 0]


def _refuse(excess: float, rule: str) -> None:
    """Refuse a network that violates an assumption by more than rounding."""
    if excess > 1e-10:
        raise ValueError(f"{rule}, violated by {excess:.3g}")
