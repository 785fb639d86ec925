"""Any loss that sees two matrices through their product: its bulk, and what is known of the rest.

W₁ is m×D and W₂ is K×m, so that m is the hidden width, and G is the K×D gradient of the loss with
respect to the product W₂W₁; for the squared loss G = W₂W₁Σxx − Σyx, the chain's `residual`. The
Hessian acts on a displacement (Ẇ₁, Ẇ₂) as

    (Ẇ₂ᵀG + W₂ᵀĠ, GẆ₁ᵀ + ĠW₁ᵀ),    Ġ = φ″[Ẇ₂W₁ + W₂Ẇ₁].                                          (1)

A displacement that does not move the product feels only G: that is the bulk. A `LinearChain` of
two layers is the network with its data; several networks at once are stacks of shape (n, ·, ·).
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import matmul

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, guard, require
from exacthessian.spectrum import Spectrum

RANK_TOLERANCE = 1e-12
SLACK = 1e-10  # by which rounding may violate an assumption


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
    return _sides(sigma, copies, zeros)


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
    outside = _sides(sigma, spare, spare * abs(inputs - outputs))
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
    require(len(v) >= len(axes), "chain must have as many hidden units as inputs", chain)
    gram, h, w2 = axes.T @ (v.T @ v) @ axes, axes.T @ (v.T @ w), float(w @ w)
    coloured = np.abs(chain.sigma_xx - np.eye(len(axes))).max()
    if max([coloured, *s * np.abs(h[1:]), *s * np.abs(gram[0, 1:])]) > SLACK:
        parallel = "and Vᵀw and an eigenvector of VᵀV parallel to the residual"
        raise ValueError(f"chain must have white inputs, {parallel}, got {chain!r}")
    half = (gram[0, 0] + w2) / 2
    root = np.sqrt(max(half**2 + s**2 + 2 * s * h[0], 0.0))
    parts = [Spectrum.from_values([half + root, half - root], "pair")]
    for nu2 in np.linalg.eigvalsh(gram[1:, 1:]):
        cross = np.sqrt(max(nu2, 0.0) * w2)
        block = [[nu2, cross, s], [cross, w2, 0.0], [s, 0.0, 0.0]]
        parts.append(Spectrum.from_matrix(block, "triple"))
    return Spectrum.merge([*parts, _rest(v, s)])


def knocked_out(weights: Sequence[ArrayLike]) -> tuple[list[Array], list[Array]]:
    """A_i = W_B ⋯ W_{i+1} and B_i = W_{i−1} ⋯ W_1 for every layer i, in order of application;
    `weights` (…, d_{l+1}, d_l), possibly stacks.

    >>> after, before = knocked_out([[[2.0]], [[3.0]], [[5.0]]])
    >>> [a.item() for a in after], [b.item() for b in before]
    ([15.0, 5.0, 1.0], [1.0, 2.0, 6.0])
    """
    layers = [np.asarray(weight, dtype=float) for weight in weights]
    first, last = np.eye(layers[0].shape[-1]), np.eye(layers[-1].shape[-2])
    before = accumulate(layers[:-1], lambda product, layer: layer @ product, initial=first)
    after = accumulate(layers[:0:-1], matmul, initial=last)
    return list(after)[::-1], list(before)


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


def _kernel(weights: Sequence[ArrayLike], sigma_xx: ArrayLike) -> Array:
    """A symmetric matrix with the largest eigenvalue of the Gauss–Newton kernel (…, n, n)."""
    values, vectors = np.linalg.eigh(np.asarray(sigma_xx, dtype=float))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    after, before = knocked_out(weights)
    total = np.zeros(1)
    for a, b in zip(after, before, strict=True):
        left, right = a @ a.mT, (b @ root).mT @ (b @ root)
        if len(after) == 2:  # one term is a multiple of the identity on the left: the top suffices
            left = np.asarray(np.linalg.eigvalsh(left)[..., -1:, None])
        product = left[..., :, None, :, None] * right[..., None, :, None, :]
        size = left.shape[-1] * right.shape[-1]
        total = total + product.reshape(*product.shape[:-4], size, size)
    return total


def _sides(sigma: Iterable[float], copies: int, zeros: int) -> Spectrum:
    """Each σ and −σ so many times, labelled "bulk", and zeros, labelled "zero"."""
    sides = ((sign * value, copies, "bulk") for value in sigma for sign in (1, -1))
    return Spectrum.of(*sides, (0.0, zeros, "zero"))


def _rest(v: Array, s: float) -> Spectrum:
    """±s each m − min(m, D) times and 0 (m − 1)(D − 1) times."""
    width, inputs = v.shape
    return _sides([s], max(width - inputs, 0), (width - 1) * (inputs - 1))


def _two_layers(chain: LinearChain) -> tuple[Array, Array]:
    fit = chain.depth == 2 and not any(chain.ridge)
    require(fit, "chain must have 2 layers and no ridge", repr(chain))
    return chain.weights[0], chain.weights[1]


def _one_output(chain: LinearChain) -> tuple[Array, Array, float, Array]:
    """V (m, D), w (m,), s = ‖g‖ and an orthogonal matrix with first column g/s, g the gradient with
    respect to wᵀV; if g = 0, an eigenvector of VᵀV instead.
    """
    v, w = _two_layers(chain)
    require(len(w) == 1, "chain must have 1 output", len(w))
    g = chain.residual[0]
    s = float(np.linalg.norm(g))
    start = g / s if s > 0 else np.linalg.svd(v)[2][0]
    axes = np.linalg.svd(start[None])[2].T
    axes[:, 0] = start
    return v, w[0], s, axes


guard(globals())
