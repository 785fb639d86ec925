"""The oracle: exact second derivatives of any torch function, by automatic differentiation.

Nothing here knows a closed form. A function of a list of float64 tensors goes in, a NumPy float64
matrix or a SciPy operator comes out; rows and columns follow the parameters one after the other,
each flattened row-major.

Every product is reverse over reverse, batched by `torch.func.vmap`: the gradient is a map θ ↦ ∇f(θ)
whose pullback u ↦ uᵀ D∇f(θ) gives row i of the Hessian for u = eᵢ. Forward over reverse takes the
same memory, is no faster for a dense matrix and several times slower for a single product, because
it cannot keep its graph between products; torch 2.13 also refuses it for `mse_loss` with its
default mean.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from torch.func import grad, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from exacthessian.inputs import real_array, require

Matrix: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[list[Tensor]], Tensor]
Ridge: TypeAlias = float | Sequence[float]
TensorMap: TypeAlias = Callable[[Tensor], Tensor]
Products: TypeAlias = Callable[[Matrix], Matrix]

derivatives_taken = 0  # how many functions were differentiated; a verdict says whether any was
CHUNK = 256  # vectors differentiated at once: more is no faster and takes more memory


def dense_hessian(function: Function, parameters: Sequence[Tensor], chunk: int = CHUNK) -> Matrix:
    """The Hessian ∂²f/∂θ_p∂θ_q of a scalar function of a list of tensors, (P, P).

    The matrix is returned as it was computed, `chunk` rows at a time, and not symmetrised: its
    asymmetry is a measure of the rounding.

    >>> a, b = tensors([3.0, 2.0])
    >>> dense_hessian(lambda w: w[0] ** 2 * w[1], [a, b])
    array([[4., 6.],
           [6., 0.]])
    """
    products, size = _hessian_products(function, parameters), _size(parameters)
    matrix = np.empty((size, size))
    for start in range(0, size, chunk):
        count = min(chunk, size - start)
        matrix[start : start + count] = products(np.eye(count, size, start))
    return matrix


def hessian_operator(function: Function, parameters: Sequence[Tensor]) -> LinearOperator:
    """The Hessian of `dense_hessian` as a symmetric float64 operator that is never stored.

    The operator belongs to the parameters as they are now; changing them later does not change it.

    >>> operator = hessian_operator(lambda w: w[0] ** 2 * w[1], tensors([3.0, 2.0]))
    >>> operator @ np.array([1.0, 10.0])
    array([64.,  6.])
    """
    return _symmetric_operator(_hessian_products(function, parameters), _size(parameters))


def gauss_newton_operator(
    model: Function, loss: TensorMap, parameters: Sequence[Tensor]
) -> LinearOperator:
    """The Gauss–Newton matrix Jᵀ ∇²ℓ(z) J of θ ↦ ℓ(z), z = f(θ), J = ∂z/∂θ, as a symmetric float64
    operator (P, P) that is never stored.

    `model(parameters)` returns z, one tensor of any shape; `loss(z)` returns a scalar and need not
    be quadratic.

    Logistic loss log(1 + e^z) of one weight at w = 0: ℓ'' = 1/4, so G = Σ x²/4.

    >>> def logistic(z):
    ...     return torch.nn.functional.softplus(z).sum()
    >>> x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    >>> gauss_newton_operator(lambda w: w[0] * x, logistic, tensors([0.0])) @ np.ones(1)
    array([3.5])
    """

    def risk(z: Tensor) -> Tensor:
        return loss(z.clone())  # as for the parameters: the loss may work in place

    _count()
    flat, theta = _flatten(model, parameters)
    z = _check_value("model", flat, theta)
    _check_scalar("loss", risk, z)
    transpose = vjp(flat, theta)[1]  # u ↦ Jᵀu
    jacobian = vjp(lambda u: transpose(u)[0], z)[1]  # the transpose of that linear map, v ↦ Jv
    curvature = vjp(grad(risk), z)[1]  # u ↦ ∇²ℓ(z)u

    def product(v: Tensor) -> Tensor:
        return transpose(*curvature(*jacobian(v)))[0]

    products = _batched(product, "Gauss–Newton matrix of loss and model")
    return _symmetric_operator(products, len(theta))


def linear_chain_loss(
    sigma_xx: ArrayLike, sigma_yx: ArrayLike, half_y2: float = 0.0, ridge: Ridge = 0.0
) -> Function:
    """The loss ½ tr(W Σxx Wᵀ) − tr(W Σyxᵀ) + ½E‖y‖² + ½ Σ_l λ_l ‖W_l‖² of W = W_L ⋯ W_1.

    `sigma_xx` is (d_0, d_0), `sigma_yx` is (d_L, d_0), `ridge` is one λ for all layers or one for
    each. The result is a function of the list of weight tensors, in order of application.

    For 1×1 weights 2 and 3, ½·1·6² − 1·6 + ½ = 12.5 is ½(6 − 1)².

    >>> loss = linear_chain_loss([[1.0]], [[1.0]], half_y2=0.5)
    >>> loss(tensors([[[2.0]], [[3.0]]])).item()
    12.5
    """
    second, cross, offset = tensors([sigma_xx, sigma_yx, half_y2])

    def loss(weights: list[Tensor]) -> Tensor:
        product = reduce(lambda product, weight: weight @ product, weights)
        fit = torch.trace(product @ second @ product.T) / 2 - torch.trace(product @ cross.T)
        return fit + offset + _penalty(weights, ridge)

    return loss


def linear_chain_sample_loss(X: ArrayLike, Y: ArrayLike, ridge: Ridge = 0.0) -> Function:
    """The loss 1/(2N) Σ_n ‖W_L ⋯ W_1 x_n − y_n‖² + ½ Σ_l λ_l ‖W_l‖², sample by sample.

    The columns of `X` (d_0, N) and `Y` (d_L, N) are the samples; they pass through the layers one
    by one. The result is a function of the list of weight tensors, in order of application.

    >>> loss = linear_chain_sample_loss([[1.0, 2.0]], [[5.0, 12.0]])
    >>> loss(tensors([[[2.0]], [[3.0]]])).item()
    0.25
    """
    x, y = tensors([X, Y])

    def loss(weights: list[Tensor]) -> Tensor:
        outputs = reduce(lambda hidden, weight: weight @ hidden, weights, x)
        return ((outputs - y) ** 2).sum() / (2 * x.shape[1]) + _penalty(weights, ridge)

    return loss


def tensors(arrays: Iterable[ArrayLike]) -> list[Tensor]:
    """The arrays as float64 tensors, copied: NumPy weights as torch parameters.

    >>> tensors([1, [2, 3]])
    [tensor(1., dtype=torch.float64), tensor([2., 3.], dtype=torch.float64)]
    """
    checked = (real_array(f"arrays[{i}]", array, ndim=None) for i, array in enumerate(arrays))
    return [torch.from_numpy(array.copy()) for array in checked]


def _count() -> None:
    global derivatives_taken
    derivatives_taken += 1


def _hessian_products(function: Function, parameters: Sequence[Tensor]) -> Products:
    """U ↦ U H for rows U (m, P): the pullback of the gradient map, uᵀ D∇f(θ) = uᵀ H."""
    _count()
    flat, theta = _flatten(function, parameters)
    _check_scalar("function", flat, theta)
    hessian = vjp(grad(flat), theta)[1]
    return _batched(lambda u: hessian(u)[0], "Hessian of function")


def _flatten(function: Function, parameters: Sequence[Tensor]) -> tuple[TensorMap, Tensor]:
    """The function as one of the single vector θ of all parameters, and θ itself, a copy."""
    _check_parameters(parameters)
    shapes, sizes = [w.shape for w in parameters], [w.numel() for w in parameters]

    def flat(theta: Tensor) -> Tensor:
        # Clones, so that a function that works in place spoils nothing but its own arguments.
        pieces = zip(torch.split(theta, sizes), shapes, strict=True)
        weights = [piece.reshape(shape).clone() for piece, shape in pieces]
        # torch's fused attention kernels have no second derivative; the plain formula has.
        with sdpa_kernel(SDPBackend.MATH):
            return function(weights)

    return flat, torch.cat([weight.detach().reshape(-1) for weight in parameters])


def _batched(product: TensorMap, name: str) -> Products:
    """The map v ↦ Hv on every row of an (m, P) array."""
    rowwise = vmap(product)

    def products(rows: Matrix) -> Matrix:
        with torch.no_grad():
            result: Matrix = rowwise(torch.from_numpy(rows)).numpy()
        missing = "nan or inf: there is no second derivative at these parameters"
        require(np.isfinite(result).all(), f"{name} must be finite", missing)
        return result

    return products


def _symmetric_operator(products: Products, size: int) -> LinearOperator:
    """The operator of a symmetric matrix whose products with rows are known."""

    def matmat(vectors: NDArray[np.generic]) -> Matrix:
        columns = real_array("vector", vectors, ndim=None).copy().reshape(size, -1)
        result = np.empty_like(columns)
        for start in range(0, columns.shape[1], CHUNK):
            some = slice(start, start + CHUNK)
            result[:, some] = products(np.ascontiguousarray(columns[:, some].T)).T
        return result.reshape(vectors.shape)

    both = dict.fromkeys(("matvec", "rmatvec", "matmat", "rmatmat"), matmat)
    return LinearOperator((size, size), dtype=np.float64, **both)


def _penalty(weights: Sequence[Tensor], ridge: Ridge) -> Tensor:
    """½ Σ_l λ_l ‖W_l‖², with one λ for all layers or one for each."""
    squares = torch.stack([(weight**2).sum() for weight in weights])
    return (torch.as_tensor(ridge, dtype=torch.float64) * squares).sum() / 2


def _check_parameters(parameters: Sequence[Tensor]) -> None:
    if not isinstance(parameters, Sequence):
        raise TypeError(f"parameters must be a list of tensors, got {type(parameters).__name__}")
    for i, weight in enumerate(parameters):
        name = f"parameters[{i}]"
        if not isinstance(weight, Tensor) or weight.dtype != torch.float64:
            kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
            raise TypeError(f"{name} must be a float64 tensor, got {kind}")
        if weight.device.type != "cpu" or not torch.isfinite(weight).all():
            raise ValueError(f"{name} must be finite and on the cpu")


def _check_value(name: str, function: TensorMap, at: Tensor) -> Tensor:
    """The value of the function, which must be one finite float64 tensor and use no random numbers.

    vmap over a dummy refuses random operations, before they are drawn from torch's generator.
    """

    def typed(_: Tensor) -> Tensor:
        value = function(at)
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must return a tensor, got {type(value).__name__}")
        if value.dtype != torch.float64:
            raise TypeError(f"{name} must return a float64 tensor, got {value.dtype}")
        return value

    try:
        value: Tensor = vmap(typed)(at.new_zeros(1))[0]
    except RuntimeError as error:
        if "random operation" not in str(error):
            raise
        raise ValueError(
            f"{name} must not draw random numbers (with dropout, call module.eval() first)"
        ) from error
    finite = torch.isfinite(value).all()
    require(finite, f"{name} must return finite values at these parameters", "nan or inf")
    return value


def _check_scalar(name: str, function: TensorMap, at: Tensor) -> None:
    shape = tuple(_check_value(name, function, at).shape)
    require(not shape, f"{name} must return a scalar, a tensor of shape ()", f"shape {shape}")


def _size(parameters: Sequence[Tensor]) -> int:
    return sum(weight.numel() for weight in parameters)
