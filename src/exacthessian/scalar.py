"""Two-layer networks with one number in and one number out.

The linear network f(x) = ⟨w, v⟩x is trained on 1/(2n) Σ_i (f(x_i) − y_i)². With s² = E x²,
c = ⟨w, v⟩ and the covariance d = E xδ = c s² − E xy of input and residual δ = f(x) − y, its Hessian
in the parameters (v; w) is

    H = s² (w; v)(w; v)ᵀ + d [[0, I], [I, 0]].                                                 (1)

The rotation (z_v; z_w) ↦ ((z_v + z_w)/√2; (z_v − z_w)/√2) takes (w; v) to (p; r), where
p = (w + v)/√2 and r = (w − v)/√2, and makes the second term diagonal:

    H ≅ diag(d I, −d I) + s² (p; r)(p; r)ᵀ.                                                    (2)

So ±d are eigenvalues on the complements of p and r, and the two outliers live in the plane of
(p̂; 0) and (0; r̂), where H is the 2 × 2 matrix with trace s²(‖w‖² + ‖v‖²), half difference
d + s²c of its diagonal entries and off-diagonal entry s²‖p‖‖r‖. A ReLU network is two of these. If
p = 0 any unit vector can be p̂, and likewise r̂: no case needs its own formula.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exacthessian.chain import LinearChain
from exacthessian.inputs import Array, equal_vectors, guard, require, settle
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
        outer, inner = equal_vectors(w=w, v=v)
        require(s2 or not yx, "yx must be 0 when s2 is 0, because then all inputs are 0", yx)
        super().__init__((inner[:, None], outer[None]), np.array([[s2]]), np.array([[yx]]), half_y2)

    @classmethod
    def from_samples(cls, w: ArrayLike, v: ArrayLike, x: ArrayLike, y: ArrayLike) -> Self:
        """The network with the moments of the samples `x`, `y`, both (n,).

        >>> TwoLayer.from_samples([1], [1], x=[1, 3], y=[2, 2]).s2
        5.0
        """
        inputs, targets = equal_vectors(x=x, y=y)
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
        top = self.trace / 2 + float(np.hypot(*self._point()))
        product = -self.d * (self.d + 2 * self.s2 * self.c)
        second = product / top if top else 0.0
        return np.array([top, second + 0.0])  # no negative zero

    def spectrum(self) -> Spectrum:
        """All 2m eigenvalues: two outliers, and the bulk d and −d, m − 1 times each.

        >>> TwoLayer([1, 2, 2], [0, 0, 1], s2=1, yx=1).spectrum().labels
        ('outlier', 'bulk', 'outlier', 'bulk')
        """
        outliers = ((value, 1, "outlier") for value in self.outliers())
        bulk = ((sign * self.d, self.width - 1, "bulk") for sign in (1, -1))
        return Spectrum.of(*outliers, *bulk)

    def outlier_vectors(self) -> Array:
        """Orthonormal eigenvectors of λ_1 and λ_2, the columns of a (2m, 2) array.

        cos φ (p̂; p̂)/√2 + sin φ (r̂; −r̂)/√2 and its quarter turn, with 2φ the angle of the point
        (d + s²c, s²‖p‖‖r‖). Valid for all weights and residuals.

        >>> network = TwoLayer([1, 2], [1, 2], s2=1, yx=0.5)
        >>> vectors = network.outlier_vectors()
        >>> bool(np.allclose(network.hessian() @ vectors, vectors * network.outliers()))
        True
        """
        p, r = _unit(self.w + self.v), _unit(self.w - self.v)
        along, across = self._point()
        phi = np.arctan2(across, along) / 2
        turn = np.array([[np.cos(phi), -np.sin(phi)], [np.sin(phi), np.cos(phi)]])
        return np.block([[p, p], [r, -r]]).T @ turn / np.sqrt(2)

    def _point(self) -> tuple[float, float]:
        """(d + s²c, s²‖p‖‖r‖): the outlier block is ½ tr H plus the reflection along this point."""
        halves = np.linalg.norm(self.w + self.v) * np.linalg.norm(self.w - self.v) / 2
        return self.d + self.s2 * self.c, self.s2 * float(halves)


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
        (w, v), (x, y) = equal_vectors(w=self.w, v=self.v), equal_vectors(x=self.x, y=self.y)
        settle(self, w=w, v=v, x=x, y=y)

    @property
    def places(self) -> dict[str, NDArray[np.intp]]:
        """Where the parameters (v; w) of each cell that owns a neuron sit among those of the
        network, by name, "plus" before "minus".

        >>> ReluNetwork([1, 2, 3], [4, -5, 6], x=[1], y=[0]).places["plus"]
        array([0, 2, 3, 5])
        """
        neurons = {"plus": np.flatnonzero(self.v > 0), "minus": np.flatnonzero(self.v < 0)}
        return {n: np.concatenate([j, j + len(self.v)]) for n, j in neurons.items() if j.size}

    @property
    def cells(self) -> dict[str, TwoLayer]:
        """The linear network that each of these cells is, with the moments E[x²; cell] and
        E[xy; cell], sums over the samples of its sign divided by all n.

        >>> ReluNetwork([1, 2, 3], [4, -5, 6], x=[1, -1, 2, 3], y=[1, 1, 1, 1]).cells["minus"].yx
        -0.25
        """
        found = {}
        for name, places in self.places.items():
            v, w = np.split(np.concatenate([self.v, self.w])[places], 2)
            mine = self.x > 0 if name == "plus" else self.x <= 0
            found[name] = TwoLayer.from_samples(w, v, self.x * mine, self.y * mine)
        return found

    def outputs(self) -> Array:
        """The outputs on the samples, shape (n,).

        >>> ReluNetwork([1, 2], [3, -1], x=[1, -1], y=[0, 0]).outputs()
        array([3., 2.])
        """
        return self.w @ np.maximum(np.outer(self.v, self.x), 0.0)

    def gradient(self) -> Array:
        """∇ℓ in the order (v; w), shape (2m,).

        >>> ReluNetwork([1, 2], [3, -1], x=[1, -1], y=[1, 4]).gradient()
        array([ 1.,  2.,  3., -1.])
        """
        gradient = np.zeros(2 * len(self.v))
        for name, cell in self.cells.items():
            gradient[self.places[name]] = cell.gradient()
        return gradient

    def spectrum(self) -> Spectrum:
        """All 2m eigenvalues, labelled by their origin, "plus", "minus" or "silent".

        >>> ReluNetwork([1, 1, 1], [2, 0, -1], x=[1, 1], y=[1, 1]).spectrum().labels
        ('plus', 'silent', 'minus', 'minus', 'plus')
        """
        silent = Spectrum.of((0.0, 2 * int(np.sum(self.v == 0)), "silent"))
        cells = {name: cell.spectrum().expand() for name, cell in self.cells.items()}
        return Spectrum.merge([silent, *(Spectrum.from_values(v, n) for n, v in cells.items())])


def _unit(vector: Array) -> Array:
    """The direction of a vector, and the first axis for the vector 0, which has none."""
    peak = np.abs(vector).max()
    # Divided by the largest entry first, so that squares neither overflow nor vanish.
    scaled = vector / peak if peak else np.eye(len(vector))[0]
    return scaled / float(np.linalg.norm(scaled))


guard(globals())
