"""The numbered forms of "Unifying Low Dimensional Observations in Deep Learning Through the Deep
Linear Unconstrained Feature Model".

Most are functions of one `Layer` of a point. It receives h_ic (`inputs`), A_{l+1} follows
(`slopes`), μ_c^l and μ_c^{l+1} are the class means before and behind it (`here`, `above`); C and λ
belong to its model. Hessians and data gradients leave out the ridge, as in the paper, and λ is one
number.
"""

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, guard
from exacthessian.spectrum import Spectrum
from exacthessian.ufm import DeepLinearUFM, Layer, Point, Split, threshold
from exacthessian.ufm_cross_entropy import ROUNDING, Collapse, critical_scales

Linear = Layer[DeepLinearUFM]


def theorem_1(layer: Linear) -> Array:
    """Hess_l = g Σ_cc' v_cc' v_cc'ᵀ with v_cc' = μ̂_c^{l+1} ⊗ μ̂_c'^l at an optimum, (D, D).

    >>> int(np.linalg.matrix_rank(theorem_1(_example())))
    4
    """
    pairs = np.kron(_unit(layer.above), _unit(layer.here))
    return _curvature(layer.model) * pairs @ pairs.T


def equation_5(layer: Linear) -> Split:
    """The class, cross and within parts of Hess_l at any point: with v_icc' = a_c' ⊗ h_ic, the
    second moment over c of its means, the covariance over c' and the covariance over i.

    >>> [part.shape for part in equation_5(_example())]
    [(9, 9), (9, 9), (9, 9)]
    """
    vectors = np.einsum("ska,bs->skab", layer.slopes, layer.inputs)
    return Split(*(rows.T @ rows for rows in Split.of(vectors)))


def theorem_2(layer: Linear) -> Split:
    """The parts of (5) at an optimum: g times the projectors on μ_G^{l+1} ⊗ μ_c^l (rank K) and on
    (μ_1^{l+1} − μ_c'^{l+1}) ⊗ μ_c^l (rank K(K − 1)), and zero.

    >>> [int(np.linalg.matrix_rank(part)) for part in theorem_2(_example())]
    [2, 2, 0]
    """
    above, here = _unit(layer.above), _unit(layer.here)
    centre = above.sum(axis=1, keepdims=True) / np.sqrt(layer.classes)
    one, all_ = centre @ centre.T, above @ above.T
    g, right = _curvature(layer.model), here @ here.T
    return Split(g * np.kron(one, right), g * np.kron(all_ - one, right), 0 * np.kron(one, right))


def equation_6(layer: Linear) -> Array:
    """The data gradient g̃ = Av_ic{(A_{l+1}ᵀ u_ic) ⊗ h_ic} at any point, (D,); also (14).

    >>> equation_6(_example()).shape
    (9,)
    """
    errors = np.einsum("ska,ks->as", layer.slopes, layer.residuals)
    return (errors @ layer.inputs.T).ravel() / layer.inputs.shape[1]


def theorem_3(layer: Linear) -> Array:
    """g̃ = (1/K)(√n)^{−1/(L+1)} C^{L/(L+1)} (C − 1) Σ_c μ̂_c^{l+1} ⊗ μ̂_c^l at an optimum, (D,).

    >>> bool(np.allclose(theorem_3(_example()), equation_6(_example())))
    True
    """
    ufm, N, outer = layer.model, layer.model.depth + 1, _unit(layer.above) @ _unit(layer.here).T
    size = np.sqrt(ufm.samples) ** (-1 / N) * ufm.fit ** (ufm.depth / N) / ufm.classes
    return (size * (ufm.fit - 1) * outer).ravel()


def theorem_4(layer: Linear) -> Array:
    """W_l = (1/(Kλ))(√n)^{−1/(L+1)} C^{L/(L+1)} (1 − C) Σ_c μ̂_c^{l+1} μ̂_c^{lᵀ} at an optimum, which
    is Theorem 3 divided by −λ.

    >>> bool(np.allclose(theorem_4(_example()), _example().weight))
    True
    """
    return -theorem_3(layer).reshape(layer.weight.shape) / _ridge(layer.model)


def theorem_5(ufm: DeepLinearUFM, chain: LinearChain | Point) -> Array:
    """The leading term of the Hessian in W_1, …, W_L at an optimum, (P, P): blocks
    g Σ_cc' v_cc'^l v_cc'^{rᵀ}. It has rank K² and the eigenvalue L g.

    >>> leading = theorem_5(_example().model, _example().point)
    >>> bool(np.isclose(np.linalg.norm(leading, 2), 2 * _curvature(_example().model)))
    True
    """
    pairs = [np.kron(_unit(layer.above), _unit(layer.here)) for layer in ufm.layers(chain)]
    stacked = np.vstack(pairs)
    return _curvature(ufm) * stacked @ stacked.T


def theorem_5_remainder(ufm: DeepLinearUFM) -> Spectrum:
    """All eigenvalues of what Theorem 5 drops, L ≥ 2: its norm is exactly (L−1)λ.

    >>> theorem_5_remainder(DeepLinearUFM(classes=3, samples=2, depth=3, width=4, ridge=0.01))
    Spectrum(0.02 × 3, 0.01 × 18, 0 × 5, -0.01 × 12, -0.02 × 6)
    """
    lam, K, others, spare = _ridge(ufm), ufm.classes, ufm.depth - 1, ufm.width - ufm.classes
    even, odd = K * (K + 1) // 2, K * (K - 1) // 2
    return Spectrum.of(
        (others * lam, odd, "antisymmetric"),
        (lam, others * (even + K * spare), "balance"),
        (0.0, K * spare + others * spare**2, "idle"),
        (-lam, others * (odd + K * spare), "orbit"),
        (-others * lam, even, "symmetric"),
    )


def theorem_6(feature_layers: int, depth: int) -> float:
    """√(2L̄/(L̄ + L)), the distance of Hess and Hess_{L,L}, each divided by its norm, when all
    blocks have one Frobenius norm; it bounds the distance of their sorted eigenvalues.

    >>> theorem_6(1, 7)
    0.5
    """
    return float(np.sqrt(2 * feature_layers / (feature_layers + depth)))


def theorem_7(layer: Linear) -> tuple[Array, ...]:
    """What Theorems 1 to 4 say at a layer of the ReLU model, with σ'(0) = 1, at a point of
    Definition 2: Hessian, its class, cross and within part, data gradient, weights.

    >>> len(theorem_7(_example()))
    6
    """
    return theorem_1(layer), *theorem_2(layer), theorem_3(layer), theorem_4(layer)


def theorem_8(ufm: DeepLinearUFM, tilts: ArrayLike) -> float:
    """The least loss in the class of Theorem 8 when ReLU shortens the frame of layer l = 2..L by
    cos θ_l, θ = `tilts` (L−1). A shorter frame acts like a larger λ: it is the least loss of the
    linear model with λ (Π cos θ)^(−2/(L+1)), or ½, the loss of the zero solution.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=4, ridge=0.02)
    >>> theorem_8(ufm, [0.0]) == ufm.loss(), theorem_8(ufm, [0.5]) > ufm.loss()
    (True, True)
    """
    longer = _ridge(ufm) * np.prod(np.cos(tilts)) ** (-2 / (ufm.depth + 1))
    if longer >= threshold(ufm.classes, ufm.samples, ufm.depth):
        return 0.5
    return DeepLinearUFM(ufm.classes, ufm.samples, ufm.depth, ufm.width, float(longer)).loss()


def equation_9(classes: int, samples: int, depth: int, ridge: float) -> float:
    """The logit scale α: the larger solution of λ n^{1/(L+1)} = α^{(L−1)/(L+1)}/(K − 1 + e^α).

    >>> round(equation_9(classes=2, samples=4, depth=1, ridge=0.125), 12)
    1.098612288668
    """
    power, target = (depth - 1) / (depth + 1), np.log(ridge) + np.log(samples) / (depth + 1)

    def excess(alpha: float) -> float:
        growth = power * np.log(alpha) if depth > 1 else 0.0
        return float(growth - alpha - np.log1p((classes - 1) * np.exp(-alpha)) - target)

    highest = 2 + 2 * abs(target) + 2 * depth  # the logarithms grow more slowly than α
    lowest = critical_scales(classes, depth)[0]
    return float(brentq(excess, lowest, highest, xtol=ROUNDING, rtol=ROUNDING))


def theorem_9(layer: Layer[Collapse]) -> Array:
    """The leading term of Hess_l at the collapsed cross-entropy point, as α → ∞:
    β((K−1)/K)² [Σ_c v_cc v_ccᵀ + (1/K) Σ_cc' v_cc' v_cc'ᵀ].

    >>> layer = Collapse(3, 1, 2, 3, alpha=9.0).layers(np.random.default_rng(0))[0]
    >>> int(np.linalg.matrix_rank(theorem_9(layer)))
    4
    """
    K, above, here = layer.classes, _unit(layer.above), _unit(layer.here)
    equal = np.einsum("ac,bc->abc", above, here).reshape(-1, K)
    every = np.kron(above, here)
    beta = theorem_9_eigenvalues(layer.model)[0]
    return beta * ((K - 1) / K) ** 2 * (equal @ equal.T + every @ every.T / K)


def theorem_9_eigenvalues(point: Collapse) -> tuple[float, float, float]:
    """β, β(K−1)/K and β/K with β = e^α(α√n)^{2L/(L+1)}/(n(K−1+e^α)²), to leading order.

    >>> values = theorem_9_eigenvalues(Collapse(4, 2, 3, 5, alpha=3.0))
    >>> [round(value / values[0], 12) for value in values]
    [1.0, 0.75, 0.25]
    """
    K, n, L = point.classes, point.samples, point.depth
    scale = (point.alpha * np.sqrt(n)) ** (2 * L / (L + 1)) / n
    beta = float(scale * point.confidence * point.wrong)
    return beta, beta * (K - 1) / K, beta / K


def theorem_9_multiplicities(classes: int) -> tuple[int, int, int]:
    """How often they occur: 1, K − 1 and K² − 3K + 1 for K ≥ 3; 1, 0 and 0 for K = 2.

    >>> theorem_9_multiplicities(4), theorem_9_multiplicities(2)
    ((1, 3, 5), (1, 0, 0))
    """
    return (1, classes - 1, classes * (classes - 3) + 1) if classes > 2 else (1, 0, 0)


def theorem_9_eigenvectors(classes: int) -> tuple[Array, Array, Array]:
    """Spanning sets of the three eigenspaces as matrices M (K, K), the vectors Σ M_cc' v_cc': first
    S, then s_a s_aᵀ − s_b s_bᵀ, then s_a s_bᵀ − s_b s_aᵀ and, for four different classes,
    (s_a − s_b)(s_c − s_d)ᵀ plus its transpose.

    >>> [len(group) for group in theorem_9_eigenvectors(4)]
    [1, 6, 9]
    """
    S = _simplex(classes)
    pairs = list(combinations(range(classes), 2))
    middle = [np.outer(S[a], S[a]) - np.outer(S[b], S[b]) for a, b in pairs]
    last = [np.outer(S[a], S[b]) - np.outer(S[b], S[a]) for a, b in pairs]
    for (a, b), (c, d) in combinations(pairs, 2):
        if len({a, b, c, d}) == 4:
            walk = np.outer(S[a] - S[b], S[c] - S[d])
            last.append(walk + walk.T)
    return S[None], np.array(middle), np.array(last)


def theorem_10(layer: Linear) -> Array:
    """The covariance (21) of the data gradients of single samples at an optimum,
    g(C − 1)² Σ_c (v̂_c − Av v̂)(v̂_c − Av v̂)ᵀ with v̂_c = μ̂_c^{l+1} ⊗ μ̂_c^l: rank K − 1.

    >>> int(np.linalg.matrix_rank(theorem_10(_example())))
    1
    """
    vectors = np.einsum("ac,bc->abc", _unit(layer.above), _unit(layer.here))
    centred = (vectors - vectors.mean(axis=2, keepdims=True)).reshape(-1, layer.classes)
    return _curvature(layer.model) * (layer.model.fit - 1) ** 2 * centred @ centred.T


def theorem_11(layer: Linear) -> Array:
    """The second moment (22) of the extended backpropagation errors at an optimum, (d, d):
    (C√n)^{(2L−2l+2)/(L+1)} times C² + 1 on differences of means and (C − 1)² on μ_G.

    >>> int(np.linalg.matrix_rank(theorem_11(_example())))
    2
    """
    ufm, here = layer.model, _unit(layer.here)
    C, power = ufm.fit, (2 * ufm.depth - 2 * layer.number + 2) / (ufm.depth + 1)
    centre = here.sum(axis=1, keepdims=True) / np.sqrt(ufm.classes)
    one, size = centre @ centre.T, (C * np.sqrt(ufm.samples)) ** power
    return size * ((C**2 + 1) * (here @ here.T - one) + (C - 1) ** 2 * one)


def equation_11(layer: Linear) -> Array:
    """∂(u_ic)_x/∂(W_l)_ab = (A_{l+1})_xa (h_ic)_b, shape (Kn, K, d_l, d).

    >>> equation_11(_example()).shape
    (4, 2, 3, 3)
    """
    return np.einsum("sxa,bs->sxab", layer.slopes, layer.inputs)


def equation_12(layer: Linear) -> Array:
    """Hess_l = A_{l+1}ᵀA_{l+1} ⊗ Av_ic{h_ic h_icᵀ} at any point: features, not their class means.

    >>> bool(np.allclose(equation_12(_example()), theorem_1(_example())))
    True
    """
    A, H = layer.slopes[0], layer.inputs
    return np.kron(A.T @ A, H @ H.T / H.shape[1])


def equation_15(layer: Linear) -> Array:
    """A_{l+1}ᵀ u_c = C(C − 1) μ_c^{l+1}/‖μ^{l+1}‖² at an optimum, one column for each class.

    >>> equation_15(_example()).shape
    (3, 2)
    """
    C = layer.model.fit
    return C * (C - 1) * layer.above / np.sum(layer.above**2, axis=0)


def equation_16(layer: Linear) -> Array:
    """The gradient λW_l + A_{l+1}ᵀ(Z − Y)H_lᵀ/(Kn) of a layer as a matrix, ridge included.

    >>> bool(np.abs(equation_16(_example())).max() < 1e-15)
    True
    """
    return _ridge(layer.model) * layer.weight + equation_6(layer).reshape(layer.weight.shape)


def equation_17(classes: int, samples: int, depth: int, ridge: float) -> float:
    """The left side of (17) divided by its right side, (Knλ^{L+1})^{1/L} · K L² / (L−1)^{(L−1)/L}.
    Collapse is optimal where this is below 1.

    >>> round(equation_17(classes=2, samples=4, depth=1, ridge=0.25), 12)
    1.0
    """
    K, n, L = classes, samples, depth
    left = (K * n * ridge ** (L + 1)) ** (1 / L)
    return float(left * K * L**2 / (L - 1) ** ((L - 1) / L))


def equation_18(layer: Linear) -> Array:
    """‖μ_c^l‖ = (C√n)^{l/(L+1)}/√n for every class at an optimum, (K,).

    >>> bool(np.allclose(equation_18(_example()), np.linalg.norm(_example().here, axis=0)))
    True
    """
    ufm, root = layer.model, np.sqrt(layer.model.samples)
    norm = (ufm.fit * root) ** (layer.number / (ufm.depth + 1)) / root
    return np.full(ufm.classes, norm)


def equation_23(classes: int, alpha: float, label: int) -> Array:
    """The leading term of ρ_c = diag(p_c) − p_c p_cᵀ at collapse, (e^α/D²) ρ'_c, (K, K).

    >>> equation_23(2, np.log(3), label=0).round(6)
    array([[ 0.1875, -0.1875],
           [-0.1875,  0.1875]])
    """
    weight = np.exp(-alpha) / (1 + (classes - 1) * np.exp(-alpha)) ** 2
    return weight * lemma_7(classes, label)


def equation_24(classes: int) -> Array:
    """Av_c{ρ'_c ⊗ s_c s_cᵀ} = Σ_c s_c s_cᵀ ⊗ s_c s_cᵀ + (1/K) S ⊗ S, (K², K²).

    >>> print(Spectrum.from_matrix(equation_24(3)))
    1 × 1, 0.666667 × 2, 0.333333 × 1, 0 × 5
    """
    S = _simplex(classes)
    diagonal = np.array([np.kron(s, s) for s in S])
    return diagonal.T @ diagonal + np.kron(S, S) / classes


def equation_25(matrix: ArrayLike) -> float:
    """The effective rank exp(−Σ_i p_i log p_i) with p_i = σ_i/Σ_j σ_j and 0 log 0 = 0.

    >>> round(equation_25(np.diag([2.0, 2.0, 0.0])), 12)
    2.0
    """
    sizes = np.linalg.svd(np.asarray(matrix, dtype=float), compute_uv=False)
    shares = sizes[sizes > 0] / sizes.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def lemma_1(layer: Linear) -> Array:
    """A_l = W_L ⋯ W_l = C H̄_lᵀ/‖μ^l‖² at an optimum, (K, d); the constant is (13).

    >>> bool(np.allclose(lemma_1(_example()), _example().slopes[0] @ _example().weight))
    True
    """
    return layer.model.fit * (layer.here / np.sum(layer.here**2, axis=0)).T


def lemma_4(ufm: DeepLinearUFM, outputs: Array) -> float:
    """The loss at any critical point from its outputs Z (K, Kn) alone,
    ‖Z − Y‖²/(2Kn) + ½λ(L+1) Σ_i σ_i(Z)^{2/(L+1)}: the Schatten parameter is p = 2/(L+1).

    >>> ufm = _example().model
    >>> abs(lemma_4(ufm, ufm.fit * ufm.labels) - ufm.loss()) < 1e-15
    True
    """
    N, sizes = ufm.depth + 1, np.linalg.svd(outputs, compute_uv=False)
    fit = np.sum((outputs - ufm.labels) ** 2) / (2 * outputs.shape[1])
    return float(fit + _ridge(ufm) * N * np.sum(sizes ** (2 / N)) / 2)


def lemma_7(classes: int, label: int) -> Array:
    """ρ'_c = K s_c s_cᵀ + S, (K, K).

    >>> lemma_7(3, label=0).round(12)
    array([[ 2., -1., -1.],
           [-1.,  1.,  0.],
           [-1.,  0.,  1.]])
    """
    S = _simplex(classes)
    return classes * np.outer(S[label], S[label]) + S


def _curvature(ufm: DeepLinearUFM) -> float:
    """g = n^{−1/(L+1)} C^{2L/(L+1)}/K, the non-zero eigenvalue of Theorem 1."""
    N = ufm.depth + 1
    return float(ufm.samples ** (-1 / N) * ufm.fit ** (2 * ufm.depth / N) / ufm.classes)


def _ridge(ufm: DeepLinearUFM) -> float:
    """λ, the same for all layers as in the paper."""
    (lam,) = set(np.atleast_1d(ufm.ridge).tolist())
    return lam


def _simplex(classes: int) -> Array:
    """S = I − 1 1ᵀ/K, (K, K); its columns are s_1..s_K."""
    return np.eye(classes) - 1 / classes


def _unit(means: Array) -> Array:
    """Each column divided by its length."""
    return means / np.linalg.norm(means, axis=0)


def _example() -> Linear:
    """The first layer of a small optimum, for the examples above."""
    ufm = DeepLinearUFM(classes=2, samples=2, depth=2, width=3, ridge=0.01)
    return ufm.layers(ufm.optimum(np.random.default_rng(0)).to_chain())[0]


guard(globals())
