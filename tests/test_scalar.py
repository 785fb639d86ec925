"""Two-layer scalar networks against automatic differentiation, which knows no closed form."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exacthessian.autograd import dense_hessian, scalar, tensors
from exacthessian.scalar import ManyInputs, ReluNetwork, SeparateInputs, TwoLayer
from exacthessian.spectrum import Spectrum

Array = NDArray[np.float64]
Samples = tuple[Array, Array, Array, Array]
TIGHT = 1e-12


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    """Weights w, v and data x, y, drawn at random and then, often, made degenerate."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    w, v = rng.standard_normal((2, draw(st.integers(1, 6))))
    x, y = rng.standard_normal((2, draw(st.integers(1, 5))))
    kind = draw(st.sampled_from(["generic", "w = v", "w = -v", "solved", "w = 0", "zero", "close"]))
    if kind == "w = v":
        v = w.copy()
    elif kind == "w = -v":
        v = -w
    elif kind == "solved":
        y = (w @ v) * x
    elif kind == "w = 0":
        w = np.zeros_like(w)
    elif kind == "zero":
        w, v = np.zeros_like(w), np.zeros_like(w)
    elif kind == "close":
        v = w + 1e-9 * v
    return w, v, x, y


def oracle(loss: Callable[..., object], weights: list[Array]) -> Array:
    matrix = dense_hessian(loss, tensors(weights))
    return (matrix + matrix.T) / 2


def agree(network: TwoLayer | ReluNetwork, matrix: Array) -> None:
    """Hessian, spectrum and eigenvectors of the network are those of the matrix."""
    scale = max(np.abs(matrix).max(), 1e-300)
    assert np.abs(network.hessian() - matrix).max() < TIGHT * scale
    assert network.spectrum().distance(Spectrum.from_matrix(matrix)) < TIGHT
    values, vectors = network.eigenvectors()
    assert np.abs(vectors.T @ vectors - np.eye(len(values))).max() < TIGHT
    assert np.abs(matrix @ vectors - vectors * values).max() < TIGHT * scale
    assert np.all(np.diff(values) <= 0)
    assert np.abs(network.spectrum().expand() - values).max() < TIGHT * scale


@settings(deadline=None, max_examples=150)
@given(samples())
def test_linear_network(case: Samples) -> None:
    w, v, x, y = case
    network = TwoLayer.from_samples(w, v, x, y)
    loss = scalar.two_layer_loss(x, y)
    agree(network, oracle(loss, [v, w]))
    weights = [weight.requires_grad_() for weight in tensors([v, w])]
    value = loss(weights)
    value.backward()
    gradient = np.concatenate([weight.grad.numpy() for weight in weights])
    assert network.loss() == pytest.approx(value.item(), abs=1e-12)
    assert np.abs(network.gradient() - gradient).max() < 1e-12
    moved = network.gradient_step(0.1)
    assert np.concatenate([moved.v, moved.w]) == pytest.approx(
        np.concatenate([v, w]) - 0.1 * gradient, abs=1e-12
    )
    assert network.trace == pytest.approx(np.trace(network.hessian()), abs=1e-12)
    assert network.trace == pytest.approx(network.outliers().sum(), abs=1e-10)


@settings(deadline=None, max_examples=60)
@given(samples())
def test_vectors_belong_to_their_eigenvalues(case: Samples) -> None:
    w, v, x, y = case
    network = TwoLayer.from_samples(w, v, x, y)
    matrix = network.hessian()
    scale = max(np.abs(matrix).max(), 1e-300)
    outer = network.outlier_vectors()
    assert np.abs(matrix @ outer - outer * network.outliers()).max() < TIGHT * scale
    for sign in (1, -1):
        bulk = network.bulk_vectors(sign)
        assert bulk.shape == (2 * len(w), len(w) - 1)
        assert np.abs(matrix @ bulk - sign * network.d * bulk).max(initial=0) < TIGHT * scale
        assert np.abs(bulk.T @ outer).max(initial=0) < TIGHT


@settings(deadline=None, max_examples=150)
@given(samples(), st.sampled_from(["mixed", "positive", "negative", "one dead"]), st.booleans())
def test_relu_network(case: Samples, signs: str, one_sided: bool) -> None:
    w, v, x, y = case
    if signs == "positive":
        v = np.abs(v)
    elif signs == "negative":
        v = -np.abs(v)
    elif signs == "one dead":
        v = np.concatenate([[0.0], v[1:]])
    if one_sided:
        x = np.concatenate([np.abs(x[1:]), [0.0]])
    network = ReluNetwork(w, v, x, y)
    loss = scalar.relu_loss(x, y)
    agree(network, oracle(loss, [v, w]))
    assert network.loss() == pytest.approx(loss(tensors([v, w])).item(), abs=1e-12)
    by_cell = network.by_cell()
    assert by_cell.distance(network.spectrum()) == 0
    for name, chosen in (("plus", v > 0), ("minus", v < 0), ("silent", v == 0)):
        counted = sum(by_cell.multiplicities[np.array(by_cell.labels) == name])
        assert counted == 2 * chosen.sum()
    weights = [weight.requires_grad_() for weight in tensors([v, w])]
    loss(weights).backward()
    gradient = np.concatenate([weight.grad.numpy() for weight in weights])
    assert np.abs(network.gradient() - gradient).max() < 1e-12


def test_relu_labels_and_cells() -> None:
    x, y = np.array([1.0, 2.0, -1.0, 3.0]), np.array([1.0, 0.0, 2.0, 1.0])
    network = ReluNetwork([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 2.0, 0.0], x, y)
    assert network.silent == 1
    assert network.cells["plus"].neurons.tolist() == [0, 2]
    assert network.cells["plus"].share == 0.75
    assert network.cells["plus"].network.s2 == pytest.approx(14 / 4)
    assert network.cells["minus"].network.yx == pytest.approx(-2 / 4)
    sizes = [network.spectrum().select(label).size for label in ("outlier", "bulk", "zero")]
    assert sizes == [4, 2, 2]
    empty = ReluNetwork([1.0, 2.0, 3.0], [1.0, -1.0, -2.0], [1.0, 2.0], [0.5, 0.5])
    assert empty.spectrum().select("zero").size == 4
    assert "plus" not in ReluNetwork([1.0], [-1.0], x, y).cells


def test_relu_split_puts_q_neurons_into_the_plus_cell() -> None:
    for q in range(4):
        network = ReluNetwork.split([1, 2, 3], [1, 2, 3], q, [1.0, -1.0], [0.0, 1.0])
        assert np.sum(network.v > 0) == q
        assert np.abs(network.v).tolist() == [1, 2, 3]


@settings(deadline=None, max_examples=80)
@given(samples(), st.integers(1, 4))
def test_many_inputs(case: Samples, inputs: int) -> None:
    w, _, _, y = case
    rng = np.random.default_rng(len(w) * 100 + len(y))
    X, V = rng.standard_normal((inputs, len(y))), rng.standard_normal((len(w), inputs))
    network = ManyInputs.from_samples(w, V, X, y)
    loss = scalar.many_inputs_loss(X, y)
    matrix = oracle(loss, [V, w])
    assert np.abs(network.hessian() - matrix).max() < TIGHT * np.abs(matrix).max()
    spectrum = network.spectrum()
    assert spectrum.distance(Spectrum.from_matrix(matrix)) < TIGHT
    assert network.loss() == pytest.approx(loss(tensors([V, w])).item(), abs=1e-12)
    m, size = len(w), np.linalg.norm(network.g)
    labels = np.repeat(spectrum.labels, spectrum.multiplicities)
    assert np.sum(labels == "zero") == (m - 1) * (inputs - 1)
    assert np.sum(labels == "bulk") == 2 * max(m - inputs, 0)
    if m > inputs:
        assert np.abs(spectrum.select("bulk").values) == pytest.approx([size, size], abs=1e-12)
    if m >= inputs:
        assert np.sum(labels == "outlier") == 3 * inputs - 1


@settings(deadline=None, max_examples=80)
@given(samples())
def test_bias(case: Samples) -> None:
    w, v, x, y = case
    b = np.random.default_rng(len(w)).standard_normal(len(w))
    network = ManyInputs.with_bias(w, v, b, x, y)
    matrix = oracle(scalar.bias_loss(x, y), [v, b, w])
    assert network.spectrum().distance(Spectrum.from_matrix(matrix)) < TIGHT
    residual = w @ (np.outer(v, x) + b[:, None]) - y
    assert network.g == pytest.approx([np.mean(x * residual), np.mean(residual)], abs=1e-12)


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_separate_inputs(seed: int, inputs: int, m: int, same: bool) -> None:
    rng = np.random.default_rng(seed)
    w, v = rng.standard_normal((2, inputs, m))
    if same:
        v[0] = w[0]
    X, y = rng.standard_normal((inputs, 3)), rng.standard_normal(3)
    network = SeparateInputs(w, v, X @ X.T / 3, X @ y / 3)
    pairs = [weight for pair in zip(v, w, strict=True) for weight in pair]
    matrix = oracle(scalar.separate_inputs_loss(X, y), pairs)
    assert np.abs(network.hessian() - matrix).max() < TIGHT * np.abs(matrix).max()
    assert network.spectrum().distance(Spectrum.from_matrix(matrix)) < TIGHT
    assert network.spectrum().select("outlier").size == 2 * inputs


def test_outliers_keep_their_digits() -> None:
    """Where λ_1 = λ_2 almost, and where λ_2 is tiny, both are right to rounding."""
    meeting = TwoLayer([1.0, 2.0], [1.0, 2.0 + 1e-9], s2=1.0, yx=10.0 + 2e-9)
    assert meeting.spectrum().distance(Spectrum.from_matrix(meeting.hessian())) < 1e-14
    tiny = TwoLayer([1.0], [1.0], s2=1.0, yx=1.0 - 1e-12)
    exact = -tiny.d * (tiny.d + 2) / 2
    assert tiny.outliers()[1] == pytest.approx(exact, rel=1e-11, abs=0)


def test_arrays_are_read_only() -> None:
    network = TwoLayer([1.0], [1.0], s2=1.0, yx=0.0)
    with pytest.raises(ValueError, match="read-only"):
        network.w[0] = 2.0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TwoLayer([], [], 1, 0), ValueError, "w must hold at least one number, got none"),
        (lambda: TwoLayer([1], [1, 2], 1, 0), ValueError, "v must have length 1 to match w, got"),
        (lambda: TwoLayer([1], [np.nan], 1, 0), ValueError, "v must be finite"),
        (lambda: TwoLayer(["a"], [1], 1, 0), TypeError, "w must hold real numbers"),
        (lambda: TwoLayer([1], [1], -1, 0), ValueError, "s2 must be finite and not negative"),
        (lambda: TwoLayer([1], [1], 1, np.inf), ValueError, "yx must be finite"),
        (lambda: TwoLayer([1], [1], 0, 1), ValueError, "yx must be 0 when s2 is 0"),
        (lambda: TwoLayer([1], [1], 0, 0).target, ValueError, "s2 must be positive"),
        (lambda: TwoLayer([1], [1], 1, 0).bulk_vectors(0), ValueError, "sign must be 1 or -1"),
        (lambda: TwoLayer([1], [1], 1, 0).gradient_step(-1), ValueError, "eta must be finite"),
        (
            lambda: TwoLayer.from_samples([1], [1], [], []),
            ValueError,
            "x must hold at least one sample, got none",
        ),
        (
            lambda: TwoLayer.from_samples([1], [1], [1, 2], [1]),
            ValueError,
            "y must have length 2 to match x, got length 1",
        ),
        (lambda: ReluNetwork([1], [1], [], []), ValueError, "x must hold at least one sample"),
        (lambda: ReluNetwork([1], [1], [np.inf], [1]), ValueError, "x must be finite"),
        (
            lambda: ReluNetwork.split([1, 1], [1, 1], 3, [1], [1]),
            ValueError,
            "q must be at most the width m = 2, got 3",
        ),
        (
            lambda: ReluNetwork.split([1, 1], [1, 1], -1, [1], [1]),
            ValueError,
            "q must be at least 0, got -1",
        ),
        (
            lambda: ReluNetwork.split([1, 1], [1, -1], 1, [1], [1]),
            ValueError,
            "size must not be negative, got -1",
        ),
        (
            lambda: ReluNetwork.split([1, 1], [1], 1, [1], [1]),
            ValueError,
            "size must have length 2 to match w, got length 1",
        ),
        (
            lambda: ManyInputs([1], [[1], [2]], [[1]], [1]),
            ValueError,
            "V must have 1 rows to match w and at least one column, got 2×1",
        ),
        (
            lambda: ManyInputs([1], [[1, 2]], [[1]], [1, 2]),
            ValueError,
            "sigma must be 2×2, one row for each input, got 1×1",
        ),
        (
            lambda: ManyInputs([1], [[1]], [[1]], [1, 2]),
            ValueError,
            "yx must have length 1, one for each input, got 2",
        ),
        (
            lambda: ManyInputs([1], [[1, 2]], [[1, 2], [3, 1]], [1, 2]),
            ValueError,
            "sigma must be symmetric",
        ),
        (
            lambda: ManyInputs([1], [[1]], [[-1]], [1]),
            ValueError,
            "sigma must have no negative eigenvalue, got -1",
        ),
        (
            lambda: ManyInputs.from_samples([1], [[1]], [[]], []),
            ValueError,
            "X must hold at least one sample, got none",
        ),
        (
            lambda: ManyInputs.from_samples([1], [[1]], [[1, 2]], [1]),
            ValueError,
            "y must have length 2 to match the columns of X, got 1",
        ),
        (
            lambda: ManyInputs.with_bias([1], [1], [1, 2], [1], [1]),
            ValueError,
            "b must have length 1 to match w, got length 2",
        ),
        (
            lambda: SeparateInputs([[1]], [[1, 2]], [[1]], [1]),
            ValueError,
            "v must be 1×1 to match w, got 1×2",
        ),
        (
            lambda: SeparateInputs([[]], [[]], [[1]], [1]),
            ValueError,
            "w must hold at least one number, got shape",
        ),
        (
            lambda: scalar.two_layer_loss([1], [1, 2]),
            ValueError,
            "x and y must have the same number of samples",
        ),
        (lambda: scalar.relu_loss([], []), ValueError, "at least one"),
    ],
)
def test_bad_input_is_named(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()
