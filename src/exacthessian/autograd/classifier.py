"""Classifiers whose last layers are linear, and the ReLU feature model, in torch.

A classifier is a feature map h(x; θ), a small network, followed by linear layers W_1..W_L without
biases. Its loss is, for N samples with one-hot labels y,

    1/(2N) Σ ‖W_L ⋯ W_1 h(x) − y‖² + ½ λ Σ_l ‖W_l‖² + penalty on the features or on θ.

With the penalty ½ λ_H Σ ‖h(x)‖² it is regularised like an unconstrained feature model; with
½ λ ‖θ‖² it has ordinary weight decay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

Matrix: TypeAlias = NDArray[np.float64]
Function: TypeAlias = Callable[[list[Tensor]], Tensor]
PENALTIES = ("features", "weights")
MAPS = ("dense", "convolutional")


def feature_model_loss(
    classes: int, ridge: float = 0.0, relu: bool = True, slope_at_zero: float = 1.0
) -> Function:
    """Equation (4) of the deep UFM as a function of [W_1, …, W_L, H_1], with a ReLU after each of
    W_1..W_{L−1} or none, and σ'(0) as torch should take it: 0 or 1.

    H_1 is (d, Kn), class by class. For W_2 = W_1 = H_1 = 2 the loss is ½(8 − 1)².

    >>> loss = feature_model_loss(classes=1)
    >>> loss([torch.full((1, 1), 2.0, dtype=torch.float64)] * 3).item()
    24.5
    """
    if slope_at_zero not in (0.0, 1.0):
        raise ValueError(f"slope_at_zero must be 0 or 1, got {slope_at_zero}")

    def activate(hidden: Tensor) -> Tensor:
        if not relu:
            return hidden
        passes = hidden >= 0 if slope_at_zero else hidden > 0
        return torch.where(passes, hidden, torch.zeros_like(hidden))

    def loss(parameters: list[Tensor]) -> Tensor:
        *weights, features = parameters
        hidden = features
        for weight in weights[:-1]:
            hidden = activate(weight @ hidden)
        output = weights[-1] @ hidden
        count = output.shape[1]
        targets = torch.eye(classes, dtype=output.dtype).repeat_interleave(count // classes, dim=1)
        fit = ((output - targets) ** 2).sum() / (2 * count)
        return fit + ridge / 2 * sum((w**2).sum() for w in parameters)

    return loss


def feature_map(kind: str, pixels: int, width: int) -> nn.Module:
    """A network from images of `pixels`×`pixels` grey values, flattened, to `width` features.

    "dense" has two hidden layers of 128 ReLUs; "convolutional" has two convolutions of stride 2
    with 8 and 16 channels, and one dense layer. Its numbers are drawn from torch's
    global generator.

    >>> [sum(w.numel() for w in feature_map(kind, 8, 64).parameters()) for kind in MAPS]
    [33088, 5408]
    """
    if kind not in MAPS:
        raise ValueError(f"kind must be one of {', '.join(MAPS)}, got {kind!r}")
    if kind == "dense":
        return nn.Sequential(
            nn.Linear(pixels**2, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, width),
        )
    quarter = (pixels + 3) // 4
    return nn.Sequential(
        nn.Unflatten(1, (1, pixels, pixels)),
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * quarter**2, width),
    )


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A classifier at one step of training: `weights` W_1..W_L, `features` (d, N) of the training
    samples in their order, the training `loss`, and the `accuracy` on held-out samples.
    """

    step: int
    weights: tuple[Matrix, ...]
    features: Matrix
    loss: float
    accuracy: float


def train_classifier(
    training: tuple[ArrayLike, ArrayLike],
    held_out: tuple[ArrayLike, ArrayLike],
    keep: Sequence[int],
    kind: str = "dense",
    penalty: str = "features",
    ridge: float = 5e-4,
    depth: int = 4,
    width: int = 64,
    rate: float = 2e-3,
    seed: int = 0,
) -> list[Snapshot]:
    """Train a classifier by full-batch Adam and return it as it is at the steps in `keep`; the
    last of them ends the training. The rate falls to zero along a cosine.

    `training` and `held_out` are pairs of images (N, p²) and labels (N,) from 0 to K−1.
    `penalty` is "features", λ_H = λ/n with n = N/K, or "weights", ordinary weight decay λ on the
    feature map; the linear layers have λ = `ridge` in both.

    >>> x, y = np.eye(4), np.array([0, 0, 1, 1])
    >>> first, last = train_classifier((x, y), (x, y), keep=[0, 50], width=3, depth=2)
    >>> last.step, last.features.shape, last.loss < first.loss, last.accuracy
    (50, (3, 4), True, 1.0)
    """
    if penalty not in PENALTIES:
        raise ValueError(f"penalty must be one of {', '.join(PENALTIES)}, got {penalty!r}")
    x, labels = _samples("training", *training)
    tested, answers = _samples("held_out", *held_out)
    classes = int(labels.max()) + 1
    y = torch.eye(classes)[labels]
    last = max(keep)
    pixels = round(x.shape[1] ** 0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        features = feature_map(kind, pixels, width)
        widths = [width] * depth + [classes]
        layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
    head = nn.Sequential(*layers)
    everything = [*features.parameters(), *head.parameters()]
    optimiser = torch.optim.Adam(everything, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(last, 1))
    snapshots = []
    for step in range(last + 1):
        mapped = features(x)
        fit = ((head(mapped) - y) ** 2).sum() / (2 * len(x))
        loss = fit + ridge / 2 * sum((w**2).sum() for w in head.parameters())
        if penalty == "features":
            loss = loss + ridge * classes / len(x) / 2 * (mapped**2).sum()
        else:
            loss = loss + ridge / 2 * sum((w**2).sum() for w in features.parameters())
        if step in keep:
            with torch.no_grad():
                right = head(features(tested)).argmax(dim=1) == answers
            snapshots.append(
                Snapshot(
                    step,
                    tuple(_array(layer.weight) for layer in layers),
                    _array(mapped.T),
                    loss.item(),
                    right.double().mean().item(),
                )
            )
        if step < last:
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return snapshots


def _samples(name: str, images: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    x = np.asarray(images, dtype=np.float32)
    y = np.asarray(labels)
    if x.ndim != 2 or y.shape != x.shape[:1] or y.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be images (N, p²) and N whole numbers as labels, "
            f"got shapes {x.shape} and {y.shape}"
        )
    if round(x.shape[1] ** 0.5) ** 2 != x.shape[1]:
        raise ValueError(f"{name} must hold square images, got {x.shape[1]} pixels")
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


def _array(tensor: Tensor) -> Matrix:
    return tensor.detach().numpy().astype(np.float64)
