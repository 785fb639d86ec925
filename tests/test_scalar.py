"""Scalar networks: closed spectra and eigenvectors against autograd, and what is refused."""

import numpy as np
import pytest

from exacthessian import autograd
from exacthessian.scalar import ReluNetwork, SeparateInputs, TwoLayer

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
    values, vectors = network.eigenvectors()
    assert vectors.T @ vectors == pytest.approx(np.eye(len(matrix)), abs=1e-12)
    assert vectors * values @ vectors.T == pytest.approx(matrix, abs=1e-12)
    assert network.spectrum().expand() == pytest.approx(values, abs=1e-12)
    top, second = network.outliers()
    assert top >= abs(network.d) - 1e-12 >= abs(second) - 2e-12
    moved = network.step(0.1)
    assert isinstance(moved, TwoLayer)
    assert moved.parameters() == pytest.approx(network.parameters() - 0.1 * network.gradient())


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_relu_network(seed: int, silent: bool) -> None:
    network = relu(seed, silent)
    matrix = autograd.hessian(network)
    assert network.hessian() == pytest.approx(matrix, abs=1e-12)
    values, vectors = network.eigenvectors()
    assert vectors * values @ vectors.T == pytest.approx(matrix, abs=1e-12)
    for spectrum in (network.spectrum(), network.by_cell()):
        assert spectrum.expand() == pytest.approx(values, abs=1e-12)
    eps = 1e-6
    assert network.step(eps).loss() == pytest.approx(
        network.loss() - eps * network.gradient() @ network.gradient(), abs=1e-9
    )


@pytest.mark.parametrize("seed", range(5))
def test_separate_inputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 4))
    network = SeparateInputs(*rng.standard_normal((2, 3, 4)), x @ x.T, rng.standard_normal(3))
    assert network.hessian() == pytest.approx(autograd.hessian(network), abs=1e-11)
    assert network.spectrum().distance(autograd.spectrum(network)) < 1e-12
    eps = 1e-6
    assert network.step(eps).loss() == pytest.approx(
        network.loss() - eps * network.gradient() @ network.gradient(), abs=1e-6
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TwoLayer([1, 2], [1], 1.0, 0.0), "w and v must have one length"),
        (lambda: TwoLayer([], [], 1.0, 0.0), "w and v must have one length, at least 1"),
        (lambda: TwoLayer([1], [1], 0.0, 1.0), "yx must be 0 when s2 is 0"),
        (lambda: TwoLayer([1], [1], -1.0, 1.0), "sigma_xx must"),
        (lambda: ReluNetwork([1], [1], [1, 2], [1]), "x and y must have one length"),
        (lambda: SeparateInputs([[1]], [[1, 2]], np.eye(1), [0]), "v must be 1×1 to match w"),
        (lambda: SeparateInputs([[1]], [[1]], -np.eye(1), [0]), "sigma_xx must"),
    ],
)
def test_what_is_no_network_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make()
