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

By (1) each row (a, i) of a block, reshaped like W_l, is a matrix of rank two,
M[a]ᵀN[i] + C[i]ᵀG[a]. So the dense Hessian is written by batched products of inner dimension two
straight into the result: one pass over memory, and no temporary of comparable size.
"""

import copy
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, groupby
from operator import matmul
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from exacthessian.inputs import Array, nonnegative_number, real_array, ridge_per_layer, whole_number

if TYPE_CHECKING:
    from exacthessian.aligned import AlignedChain

MOMENT_TOLERANCE = 1e-12
# Rows are written in groups of about this many entries, which stay in the cache (4 MiB) …
CHUNK_ENTRIES = 2**19
# … and temporaries of this size (32 KiB) are allowed however small the result is.
SMALL_ENTRIES = 2**12
# Results of up to 256 MiB are allocated without asking how much memory there is.
SMALL_BYTES = 2**28


@dataclass(frozen=True, eq=False, repr=False)
class LinearChain:
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
    ridge: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        weights = _checked_weights(self.weights)
        outputs, inputs = len(weights[-1]), weights[0].shape[1]
        sigma_yx = real_array("sigma_yx", self.sigma_yx, ndim=2)
        if sigma_yx.shape != (outputs, inputs):
            raise ValueError(
                f"sigma_yx must be {outputs}×{inputs} to match weights[{len(weights) - 1}] "
                f"({_times(weights[-1])}) and weights[0] ({_times(weights[0])}), "
                f"got {_times(sigma_yx)}"
            )
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "sigma_xx", _checked_moment(self.sigma_xx, weights[0]))
        object.__setattr__(self, "sigma_yx", sigma_yx)
        object.__setattr__(self, "half_y2", nonnegative_number("half_y2", self.half_y2))
        object.__setattr__(self, "ridge", ridge_per_layer(self.ridge, len(weights)))

    @classmethod
    def from_data(
        cls,
        X: ArrayLike,
        Y: ArrayLike,
        weights: Iterable[ArrayLike],
        ridge: float | Sequence[float] = 0.0,
    ) -> Self:
        """The chain with the moments XXᵀ/N, YXᵀ/N and ½‖Y‖²/N of N samples, the columns of
        X (d_0, N) and Y (d_L, N).

        >>> chain = LinearChain.from_data([[1.0, 3.0]], [[1.0, 2.0]], weights=[[[2.0]]])
        >>> chain.sigma_xx.item(), chain.sigma_yx.item(), chain.half_y2, chain.loss()
        (5.0, 3.5, 1.25, 4.25)
        """
        inputs, targets = real_array("X", X, ndim=2), real_array("Y", Y, ndim=2)
        samples = inputs.shape[1]
        if samples == 0 or targets.shape[1] != samples:
            raise ValueError(
                "X and Y must have the same number of columns, at least 1, "
                f"got {_times(inputs)} and {_times(targets)}"
            )
        checked = _checked_weights(weights)
        if len(inputs) != checked[0].shape[1]:
            raise ValueError(
                f"X must have {checked[0].shape[1]} rows to match weights[0] "
                f"({_times(checked[0])}), got {_times(inputs)}"
            )
        if len(targets) != len(checked[-1]):
            raise ValueError(
                f"Y must have {len(checked[-1])} rows to match weights[{len(checked) - 1}] "
                f"({_times(checked[-1])}), got {_times(targets)}"
            )
        return cls(
            weights=checked,
            sigma_xx=inputs @ inputs.T / samples,
            sigma_yx=targets @ inputs.T / samples,
            half_y2=float(np.sum(targets**2) / (2 * samples)),
            ridge=ridge,
        )

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
    def size(self) -> int:
        """The number of parameters P = Σ_l d_{l+1} d_l.

        >>> LinearChain([np.ones((3, 2)), np.ones((4, 3))], np.eye(2), np.ones((4, 2))).size
        18
        """
        return sum(weight.size for weight in self.weights)

    @property
    def product(self) -> Array:
        """W = W_{L−1} ⋯ W_0, shape (d_L, d_0).

        >>> LinearChain([[[2.0], [3.0]], [[5.0, 7.0]]], [[1.0]], [[0.0]]).product
        array([[31.]])
        """
        product: Array = reduce(matmul, reversed(self.weights))
        return product.copy()

    @property
    def residual(self) -> Array:
        """Ω = WΣxx − Σyx, the gradient of the loss with respect to W, shape (d_L, d_0).

        >>> LinearChain([[[2.0]], [[3.0]]], [[5.0]], [[7.0]]).residual
        array([[23.]])
        """
        residual: Array = self.product @ self.sigma_xx - self.sigma_yx
        return residual

    def parameters(self) -> Array:
        """All weights as one vector θ (P,): layer by layer, each row by row.

        >>> LinearChain([[[1.0], [2.0]], [[3.0, 4.0]]], [[1.0]], [[0.0]]).parameters()
        array([1., 2., 3., 4.])
        """
        return np.concatenate([weight.ravel() for weight in self.weights])

    def with_parameters(self, theta: ArrayLike) -> Self:
        """The chain with the same data and the weights θ (P,), as ordered by `parameters`.

        >>> chain = LinearChain([[[1.0], [2.0]], [[3.0, 4.0]]], [[1.0]], [[0.0]])
        >>> chain.with_parameters([5, 6, 7, 8]).weights[1]
        array([[7., 8.]])
        """
        vector = real_array("theta", theta, ndim=1)
        if len(vector) != self.size:
            raise ValueError(f"theta must have length {self.size}, got {len(vector)}")
        # The moments are checked already; checking them again would cost an eigenvalue problem.
        chain = copy.copy(self)
        object.__setattr__(chain, "weights", tuple(self._layers(vector)))
        return chain

    def loss(self) -> float:
        """½E‖Wx − y‖² + ½Σ_l λ_l‖W_l‖² = ½⟨W, WΣxx − 2Σyx⟩ + ½E‖y‖² + ½Σ_l λ_l‖W_l‖².

        >>> LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[4.0]], half_y2=8.0, ridge=0.1).loss()
        2.65
        """
        product = self.product
        fit = np.vdot(product, product @ self.sigma_xx - 2 * self.sigma_yx) / 2
        decay = sum(
            ridge * np.vdot(weight, weight) / 2
            for ridge, weight in zip(self._ridge, self.weights, strict=True)
        )
        return float(fit + self.half_y2 + decay)

    def gradient(self) -> Array:
        """The gradient (P,): A_lᵀΩB_lᵀ + λ_l W_l for layer l.

        >>> LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[4.0]], ridge=0.5).gradient()
        array([7. , 5.5])
        """
        before, errors = self._states()
        slopes = [errors[0], *(error @ b.T for error, b in zip(errors[1:], before, strict=True))]
        decays = (ridge * weight for ridge, weight in zip(self._ridge, self.weights, strict=True))
        return np.concatenate([(s + d).ravel() for s, d in zip(slopes, decays, strict=True)])

    def gradient_step(self, eta: float) -> Self:
        """One step of gradient descent, θ − η∇loss.

        >>> LinearChain([[[2.0]], [[3.0]]], [[1.0]], [[4.0]]).gradient_step(0.1).parameters()
        array([1.4, 2.6])
        """
        step = nonnegative_number("eta", eta)
        if step == 0:
            raise ValueError("eta must be positive, got 0")
        with np.errstate(over="ignore", invalid="ignore"):
            theta = self.parameters() - step * self.gradient()
        if not np.all(np.isfinite(theta)):
            raise ValueError(f"eta = {step} makes the weights overflow")
        return self.with_parameters(theta)

    def hessian(self, out: Array | None = None) -> Array:
        """The Hessian (P, P) of the loss, exactly symmetric: blocks (1), plus λ on the diagonal.

        It is written into `out` when that is given: a C-contiguous float64 array (P, P), which
        saves the cost of fresh memory when many Hessians are computed.

        >>> chain = LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]], ridge=[0.5, 0.25])
        >>> chain.hessian()
        array([[50.5 , 53.  ],
               [53.  , 18.25]])
        """
        return self._assemble(out, tangent=True, curvature=True)

    def gauss_newton(self, out: Array | None = None) -> Array:
        """The Gauss–Newton part (P, P), the first term of (1): blocks A_kᵀA_l ⊗ B_kΣxxB_lᵀ.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]], ridge=1.0).gauss_newton()
        array([[50., 30.],
               [30., 18.]])
        """
        return self._assemble(out, tangent=True, curvature=False)

    def functional(self, out: Array | None = None) -> Array:
        """The functional part (P, P), the second term of (1), plus λ on the diagonal.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]], ridge=1.0).functional()
        array([[ 1., 23.],
               [23.,  1.]])
        """
        return self._assemble(out, tangent=False, curvature=True)

    def layer_block(self, row: int, column: int) -> Array:
        """The block of the Hessian that belongs to layers `row` = k and `column` = l, counted from
        0: shape (d_{k+1}·d_k, d_{l+1}·d_l).

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]]).layer_block(1, 0)
        array([[53.]])
        """
        for name, layer in (("row", row), ("column", column)):
            if whole_number(name, layer, least=0) >= self.depth:
                raise ValueError(f"{name} must be at most {self.depth - 1}, got {layer}")
        high, low = max(row, column), min(row, column)
        outs, ins = self.weights[high].shape
        rows, columns = self.weights[high].size, self.weights[low].size
        _refuse_more_than_memory(f"the {rows}×{columns} block", rows * columns)
        block = np.empty((rows, columns))
        factors = self._factors(high, slice(0, outs), slice(0, ins))[low]
        if high == low:
            factors = factors.symmetrised()
        (run,) = _runs([factors])
        for a, i in _chunks(outs, ins, max(1, CHUNK_ENTRIES // columns)):
            _write_rows(block[_rows(0, ins, a, i)], [run.rows(a, i)])
        if high == low:
            block.reshape(-1)[:: columns + 1] += self._ridge[high]
        return block if row == high else block.T.copy()

    def hvp(self, v: ArrayLike) -> Array:
        """The Hessian times v, shape (P,) or (P, m) for m vectors at once, without the Hessian.

        A displacement V moves the state B_l of the network by
        dB_{l+1} = W_l dB_l + V_l B_l and the error Δ_l = A_lᵀΩ by
        dΔ_{l−1} = W_lᵀ dΔ_l + V_lᵀ Δ_l, starting from dB_0 = 0 and dΔ_{L−1} = dB_L Σxx. The product
        is the displacement of the gradient, dΔ_l B_lᵀ + Δ_l dB_lᵀ + λ_l V_l for layer l.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]]).hvp([1.0, 10.0])
        array([580., 233.])
        """
        vector = real_array("v", v, ndim=None)
        if vector.ndim not in (1, 2) or len(vector) != self.size:
            raise ValueError(
                f"v must have shape ({self.size},) or ({self.size}, m), got {vector.shape}"
            )
        return self._displaced_gradient(*self._states(), vector)

    def operator(self) -> LinearOperator:
        """The Hessian as a symmetric scipy LinearOperator (P, P) of dtype float64, which never
        forms the matrix.

        >>> LinearChain([[[3.0]], [[5.0]]], [[2.0]], [[7.0]]).operator() @ np.array([1.0, 10.0])
        array([580., 233.])
        """
        before, errors = self._states()

        def product(v: Array) -> Array:
            return self._displaced_gradient(before, errors, v)

        return LinearOperator(
            (self.size, self.size),
            matvec=product,
            rmatvec=product,
            matmat=product,
            rmatmat=product,
            dtype=np.float64,
        )

    def align(self, tol: float = 1e-8) -> "AlignedChain":
        """This chain in its singular bases, if its layers and moments have common ones up to a
        relative error `tol`.
        """
        # Imported here because aligned imports chain.
        from exacthessian.aligned import AlignedChain

        return AlignedChain.from_chain(self, tol)

    def __repr__(self) -> str:
        return f"LinearChain(widths={self.widths}, size={self.size})"

    @property
    def _ridge(self) -> tuple[float, ...]:
        """λ_l for each layer."""
        return cast(tuple[float, ...], self.ridge)

    def _layers(self, vectors: Array) -> Iterator[Array]:
        """The parts of `vectors` (…, P) that belong to each layer, as (…, d_{l+1}, d_l)."""
        start = 0
        for weight in self.weights:
            part = vectors[..., start : start + weight.size]
            yield part.reshape(*vectors.shape[:-1], *weight.shape)
            start += weight.size

    def _states(self) -> tuple[list[Array], list[Array]]:
        """The states (B_1, …, B_{L−1}) and the errors (Δ_0, …, Δ_{L−1}), Δ_l = A_lᵀΩ."""
        *before, product = accumulate(self.weights, lambda state, weight: weight @ state)
        residual = product @ self.sigma_xx - self.sigma_yx
        transposes = (weight.T for weight in reversed(self.weights[1:]))
        errors = accumulate(transposes, lambda error, weight: weight @ error, initial=residual)
        return before, [*errors][::-1]

    def _displaced_gradient(self, before: list[Array], errors: list[Array], v: Array) -> Array:
        """The product of the Hessian and v (P,) or (P, m), by the recursion of `hvp`."""
        steps = list(self._layers(v.T))
        moved = [steps[0]]
        for weight, step, state in zip(self.weights[1:], steps[1:], before, strict=True):
            moved.append(weight @ moved[-1] + step @ state)
        slope = moved[-1] @ self.sigma_xx
        parts = []
        for layer in range(self.depth - 1, 0, -1):
            weight, step, error = self.weights[layer], steps[layer], errors[layer]
            change = slope @ before[layer - 1].T + error @ moved[layer - 1].mT
            parts.append(change + self._ridge[layer] * step)
            slope = weight.T @ slope + step.mT @ error
        parts.append(slope + self._ridge[0] * steps[0])
        changes = zip(reversed(parts), self.weights, strict=True)
        flat = [part.reshape(*v.shape[1:], weight.size) for part, weight in changes]
        return np.concatenate(flat, axis=-1).T

    def _factors(self, k: int, outs: slice, ins: slice) -> list["_Factors"]:
        """The rows a ∈ outs, i ∈ ins of the factors in (1) for the blocks (k, 0), …, (k, k)."""
        weights = self.weights
        transposes = [weight.T for weight in weights]
        rows = np.eye(outs.stop - outs.start, len(weights[k]), k=outs.start)
        *_, after = accumulate(transposes[k + 1 :], matmul, initial=rows)  # A_kᵀ
        product, *m = [*accumulate(reversed(weights), matmul, initial=after)][::-1]
        pulled = product @ self.sigma_xx - after @ self.sigma_yx  # A_kᵀΩ
        g = [*accumulate(transposes[:k], matmul, initial=pulled)]
        rows = np.eye(ins.stop - ins.start, weights[k].shape[1], k=ins.start)
        before, *c = [*accumulate(reversed(weights[:k]), matmul, initial=rows)][::-1]  # B_k
        n = [*accumulate(transposes[:k], matmul, initial=before @ self.sigma_xx)]
        nothing = np.zeros((len(before), len(weights[k])))
        diagonal = _Factors(m[k], n[k], nothing, np.zeros_like(g[k]))
        return [*(_Factors(*block) for block in zip(m[:k], n[:k], c, g[:k], strict=True)), diagonal]

    def _assemble(self, out: Array | None, tangent: bool, curvature: bool) -> Array:
        """The sum of the chosen terms of (1) for all blocks, and λ with the second of them.

        Upper blocks are written from the transposed factors of the lower ones. That repeats every
        number exactly where products round alike; where they do not, or where the factors would
        need memory comparable to the result, upper blocks are copied from lower ones.
        """
        hessian = self._buffer(out)
        spans = [sum(weight.shape) for weight in self.weights]
        spare = max(self.size**2 // 24, SMALL_ENTRIES)
        rows = max(1, min(CHUNK_ENTRIES // self.size, spare // (2 * sum(spans))))
        stored = sum(span * sum(spans[: k + 1]) for k, span in enumerate(spans))
        if stored <= spare and _rounds_alike({weight.shape for weight in self.weights}):
            self._write_directly(hessian, rows, tangent, curvature)
        else:
            self._write_and_mirror(hessian, rows, tangent, curvature)
        if curvature and any(self._ridge):
            sizes = [weight.size for weight in self.weights]
            hessian.reshape(-1)[:: self.size + 1] += np.repeat(self._ridge, sizes)
        return hessian

    def _buffer(self, out: Array | None) -> Array:
        """`out`, if it can hold the Hessian, or fresh memory for it."""
        shape = (self.size, self.size)
        if out is None:
            _refuse_more_than_memory(f"a dense Hessian of P = {self.size} parameters", self.size**2)
            return np.empty(shape)
        if not isinstance(out, np.ndarray):
            raise TypeError(f"out must be a numpy array, got {type(out).__name__}")
        if out.shape != shape:
            raise ValueError(f"out must have shape {shape}, got {out.shape}")
        if out.dtype != np.float64:
            raise TypeError(f"out must have dtype float64, got {out.dtype}")
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError("out must be C-contiguous and writeable")
        return out

    def _write_directly(self, hessian: Array, rows: int, tangent: bool, curvature: bool) -> None:
        """Write all blocks, row after row: memory is fastest when it is written in order."""
        lower = []
        for k, (n_out, n_in) in enumerate(weight.shape for weight in self.weights):
            lower.append(self._factors(k, slice(0, n_out), slice(0, n_in)))
            lower[k][k] = lower[k][k].symmetrised()
        start = 0
        for k, (n_out, n_in) in enumerate(weight.shape for weight in self.weights):
            above = (lower[m][k].transposed() for m in range(k + 1, self.depth))
            runs = [run.terms(tangent, curvature) for run in _runs([*lower[k], *above])]
            for outs, ins in _chunks(n_out, n_in, rows):
                here = _rows(start, n_in, outs, ins)
                _write_rows(hessian[here], [run.rows(outs, ins) for run in runs])
            start += n_out * n_in

    def _write_and_mirror(self, hessian: Array, rows: int, tangent: bool, curvature: bool) -> None:
        """Write the blocks on and below the diagonal in groups of rows, with the factors of those
        rows only, and copy what is below the diagonal to above it.
        """
        start = 0
        for k, (n_out, n_in) in enumerate(weight.shape for weight in self.weights):
            for outs, ins in _chunks(n_out, n_in, rows):
                here = _rows(start, n_in, outs, ins)
                runs = _runs(self._factors(k, outs, ins))
                _write_rows(hessian[here], [run.terms(tangent, curvature) for run in runs])
                hessian[: here.start, here] = hessian[here, : here.start].T
                corner = hessian[here, here]
                corner[...] = np.tril(corner) + np.tril(corner, -1).T
            start += n_out * n_in


class _Factors(NamedTuple):
    """The factors M, N, C, G in (1) of a block, or of neighbouring blocks stacked along axis 1.

    Row (a, i) of a block, reshaped like W_l, is M[a]ᵀN[i] + C[i]ᵀG[a].
    """

    m: Array
    n: Array
    c: Array
    g: Array

    def transposed(self) -> "_Factors":
        """The factors of the transposed block, in which C and G trade places."""
        return _Factors(self.m.T, self.n.T, self.g.T, self.c.T)

    def symmetrised(self) -> "_Factors":
        """The factors of a diagonal block with M and N made exactly symmetric."""
        return self._replace(m=(self.m + self.m.T) / 2, n=(self.n + self.n.T) / 2)

    def terms(self, tangent: bool, curvature: bool) -> "_Factors":
        """The factors of the first term of (1) only, of the second only, or of both."""
        return _Factors(
            self.m if tangent else np.zeros_like(self.m),
            self.n if tangent else np.zeros_like(self.n),
            self.c if curvature else np.zeros_like(self.c),
            self.g if curvature else np.zeros_like(self.g),
        )

    def rows(self, outs: slice, ins: slice) -> "_Factors":
        """The factors of the rows a ∈ outs, i ∈ ins."""
        return _Factors(self.m[outs], self.n[ins], self.c[ins], self.g[outs])


def _runs(blocks: Iterable[_Factors]) -> list[_Factors]:
    """The blocks of a row of blocks, with neighbours of the same shape stacked along a new axis 1:
    they can be written together.
    """
    runs = []
    for _, group in groupby(blocks, key=lambda block: (block.m.shape[1], block.n.shape[1])):
        first, *others = group
        if others:
            runs.append(
                _Factors(*(np.stack(part, axis=1) for part in zip(first, *others, strict=True)))
            )
        else:
            runs.append(_Factors(*(part[:, None] for part in first)))
    return runs


def _chunks(n_out: int, n_in: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """The index pairs (a, i) of a layer in order, in groups of at most `rows`: ranges of a with all
    i, or, when one a has more than that, a single a with ranges of i.
    """
    step = max(1, rows // n_in)
    for a in range(0, n_out, step):
        for i in range(0, n_in, rows):
            yield slice(a, min(a + step, n_out)), slice(i, min(i + rows, n_in))


def _rows(start: int, n_in: int, outs: slice, ins: slice) -> slice:
    """The rows of the Hessian that hold a group of index pairs of the layer starting at `start`."""
    first = start + outs.start * n_in + ins.start
    return slice(first, first + (outs.stop - outs.start) * (ins.stop - ins.start))


def _write_rows(target: Array, runs: Iterable[_Factors]) -> None:
    """Write M[a]ᵀN[i] + C[i]ᵀG[a] to row (a, i) of `target`, block after block: one batched product
    of inner dimension 2 for each run of stacked blocks.
    """
    start = 0
    for m, n, c, g in runs:
        (n_out, count, height), (n_in, _, width) = m.shape, n.shape
        left = np.empty((n_out, n_in, count, 2, height))
        left[..., 0, :], left[..., 1, :] = m[:, None], c
        right = np.empty((n_out, n_in, count, 2, width))
        right[..., 0, :], right[..., 1, :] = n, g[:, None]
        columns = target[:, start : start + count * height * width]
        np.matmul(left.mT, right, out=columns.reshape(n_out, n_in, count, height, width))
        start += count * height * width


def _rounds_alike(tiles: set[tuple[int, int]]) -> bool:
    """Whether products of inner dimension 2 round x₁y₁ + x₂y₂ in the same way in every entry of
    tiles of these shapes.

    They may fuse a multiplication with the addition, or not; the probe nearly cancels, so that
    each way of rounding gives another number.
    """
    seen = set()
    for height, width in tiles:
        m, n = np.full((1, 1, height), 0.1), np.full((1, 1, width), 0.7)
        c, g = np.full((1, 1, height), -0.3), np.full((1, 1, width), 0.7 / 3)
        tile = np.empty((1, height * width))
        _write_rows(tile, [_Factors(m, n, c, g)])
        seen |= {tile.min(), tile.max()}
    return len(seen) == 1


def _refuse_more_than_memory(what: str, entries: int) -> None:
    """Refuse to allocate more float64 numbers than the memory that is available can hold."""
    needed = np.dtype(np.float64).itemsize * entries
    if needed > SMALL_BYTES and needed > (available := _available_memory()):
        raise MemoryError(
            f"{what} needs {needed} bytes, and {available} are available; "
            "hvp and operator work without it"
        )


def _available_memory() -> int:
    """Bytes of memory that can still be taken, or all physical memory where that is not known."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":") for line in lines)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError):
        if not hasattr(os, "sysconf"):
            return sys.maxsize
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _times(matrix: Array) -> str:
    """The shape of a matrix as text, 2×3."""
    return "×".join(map(str, matrix.shape))


def _checked_weights(weights: Iterable[ArrayLike]) -> tuple[Array, ...]:
    """The weights as read-only float64 matrices, each taking what the one before it gives."""
    if isinstance(weights, str) or not isinstance(weights, Iterable):
        raise TypeError(f"weights must be a sequence of matrices, got {weights!r}")
    checked = tuple(real_array(f"weights[{i}]", weight, ndim=2) for i, weight in enumerate(weights))
    if not checked:
        raise ValueError("weights must hold at least one matrix, got none")
    for i, weight in enumerate(checked):
        if weight.size == 0:
            raise ValueError(f"weights[{i}] must not be empty, got {_times(weight)}")
        if i > 0 and weight.shape[1] != len(checked[i - 1]):
            raise ValueError(
                f"weights[{i}] must have {len(checked[i - 1])} columns to match weights[{i - 1}] "
                f"({_times(checked[i - 1])}), got {_times(weight)}"
            )
    return checked


def _checked_moment(sigma_xx: ArrayLike, first: Array) -> Array:
    """Σxx as a read-only float64 matrix, made exactly symmetric; refused when it is not symmetric
    or not positive semidefinite beyond rounding.
    """
    moment = real_array("sigma_xx", sigma_xx, ndim=2)
    width = first.shape[1]
    if moment.shape != (width, width):
        raise ValueError(
            f"sigma_xx must be {width}×{width} to match weights[0] ({_times(first)}), "
            f"got {_times(moment)}"
        )
    slack = MOMENT_TOLERANCE * np.abs(moment).max()
    asymmetry = np.abs(moment - moment.T).max()
    if asymmetry > slack:
        raise ValueError(f"sigma_xx must be symmetric, but max|Σ − Σᵀ| = {asymmetry:.3g}")
    moment = (moment + moment.T) / 2
    lowest = np.linalg.eigvalsh(moment)[0]
    if lowest < -width * slack:
        raise ValueError(f"sigma_xx must be positive semidefinite, but has eigenvalue {lowest:.3g}")
    moment.setflags(write=False)
    return moment
