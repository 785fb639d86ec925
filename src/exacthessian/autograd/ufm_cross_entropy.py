"""The deep linear unconstrained feature model with cross-entropy, in torch.

The parameters are the list H_1 (d, Kn), W_1, …, W_{L−1} (d, d), W_L (K, d); the columns of H_1 are
ordered by class, n samples each. Nothing here knows a closed form.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.func import jacrev

from exacthessian.autograd.oracle import dense_hessian, tensors

Loss = Callable[[list[Tensor]], Tensor]


def cross_entropy_loss(classes: int, samples: int, ridge: float) -> Loss:
    """Equation (7): the mean cross-entropy of Z = W_L ⋯ W_1 H_1 plus ½λ‖·‖² of all parameters.

    >>> loss = cross_entropy_loss(classes=2, samples=1, ridge=1.0)
    >>> bool(abs(loss(tensors([[[0.0, 0.0]], [[1.0], [1.0]]])).item() - np.log(2) - 1) < 1e-15)
    True
    """

    def loss(parameters: list[Tensor]) -> Tensor:
        _check(parameters, classes, classes * samples)
        penalty = sum((weight**2).sum() for weight in parameters)
        return mean_cross_entropy(logits(parameters), samples) + ridge / 2 * penalty

    return loss


def logits(parameters: Sequence[Tensor]) -> Tensor:
    """Z = W_L ⋯ W_1 H_1, (K, Kn).

    >>> logits(tensors([[[1.0, 2.0]], [[3.0], [4.0]]]))
    tensor([[3., 6.],
            [4., 8.]], dtype=torch.float64)
    """
    product = parameters[0]
    for weight in parameters[1:]:
        product = weight @ product
    return product


def mean_cross_entropy(z: Tensor, samples: int) -> Tensor:
    """Equation (8): the mean of −log softmax over the columns of Z (K, Kn), n of each class.

    >>> bool(abs(mean_cross_entropy(tensors([np.zeros((2, 6))])[0], 3).item() - np.log(2)) < 1e-15)
    True
    """
    labels = torch.arange(z.shape[0]).repeat_interleave(samples)
    return torch.nn.functional.cross_entropy(z.T, labels)


def weights_loss(features: Tensor, classes: int, samples: int) -> Loss:
    """The mean cross-entropy as a function of W_1..W_L alone, `features` H_1 fixed, without ridge.

    >>> loss = weights_loss(tensors([[[1.0, 1.0]]])[0], classes=2, samples=1)
    >>> bool(abs(loss(tensors([[[0.0], [0.0]]])).item() - np.log(2)) < 1e-15)
    True
    """
    whole = cross_entropy_loss(classes, samples, ridge=0.0)
    return lambda weights: whole([features, *weights])


def layer_loss(parameters: Sequence[Tensor], layer: int, classes: int, samples: int) -> Loss:
    """The mean cross-entropy as a function of W_l alone, l = `layer`, all else fixed, no ridge.

    >>> fixed = tensors([[[1.0, 1.0]], [[0.0], [0.0]]])
    >>> loss = layer_loss(fixed, layer=1, classes=2, samples=1)
    >>> bool(abs(loss([fixed[1]]).item() - np.log(2)) < 1e-15)
    True
    """
    whole = cross_entropy_loss(classes, samples, ridge=0.0)
    return lambda weights: whole([*parameters[:layer], weights[0], *parameters[layer + 1 :]])


def softmax_curvature(z: Tensor, label: int) -> NDArray[np.float64]:
    """The Hessian of −log softmax(z)_label in the logits z (K,), shape (K, K).

    >>> softmax_curvature(torch.zeros(2, dtype=torch.float64), label=0)
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """

    target = torch.tensor([label])
    return dense_hessian(lambda w: torch.nn.functional.cross_entropy(w[0][None], target), [z])


def label_gradients(
    parameters: Sequence[Tensor], layer: int, classes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each sample and each label c', what the gradient of W_l would be if that were the label:
    (Kn, K, rows·d); and the probability the model gives to that label: (Kn, K).

    >>> fixed = tensors([[[1.0, 1.0]], [[0.0], [0.0]]])
    >>> gradients, probabilities = label_gradients(fixed, layer=1, classes=2)
    >>> gradients[0], probabilities[0]
    (array([[-0.5,  0.5],
           [ 0.5, -0.5]]), array([0.5, 0.5]))
    """

    def surprise(weight: Tensor) -> Tensor:
        chain = [*parameters[:layer], weight, *parameters[layer + 1 :]]
        return -torch.log_softmax(logits(chain).T, dim=1)

    weight = parameters[layer]
    gradients = jacrev(surprise)(weight).reshape(-1, classes, weight.numel())
    return gradients.numpy(), torch.exp(-surprise(weight)).numpy()


def minimise(loss: Loss, start: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """A local minimum near `start` by L-BFGS (scipy) on torch's gradients; shapes as in `start`.

    >>> end = minimise(lambda w: ((w[0] - 3) ** 2).sum(), [np.zeros((1, 2))])
    >>> end[0].round(6)
    array([[3., 3.]])
    """
    sizes = [weight.size for weight in start]

    def unflatten(theta: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        pieces = np.split(theta, np.cumsum(sizes)[:-1])
        return [piece.reshape(w.shape) for piece, w in zip(pieces, start, strict=True)]

    def value_and_gradient(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = [weight.requires_grad_() for weight in tensors(unflatten(theta))]
        value = loss(weights)
        gradients = torch.autograd.grad(value, weights)
        return value.item(), np.concatenate([g.numpy().ravel() for g in gradients])

    flat = np.concatenate([weight.ravel() for weight in start])
    limits = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30}
    end = minimize(value_and_gradient, flat, jac=True, method="L-BFGS-B", options=limits)
    return unflatten(end.x)


def _check(parameters: Sequence[Tensor], classes: int, columns: int) -> None:
    if parameters[0].shape[1] != columns:
        raise ValueError(
            f"parameters[0] must have {columns} columns, one per sample, "
            f"got {parameters[0].shape[1]}"
        )
    if parameters[-1].shape[0] != classes:
        raise ValueError(
            f"parameters[{len(parameters) - 1}] must have {classes} rows, one per class, "
            f"got {parameters[-1].shape[0]}"
        )
