"""The closed forms of "Cracking the Hessian" for scalar networks, printed and corrected, against
automatic differentiation."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from exacthessian import figures
from exacthessian.autograd import dense_hessian, scalar, tensors
from exacthessian.papers import cracking_the_hessian as cth
from exacthessian.scalar import ManyInputs, ReluNetwork, SeparateInputs, TwoLayer
from exacthessian.spectrum import Spectrum

Array = NDArray[np.float64]
SEEDS = range(25)


def draw(seed: int, m: int | None = None, n: int = 6) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 7)) if m is None else m
    w, v = rng.standard_normal((2, width))
    x, y = rng.standard_normal((2, n))
    return w, v, x, y


def oracle(loss: Callable[..., object], weights: list[Array]) -> Array:
    matrix = dense_hessian(loss, tensors(weights))
    return (matrix + matrix.T) / 2


def eigen_error(matrix: Array, values: Array, vectors: Array) -> float:
    """The largest ‖Hz − λz‖/‖z‖ over the columns, relative to ‖H‖."""
    lengths = np.linalg.norm(vectors, axis=0)
    residual = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    return float((residual / lengths).max() / np.linalg.norm(matrix, 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_network(seed: int) -> None:
    w, v, x, y = draw(seed)
    network = TwoLayer.from_samples(w, v, x, y)
    matrix = oracle(scalar.two_layer_loss(x, y), [v, w])
    measured = Spectrum.from_matrix(matrix)
    assert cth.theorem_3_1(network).distance(measured) < 1e-13
    literal = cth.equation_1(w @ w, v @ v, w @ v, np.mean(x**2), np.mean(x * ((w @ v) * x - y)))
    assert literal == pytest.approx(network.outliers(), abs=1e-11)
    assert cth.equation_122(network) == pytest.approx(network.outliers(), abs=1e-11)
    radicand = (literal[0] - literal[1]) ** 2
    terms = cth.equation_2(network)
    assert terms.sum() == pytest.approx(radicand, rel=1e-11)
    assert terms.min() >= -1e-12
    smallest = measured.expand()[-1]
    assert cth.statement_lambda_min(network) == pytest.approx(smallest, abs=1e-12)
    assert cth.statement_lambda_min(network, as_printed=True) == -network.d
    assert smallest >= -np.sqrt(2 * network.loss() * network.s2) - 1e-12
    assert literal[0] >= abs(network.d) - 1e-12
    assert abs(literal[1]) <= abs(network.d) + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_eigenvectors(seed: int) -> None:
    w, v, x, y = draw(seed)
    network = TwoLayer.from_samples(w, v, x, y)
    matrix = oracle(scalar.two_layer_loss(x, y), [v, w])
    for as_printed in (True, False):
        vectors = cth.theorem_3_2(network, as_printed)
        assert eigen_error(matrix, network.outliers(), vectors) < 1e-10
    theta = np.concatenate([v, w])
    gradient_form = np.outer(network.gradient() / network.d, network.outliers())
    gradient_form += network.d * theta[:, None]
    assert gradient_form == pytest.approx(cth.theorem_3_2(network, as_printed=True), abs=1e-11)
    c = np.random.default_rng(seed).standard_normal(len(w))
    if len(w) > 1:
        for sign in (1, -1):
            value = np.array([sign * abs(network.d)])
            found = cth.theorem_3_3(network, sign, c)[:, None]
            printed = cth.theorem_3_3(network, sign, c, as_printed=True)[:, None]
            assert eigen_error(matrix, value, found) < 1e-12
            assert (eigen_error(matrix, value, printed) < 1e-12) == (network.d > 0)


@pytest.mark.parametrize(
    ("w", "v", "y", "dead"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.5, 1),  # w = v and λ_2 = −d
        ([1.0, 2.0], [-1.0, -2.0], -0.5, 1),  # w = −v and λ_2 = d
        ([1.0], [1.0], 3.0, 0),  # w = v and λ_1 = −d: the top eigenvalue itself
        ([1.0, 2.0], [3.0, -1.0], 1.0, 1),  # no residual
    ],
)
def test_printed_vector_vanishes(w: list[float], v: list[float], y: float, dead: int) -> None:
    network = TwoLayer.from_samples(w, v, [1.0], [y])
    assert np.abs(cth.theorem_3_2(network, as_printed=True)[:, dead]).max() == 0
    matrix = network.hessian()
    assert eigen_error(matrix, network.outliers(), cth.theorem_3_2(network)) < 1e-14
    for sign in (1, -1):
        z = cth.theorem_3_3(network, sign, np.arange(len(w)) + 1.0)
        assert matrix @ z == pytest.approx(sign * abs(network.d) * z, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_descent_law(seed: int) -> None:
    w, v, x, y = draw(seed)
    start = TwoLayer.from_samples(w, v, x, y)
    etas = np.random.default_rng(seed).uniform(0, 0.2, 30)
    end = start
    for eta in etas:
        end = end.gradient_step(eta)
    law = cth.corollary_3_1(start, etas)
    assert law.w == pytest.approx(end.w, abs=1e-10)
    assert law.v == pytest.approx(end.v, abs=1e-10)
    for sign in (1, -1):
        bulk = start.bulk_vectors(sign)
        assert end.hessian() @ bulk == pytest.approx(sign * end.d * bulk, abs=1e-10)
        assert np.abs(np.concatenate([end.v, end.w]) @ bulk).max(initial=0) < 1e-10


@pytest.mark.parametrize("seed", SEEDS)
def test_relu(seed: int) -> None:
    w, v, x, y = draw(seed, m=5)
    v[0], v[1], x[0], x[1] = abs(v[0]), -abs(v[1]), abs(x[0]), -abs(x[1])
    network = ReluNetwork(w, v, x, y)
    matrix = oracle(scalar.relu_loss(x, y), [v, w])
    measured = Spectrum.from_matrix(matrix)
    for as_printed in (True, False):
        assert cth.theorem_3_4(network, as_printed).distance(measured) < 1e-12
        top = cth.statement_relu_maximum(network, as_printed)
        assert top == pytest.approx(measured.expand()[0], abs=1e-12)
    for cell in ("plus", "minus"):
        own = network.cells[cell]
        values = own.network.outliers()
        assert cth.equation_63(network, cell) == pytest.approx(values, abs=1e-12)
        assert eigen_error(matrix, values, cth.equation_62(network, cell)) < 1e-12
        printed = cth.equation_62(network, cell, as_printed=True)
        wrong = eigen_error(matrix, values, printed)
        assert (wrong > 1e-6) == (own.share < 1)
        # The printed vector is that of the linear network, with the mean in place of the sum.
        w_cell, v_cell = own.network.w, own.network.v
        mean = own.network.d / own.share
        block = np.outer(np.concatenate([w_cell, v_cell]), values)
        block += mean * np.concatenate([v_cell, w_cell])[:, None]
        places = np.concatenate([own.neurons, own.neurons + 5])
        assert printed[places] == pytest.approx(block, abs=1e-12)
        bulk = cth.statement_relu_bulk(network, cell)
        assert bulk == pytest.approx(own.network.d, abs=1e-13)
        assert cth.statement_relu_bulk(network, cell, True) * own.share == pytest.approx(bulk)
        if len(own.neurons) > 1:
            assert measured.count(bulk - 1e-12, bulk + 1e-12) >= len(own.neurons) - 1


@pytest.mark.parametrize("q", [0, 3])
def test_relu_with_one_cell(q: int) -> None:
    x, y = np.array([1.0, -1.0]), np.array([0.5, -6.0] if q else [6.0, 0.5])
    network = ReluNetwork.split([1.0, 2.0, 0.5], [0.3, 0.2, 0.1], q, x, y)
    matrix = oracle(scalar.relu_loss(x, y), [network.v, network.w])
    assert cth.theorem_3_4(network).distance(Spectrum.from_matrix(matrix)) < 1e-14
    top = np.linalg.eigvalsh(matrix)[-1]
    assert cth.statement_relu_maximum(network) == pytest.approx(top)
    assert cth.statement_relu_maximum(network, as_printed=True) == pytest.approx(3.0)
    assert top < 2.9
    with pytest.raises(ValueError, match=f"q must lie between 1 and m − 1 = 2 .* got {q}"):
        cth.theorem_3_4(network, as_printed=True)


def bias_network(seed: int, k: float, m: int = 5) -> tuple[ManyInputs, Array]:
    """A network of Theorem B.1 with E (y x, y) = (1 − 1/k) Vᵀw, and its Hessian by autograd."""
    rng = np.random.default_rng(seed)
    columns = np.linalg.qr(rng.standard_normal((m, 2)))[0] * rng.uniform(0.5, 2)
    w = rng.standard_normal(m)
    x = np.array([1.0, -1.0, 1.0, -1.0])
    noise = np.array([1.0, 1.0, -1.0, -1.0])
    cross = (1 - 1 / k) * (columns.T @ w)
    y = cross[0] * x + cross[1] + noise * rng.standard_normal()
    matrix = oracle(scalar.bias_loss(x, y), [columns[:, 0], columns[:, 1], w])
    return ManyInputs.with_bias(w, columns[:, 0], columns[:, 1], x, y), matrix


@pytest.mark.parametrize("seed", SEEDS)
def test_bias(seed: int) -> None:
    network, matrix = bias_network(seed, k=1.0)
    measured = Spectrum.from_matrix(matrix)
    for as_printed in (True, False):
        predicted = cth.theorem_b_1(network, as_printed)
        assert predicted.distance(measured) < 1e-10
        sizes = [predicted.select(label).size for label in ("outlier", "bulk", "zero")]
        assert sizes == [5, 6, 4]
    for k in (0.3, 2.0, -0.2, -1.5):
        network, matrix = bias_network(seed, k)
        assert cth.theorem_b_1(network).distance(Spectrum.from_matrix(matrix)) < 1e-12
        with pytest.raises(ValueError, match="E xy = 0 and E y = 0, violated by"):
            cth.theorem_b_1(network, as_printed=True)


def test_bias_with_unequal_columns() -> None:
    """‖v‖ ≠ ‖b‖ is allowed when the residual lies along one axis."""
    x, y = np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, -2.0, 2.0, -1.0])
    network = ManyInputs.with_bias([1.0, 0.0, 1.0], [2.0, 0.0, 0.0], [0.0, 0.7, 0.0], x, y)
    predicted = cth.theorem_b_1(network)
    assert predicted.distance(Spectrum.from_matrix(network.hessian())) < 1e-14
    with pytest.raises(ValueError, match="‖v‖ = ‖b‖, violated"):
        cth.theorem_b_1(network, as_printed=True)


def test_bias_without_residual() -> None:
    network = ManyInputs.with_bias([0.0, 0.0, 1.0], [2.0, 0, 0], [0, 2.0, 0], [1, -1], [0, 0])
    for as_printed in (True, False):
        predicted = cth.theorem_b_1(network, as_printed)
        assert predicted.distance(Spectrum.from_matrix(network.hessian())) < 1e-7
    assert np.all(cth.printed_triple(0.0, 0.0, 0.0) == 0)


def test_separate_inputs_and_heads() -> None:
    rng = np.random.default_rng(1)
    w, v = rng.standard_normal((2, 3, 4))
    X = np.array([[1.0, 1, -1, -1], [2, -2, 2, -2], [3, -3, -3, 3]])
    Y = rng.standard_normal((3, 4))
    pairs = [weight for pair in zip(v, w, strict=True) for weight in pair]
    network = SeparateInputs(w, v, X @ X.T / 4, X @ Y[0] / 4)
    matrix = oracle(scalar.separate_inputs_loss(X, Y[0]), pairs)
    predicted = cth.corollary_b_1(network)
    assert predicted.distance(Spectrum.from_matrix(matrix)) < 1e-14
    assert predicted.distance(network.spectrum()) < 1e-14
    heads = [TwoLayer.from_samples(w[k], v[k], Y[1], Y[k]) for k in range(3)]
    matrix = oracle(scalar.heads_loss(Y[1], Y), pairs)
    assert cth.corollary_b_2(heads).distance(Spectrum.from_matrix(matrix)) < 1e-14
    values = np.concatenate([head.outliers() for head in heads])
    for as_printed in (True, False):
        vectors = cth.corollary_b_3(heads, as_printed)
        # Head 1 has its own input as target, so nothing is degenerate.
        assert eigen_error(matrix, values, vectors) < 1e-10
        assert np.all(vectors[:8, 2:] == 0)


def test_phases() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        w, v = rng.standard_normal((2, 3))
        network = TwoLayer(w, v, s2=rng.uniform(0.5, 2), yx=rng.standard_normal())
        second = network.outliers()[1]
        found = cth.phase(network.c, network.target)
        assert (second > 0) == (found == "late")
        if network.target > 0:
            assert found == cth.phase(network.c, network.target, as_printed=True)
    assert cth.phase(-0.5, -1.0, as_printed=True) == "early"
    assert cth.phase(0.5, -1.0) == "early"
    assert cth.phase(-2.0, -1.0) == "divergent"
    assert cth.phase(0.3, 0.0) == "divergent"
    assert cth.phase(1 / 3, 1.0) == "early"
    assert cth.phase(1.0, 1.0) == "late"


NETWORK = TwoLayer([1.0, 0.0], [0.0, 1.0], s2=1.0, yx=0.0)
RELU = ReluNetwork([1.0], [1.0], [1.0], [1.0])
WIDE = ManyInputs([1.0, 1.0], np.eye(2), np.diag([2.0, 1.0]), [0.0, 0.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cth.theorem_3_3(NETWORK, 2, [1, 1]), "sign must be 1 or -1, got 2"),
        (lambda: cth.theorem_3_3(NETWORK, 1, [1]), "c must have length 2 to match w, got 1"),
        (lambda: cth.corollary_3_1(NETWORK, [-1.0]), "eta must be finite and not negative"),
        (lambda: cth.equation_63(RELU, "zero"), "cell must be 'plus' or 'minus', got 'zero'"),
        (lambda: cth.equation_63(RELU, "minus"), "minus cell must have at least one neuron"),
        (
            lambda: cth.equation_63(ReluNetwork([1.0], [1.0], [-1.0], [1.0]), "plus"),
            "plus cell must have at least one sample, got none",
        ),
        (lambda: cth.theorem_b_1(WIDE), "network must satisfy E x = 0 and E x² = 1, violated by 1"),
        (
            lambda: cth.theorem_b_1(ManyInputs([1.0], [[1.0]], [[1.0]], [0.0])),
            "two inputs x and 1 and width at least 2, got 1 inputs and width 1",
        ),
        (
            lambda: cth.theorem_b_1(ManyInputs([1, 1], np.eye(2), np.eye(2), [0.0, 1.0])),
            "Vᵀw parallel to E",
        ),
        (
            lambda: cth.theorem_b_1(ManyInputs([1, 0.4], np.diag([1, 2]), np.eye(2), [0, 0])),
            "an eigenvector of VᵀV",
        ),
        (
            lambda: cth.theorem_b_1(
                ManyInputs([1, 0], [[1, 1], [1, 1]], np.eye(2), [0, 0]), as_printed=True
            ),
            "⟨v, b⟩ = 0, violated by 2",
        ),
        (
            lambda: cth.corollary_b_1(
                SeparateInputs([[1], [1]], [[1], [1]], [[1, 0.5], [0.5, 1]], [0, 0])
            ),
            "uncorrelated inputs, violated by 0.5",
        ),
        (lambda: cth.corollary_b_2([]), "heads must hold at least one network, got none"),
        (
            lambda: cth.corollary_b_3([NETWORK, TwoLayer([1], [1], s2=2.0, yx=0)]),
            "heads must share their input",
        ),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_phase_plane_shows_the_point_and_the_spectrum() -> None:
    names = [["early", "early"], ["early", "late"]]
    shades = {"early": figures.SKY, "late": figures.GREEN, "divergent": figures.VERMILION}
    colours = {"outlier": figures.PURPLE, "bulk": figures.ORANGE}
    picture = figures.phase_plane(
        (0.5, 1.0), [0.0, 1.0], names, shades, NETWORK.spectrum(), colours, (-2, 2)
    )
    left, right = picture.axes
    assert left.lines[0].get_xydata().tolist() == [[0.5, 1.0]]
    assert [text.get_text() for text in left.get_legend().get_texts()] == list(shades)
    assert len(right.patches) == len(NETWORK.spectrum())
