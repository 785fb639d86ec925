"""Scalar networks: closed spectra and eigenvectors against autograd, and what is refused."""

import numpy as np
import pytest
import torch

from exacthessian import autograd, product
from exacthessian.scalar import ReluNetwork, TwoLayer

DEGENERATE = [
    TwoLayer([1, 2], [1, 2], 1.0, 0.5),
    TwoLayer([1, 2], [-1, -2], 1.0, 0.5),
    TwoLayer([1], [1], 1.0, 3.0),
    TwoLayer([1, 2], [3, -1], 1.0, 1.0),
    TwoLayer([0, 0], [0, 0], 1.0, 2.0),
    TwoLayer([1, 2], [3, 4], 0.0, 0.0),
]


def linear(seed: int) -> TwoLayer:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 7))
    return TwoLayer.from_samples(*rng.standard_normal((2, m)), *rng.standard_normal((2, 6)))


def relu(seed: int, silent: bool = False) -> ReluNetwork:
    rng = np.random.default_rng(seed)
    w, v = rng.standard_normal((2, int(rng.integers(1, 7))))
    v[0] *= not silent
    return ReluNetwork(w, v, *rng.standard_normal((2, 5)))


@pytest.mark.parametrize("network", [*map(linear, range(20)), *DEGENERATE])
def test_linear_network(network: TwoLayer) -> None:
    matrix = autograd.hessian(network)
    assert network.hessian() == pytest.approx(matrix, abs=1e-12)
    vectors = network.outlier_vectors()
    assert vectors.T @ vectors == pytest.approx(np.eye(2), abs=1e-12)
    assert matrix @ vectors == pytest.approx(vectors * network.outliers(), abs=1e-12)
    assert network.spectrum().distance(autograd.spectrum(network)) < 1e-12
    assert network.spectrum().distance(product.spectrum_one_output(network)) < 1e-12
    top, second = network.outliers()
    assert top >= abs(network.d) - 1e-12 >= abs(second) - 2e-12
    moved = network.step(0.1)
    assert isinstance(moved, TwoLayer)
    assert moved.parameters() == pytest.approx(network.parameters() - 0.1 * network.gradient())


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_relu_network(seed: int, silent: bool) -> None:
    network = relu(seed, silent)
    assert network.spectrum().distance(autograd.spectrum(network)) < 1e-12
    loss, weights = autograd.loss_of(network)
    gradient = torch.cat(list(torch.func.grad(loss)(weights))).numpy()
    assert network.gradient() == pytest.approx(gradient, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TwoLayer([1, 2], [1], 1.0, 0.0), "w and v must have one length"),
        (lambda: TwoLayer([], [], 1.0, 0.0), "w and v must have one length, at least 1"),
        (lambda: TwoLayer([1], [1], 0.0, 1.0), "yx must be 0 when s2 is 0"),
        (lambda: TwoLayer([1], [1], -1.0, 1.0), "sigma_xx must"),
        (lambda: ReluNetwork([1], [1], [1, 2], [1]), "x and y must have one length"),
    ],
)
def test_what_is_no_network_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make()
