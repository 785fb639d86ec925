"""Deep linear networks with quadratic loss, and their Hessian in closed form.

A chain of matrices W = W_{L−1} ⋯ W_0 is trained on ½E‖Wx − y‖² + ½Σ_l λ_l‖W_l‖². The data enter
through the moments Σxx = E xxᵀ, Σyx = E yxᵀ and ½E‖y‖² only, so nothing here depends on the number
of samples. Parameters are ordered layer by layer, each layer row by row, so that
vec(A W B) = (A ⊗ Bᵀ) vec(W). Layers count from 0 here, as in the code: W_l is `weights[l]`,
which is W_{l+1} in the book.

Write A_k = W_{L−1} ⋯ W_{k+1} for what comes after layer k, B_k = W_{k−1} ⋯ W_0 for what comes
before it, C_kl = W_{k−1} ⋯ W_{l+1} for what lies between layers l < k, and Ω = WΣxx − Σyx. Then the
block of the Hessian that belongs to the layers k > l is

    ∂²loss / ∂W_k[a, i] ∂W_l[j, b] = M[a, j] N[i, b] + C[i, j] G[a, b]                        (1)

with M = A_kᵀA_l, N = B_kΣxxB_lᵀ, C = C_kl and G = A_kᵀΩB_lᵀ. The first term, M ⊗ N, is the
Gauss–Newton part; the second is the functional part. For k = l the second term is absent and the
functional part is λ_k times the identity.

Both terms are written below as they stand here, by `gauss_newton` and `functional`; `hessian` is
their sum, written in one pass by `exacthessian.assembly`.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate, pairwise
from operator import matmul
from typing import Any, Self, cast

import numpy as np
from numpy.linalg import matrix_rank
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator

from exacthessian import inputs
from exacthessian.assembly import buffer, write_hessian
from exacthessian.inputs import Array, Ridge, real_array, require


class Layered(ABC):
    """A model whose parameters are matrices W_0, …, W_{L−1}, in order of application, with a
    ridge λ_l for each: what `LinearChain` and `exacthessian.ufm.Point` share.
    """

    weights: tuple[Array, ...]
    ridge: Ridge

    @abstractmethod
    def gradient(self) -> Array:
        """The gradient (P,) of the loss, in the order of `parameters`."""

    @property
    def size(self) -> int:
        """The number of parameters P = Σ_l d_{l+1} d_l.

        >>> LinearChain([np.ones((3, 2)), np.ones((4, 3))], np.eye(2), np.ones((4, 2))).size
        18
        """
        return sum(weight.size for weight in self.weights)

    def parameters(self) -> Array:
        """All weights as one vector θ (P,): layer by layer, each row by row.

        >>> LinearChain([[[1.0], [2.0]], [[3.0, 4.0]]], [[1.0]], [[0.0]]).parameters()
        array([1., 2., 3., 4.])
        """
        return np.concatenate([weight.ravel() for weight in self.weights])

    def with_parameters(self, theta: ArrayLike) -> Self:
        """The model with the same data and the weights θ (P,), as ordered by `parameters`.

        >>> chain = LinearChain([[[1.0], [2.0]], [[3.0, 4.0]]], [[1.0]], [[0.0]])
        >>> chain.with_parameters([5, 6, 7, 8]).weights[1]
        array([[7., 8.]])
        """
        vector = real_array("theta", theta, ndim=1)
        require(len(vector) == self.size, f"theta must have length {self.size}", len(vector))
        # The data are checked already; checking them again would cost an eigenvalue problem.
        moved = copy.copy(self)
        inputs.settle(moved, weights=tuple(self._layers(vector)))
        return moved

    def step(self, eta: float) -> Self:
        """One step of gradient descent, θ − η∇loss.

        >>> LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[4.0]]).step(0.1).parameters()
        array([1.4, 2.6])
        """
        return self.with_parameters(inputs.stepped(self.parameters(), eta, self.gradient()))

    def _ridges(self) -> Array:
        """λ_l for each parameter (P,)."""
        return np.repeat(self.ridge, [weight.size for weight in self.weights])

    def _layers(self, vectors: Array) -> Iterator[Array]:
        """The parts of `vectors` (…, P) that belong to each layer, as (…, d_{l+1}, d_l)."""
        start = 0
        for weight in self.weights:
            part = vectors[..., start : start + weight.size]
            yield part.reshape(*vectors.shape[:-1], *weight.shape)
            start += weight.size


@dataclass(frozen=True, eq=False, repr=False)
class LinearChain(Layered):
    """A deep linear network x ↦ W_{L−1} ⋯ W_0 x together with the moments of its data.

    `weights` holds L matrices in order of application, weights[l] of shape (d_{l+1}, d_l);
    `sigma_xx` (d_0, d_0) is symmetric positive semidefinite; `sigma_yx` is (d_L, d_0); `half_y2` is
    ½E‖y‖², without which the loss is known up to that constant; `ridge` is λ, one number for all
    layers or one for each. Everything is stored as read-only float64.

    For one layer the Hessian is I ⊗ Σxx:

    >>> LinearChain([[[4.0, 5.0]]], sigma_xx=[[2, 1], [1, 3]], sigma_yx=[[6, 7]]).hessian()
    array([[2., 1.],
           [1., 3.]])

    For two scalar layers the loss ½(vu − y)² has the second derivatives v², 2uv − y and u²:

    >>> LinearChain([[[3.0]], [[5.0]]], sigma_xx=[[1.0]], sigma_yx=[[7.0]]).hessian()
    array([[25., 23.],
           [23.,  9.]])
    """

    weights: tuple[Array, ...]
    sigma_xx: Array
    sigma_yx: Array
    half_y2: float = 0.0
    ridge: Ridge = 0.0

    def __post_init__(self) -> None:
        weights = checked_weights(self.weights)
        first, last = weights[0], weights[-1]
        sigma_yx, shape = real_array("sigma_yx", self.sigma_yx, ndim=2), (len(last), first.shape[1])
        ends = f"weights[{len(weights) - 1}] ({_times(last.shape)}) and weights[0]"
        expected = f"sigma_yx must be {_times(shape)} to match {ends} ({_times(first.shape)})"
        require(sigma_yx.shape == shape, expected, _times(sigma_yx.shape))
        inputs.settle(
            self,
            weights=weights,
            sigma_xx=_checked_moment(self.sigma_xx, first),
            sigma_yx=sigma_yx,
            half_y2=inputs.nonnegative_number("half_y2", self.half_y2),
            ridge=inputs.ridge_per_layer(self.ridge, len(weights)),
        )

    @classmethod
    def from_data(
        cls, X: ArrayLike, Y: ArrayLike, weights: Sequence[ArrayLike], ridge: Ridge = 0.0
    ) -> Self:
        """The chain with the moments XXᵀ/N, YXᵀ/N and ½‖Y‖²/N of N samples, the columns of
        X (d_0, N) and Y (d_L, N).

        >>> chain = LinearChain.from_data([[1.0, 3.0]], [[1.0, 2.0]], weights=[[[2.0]]])
        >>> chain.sigma_xx.item(), chain.sigma_yx.item(), chain.half_y2, chain.loss()
        (5.0, 3.5, 1.25, 4.25)
        """
        x, y = real_array("X", X, ndim=2), real_array("Y", Y, ndim=2)
        n, shapes = x.shape[1], f"{_times(x.shape)} and {_times(y.shape)}"
        fit = y.shape[1] == n > 0
        require(fit, "X and Y must have the same number of columns, at least 1", shapes)
        half_y2 = float(np.sum(y**2) / (2 * n))
        return cls(cast(Any, weights), x @ x.T / n, y @ x.T / n, half_y2, ridge)

    @property
    def depth(self) -> int:
        """The number L of layers."""
        return len(self.weights)

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths (d_0, …, d_L).

        >>> LinearChain([np.ones((3, 2)), np.ones((4, 3))], np.eye(2), np.ones((4, 2))).widths
        (2, 3, 4)
        """
        return (self.weights[0].shape[1], *(len(weight) for weight in self.weights))

    @property
    def product(self) -> Array:
        """W = W_{L−1} ⋯ W_0, shape (d_L, d_0).

        >>> LinearChain([[[2.0], [3.0]], [[5.0, 7.0]]], [[1.0]], [[0.0]]).product
        array([[31.]])
        """
        return reduce(matmul, reversed(self.weights)).copy()

    @property
    def residual(self) -> Array:
        """Ω = WΣxx − Σyx, the gradient of the loss with respect to W, shape (d_L, d_0).

        >>> LinearChain([[[2.0]], [[3.0]]], [[5.0]], [[7.0]]).residual
        array([[23.]])
        """
        return self.product @ self.sigma_xx - self.sigma_yx

    @property
    def after(self) -> tuple[Array, ...]:
        """A_l = W_{L−1} ⋯ W_{l+1} for every layer l, shape (d_L, d_{l+1}).

        >>> [A.item() for A in LinearChain([[[2.0]], [[3.0]], [[5.0]]], [[1.0]], [[0.0]]).after]
        [15.0, 5.0, 1.0]
        """
        last = np.eye(len(self.weights[-1]))
        return tuple(accumulate(reversed(self.weights[1:]), matmul, initial=last))[::-1]

    @property
    def before(self) -> tuple[Array, ...]:
        """B_l = W_{l−1} ⋯ W_0 for every layer l, shape (d_l, d_0).

        >>> [B.item() for B in LinearChain([[[2.0]], [[3.0]], [[5.0]]], [[1.0]], [[0.0]]).before]
        [1.0, 2.0, 6.0]
        """
        first = np.eye(self.widths[0])
        return tuple(accumulate(self.weights[:-1], lambda B, W: W @ B, initial=first))

    def between(self, k: int, l: int) -> Array:
        """C_kl = W_{k−1} ⋯ W_{l+1} for layers l < k, shape (d_k, d_{l+1}).

        >>> LinearChain([[[2.0]], [[3.0]], [[5.0]]], [[1.0]], [[0.0]]).between(2, 0).item()
        3.0
        """
        return reduce(lambda C, W: W @ C, self.weights[l + 1 : k], np.eye(self.widths[l + 1]))

    def loss(self) -> float:
        """½E‖Wx − y‖² + ½Σ_l λ_l‖W_l‖² = ½⟨W, WΣxx − 2Σyx⟩ + ½E‖y‖² + ½Σ_l λ_l‖W_l‖².

        >>> LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[4.0]], half_y2=8.0, ridge=0.1).loss()
        2.65
        """
        product = self.product
        fit = np.vdot(product, product @ self.sigma_xx - 2 * self.sigma_yx) / 2
        decay = np.dot(self.ridge, [np.vdot(weight, weight) for weight in self.weights]) / 2
        return float(fit + self.half_y2 + decay)

    def gradient(self) -> Array:
        """The gradient (P,): A_lᵀΩB_lᵀ + λ_l W_l for layer l.

        >>> LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[4.0]], ridge=0.5).gradient()
        array([7. , 5.5])
        """
        before, errors = self._states()
        slopes = [errors[0], *(error @ b.T for error, b in zip(errors[1:], before, strict=True))]
        slope = np.concatenate([slope.ravel() for slope in slopes])
        return slope + self._ridges() * self.parameters()

    def hessian(self, out: Array | None = None) -> Array:
        """The Hessian (P, P) of the loss, `gauss_newton() + functional()`, symmetric to rounding.

        It is written into `out` when that is given: a C-contiguous float64 array (P, P), which
        saves the cost of fresh memory when many Hessians are computed.

        >>> chain = LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]], ridge=[0.5, 0.25])
        >>> chain.hessian()
        array([[50.5 , 53.  ],
               [53.  , 18.25]])
        """
        H = buffer(self.size, out)
        write_hessian(H, self.weights, self.after, self.before, self.sigma_xx, self.residual)
        if any(self.ridge):
            H.reshape(-1)[:: self.size + 1] += self._ridges()
        return H

    def gauss_newton(self) -> Array:
        """The Gauss–Newton part (P, P), the first term of (1): blocks A_kᵀA_l ⊗ B_kΣxxB_lᵀ.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]], ridge=1.0).gauss_newton()
        array([[50., 30.],
               [30., 18.]])
        """
        A, B, Sigma = self.after, self.before, self.sigma_xx

        def block(k: int, l: int) -> NDArray[Any]:
            return np.kron(A[k].T @ A[l], B[k] @ Sigma @ B[l].T)

        return _symmetric(block, self.depth)

    def functional(self) -> Array:
        """The functional part (P, P), the second term of (1), plus λ on the diagonal.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]], ridge=1.0).functional()
        array([[ 1., 23.],
               [23.,  1.]])
        """
        A, B, Omega = self.after, self.before, self.residual

        def block(k: int, l: int) -> NDArray[Any]:
            shape = self.weights[k].size, self.weights[l].size
            if k == l:
                return np.zeros(shape)
            G = A[k].T @ Omega @ B[l].T
            return np.einsum("ij,ab->aijb", self.between(k, l), G).reshape(shape)

        return _symmetric(block, self.depth) + np.diag(self._ridges())

    def hvp(self, v: ArrayLike) -> Array:
        """The Hessian times v, shape (P,) or (P, m) for m vectors at once, without the Hessian.

        A displacement V moves the state B_l of the network by
        dB_{l+1} = W_l dB_l + V_l B_l and the error Δ_l = A_lᵀΩ by
        dΔ_{l−1} = W_lᵀ dΔ_l + V_lᵀ Δ_l, starting from dB_0 = 0 and dΔ_{L−1} = dB_L Σxx. The product
        is the displacement of the gradient, dΔ_l B_lᵀ + Δ_l dB_lᵀ + λ_l V_l for layer l.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]]).hvp([1.0, 10.0])
        array([580., 233.])
        """
        vector = np.asarray(v, dtype=np.float64)
        fits = vector.ndim in (1, 2) and len(vector) == self.size
        require(fits, f"v must have shape ({self.size},) or ({self.size}, m)", vector.shape)
        return self._displaced_gradient(*self._states(), vector)

    def operator(self) -> LinearOperator:
        """The Hessian as a symmetric scipy LinearOperator (P, P) of dtype float64, which never
        forms the matrix.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]]).operator() @ np.array([1.0, 10.0])
        array([580., 233.])
        """
        product = partial(self._displaced_gradient, *self._states())
        shape = (self.size, self.size)
        return LinearOperator(shape, product, product, product, np.float64, product)

    def __repr__(self) -> str:
        return f"LinearChain(widths={self.widths}, size={self.size})"

    def _states(self) -> tuple[list[Array], list[Array]]:
        """The states (B_1, …, B_{L−1}) and the errors (Δ_0, …, Δ_{L−1}), Δ_l = A_lᵀΩ."""
        *before, product = accumulate(self.weights, lambda state, weight: weight @ state)
        residual = product @ self.sigma_xx - self.sigma_yx
        transposes = (weight.T for weight in reversed(self.weights[1:]))
        errors = accumulate(transposes, lambda error, weight: weight @ error, initial=residual)
        return before, [*errors][::-1]

    def _displaced_gradient(self, before: list[Array], errors: list[Array], v: Array) -> Array:
        """The product of the Hessian and v (P,) or (P, m), by the recursion of `hvp`."""
        result = np.empty(v.shape[::-1])
        steps, parts = list(self._layers(v.T)), list(self._layers(result))
        moved = [steps[0]]
        for weight, step, state in zip(self.weights[1:], steps[1:], before, strict=True):
            moved.append(weight @ moved[-1] + step @ state)
        slope = moved[-1] @ self.sigma_xx
        for layer in range(self.depth - 1, 0, -1):
            np.matmul(slope, before[layer - 1].T, out=parts[layer])
            parts[layer] += errors[layer] @ moved[layer - 1].mT
            slope = self.weights[layer].T @ slope + steps[layer].mT @ errors[layer]
        parts[0][...] = slope
        if any(self.ridge):
            result += self._ridges() * v.T
        return result.T


def gauss_newton_rank(chain: LinearChain) -> int:
    """The rank of the Gauss–Newton part: Σ_l (α_l − α_{l−1}) β_l with the ranks α_l of A_l and β_l
    of B_l Σxx, and α = 0 before the first layer.

    >>> gauss_newton_rank(LinearChain([[[3.0], [0.0]], [[5.0, 0.0]]], [[2.0]], [[7.0]]))
    1
    """
    W, Sigma = chain.weights, chain.sigma_xx
    alpha = [_rank(A, W[l + 1 :]) for l, A in enumerate(chain.after)]
    beta = [_rank(B @ Sigma, [Sigma, *W[:l]]) for l, B in enumerate(chain.before)]
    return int(np.diff(alpha, prepend=0) @ beta)


def _rank(product: Array, factors: Sequence[Array]) -> int:
    """The rank of a product; its rounding errors are as large as its factors, not as it is."""
    scale = np.prod([np.linalg.norm(factor, 2) for factor in factors])
    return int(matrix_rank(product, tol=scale * max(product.shape) * np.finfo(float).eps))


def _symmetric(block: Callable[[int, int], NDArray[Any]], depth: int) -> Array:
    """The symmetric matrix that has block(k, l) for the layers k ≥ l."""
    layers = range(depth)
    return np.block([[block(k, l) if l <= k else block(l, k).T for l in layers] for k in layers])


def _times(shape: Sequence[int]) -> str:
    """A shape as text, 2×3."""
    return "×".join(map(str, shape))


def checked_weights(weights: Sequence[ArrayLike]) -> tuple[Array, ...]:
    """The weights as read-only float64 matrices, each taking what the one before it gives.

    >>> checked_weights([[[1, 2]], [[3]]])
    (array([[1., 2.]]), array([[3.]]))
    """
    checked = inputs.real_arrays("weights", weights, ndim=2)
    for i, weight in enumerate(checked):
        require(weight.size, f"weights[{i}] must not be empty", _times(weight.shape))
    for i, (below, above) in enumerate(pairwise(checked)):
        match = f"to match weights[{i}] ({_times(below.shape)})"
        expected = f"weights[{i + 1}] must have {len(below)} columns {match}"
        require(above.shape[1] == len(below), expected, _times(above.shape))
    return checked


def _checked_moment(sigma_xx: ArrayLike, first: Array) -> Array:
    """Σxx as a read-only float64 matrix, made exactly symmetric; refused when it is not symmetric
    or not positive semidefinite beyond rounding.
    """
    moment, width = real_array("sigma_xx", sigma_xx, ndim=2), first.shape[1]
    expected = f"sigma_xx must be {width}×{width} to match weights[0] ({_times(first.shape)})"
    require(moment.shape == (width, width), expected, _times(moment.shape))
    slack = inputs.require_symmetric("sigma_xx", moment)
    moment = (moment + moment.T) / 2
    lowest = np.linalg.eigvalsh(moment)[0]
    if lowest < -width * slack:
        raise ValueError(f"sigma_xx must be positive semidefinite, but has eigenvalue {lowest:.3g}")
    moment.setflags(write=False)
    return moment
