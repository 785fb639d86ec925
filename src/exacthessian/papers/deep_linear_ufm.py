"""Closed forms of "Unifying Low Dimensional Observations in Deep Learning Through the Deep Linear
Unconstrained Feature Model", squared loss, under the paper's own numbering.

A point of the model is a chain of L + 1 layers H_1, W_1, …, W_L (`DeepLinearUFM.point`). From it

    H_l = W_{l−1} ⋯ W_1 H_1,   l = 1..L+1     features (`features`),
    H̄_l, with columns μ_c                     class means (`class_means`),
    A_l = W_L ⋯ W_l,           l = 1..L+1     what follows (`after`), A_{L+1} = I_K.

The theorems take the class means `above` = H̄_{l+1} and `here` = H̄_l of one layer, (d, K) each (K, K
above the last layer), and use their directions μ̂ only. Hessians and data gradients leave out the
ridge, as the paper does. Where the printed form differs, `as_printed=True` gives it.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import matmul
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, nonnegative_number, real_array, whole_number
from exacthessian.spectrum import Spectrum
from exacthessian.ufm import DeepLinearUFM


class Split(NamedTuple):
    """The parts of a layer's Gauss–Newton matrix in (5), each (D, D)."""

    classes: Array
    cross: Array
    within: Array


def features(chain: LinearChain, layer: int) -> Array:
    """H_l = W_{l−1} ⋯ W_1 H_1, the features that enter layer l; the outputs Z for l = L + 1.

    >>> features(LinearChain([[[2.0]], [[3.0]], [[5.0]]], [[1.0]], [[1.0]]), layer=2)
    array([[6.]])
    """
    product: Array = reduce(matmul, reversed(chain.weights[: _layer(chain, layer)]))
    return product


def class_means(ufm: DeepLinearUFM, features: ArrayLike) -> Array:
    """H̄, whose column c is the mean of the n features of class c, from (d, Kn) to (d, K).

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=1, width=2, ridge=0.01)
    >>> class_means(ufm, [[1.0, 3.0, 5.0, 5.0]])
    array([[2., 5.]])
    """
    columns = real_array("features", features, ndim=2)
    if columns.shape[1] != ufm.classes * ufm.samples:
        raise ValueError(
            f"features must have {ufm.classes * ufm.samples} columns, n = {ufm.samples} for each "
            f"of K = {ufm.classes} classes, got {columns.shape[1]}"
        )
    means: Array = columns.reshape(-1, ufm.classes, ufm.samples).mean(axis=2)
    return means


def after(chain: LinearChain, layer: int) -> Array:
    """A_l = W_L ⋯ W_l, (K, d); the identity for l = L + 1.

    >>> after(LinearChain([[[2.0]], [[3.0]], [[5.0]]], [[1.0]], [[1.0]]), layer=1)
    array([[15.]])
    """
    layers = chain.weights[_layer(chain, layer) :]
    return reduce(matmul, reversed(layers), np.eye(len(chain.weights[-1])))


def theorem_1_equation(ufm: DeepLinearUFM, constant: float) -> float:
    """1 − C − K λ n^{1/(L+1)} C^{−(L−1)/(L+1)} at C = `constant`, which is zero at the optimum
    (equal λ; for unequal λ their geometric mean).

    >>> ufm = DeepLinearUFM(classes=3, samples=5, depth=3, width=4, ridge=0.01)
    >>> abs(theorem_1_equation(ufm, ufm.fit)) < 1e-15
    True
    """
    power = (ufm.depth - 1) / (ufm.depth + 1)
    return float(1 - constant - ufm.strength * constant**-power)


def theorem_1_eigenvalue(ufm: DeepLinearUFM) -> float:
    """g = n^{−1/(L+1)} C^{2L/(L+1)} / K, the non-zero eigenvalue of a layer's Hessian. Equal λ.

    >>> ufm = DeepLinearUFM(classes=3, samples=5, depth=3, width=4, ridge=0.01)
    >>> bool(np.isclose(theorem_1_eigenvalue(ufm), ufm.curvatures[1], rtol=1e-14))
    True
    """
    _equal_ridge(ufm)
    order = ufm.depth + 1
    return float(ufm.samples ** (-1 / order) * ufm.fit ** (2 * ufm.depth / order) / ufm.classes)


def theorem_1(ufm: DeepLinearUFM, above: ArrayLike, here: ArrayLike) -> Array:
    """Hess_l = g Σ_cc' (μ̂_c^{l+1} ⊗ μ̂_c'^l)(μ̂_c^{l+1} ⊗ μ̂_c'^l)ᵀ, (D, D).

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=3, ridge=0.01)
    >>> hessian = theorem_1(ufm, np.eye(3, 2), np.eye(3, 2))
    >>> bool(np.isclose(np.trace(hessian), 4 * theorem_1_eigenvalue(ufm)))
    True
    """
    left, right = _directions(ufm, "above", above), _directions(ufm, "here", here)
    both = np.kron(left, right)
    hessian: Array = theorem_1_eigenvalue(ufm) * both @ both.T
    return hessian


def equation_18(ufm: DeepLinearUFM, layer: int, as_printed: bool = False) -> float:
    """‖μ^l‖ = (C√n)^{l/(L+1)}/√n (Lemma 5). `as_printed` is the display of Theorem 1, which has the
    exponent 1/(L+1) for every l. Equal λ.

    >>> ufm = DeepLinearUFM(classes=2, samples=4, depth=1, width=2, ridge=0.04)
    >>> round(equation_18(ufm, 2), 12), round(equation_18(ufm, 2, as_printed=True), 6)
    (0.84, 0.648074)
    """
    _equal_ridge(ufm)
    if not 1 <= whole_number("layer", layer, least=1) <= ufm.depth + 1:
        raise ValueError(f"layer must be at most L + 1 = {ufm.depth + 1}, got {layer}")
    root = np.sqrt(ufm.samples)
    return float((ufm.fit * root) ** ((1 if as_printed else layer) / (ufm.depth + 1)) / root)


def equation_12(
    ufm: DeepLinearUFM, after: ArrayLike, features: ArrayLike, as_printed: bool = False
) -> Array:
    """Hess_l = A_{l+1}ᵀA_{l+1} ⊗ Av_ic{h_ic h_icᵀ} at any point, from A_{l+1} and H_l; `as_printed`
    has the class means in place of the features.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=1, width=2, ridge=0.01)
    >>> spread = [[1.0, 3.0, 0.0, 0.0]]
    >>> equation_12(ufm, [[2.0]], spread), equation_12(ufm, [[2.0]], spread, as_printed=True)
    (array([[10.]]), array([[8.]]))
    """
    later, columns = real_array("after", after, ndim=2), real_array("features", features, ndim=2)
    if as_printed:
        columns = class_means(ufm, columns)
    hessian: Array = np.kron(later.T @ later, columns @ columns.T / columns.shape[1])
    return hessian


def equation_5(ufm: DeepLinearUFM, after: ArrayLike, features: ArrayLike) -> Split:
    """The class, cross and within parts of Hess_l at any point, from A_{l+1} and H_l: with
    v_icc' = a_c' ⊗ h_ic, the second moment of Av_{c'} Av_i v over c, the covariance over c' and the
    covariance over i, with the weights 1, 1/K and 1/(Kn) of appendix C.2.

    >>> ufm = DeepLinearUFM(classes=2, samples=2, depth=1, width=2, ridge=0.01)
    >>> parts = equation_5(ufm, np.eye(2), [[1.0, 3.0, 0.0, 0.0]])
    >>> [np.trace(part).item() for part in parts]
    [2.0, 2.0, 1.0]
    """
    later, columns = real_array("after", after, ndim=2), real_array("features", features, ndim=2)
    means = class_means(ufm, columns)
    middle = later.mean(axis=0, keepdims=True)
    deviations = columns - np.repeat(means, ufm.samples, axis=1)
    spread = later - middle
    return Split(
        classes=np.kron(middle.T @ middle, means @ means.T),
        cross=np.kron(spread.T @ spread, means @ means.T) / ufm.classes,
        within=np.kron(later.T @ later, deviations @ deviations.T) / columns.shape[1],
    )


def theorem_2(ufm: DeepLinearUFM, above: ArrayLike, here: ArrayLike) -> Split:
    """The parts of (5) at an optimum: g times the projectors on μ_G^{l+1} ⊗ μ_c^l (rank K) and on
    (μ_1^{l+1} − μ_c'^{l+1}) ⊗ μ_c^l (rank K(K − 1)), and zero.

    >>> ufm = DeepLinearUFM(classes=3, samples=1, depth=2, width=4, ridge=0.01)
    >>> parts = theorem_2(ufm, np.eye(4, 3), np.eye(4, 3))
    >>> [int(np.linalg.matrix_rank(part)) for part in parts]
    [3, 6, 0]
    """
    left, right = _directions(ufm, "above", above), _directions(ufm, "here", here)
    centre = left.sum(axis=1, keepdims=True) / np.sqrt(ufm.classes)
    g, one, both = theorem_1_eigenvalue(ufm), centre @ centre.T, right @ right.T
    classes = g * np.kron(one, both)
    return Split(classes, g * np.kron(left @ left.T - one, both), np.zeros_like(classes))


def equation_6(after: ArrayLike, residuals: ArrayLike, features: ArrayLike) -> Array:
    """The data gradient Av_ic{(A_{l+1}ᵀ u_ic) ⊗ h_ic} of layer l, (D,), from A_{l+1} and the
    columns u_ic of Z − Y and h_ic of H_l; also (14), and (16) when folded back into a matrix.

    >>> equation_6([[2.0]], [[1.0, 3.0]], [[5.0, 7.0]])
    array([26.])
    """
    errors = real_array("after", after, ndim=2).T @ real_array("residuals", residuals, ndim=2)
    columns = real_array("features", features, ndim=2)
    single = [np.kron(u, h) for u, h in zip(errors.T, columns.T, strict=True)]
    gradient: Array = np.mean(single, axis=0)
    return gradient


def theorem_3(ufm: DeepLinearUFM, above: ArrayLike, here: ArrayLike) -> Array:
    """The data gradient at an optimum, (1/K)(√n)^{−1/(L+1)} C^{L/(L+1)} (C − 1) Σ_c μ̂_c ⊗ μ̂_c,
    which is −λ w_l: (D,).

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=1, width=2, ridge=0.1)
    >>> theorem_3(ufm, np.eye(2), np.eye(2)).round(6)
    array([-0.089443, -0.      , -0.      , -0.089443])
    """
    left, right = _directions(ufm, "above", above), _directions(ufm, "here", here)
    return -ufm.misfit * _coefficient(ufm) * (left @ right.T).ravel()


def theorem_4(ufm: DeepLinearUFM, above: ArrayLike, here: ArrayLike) -> Array:
    """W_l = (1/(Kλ))(√n)^{−1/(L+1)} C^{L/(L+1)} (1 − C) Σ_c μ̂_c^{l+1} μ̂_c^{lᵀ} at an optimum.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=1, width=2, ridge=0.1)
    >>> bool(np.allclose(theorem_4(ufm, np.eye(2), np.eye(2)), ufm.scales[1] * np.eye(2)))
    True
    """
    left, right = _directions(ufm, "above", above), _directions(ufm, "here", here)
    singular_value = ufm.misfit * _coefficient(ufm) / _equal_ridge(ufm)
    return singular_value * left @ right.T


def theorem_5(ufm: DeepLinearUFM, means: Sequence[ArrayLike]) -> Array:
    """The leading term of the Hessian in W_1, …, W_L, (P, P): blocks
    g Σ_cc' (μ̂_c^{l+1} ⊗ μ̂_c'^l)(μ̂_c^{r+1} ⊗ μ̂_c'^r)ᵀ, from `means` H̄_1, …, H̄_{L+1}. It has rank K²
    and the eigenvalue L g.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=2, ridge=0.01)
    >>> leading = theorem_5(ufm, [np.eye(2)] * 3)
    >>> bool(np.isclose(np.linalg.norm(leading, 2), 2 * theorem_1_eigenvalue(ufm)))
    True
    """
    frames = [_directions(ufm, f"means[{i}]", mean) for i, mean in enumerate(means)]
    if len(frames) != ufm.depth + 1:
        raise ValueError(f"means must hold L + 1 = {ufm.depth + 1} matrices, got {len(frames)}")
    stacked = np.vstack([np.kron(above, here) for here, above in pairwise(frames)])
    leading: Array = theorem_1_eigenvalue(ufm) * stacked @ stacked.T
    return leading


def theorem_5_remainder(ufm: DeepLinearUFM) -> Spectrum:
    """All eigenvalues of what Theorem 5 drops, for L ≥ 2 and equal λ: its norm is exactly (L−1)λ,
    its Frobenius norm λ√((L−1)(K²L + 2K(d−K))).

    >>> theorem_5_remainder(DeepLinearUFM(classes=3, samples=2, depth=3, width=4, ridge=0.01))
    Spectrum(0.02 × 3, 0.01 × 18, 0 × 5, -0.01 × 12, -0.02 × 6)
    """
    lam, others = _equal_ridge(ufm), whole_number("depth", ufm.depth, least=2) - 1
    k, spare = ufm.classes, ufm.width - ufm.classes
    even, odd = k * (k + 1) // 2, k * (k - 1) // 2
    values = [
        (others * lam, odd),
        (lam, others * (even + k * spare)),
        (0.0, k * spare + others * spare**2),
        (-lam, others * (odd + k * spare)),
        (-others * lam, even),
    ]
    kept = [(value, count) for value, count in values if count]
    levels, counts = zip(*kept, strict=True)
    return Spectrum(np.array(levels), np.array(counts), ("",) * len(kept))


def projector_d(ufm: DeepLinearUFM, as_printed: bool = False) -> Array:
    """The d×d matrix D of appendix C.5: K ones on the diagonal; as printed, K − 1 of them.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=1, width=3, ridge=0.01)
    >>> np.diag(projector_d(ufm)), np.diag(projector_d(ufm, as_printed=True))
    (array([1., 1., 0.]), array([1., 0., 0.]))
    """
    ones = ufm.classes - 1 if as_printed else ufm.classes
    return np.diag((np.arange(ufm.width) < ones).astype(float))


def residual_block(
    ufm: DeepLinearUFM,
    means: Sequence[ArrayLike],
    row: int,
    column: int,
    as_printed: bool = False,
) -> Array:
    """What Theorem 5 drops, in the block of the layers r = `row` > l = `column`: the entry with
    (W_r)_ab and (W_l)_xy is −λ T_bx Σ_c (μ̂_c^{r+1})_a (μ̂_c^l)_y. From `means` H̄_1, …, H̄_{L+1}.

    T is Σ_c μ̂_c^r μ̂_c^{l+1ᵀ}, the direction of W_{r−1} ⋯ W_{l+1}, and the identity when r = l + 1,
    because that product is empty. As printed T = U_{r−1} D U_lᵀ has one 1 too few, here the last
    class's, and is a projector also when r = l + 1.

    >>> ufm = DeepLinearUFM(classes=2, samples=1, depth=2, width=2, ridge=0.01)
    >>> blocks = [residual_block(ufm, [np.eye(2)] * 3, 2, 1, printed) for printed in (False, True)]
    >>> [int((np.abs(block) > 0).sum()) for block in blocks]
    [4, 2]
    """
    lam = _equal_ridge(ufm)
    if not 1 <= column < row <= ufm.depth:
        raise ValueError(f"row and column must satisfy 1 ≤ column < row ≤ L, got {row}, {column}")
    frames = [_directions(ufm, f"means[{i}]", mean) for i, mean in enumerate(means)]
    used = ufm.classes - 1 if as_printed else ufm.classes
    between = frames[row - 1][:, :used] @ frames[column][:, :used].T
    if row == column + 1 and not as_printed:
        between = np.eye(ufm.width)
    around = frames[row] @ frames[column - 1].T
    block: Array = -lam * np.einsum("bx,ay->abxy", between, around)
    return block.reshape(around.shape[0] * len(between), -1)


def statement_norm_ratio(feature_layers: int, depth: int, as_printed: bool = False) -> float:
    """‖P̃‖²/‖Hess_{L,L}‖² for blocks of equal Frobenius norm, with L̄ = `feature_layers`:
    (L̄² + 2L̄L)/L², which is about 2L̄/L; as printed 1/L (appendix C.6).

    >>> statement_norm_ratio(2, 16), statement_norm_ratio(2, 16, as_printed=True)
    (0.265625, 0.0625)
    """
    below = whole_number("feature_layers", feature_layers, least=1)
    layers = whole_number("depth", depth, least=1)
    return 1 / layers if as_printed else (below**2 + 2 * below * layers) / layers**2


def theorem_6(feature_layers: int, depth: int) -> float:
    """√(2L̄/(L̄ + L)), which bounds Σ_i (λ̂_i(Hess) − λ̂_i(Hess_{L,L}))² by its square when all
    blocks have one Frobenius norm: the distance of the two matrices, each divided by its norm.

    >>> theorem_6(1, 7)
    0.5
    """
    below = whole_number("feature_layers", feature_layers, least=1)
    return float(np.sqrt(2 * below / (below + whole_number("depth", depth, least=1))))


def theorem_10(ufm: DeepLinearUFM, above: ArrayLike, here: ArrayLike) -> Array:
    """The covariance (21) of the data gradients of single samples,
    g(C − 1)² Σ_c (v̂_c − Av v̂)(v̂_c − Av v̂)ᵀ with v̂_c = μ̂_c^{l+1} ⊗ μ̂_c^l: rank K − 1.

    >>> ufm = DeepLinearUFM(classes=3, samples=1, depth=2, width=4, ridge=0.01)
    >>> int(np.linalg.matrix_rank(theorem_10(ufm, np.eye(4, 3), np.eye(4, 3))))
    2
    """
    left, right = _directions(ufm, "above", above), _directions(ufm, "here", here)
    vectors = np.stack([np.kron(u, h) for u, h in zip(left.T, right.T, strict=True)], axis=1)
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    covariance: Array = theorem_1_eigenvalue(ufm) * ufm.misfit**2 * centred @ centred.T
    return covariance


def theorem_11(ufm: DeepLinearUFM, layer: int) -> Spectrum:
    """The non-zero eigenvalues of the second moment (22) of the extended backpropagation errors at
    layer l: (C√n)^{(2L−2l+2)/(L+1)} times C² + 1, K − 1 times, and (C − 1)², once. Equal λ.

    >>> theorem_11(DeepLinearUFM(classes=3, samples=1, depth=2, width=4, ridge=0.01), layer=2)
    Spectrum(1.90089 × 2, 0.0009 × 1)
    """
    _equal_ridge(ufm)
    if not 1 <= whole_number("layer", layer, least=1) <= ufm.depth:
        raise ValueError(f"layer must be at most L = {ufm.depth}, got {layer}")
    power = (2 * ufm.depth - 2 * layer + 2) / (ufm.depth + 1)
    scale = (ufm.fit * np.sqrt(ufm.samples)) ** power
    values = scale * np.array([ufm.fit**2 + 1, ufm.misfit**2])
    return Spectrum(values, np.array([ufm.classes - 1, 1]), ("differences", "mean"))


def lemma_4(ufm: DeepLinearUFM, outputs: ArrayLike) -> float:
    """The loss at any critical point from its outputs Z (K, Kn) alone,
    ‖Z − Y‖²/(2Kn) + ½λ(L+1) Σ_i σ_i(Z)^{2/(L+1)}: the Schatten parameter is p = 2/(L+1).

    >>> ufm = DeepLinearUFM(classes=2, samples=3, depth=2, width=3, ridge=0.01)
    >>> abs(lemma_4(ufm, ufm.fit * ufm.labels) - ufm.loss()) < 1e-15
    True
    """
    lam, z = _equal_ridge(ufm), real_array("outputs", outputs, ndim=2)
    power = 2 / (ufm.depth + 1)
    misfit = np.sum((z - ufm.labels) ** 2) / (2 * ufm.classes * ufm.samples)
    sizes = np.linalg.svd(z, compute_uv=False)
    return float(misfit + lam * (ufm.depth + 1) * np.sum(sizes**power) / 2)


def equation_17(classes: int, samples: int, depth: int, ridge: float) -> float:
    """The left side of (17) divided by its right side,
    (Knλ^{L+1})^{1/L} · K L² / (L−1)^{(L−1)/L}. Collapse is optimal where this is below 1.

    >>> round(equation_17(classes=2, samples=4, depth=1, ridge=0.25), 12)
    1.0
    """
    k, n = whole_number("classes", classes, least=2), whole_number("samples", samples, least=1)
    order, lam = whole_number("depth", depth, least=1), nonnegative_number("ridge", ridge)
    left = (k * n * lam ** (order + 1)) ** (1 / order)
    return float(left * k * order**2 / (order - 1) ** ((order - 1) / order))


def equation_25(matrix: ArrayLike) -> float:
    """The effective rank exp(−Σ_i p_i log p_i) with p_i = σ_i/Σ_j σ_j and 0 log 0 = 0.

    >>> round(equation_25(np.diag([2.0, 2.0, 0.0])), 12)
    2.0
    """
    sizes = np.linalg.svd(real_array("matrix", matrix, ndim=2), compute_uv=False)
    if sizes.sum() == 0:
        raise ValueError("matrix must not be zero: it has no effective rank")
    shares = sizes[sizes > 0] / sizes.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def _layer(chain: LinearChain, layer: int) -> int:
    """`layer`, if it is one of 1, …, L + 1 for a chain of L + 1 layers."""
    if whole_number("layer", layer, least=1) > chain.depth:
        raise ValueError(f"layer must be at most L + 1 = {chain.depth}, got {layer}")
    return layer


def _directions(ufm: DeepLinearUFM, name: str, means: ArrayLike) -> Array:
    """μ̂_c as columns."""
    columns = real_array(name, means, ndim=2)
    if columns.shape[1] != ufm.classes:
        raise ValueError(
            f"{name} must have K = {ufm.classes} columns, one mean per class, "
            f"got shape {columns.shape}"
        )
    lengths = np.linalg.norm(columns, axis=0)
    if not lengths.all():
        raise ValueError(f"{name} must have no zero column: it has no direction")
    directions: Array = columns / lengths
    return directions


def _coefficient(ufm: DeepLinearUFM) -> float:
    """(1/K)(√n)^{−1/(L+1)} C^{L/(L+1)}."""
    order = ufm.depth + 1
    root = np.sqrt(ufm.samples) ** (-1 / order)
    return float(root * ufm.fit ** (ufm.depth / order) / ufm.classes)


def _equal_ridge(ufm: DeepLinearUFM) -> float:
    """λ, if it is the same for all layers, as the paper has it."""
    lam = np.asarray(ufm.ridge, dtype=float)
    if np.any(lam != lam[0]):
        raise ValueError(f"ridge must be the same for all layers here, got {tuple(lam.tolist())}")
    return float(lam[0])
