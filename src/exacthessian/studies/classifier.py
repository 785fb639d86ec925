"""Classifiers whose last layers are linear, in torch.

A classifier is a feature map h(x; θ), a small network, followed by linear layers W_1..W_L without
biases. Its loss is, for N samples with one-hot labels y,

    1/(2N) Σ ‖W_L ⋯ W_1 h(x) − y‖² + ½ λ Σ_l ‖W_l‖² + penalty on the features or on θ.

With the penalty ½ λ_H Σ ‖h(x)‖² it is regularised like an unconstrained feature model; with
½ λ ‖θ‖² it has ordinary weight decay.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

Samples: TypeAlias = tuple[ArrayLike, ArrayLike]


class Snapshot(NamedTuple):
    """A classifier at one step of training: `weights`, the features (d, N) of the training samples
    and W_1..W_L; the training `loss`; and the `accuracy` on held-out samples.
    """

    step: int
    weights: tuple[NDArray[np.float64], ...]
    loss: float
    accuracy: float


def train_classifier(
    training: Samples,
    held_out: Samples,
    keep: Sequence[int],
    kind: str = "dense",
    penalty: str = "features",
    ridge: float = 5e-4,
    depth: int = 4,
    width: int = 64,
    rate: float = 3e-3,
    seed: int = 0,
) -> list[Snapshot]:
    """Train a classifier by full-batch Adam and return it as it is at the steps in `keep`; the
    last of them ends the training. The rate falls to zero along a cosine.

    `training` and `held_out` are pairs of images (N, p²) and labels (N,) from 0 to K−1. The feature
    map is "dense", two hidden layers of 128 ReLUs, or "convolutional", two convolutions of stride 2
    with 8 and 16 channels and a dense layer. The penalty is on "features", λ_H = λ/n with n = N/K,
    or on "weights", λ on the feature map; the linear layers have λ = `ridge` in both.

    >>> x, y = np.eye(4), np.array([0, 0, 1, 1])
    >>> first, last = train_classifier((x, y), (x, y), keep=[0, 50], width=3, depth=2)
    >>> last.step, last.weights[0].shape, last.loss < first.loss, last.accuracy
    (50, (3, 4), True, 1.0)
    """
    given = (training, held_out)
    x, tested = (torch.tensor(np.asarray(images), dtype=torch.float32) for images, _ in given)
    labels, answers = (torch.tensor(np.asarray(own), dtype=torch.int64) for _, own in given)
    classes, last = int(labels.max()) + 1, max(keep)
    y = torch.eye(classes)[labels]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        features = _feature_map(kind, round(x.shape[1] ** 0.5), width)
        sizes = pairwise([width] * depth + [classes])
        head = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in sizes))
    optimiser = torch.optim.Adam([*features.parameters(), *head.parameters()], lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(last, 1))
    snapshots = []
    for step in range(last + 1):
        mapped = features(x)
        loss = ((head(mapped) - y) ** 2).sum() / (2 * len(x)) + ridge / 2 * _squares(head)
        penalised = classes / len(x) * (mapped**2).sum()
        loss = loss + ridge / 2 * (penalised if penalty == "features" else _squares(features))
        if step in keep:
            with torch.no_grad():
                right = head(features(tested)).argmax(dim=1) == answers
            weights = [mapped.T, *head.parameters()]
            arrays = tuple(weight.detach().numpy().astype(np.float64) for weight in weights)
            snapshots.append(Snapshot(step, arrays, loss.item(), right.double().mean().item()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return snapshots


def _feature_map(kind: str, pixels: int, width: int) -> nn.Module:
    """A network from grey images, flattened, to `width` features, drawn from torch's generator."""
    if kind == "dense":
        sizes = pairwise([pixels**2, 128, 128, width])
        layers: list[nn.Module] = [m for a, b in sizes for m in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers[:-1])
    first, second = (nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in ((1, 8), (8, 16)))
    last = nn.Linear(16 * ((pixels + 3) // 4) ** 2, width)
    steps = [nn.Unflatten(1, (1, pixels, pixels)), first, nn.ReLU(), second, nn.ReLU()]
    return nn.Sequential(*steps, nn.Flatten(), last)


def _squares(module: nn.Module) -> Tensor:
    return torch.stack([(weight**2).sum() for weight in module.parameters()]).sum()
