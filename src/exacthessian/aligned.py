"""Aligned chains: deep linear networks whose layers and data are diagonal in common bases.

If every layer is W_l = Q_l S_l Q_{l−1}ᵀ with orthogonal Q_l and rectangular diagonal S_l, and if
Σxx = Q_0 diag(x) Q_0ᵀ and Σyx = Q_L diag(y) Q_0ᵀ, then gradient descent keeps that form, and the
full Hessian at any point splits into blocks indexed by unordered pairs {i, j} of mode indices, of
size at most L (i = j) or 2L (i ≠ j). All P = Σ_l d_l d_{l−1} eigenvalues then cost O(d²L³) instead
of O((Ld²)³).

The blocks. A displacement D_l = Q_l E_l Q_{l−1}ᵀ of layer l has entries e_l^{ij} in the bases of
the chain. With the products a_l(i) = Π_{m>l} s_{m,i} behind layer l, b_l(i) = Π_{m<l} s_{m,i}
before it and c_{lk}(i) = Π_{k<m<l} s_{m,i} between layers k < l, and with the residual
ω_i = x_i Π_m s_{m,i} − y_i, the second variation of the loss ½E‖Wx − y‖² + ½Σ_l λ_l‖W_l‖² is

    Σ_{ij} x_j (Σ_l a_l(i) b_l(j) e_l^{ij})²                        through the change of W
    + 2 Σ_{l>k} Σ_{ij} ω_i a_l(i) c_{lk}(j) b_k(i) e_l^{ij} e_k^{ji}     through its curvature
    + Σ_l λ_l Σ_{ij} (e_l^{ij})²                                     through the ridge.

The first and the third sum link equal (i, j), the second links (i, j) with (j, i), nothing else
does. The coordinate e_l^{ij} exists when i ≤ d_l and j ≤ d_{l−1}; beyond the range of a layer
s_{m,i} = 0, and beyond the range of the data and the target x_j = 0 and ω_i = 0. Every entry with a
coordinate that does not exist is left out, which is all there is to rectangular layers.

Indices i, j and layers l count from 1 in everything public here, as they do in the formula.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exacthessian import inputs
from exacthessian.alignment import common_bases
from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, Ridge, real_array, real_arrays, require, whole_number
from exacthessian.spectrum import Spectrum

Indices = NDArray[np.int64]

ORTHOGONALITY_TOLERANCE = 1e-10
ORBIT_TOLERANCE = 1e-6
BATCH_ENTRIES = 2**20


@dataclass(frozen=True, eq=False, repr=False)
class AlignedChain:
    """A linear chain in its singular basis: W_l = Q_l S_l Q_{l−1}ᵀ, Σxx = Q_0 diag(x) Q_0ᵀ and
    Σyx = Q_L diag(y) Q_0ᵀ.

    `widths` are d_0..d_L; `singular_values[l − 1]` (min(d_l, d_{l−1}),) is the diagonal of S_l, of
    any sign; `data` (d_0,) is x ≥ 0; `target` (min(d_0, d_L),) is y; `half_y2` is ½E‖y‖²; `ridge`
    is λ, one number for all layers or one for each; `bases` are Q_0..Q_L, identities when None.

    At the balanced minimum λ_i^L = y_i = 1 of depth L the eigenvalues are L, 1 and 0:

    >>> chain = AlignedChain.balanced((10, 20, 20, 16), lam=np.ones(4), target=np.ones(4))
    >>> chain.spectrum()
    Spectrum(3 × 16, 1 × 72, 0 × 832)
    """

    widths: tuple[int, ...]
    singular_values: tuple[Array, ...]
    data: Array
    target: Array
    half_y2: float = 0.0
    ridge: Ridge = 0.0
    bases: tuple[Array, ...] | None = None

    def __post_init__(self) -> None:
        widths = _checked_widths(self.widths)
        ranges, depth = [min(pair) for pair in pairwise(widths)], len(widths) - 1
        values = real_arrays("singular_values", self.singular_values, ndim=1)
        expected = f"singular_values must have {depth} layers to match widths {widths}"
        require(len(values) == depth, expected, len(values))
        data, target = real_array("data", self.data, 1), real_array("target", self.target, 1)
        names = [*(f"singular_values[{layer}]" for layer in range(depth)), "data", "target"]
        sizes = [*ranges, widths[0], min(widths[0], widths[-1])]
        for name, array, size in zip(names, [*values, data, target], sizes, strict=True):
            expected = f"{name} must have {size} values to match the widths"
            require(len(array) == size, expected, len(array))
        require(data.min() >= 0, "data must not be negative", f"{data.min():.3g}")
        inputs.settle(
            self,
            widths=widths,
            singular_values=values,
            data=data,
            target=target,
            half_y2=inputs.nonnegative_number("half_y2", self.half_y2),
            ridge=inputs.ridge_per_layer(self.ridge, depth),
            bases=None if self.bases is None else _checked_bases(self.bases, widths),
        )

    @classmethod
    def balanced(
        cls,
        widths: Sequence[int],
        lam: ArrayLike,
        data: ArrayLike | None = None,
        target: ArrayLike = (),
        **others: Any,
    ) -> Self:
        """The chain whose layers all have the singular values `lam`, padded with zeros.

        `data` is all ones when None; `target` is padded with zeros too; `others` are `half_y2`,
        `ridge` and `bases`.

        >>> chain = AlignedChain.balanced((3, 2, 4), lam=[0.5], target=[2.0])
        >>> chain.singular_values, chain.target
        ((array([0.5, 0. ]), array([0.5, 0. ])), array([2., 0., 0.]))
        """
        widths = _checked_widths(widths)
        shared, goal = real_array("lam", lam, ndim=1), real_array("target", target, ndim=1)
        least, ends = min(widths), min(widths[0], widths[-1])
        for name, given, most in ("lam", shared, least), ("target", goal, ends):
            fit = len(given) <= most
            require(fit, f"{name} must have at most {most} values to fit", len(given))
        values = tuple(_padded(shared, min(pair)) for pair in pairwise(widths))
        data = np.ones(widths[0]) if data is None else np.asarray(data)
        return cls(widths, values, data, _padded(goal, ends), **others)

    @classmethod
    def from_chain(cls, chain: LinearChain, tol: float = 1e-8) -> Self:
        """The aligned form of a chain whose layers and moments have common singular bases.

        The bases are found by `exacthessian.alignment`; a chain that leaves more than `tol` off the
        diagonal is refused. Modes that exist in the same spaces are sorted by descending |y_i|,
        then s_{1,i}..s_{L,i}, then x_i.

        >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
        >>> chain = LinearChain((np.diag([2.0, 3.0]), swap), np.eye(2), swap @ np.diag([0.0, 5.0]))
        >>> aligned = AlignedChain.from_chain(chain)
        >>> [values.round(12).tolist() for values in (*aligned.singular_values, aligned.target)]
        [[3.0, 2.0], [1.0, 1.0], [5.0, 0.0]]
        """
        bases = common_bases(chain, tol)
        order = cls._diagonal(chain, bases)._descending()
        return cls._diagonal(chain, [basis[:, order[order < len(basis)]] for basis in bases])

    @classmethod
    def _diagonal(cls, chain: LinearChain, bases: Sequence[Array]) -> Self:
        """The diagonals that the layers and moments of `chain` have in `bases`."""
        pairs = zip(chain.weights, pairwise(bases), strict=True)
        values = tuple(np.diagonal(left.T @ weight @ right) for weight, (right, left) in pairs)
        # Rounding leaves values like −1e-17 where Σxx has a kernel.
        data = np.diagonal(bases[0].T @ chain.sigma_xx @ bases[0]).clip(min=0.0)
        target = np.diagonal(bases[-1].T @ chain.sigma_yx @ bases[0])
        rest = chain.half_y2, chain.ridge, tuple(bases)
        return cls(chain.widths, values, data, target, *rest)

    def _descending(self) -> Indices:
        """The modes, counted from 0, sorted by descending (|y|, s_1, …, s_L, x) among those that
        exist in the same spaces.
        """
        modes = max(self.widths)
        learned = self.data[: len(self.target)] * self.product
        target = np.abs(self.target) / (max(np.abs([*self.target, *learned])) or 1.0)
        layers = self._layers() / (np.abs(self._layers()).max() or 1.0)
        keys = [target, *layers.T, self.data / (self.data.max() or 1.0)]
        # Rounded, so that rounding errors of equal keys do not decide.
        columns = [np.round(_padded(key, modes), 6) for key in keys]
        extent = np.searchsorted(np.unique(self.widths), np.arange(modes), side="right")
        return np.lexsort(np.array([*(-column for column in columns[::-1]), extent]))

    @property
    def depth(self) -> int:
        """The number of layers L."""
        return len(self.singular_values)

    @property
    def size(self) -> int:
        """The number of parameters P = Σ_l d_l d_{l−1}.

        >>> AlignedChain.balanced((3, 2, 4), lam=[1.0]).size
        14
        """
        return sum(right * left for right, left in pairwise(self.widths))

    @property
    def product(self) -> Array:
        """The singular values Π_l s_{l,i} of W = W_L⋯W_1, signed: shape (min(d_0, d_L),).

        >>> AlignedChain((2, 1, 2), ([3.0], [-5.0]), np.ones(2), np.zeros(2)).product
        array([-15.,   0.])
        """
        return self._layers().prod(axis=1)[: len(self.target)]

    @property
    def residual(self) -> Array:
        """ω_i = x_i Π_l s_{l,i} − y_i, the diagonal of WΣxx − Σyx: shape (min(d_0, d_L),).

        >>> AlignedChain((1, 1), ([3.0],), [2.0], [1.0]).residual
        array([5.])
        """
        return self.data[: len(self.target)] * self.product - self.target

    def loss(self) -> float:
        """½E‖Wx − y‖² + ½Σ_l λ_l‖W_l‖² = Σ_i p_i(½x_i p_i − y_i) + ½E‖y‖² + ½Σ_{l,i} λ_l s_{l,i}²,
        with p the `product`.

        >>> AlignedChain((1, 1), ([3.0],), [1.0], [1.0], half_y2=0.5, ridge=2.0).loss()
        11.0
        """
        p, x = self.product, self.data[: len(self.target)]
        squares = np.array([values @ values for values in self.singular_values])
        return float(p @ (x * p / 2 - self.target) + self.half_y2 + squares @ self.ridge / 2)

    def step(self, eta: float) -> Self:
        """One step of gradient descent on the loss,
        s_{l,i} ← s_{l,i} − η (ω_i Π_{m≠l} s_{m,i} + λ_l s_{l,i}); everything else stays.

        >>> AlignedChain((1, 1, 1), ([2.0], [3.0]), [1.0], [5.0]).step(0.1).singular_values
        (array([1.7]), array([2.8]))
        """
        s = self._layers()
        with np.errstate(over="ignore", invalid="ignore"):
            others = _before(s) * _after(s)
            slope = _padded(self.residual, len(s))[:, None] * others + self.ridge * s
        moved = inputs.stepped(s, eta, slope)
        layers = enumerate(self.singular_values)
        return replace(self, singular_values=tuple(moved[: len(s), l] for l, s in layers))

    def gradient(self) -> Array:
        """The gradient (P,) of the loss in the original parameters, that of `to_chain`.

        >>> AlignedChain((1, 1, 1), ([2.0], [3.0]), [1.0], [5.0]).gradient()
        array([3., 2.])
        """
        return self.to_chain().gradient()

    def hessian(self) -> Array:
        """The dense Hessian (P, P) in the original parameters, that of `to_chain`.

        >>> AlignedChain((1, 1, 1), ([2.0], [3.0]), [1.0], [5.0]).hessian()
        array([[9., 7.],
               [7., 4.]])
        """
        return self.to_chain().hessian()

    def spectrum(self) -> Spectrum:
        """All P eigenvalues of the Hessian in descending order, each labelled with its block: "{2}"
        for {2, 2}, "{1,3}" for {1, 3}.

        At the minimum of two unbalanced layers the pair {1, 1} carries s_1² + s_2²:

        >>> chain = AlignedChain((1, 2, 1), ([0.5], [2.0]), [1.0], [1.0])
        >>> print(chain.spectrum(), "|", chain.spectrum().select("{1}"))
        4.25 × 1, 0 × 3 | 4.25 × 1, 0 × 1
        """
        values, labels = [], []
        for i, j in self.pairs():
            eigenvalues = np.linalg.eigvalsh(self.block(i, j))
            pairs = zip(i.tolist(), j.tolist(), strict=True)
            names = [f"{{{m}}}" if m == n else f"{{{m},{n}}}" for m, n in pairs]
            values.append(eigenvalues.ravel())
            labels.append(np.repeat(np.array(names, dtype=object), eigenvalues.shape[1]))
        united = np.concatenate(values)
        order = np.argsort(-united, kind="stable")
        ones = np.ones(len(united), dtype=np.int64)
        return Spectrum(united[order], ones, tuple(np.concatenate(labels)[order].tolist()))

    def block(self, i: int | Indices, j: int | Indices) -> Array:
        """The block {i, j} of the Hessian, i ≤ j, in the coordinates e_1^{ij}, …, e_L^{ij} and, if
        i ≠ j, e_1^{ji}, …, e_L^{ji}, of those that exist; (n, m, m) for arrays i, j (n,) of pairs
        that have the same coordinates.

        For i = j it is x_i ggᵀ + X with g_l = a_l(i) b_l(i); for i < j it is

            [ x_j ggᵀ     X     ]      g_l  = a_l(i) b_l(j),   g'_l = a_l(j) b_l(i)
            [    Xᵀ   x_i g'g'ᵀ ]

        with X_lk = ω_i a_l(i) c_lk(j) b_k(i) for l > k, ω_j a_k(j) c_kl(i) b_l(j) for l < k and 0
        for l = k. The ridge λ_l is added on the diagonal.

        >>> AlignedChain((1, 1, 1), ([2.0], [3.0]), [1.0], [5.0]).block(1, 1)
        array([[9., 7.],
               [7., 4.]])
        """
        exists = self._coordinates(i, j)
        i, j = np.minimum(i, j) - 1, np.maximum(i, j) - 1
        s = self._layers()
        x, omega = _padded(self.data, len(s)), _padded(self.residual, len(s))
        a, b, c = _after(s), _before(s), np.zeros((*s.shape, self.depth))
        for k in range(self.depth):
            c[:, k + 1 :, k] = _before(s[:, k + 1 :])
        around = omega[:, None, None] * a[:, :, None] * b[:, None, :]
        X = around[i] * c[j] + (around[j] * c[i]).mT
        first = _outer(x[j], a[i] * b[j]) + np.diag(self.ridge)
        second = _outer(x[i], a[j] * b[i]) + np.diag(self.ridge)
        whole = first + X if np.all(i == j) else np.block([[first, X], [X.mT, second]])
        return whole[..., exists[:, None], exists]

    def pairs(self) -> Iterator[tuple[Indices, Indices]]:
        """All (i, j), i ≤ j, whose block is not empty, in batches that `block` takes at once: pairs
        with the same coordinates.

        Which coordinates of {i, j} exist depends only on which widths i and j exceed, and so is the
        same for all i and all j between two neighbours among the sorted widths.

        >>> [(i.tolist(), j.tolist()) for i, j in AlignedChain.balanced((2, 1), [1.0]).pairs()]
        [([1], [1]), ([1], [2])]
        """
        spans = [np.arange(*span) + 1 for span in pairwise([0, *sorted(set(self.widths))])]
        batch = max(1, BATCH_ENTRIES // (2 * self.depth) ** 2)
        for place, span in enumerate(spans):
            upper = np.triu_indices(len(span), 1)
            groups = [(span, span), (span[upper[0]], span[upper[1]])]
            for other in spans[place + 1 :]:
                groups.append((np.repeat(span, len(other)), np.tile(other, len(span))))
            for i, j in groups:
                if len(i) and len(self._coordinates(i, j)):
                    for start in range(0, len(i), batch):
                        yield i[start : start + batch], j[start : start + batch]

    def eigenvectors(self, k: int) -> tuple[Array, Array]:
        """The k largest eigenvalues (k,) of the Hessian, descending, and orthonormal eigenvectors
        (P, k) in the original parameters: layer by layer, row-major.

        An eigenvector of the block {i, j} is spread over the layers as
        D_l = e_l^{ij} q_i q_jᵀ + e_l^{ji} q_j q_iᵀ with left vectors from Q_l and right ones from
        Q_{l−1}.

        >>> values, vectors = AlignedChain((1, 1, 1), ([0.0], [0.0]), [1.0], [5.0]).eigenvectors(1)
        >>> values, np.outer(vectors, vectors).round(12)
        (array([5.]), array([[ 0.5, -0.5],
               [-0.5,  0.5]]))
        """
        k = whole_number("k", k, least=1)
        require(k <= self.size, f"k must be at most the number of parameters {self.size}", k)
        found = []
        for rows, columns in self.pairs():
            values, vectors = np.linalg.eigh(self.block(rows, columns))
            found += [
                (value, i, j, vector)
                for i, j, own, local in zip(rows, columns, values, vectors.mT, strict=True)
                for value, vector in zip(own, local, strict=True)
            ]
        found = sorted(found, key=lambda entry: -entry[0])[:k]
        spread = [self._displacement(i, j, vector) for _, i, j, vector in found]
        return np.array([value for value, *_ in found]), np.stack(spread, axis=1)

    def _displacement(self, i: int, j: int, e: Array) -> Array:
        """The direction (P,) that has the coordinates `e` in the block {i, j}."""
        layers = [np.zeros((left, right)) for right, left in pairwise(self.widths)]
        bases = self._bases()
        for coordinate, entry in zip(self._coordinates(i, j), e, strict=True):
            side, l = divmod(int(coordinate), self.depth)
            row, column = (j, i) if side else (i, j)
            layers[l] += entry * np.outer(bases[l + 1][:, row - 1], bases[l][:, column - 1])
        return np.concatenate([layer.ravel() for layer in layers])

    def to_chain(self) -> LinearChain:
        """The chain itself: W_l = Q_l S_l Q_{l−1}ᵀ, Σxx = Q_0 diag(x) Q_0ᵀ, Σyx = Q_L diag(y) Q_0ᵀ.

        >>> AlignedChain((1, 2), ([3.0],), [1.0], [7.0]).to_chain().weights[0].tolist()
        [[3.0], [0.0]]
        """
        bases = self._bases()
        layers = zip(self.singular_values, pairwise(bases), strict=True)
        weights = tuple(_conjugate(left, values, right) for values, (right, left) in layers)
        sigma_xx = _conjugate(bases[0], self.data, bases[0])
        sigma_yx = _conjugate(bases[-1], self.target, bases[0])
        return LinearChain(weights, sigma_xx, sigma_yx, self.half_y2, self.ridge)

    def __repr__(self) -> str:
        return f"AlignedChain(widths={self.widths}, size={self.size})"

    def _bases(self) -> tuple[Array, ...]:
        """Q_0..Q_L."""
        return self.bases or tuple(np.eye(width) for width in self.widths)

    def _layers(self) -> Array:
        """s_{l,i} at [i, l], 0 beyond the range of a layer: (D, L)."""
        modes = max(self.widths)
        return np.stack([_padded(values, modes) for values in self.singular_values], axis=1)

    def _coordinates(self, i: int | Indices, j: int | Indices) -> Indices:
        """Which of the L or 2L coordinates of the block {i, j} exist, counted from 0; for arrays,
        those of the first pair.
        """
        first, second = sorted((int(np.ravel(i)[0]), int(np.ravel(j)[0])))
        for index in (first, second):
            within = 1 <= index <= max(self.widths)
            require(within, f"i and j must lie between 1 and {max(self.widths)}", index)
        sides = [(first, second), (second, first)][: 1 if first == second else 2]
        layers = list(pairwise(self.widths))
        exist = [row <= out and col <= into for row, col in sides for into, out in layers]
        return np.flatnonzero(exist)


def multipliers(
    orbit: Sequence[AlignedChain], eta: float
) -> dict[tuple[int, int], NDArray[np.complex128]]:
    """The Floquet multipliers of gradient descent with step `eta` along a periodic orbit: for each
    block (i, j), i ≤ j, that is not empty, the eigenvalues of (I − ηB_T)⋯(I − ηB_1), where B_t is
    the block at `orbit[t − 1]`. A multiplier above 1 in modulus is an unstable direction.

    Each state of the orbit must be one step after the one before it, and the first after the last,
    to 1e-6 of the largest singular value.

    >>> minimum = AlignedChain((1, 1, 1), ([1.0], [2.0]), [1.0], [2.0])
    >>> multipliers([minimum], eta=0.1)[1, 1].real.round(12)
    array([0.5, 1. ])
    """
    states = tuple(orbit)
    require(states, "orbit must have at least one state", "none")
    for t, (state, following) in enumerate(zip(states, [*states[1:], states[0]], strict=True)):
        stepped_to, found = state.step(eta)._layers(), following._layers()
        gap, scale = np.abs(stepped_to - found).max(), np.abs([stepped_to, found]).max()
        away = f"one where the step of state {t} is {gap:.3g} away from the next"
        require(gap <= ORBIT_TOLERANCE * scale, f"orbit must be periodic under step({eta})", away)
    spectra: dict[tuple[int, int], NDArray[np.complex128]] = {}
    for i, j in states[0].pairs():
        blocks = [state.block(i, j) for state in states]
        steps = [np.eye(blocks[0].shape[-1]) - eta * block for block in blocks]
        eigenvalues = np.linalg.eigvals(reduce(lambda product, step: step @ product, steps))
        pairs = zip(i.tolist(), j.tolist(), strict=True)
        spectra.update(zip(pairs, eigenvalues.astype(np.complex128), strict=True))
    return spectra


def _checked_widths(widths: Sequence[int]) -> tuple[int, ...]:
    checked = tuple(whole_number("widths", width, least=1) for width in widths)
    require(len(checked) > 1, "widths must hold d_0..d_L with L ≥ 1", checked)
    return checked


def _checked_bases(bases: Sequence[ArrayLike], widths: tuple[int, ...]) -> tuple[Array, ...]:
    checked = real_arrays("bases", bases, ndim=2)
    fit = [basis.shape for basis in checked] == [(width, width) for width in widths]
    shapes = ", ".join("×".join(map(str, basis.shape)) for basis in checked)
    require(fit, f"bases must be square matrices of widths {widths}", shapes)
    for n, basis in enumerate(checked):
        defect = np.abs(basis.T @ basis - np.eye(len(basis))).max()
        fit = defect <= ORTHOGONALITY_TOLERANCE
        require(fit, f"bases[{n}] must be orthogonal", f"max|QᵀQ − I| = {defect:.3g}")
    return checked


def _padded(values: Array, size: int) -> Array:
    """`values` (n,) followed by size − n zeros."""
    return np.concatenate([values, np.zeros(size - len(values))])


def _outer(scale: Array, vectors: Array) -> Array:
    """scale · v vᵀ for one vector (L,), or for each of several (n, L)."""
    return scale[..., None, None] * vectors[..., :, None] * vectors[..., None, :]


def _before(s: Array) -> Array:
    """Π_{m<l} s_{m,i} at [i, l], for s_{l,i} at [i, l]."""
    products = np.ones_like(s)
    np.cumprod(s[:, :-1], axis=1, out=products[:, 1:])
    return products


def _after(s: Array) -> Array:
    """Π_{m>l} s_{m,i} at [i, l], for s_{l,i} at [i, l]."""
    return _before(s[:, ::-1])[:, ::-1]


def _conjugate(left: Array, diagonal: Array, right: Array) -> Array:
    """left · diag(diagonal) · rightᵀ with a rectangular diagonal matrix."""
    size = len(diagonal)
    return (left[:, :size] * diagonal) @ right[:, :size].T
