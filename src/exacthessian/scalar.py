"""Two-layer networks with one number in and one number out, and the direct sums of them.

The linear network f(x) = ⟨w, v⟩x is trained on 1/(2n) Σ_i (f(x_i) − y_i)². With s² = E x²,
c = ⟨w, v⟩ and the covariance d = E xδ = c s² − E xy of input and residual δ = f(x) − y, its Hessian
in the parameters (v; w) is

    H = s² (w; v)(w; v)ᵀ + d [[0, I], [I, 0]].                                                 (1)

The rotation (z_v; z_w) ↦ ((z_v + z_w)/√2; (z_v − z_w)/√2) takes (w; v) to (p; r), where
p = (w + v)/√2 and r = (w − v)/√2, and makes the second term diagonal:

    H ≅ diag(d I, −d I) + s² (p; r)(p; r)ᵀ.                                                    (2)

So ±d are eigenvalues on the complements of p and r, and the two outliers live in the plane of
(p̂; 0) and (0; r̂), where H is the 2 × 2 matrix with trace s²(‖w‖² + ‖v‖²), half difference
d + s²c of its diagonal entries and off-diagonal entry s²‖p‖‖r‖. Every other network here is built
from this one. If p = 0 any unit vector can be p̂, and likewise r̂: no case needs its own formula.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, nonnegative_number, real_array
from exacthessian.spectrum import Spectrum


class TwoLayer(LinearChain):
    """The linear network x ↦ ⟨w, v⟩x with the moments of its data: a chain of widths (1, m, 1).

    `w` and `v` are (m,); `s2` is E x², `yx` is E xy, `half_y2` is ½E y², without which the loss is
    known up to that constant. Parameters are ordered (v; w), the layer that acts first in front.
    Loss, gradient, Hessian and steps are those of the chain; the spectrum is known.

    >>> network = TwoLayer([1, 2], [1, 2], s2=1, yx=0.5)
    >>> network.spectrum()
    Spectrum(14.5 × 1, 4.5 × 1, -4.5 × 2)
    >>> network.step(0.1).w
    array([0.55, 1.1 ])
    """

    def __init__(
        self, w: ArrayLike, v: ArrayLike, s2: float, yx: float, half_y2: float = 0.0
    ) -> None:
        outer, inner = _pair(w, v)
        if s2 == 0 and yx != 0:
            raise ValueError(f"yx must be 0 when s2 is 0, because then all inputs are 0, got {yx}")
        super().__init__((inner[:, None], outer[None]), np.array([[s2]]), np.array([[yx]]), half_y2)

    @classmethod
    def from_samples(cls, w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> Self:
        """The network with the moments of the samples `x`, `y`, both (n,).

        >>> TwoLayer.from_samples([1], [1], x=[1, 3], y=[2, 2]).s2
        5.0
        """
        inputs, targets = _samples(x, y)
        square, cross = np.mean(inputs**2), np.mean(inputs * targets)
        return cls(w, v, float(square), float(cross), float(np.mean(targets**2)) / 2)

    @property
    def w(self) -> Array:
        """The second layer, (m,)."""
        return self.weights[1][0]

    @property
    def v(self) -> Array:
        """The first layer, (m,)."""
        return self.weights[0][:, 0]

    @property
    def s2(self) -> float:
        """E x²."""
        return float(self.sigma_xx[0, 0])

    @property
    def yx(self) -> float:
        """E xy."""
        return float(self.sigma_yx[0, 0])

    @property
    def width(self) -> int:
        """The number m of hidden neurons."""
        return len(self.w)

    @property
    def c(self) -> float:
        """The slope ⟨w, v⟩ of the function that the network computes."""
        return float(self.w @ self.v)

    @property
    def d(self) -> float:
        """The covariance E xδ = c s² − E xy of input and residual.

        >>> TwoLayer([1, 2], [1, 2], s2=1, yx=0.5).d
        4.5
        """
        return self.c * self.s2 - self.yx

    @property
    def target(self) -> float:
        """θ* = E xy / E x², the slope of the best linear function; there is none if E x² = 0.

        >>> TwoLayer([1], [1], s2=2, yx=3).target
        1.5
        """
        return self.yx / self.s2

    @property
    def trace(self) -> float:
        """tr H = s²(‖w‖² + ‖v‖²), which is also the sum of the two outliers.

        >>> TwoLayer([1, 2], [1, 2], s2=1, yx=0.5).trace
        10.0
        """
        return self.s2 * float(self.w @ self.w + self.v @ self.v)

    def outliers(self) -> Array:
        """λ_1 ≥ λ_2, shape (2,): λ_1 = ½ tr H + √((d + s²c)² + (s²‖p‖‖r‖)²), and λ_2 from the
        product λ_1λ_2 = −d(d + 2s²c), in which nothing cancels.

        >>> TwoLayer([1, 2], [1, 2], s2=1, yx=0.5).outliers()
        array([14.5, -4.5])
        """
        p, r = _halves(self.w, self.v)
        across = self.s2 * float(np.linalg.norm(p) * np.linalg.norm(r))
        top = self.trace / 2 + float(np.hypot(self.d + self.s2 * self.c, across))
        product = -self.d * (self.d + 2 * self.s2 * self.c)
        second = product / top if top else 0.0
        return np.array([top, second + 0.0])  # no negative zero

    def spectrum(self) -> Spectrum:
        """All 2m eigenvalues: two outliers, and the bulk d and −d, m − 1 times each.

        >>> TwoLayer([1, 2, 2], [0, 0, 1], s2=1, yx=1).spectrum().labels
        ('outlier', 'bulk', 'outlier', 'bulk')
        """
        top, second = self.outliers()
        return Spectrum.of(
            (top, 1, "outlier"),
            (self.d, self.width - 1, "bulk"),
            (-self.d, self.width - 1, "bulk"),
            (second, 1, "outlier"),
        )

    def outlier_vectors(self) -> Array:
        """Orthonormal eigenvectors of λ_1 and λ_2, the columns of a (2m, 2) array.

        cos φ (p̂; p̂)/√2 + sin φ (r̂; −r̂)/√2 and its quarter turn, with 2φ the angle of the point
        (d + s²c, s²‖p‖‖r‖). Valid for all weights and residuals.

        >>> network = TwoLayer([1, 2], [1, 2], s2=1, yx=0.5)
        >>> vectors = network.outlier_vectors()
        >>> bool(np.allclose(network.hessian() @ vectors, vectors * network.outliers()))
        True
        """
        p, r = _halves(self.w, self.v)
        across = self.s2 * np.linalg.norm(p) * np.linalg.norm(r)
        phi = np.arctan2(across, self.d + self.s2 * self.c) / 2
        p_hat, r_hat = _unit(p), _unit(r)
        plane = np.array([np.concatenate([p_hat, p_hat]), np.concatenate([r_hat, -r_hat])]).T
        turn = np.array([[np.cos(phi), -np.sin(phi)], [np.sin(phi), np.cos(phi)]])
        return plane @ turn / np.sqrt(2)

    def bulk_vectors(self, sign: int) -> Array:
        """Orthonormal eigenvectors of sign·d, the columns of a (2m, m − 1) array: (z; z)/√2 with
        z ⟂ w + v for sign +1, and (z; −z)/√2 with z ⟂ w − v for sign −1.

        >>> TwoLayer([1, 1], [0, 2], s2=1, yx=0).bulk_vectors(1).shape
        (4, 1)
        """
        across = _complement(_unit(_halves(self.w, self.v)[0 if sign == 1 else 1]))
        return np.concatenate([across, sign * across]) / np.sqrt(2)

    def eigenvectors(self) -> tuple[Array, Array]:
        """All eigenvalues (2m,), descending, and an orthonormal basis of eigenvectors (2m, 2m).

        >>> network = TwoLayer([1, 2], [0, 1], s2=1, yx=1)
        >>> values, vectors = network.eigenvectors()
        >>> bool(np.allclose(vectors * values @ vectors.T, network.hessian()))
        True
        """
        bulk = np.full(self.width - 1, self.d)
        values = np.concatenate([self.outliers(), bulk, -bulk])
        vectors = np.hstack([self.outlier_vectors(), self.bulk_vectors(1), self.bulk_vectors(-1)])
        order = np.argsort(-values, kind="stable")
        return values[order], vectors[:, order]


@dataclass(frozen=True, eq=False)
class Cell:
    """The neurons of a ReLU network that fire for inputs of one sign, and the linear network that
    they are there: `neurons` (q,) are their places, `share` is the share n_±/n of the samples, and
    `network` has the cell's weights and the moments E[x²; cell] and E[xy; cell], divided by all n.
    """

    neurons: np.ndarray[tuple[int], np.dtype[np.intp]]
    share: float
    network: TwoLayer


@dataclass(frozen=True, eq=False)
class ReluNetwork:
    """The network x ↦ wᵀ(vx)₊ with its samples. `w`, `v` are (m,), `x`, `y` are (n,).

    A neuron with v_j > 0 fires for x > 0 only and belongs to the plus cell, one with v_j < 0 to the
    minus cell. One with v_j = 0 is silent: the loss has a kink there and no Hessian; we use the
    derivative 0 of the ReLU at 0, as automatic differentiation does, which gives two zeros.

    >>> ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1]).spectrum()
    Spectrum(2.92705 × 1, 1 × 1, 0 × 1, -0.427051 × 1)
    """

    w: Array
    v: Array
    x: Array
    y: Array

    def __post_init__(self) -> None:
        w, v = _pair(self.w, self.v)
        x, y = _samples(self.x, self.y)
        for name, array in (("w", w), ("v", v), ("x", x), ("y", y)):
            object.__setattr__(self, name, array)

    @property
    def width(self) -> int:
        """The number m of hidden neurons."""
        return len(self.w)

    @property
    def silent(self) -> int:
        """The number of neurons with v_j = 0.

        >>> ReluNetwork([1, 1], [0, -1], x=[1], y=[1]).silent
        1
        """
        return int(np.sum(self.v == 0))

    @property
    def cells(self) -> dict[str, Cell]:
        """The cells that own at least one neuron, by name, "plus" before "minus".

        >>> network = ReluNetwork([1, 2, 3], [4, -5, 6], x=[1, -1, 2, 3], y=[0, 0, 0, 0])
        >>> network.cells["plus"].neurons, network.cells["minus"].share
        (array([0, 2]), 0.25)
        """
        found = {}
        for name, fires, mine in (
            ("plus", self.v > 0, self.x > 0),
            ("minus", self.v < 0, self.x <= 0),
        ):
            if fires.any():
                x, y = np.where(mine, self.x, 0.0), np.where(mine, self.y, 0.0)
                network = TwoLayer.from_samples(self.w[fires], self.v[fires], x, y)
                found[name] = Cell(np.flatnonzero(fires), float(mine.mean()), network)
        return found

    def outputs(self) -> Array:
        """The outputs on the samples, shape (n,).

        >>> ReluNetwork([1, 2], [3, -1], x=[1, -1], y=[0, 0]).outputs()
        array([3., 2.])
        """
        return self.w @ np.maximum(np.outer(self.v, self.x), 0.0)

    def loss(self) -> float:
        """1/(2n) Σ_i (f(x_i) − y_i)².

        >>> ReluNetwork([1, 2], [3, -1], x=[1, -1], y=[1, 2]).loss()
        1.0
        """
        return float(np.mean((self.outputs() - self.y) ** 2)) / 2

    def gradient(self) -> Array:
        """∇ℓ in the order (v; w), shape (2m,).

        >>> ReluNetwork([1, 2], [3, -1], x=[1, -1], y=[1, 4]).gradient()
        array([ 1.,  2.,  3., -1.])
        """
        gradient = np.zeros(2 * self.width)
        for cell in self.cells.values():
            gradient[self._places(cell)] = cell.network.gradient()
        return gradient

    def step(self, eta: float) -> Self:
        """The network after one step θ − η∇ℓ of gradient descent.

        >>> ReluNetwork([1, 2], [3, -1], x=[1, -1], y=[1, 4]).step(0.1).w
        array([0.7, 2.1])
        """
        v, w = np.split(nonnegative_number("eta", eta) * self.gradient(), 2)
        return replace(self, v=self.v - v, w=self.w - w)

    def hessian(self) -> Array:
        """The dense Hessian (2m, 2m) in the order (v; w): one block for each cell.

        >>> ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1]).hessian()
        array([[ 0.5,  0. ,  1.5,  0. ],
               [ 0. ,  0.5,  0. , -0.5],
               [ 1.5,  0. ,  2. ,  0. ],
               [ 0. , -0.5,  0. ,  0.5]])
        """
        matrix = np.zeros((2 * self.width, 2 * self.width))
        for cell in self.cells.values():
            places = self._places(cell)
            matrix[np.ix_(places, places)] = cell.network.hessian()
        return matrix

    def spectrum(self) -> Spectrum:
        """All 2m eigenvalues, labelled "outlier", "bulk" and, for silent neurons and cells without
        data, "zero".

        >>> ReluNetwork([1, 1, 1], [2, 0, -1], x=[1, 1], y=[1, 1]).spectrum()
        Spectrum(5.8541 × 1, 0 × 4, -0.854102 × 1)
        """
        parts = [Spectrum.of((0.0, 2 * self.silent, "zero"))]
        for cell in self.cells.values():
            alive = cell.network.spectrum()
            dead = Spectrum.of((0.0, 2 * len(cell.neurons), "zero"))
            parts.append(alive if cell.network.s2 else dead)
        return Spectrum.merge(parts)

    def by_cell(self) -> Spectrum:
        """The same eigenvalues labelled by their origin, "plus", "minus" or "silent".

        >>> ReluNetwork([1, 1], [2, -1], x=[1, -1], y=[1, 1]).by_cell().labels
        ('plus', 'minus', 'minus', 'plus')
        """
        parts = [Spectrum.of((0.0, 2 * self.silent, "silent"))]
        for name, cell in self.cells.items():
            own = cell.network.spectrum()
            parts.append(Spectrum(own.values, own.multiplicities, (name,) * len(own)))
        return Spectrum.merge(parts)

    def eigenvectors(self) -> tuple[Array, Array]:
        """All eigenvalues (2m,), descending, and an orthonormal basis of eigenvectors (2m, 2m),
        each of which lives in one cell or on one silent neuron.

        >>> network = ReluNetwork([1, 1, 1], [2, 0, -1], x=[1, -1], y=[1, 1])
        >>> values, vectors = network.eigenvectors()
        >>> bool(np.allclose(vectors * values @ vectors.T, network.hessian()))
        True
        """
        silent = np.flatnonzero(self.v == 0)
        places = np.concatenate([silent, silent + self.width])
        all_values, all_vectors = [np.zeros(len(places))], [np.eye(2 * self.width)[:, places]]
        for cell in self.cells.values():
            values, vectors = cell.network.eigenvectors()
            lifted = np.zeros((2 * self.width, len(values)))
            lifted[self._places(cell)] = vectors
            all_values.append(values)
            all_vectors.append(lifted)
        joined = np.concatenate(all_values)
        order = np.argsort(-joined, kind="stable")
        return joined[order], np.hstack(all_vectors)[:, order]

    def _places(self, cell: Cell) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Where the parameters (v; w) of a cell sit among those of the network."""
        return np.concatenate([cell.neurons, cell.neurons + self.width])


@dataclass(frozen=True, eq=False)
class SeparateInputs:
    """The network x ↦ Σ_e ⟨w_e, v_e⟩ x_e, which has its own hidden neurons for each of D inputs;
    for m = 1 the diagonal linear network. `w`, `v` are (D, m), `sigma` is E xxᵀ (D, D), `yx` is
    E yx (D,). Parameters are ordered input by input, (v_1; w_1; v_2; w_2; …).

    >>> SeparateInputs([[1, 2], [1, 0]], [[1, 2], [1, 1]], np.eye(2), [0.5, 1]).spectrum()
    Spectrum(14.5 × 1, 4.5 × 1, 3 × 1, 0 × 3, -4.5 × 2)
    """

    w: Array
    v: Array
    sigma: Array
    yx: Array

    def __post_init__(self) -> None:
        w, v = real_array("w", self.w, ndim=2), real_array("v", self.v, ndim=2)
        if not w.size:
            raise ValueError(f"w must hold at least one number, got shape {w.shape}")
        if w.shape != v.shape:
            raise ValueError(
                f"v must be {w.shape[0]}×{w.shape[1]} to match w, got {v.shape[0]}×{v.shape[1]}"
            )
        # The product network Σ_e c_e x_e checks the moments.
        line = LinearChain((np.ones((1, len(w))),), self.sigma, np.asarray(self.yx)[None])
        for name, array in (("w", w), ("v", v), ("sigma", line.sigma_xx)):
            object.__setattr__(self, name, array)
        object.__setattr__(self, "yx", line.sigma_yx[0])

    @property
    def c(self) -> Array:
        """⟨w_e, v_e⟩ for each input, shape (D,)."""
        return np.sum(self.w * self.v, axis=1)

    @property
    def d(self) -> Array:
        """E x_eδ = (Σc)_e − E yx_e with c_e = ⟨w_e, v_e⟩, shape (D,).

        >>> SeparateInputs([[1], [2]], [[1], [1]], [[2, 1], [1, 2]], [0, 1]).d
        array([4., 4.])
        """
        return self.sigma @ self.c - self.yx

    def loss(self) -> float:
        """½ cᵀΣc − ⟨c, E yx⟩, the loss up to ½E y².

        >>> SeparateInputs([[1], [2]], [[1], [1]], np.eye(2), [0, 1]).loss()
        0.5
        """
        return float(self.c @ self.sigma @ self.c / 2 - self.c @ self.yx)

    def gradient(self) -> Array:
        """d_e (w_e; v_e), input by input, shape (2mD,).

        >>> SeparateInputs([[1], [2]], [[1], [1]], np.eye(2), [0, 1]).gradient()
        array([1., 1., 2., 1.])
        """
        return (self.d[:, None] * np.hstack([self.w, self.v])).ravel()

    def step(self, eta: float) -> Self:
        """The network after one step θ − η∇ℓ of gradient descent.

        >>> SeparateInputs([[1], [2]], [[1], [1]], np.eye(2), [0, 1]).step(0.5).w.ravel()
        array([0.5, 1.5])
        """
        pace = nonnegative_number("eta", eta) * self.d[:, None]
        return replace(self, w=self.w - pace * self.v, v=self.v - pace * self.w)

    def hessian(self) -> Array:
        """The dense Hessian (2mD, 2mD): JΣJᵀ plus d_e [[0, I], [I, 0]] for each input.

        >>> SeparateInputs([[3]], [[5]], [[1]], [7]).hessian()
        array([[ 9., 23.],
               [23., 25.]])
        """
        inputs, m = self.w.shape
        jacobian = np.zeros((2 * m * inputs, inputs))
        for e in range(inputs):
            jacobian[2 * m * e : 2 * m * (e + 1), e] = np.concatenate([self.w[e], self.v[e]])
        swap = np.kron([[0.0, 1.0], [1.0, 0.0]], np.eye(m))
        matrix = jacobian @ self.sigma @ jacobian.T + np.kron(np.diag(self.d), swap)
        return (matrix + matrix.T) / 2

    def spectrum(self) -> Spectrum:
        """All 2mD eigenvalues: ±d_e, m − 1 times each, and 2D outliers, the eigenvalues of
        diag(d_e, −d_e) + (Σ_ef (‖p_e‖; ‖r_e‖)(‖p_f‖; ‖r_f‖)ᵀ)_ef. For uncorrelated inputs that
        matrix falls into 2 × 2 blocks, one pair for each input.

        >>> SeparateInputs([[1], [2]], [[1], [1]], [[2, 1], [1, 2]], [4, 5]).spectrum()
        Spectrum(11.3589 × 1, 2.6411 × 1, 0 × 2)
        """
        repeats = self.w.shape[1] - 1
        norms = np.linalg.norm(_halves(self.w, self.v), axis=2).T
        plane = np.kron(self.sigma, np.ones((2, 2))) * np.outer(norms.ravel(), norms.ravel())
        plane += np.diag(np.kron(self.d, [1.0, -1.0]))
        return Spectrum.of(
            *((value, 1, "outlier") for value in np.linalg.eigvalsh(plane)),
            *((sign * value, repeats, "bulk") for value in self.d for sign in (1, -1)),
        )


def _halves(w: Array, v: Array) -> tuple[Array, Array]:
    """p = (w + v)/√2 and r = (w − v)/√2."""
    return (w + v) / np.sqrt(2), (w - v) / np.sqrt(2)


def _unit(vector: Array) -> Array:
    """The direction of a vector, and the first axis for the vector 0, which has none."""
    peak = np.abs(vector).max()
    # Divided by the largest entry first, so that squares neither overflow nor vanish.
    scaled = vector / peak if peak else np.eye(len(vector))[0]
    return scaled / float(np.linalg.norm(scaled))


def _complement(unit: Array) -> Array:
    """An orthonormal basis (m, m − 1) of what is orthogonal to a unit vector (m,): all columns but
    the first of the reflection that takes the first axis to ±unit."""
    mirror = unit.copy()
    mirror[0] += np.copysign(1.0, unit[0])
    return (np.eye(len(unit)) - 2 * np.outer(mirror, mirror) / (mirror @ mirror))[:, 1:]


def _pair(w: ArrayLike, v: ArrayLike) -> tuple[Array, Array]:
    outer, inner = real_array("w", w, ndim=1), real_array("v", v, ndim=1)
    if not len(outer) or len(inner) != len(outer):
        raise ValueError(
            f"w and v must have one length, at least 1, got {len(outer)} and {len(inner)}"
        )
    return outer, inner


def _samples(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    inputs, targets = real_array("x", x, ndim=1), real_array("y", y, ndim=1)
    if not len(inputs) or len(targets) != len(inputs):
        raise ValueError(
            f"x and y must have one length, at least 1, got {len(inputs)} and {len(targets)}"
        )
    return inputs, targets
