"""The deep linear unconstrained feature model: its optima and spectra against autograd."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exacthessian import autograd
from exacthessian.chain import LinearChain
from exacthessian.papers.deep_linear_ufm import equation_5
from exacthessian.spectrum import Spectrum
from exacthessian.studies.deep_linear_ufm import bent as bend
from exacthessian.studies.deep_linear_ufm import nonnegative_optimum
from exacthessian.ufm import DeepLinearUFM, Layer, Point, minimise, threshold

Array = NDArray[np.float64]
SIZES = {"classes": 2, "samples": 3, "depth": 3, "width": 4}


@st.composite
def models(draw: st.DrawFn) -> DeepLinearUFM:
    """Any small model below the threshold; λ equal or not, d = K and n = 1 and L = 1 included."""
    classes, samples = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    depth, width = draw(st.integers(1, 4)), classes + draw(st.integers(0, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ridge = draw(st.floats(0.01, 0.99)) * threshold(classes, samples, depth)
    if draw(st.booleans()):
        logs = rng.uniform(-1, 1, depth + 1)
        return DeepLinearUFM(classes, samples, depth, width, ridge * np.exp(logs - logs.mean()))
    return DeepLinearUFM(classes, samples, depth, width, ridge)


def oracle(ufm: DeepLinearUFM, chain: LinearChain, features: bool, ridge: bool) -> Array:
    """The dense Hessian of the model's loss by torch."""
    dense = autograd.hessian(chain)
    if not ridge:
        dense -= np.diag(np.repeat(ufm.ridge, [weight.size for weight in chain.weights]))
    first = 0 if features else chain.weights[0].size
    return dense[first:, first:]


def by_hand(ufm: DeepLinearUFM, chain: LinearChain) -> float:
    """The loss of the model as the paper writes it."""
    features, *weights = chain.weights
    for weight in weights:
        features = weight @ features
    fit = np.sum((features - ufm.labels) ** 2) / (2 * ufm.classes * ufm.samples)
    return fit + np.dot(ufm.ridge, [np.sum(weight**2) for weight in chain.weights]) / 2


@settings(deadline=None, max_examples=40)
@given(models(), st.integers(0, 99))
def test_an_optimum_is_critical_and_has_the_stated_loss(ufm: DeepLinearUFM, seed: int) -> None:
    chain = ufm.optimum(np.random.default_rng(seed)).to_chain()
    assert np.abs(chain.gradient()).max() < 1e-14
    assert by_hand(ufm, chain) == pytest.approx(ufm.loss(), abs=1e-14)
    assert chain.loss() == pytest.approx(ufm.loss(), abs=1e-14)
    assert ufm.loss() < 0.5
    assert np.abs(chain.product - ufm.fit * ufm.labels).max() < 1e-13
    for weight, scale in zip(chain.weights, ufm.scales, strict=True):
        values = np.linalg.svd(weight, compute_uv=False)
        assert np.abs(values[: ufm.classes] - scale).max() < 1e-12
        assert np.abs(values[ufm.classes :]).max(initial=0) < 1e-12


@settings(deadline=None, max_examples=30)
@given(models(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_joint_spectrum(ufm: DeepLinearUFM, features: bool, ridge: bool, seed: int) -> None:
    chain = ufm.optimum(np.random.default_rng(seed)).to_chain()
    measured = Spectrum.from_matrix(oracle(ufm, chain, features, ridge))
    predicted = ufm.spectrum(features, ridge)
    assert measured.distance(predicted) < 1e-12
    assert predicted.size == (chain.size if features else ufm.head(chain).size)
    k = ufm.classes
    assert predicted.select("symmetric").size == k * (k + 1) // 2
    assert predicted.select("antisymmetric").size == k * (k - 1) // 2


@settings(deadline=None, max_examples=20)
@given(models(), st.integers(0, 99))
def test_layer_curvatures(ufm: DeepLinearUFM, seed: int) -> None:
    chain = ufm.optimum(np.random.default_rng(seed)).to_chain()
    dense, start = oracle(ufm, chain, features=True, ridge=False), 0
    for layer, weight in enumerate(chain.weights):
        block = dense[start : start + weight.size, start : start + weight.size]
        count = ufm.classes**2 * (ufm.samples if layer == 0 else 1)
        wanted = np.repeat([ufm.curvatures[layer], 0.0], [count, weight.size - count])
        assert np.abs(np.linalg.eigvalsh(block)[::-1] - wanted).max() < 1e-12
        start += weight.size


@settings(deadline=None, max_examples=30)
@given(models())
def test_the_aligned_chain_gives_the_same_spectrum(ufm: DeepLinearUFM) -> None:
    assert ufm.optimum().spectrum().distance(ufm.spectrum()) < 1e-13


@settings(deadline=None, max_examples=60)
@given(models())
def test_the_zeros_are_the_orbit_and_the_rest_is_at_least_the_ridge(ufm: DeepLinearUFM) -> None:
    spectrum, K = ufm.spectrum(), ufm.classes
    dimension = ufm.depth * (ufm.width * K - K * (K + 1) // 2)
    assert spectrum.select("orbit").size == dimension
    scale = 1e-13 * spectrum.norm
    assert np.abs(spectrum.select("orbit").values).max() < scale
    others = spectrum.expand()[np.abs(spectrum.expand()) > scale]
    assert len(others) == ufm.optimum().size - dimension
    if len(set(ufm.ridge)) == 1 and ufm.depth > 1:
        expected = ufm.ridge[0] * (2 if ufm.width == K else 1)
        assert others.min() == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(models())
def test_the_constant(ufm: DeepLinearUFM) -> None:
    c, depth = ufm.fit, ufm.depth
    assert c == 1 - ufm.misfit
    product = ufm.samples * np.prod(ufm.ridge)
    right = ufm.classes * product ** (1 / (depth + 1))
    assert ufm.strength == pytest.approx(right, rel=1e-13)
    assert ufm.misfit * c ** ((depth - 1) / (depth + 1)) == pytest.approx(right, rel=1e-13)
    assert c > (depth - 1) / depth
    assert np.allclose(ufm.curvatures, np.asarray(ufm.ridge) * c / (1 - c), rtol=1e-12)


def test_a_tiny_ridge_loses_no_digits() -> None:
    ufm = DeepLinearUFM(4, 40, 4, 5, ridge=1e-12)
    series = ufm.strength * (1 + (3 / 5) * ufm.strength)
    assert ufm.misfit == pytest.approx(series, rel=1e-14)


@pytest.mark.parametrize(("classes", "samples", "depth"), [(2, 1, 1), (3, 5, 2), (4, 40, 4)])
def test_the_threshold_is_sharp(classes: int, samples: int, depth: int) -> None:
    limit = threshold(classes, samples, depth)
    at = DeepLinearUFM(classes, samples, depth, classes, limit * (1 - 1e-9))
    assert at.fit == pytest.approx((depth - 1) / depth, abs=1e-6)
    assert at.loss() == pytest.approx(0.5, abs=1e-6)
    if depth > 1:
        assert at.loss() < 0.5
        assert DeepLinearUFM(classes, samples, depth, classes, limit * (1 + 1e-9)).loss() > 0.5


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_beyond_the_threshold_the_point_is_local_up_to_the_fold(depth: int) -> None:
    turn = (depth - 1) / (2 * depth)
    largest = (1 - turn) * turn ** ((depth - 1) / (depth + 1)) / (2 * 3 ** (1 / (depth + 1)))
    ufm = DeepLinearUFM(2, 3, depth, 3, ridge=largest * (1 - 1e-9))
    assert ufm.fit == pytest.approx(turn, abs=1e-3)
    assert ufm.loss() > 0.5
    chain = ufm.optimum(np.random.default_rng(0)).to_chain()
    measured = Spectrum.from_matrix(oracle(ufm, chain, features=True, ridge=True))
    assert measured.distance(ufm.spectrum()) < 1e-12
    assert ufm.spectrum().select("symmetric").values[0] == pytest.approx(0, abs=1e-3)
    with pytest.raises(ValueError, match="the fold, beyond which no collapsed point exists"):
        DeepLinearUFM(2, 3, depth, 3, ridge=largest * (1 + 1e-9))


@pytest.mark.parametrize("target", [0.4, 0.49, 0.51, 0.9])
def test_outliers_are_separate_above_one_half(target: float) -> None:
    depth = 3
    ridge = (1 - target) * target ** ((depth - 1) / (depth + 1)) / (2 * 3 ** (1 / (depth + 1)))
    ufm = DeepLinearUFM(2, 3, depth, 4, ridge)
    assert ufm.fit == pytest.approx(target, abs=1e-12)
    for features in (True, False):
        for with_ridge in (True, False):
            spectrum = ufm.spectrum(features, with_ridge)
            outliers = min(
                spectrum.select(name).values.min() for name in ("symmetric", "antisymmetric")
            )
            others = [
                value
                for value, label in zip(spectrum.values, spectrum.labels, strict=True)
                if label in ("balance", "orbit", "idle")
            ]
            assert (outliers > max(others)) == (target > 0.5)


@settings(deadline=None, max_examples=60)
@given(models(), st.booleans(), st.booleans())
def test_above_one_half_all_outliers_are_separate(
    ufm: DeepLinearUFM, features: bool, ridge: bool
) -> None:
    if ufm.fit <= 0.5 or ufm.depth + features < 2:
        return
    spectrum = ufm.spectrum(features, ridge)
    outliers = {"symmetric", "antisymmetric"}
    named = list(zip(spectrum.values, spectrum.labels, strict=True))
    lowest = min(value for value, label in named if label in outliers)
    assert lowest > max(value for value, label in named if label not in {*outliers, "within"})


@pytest.mark.parametrize("seed", range(3))
def test_training_reaches_an_optimum(seed: int) -> None:
    ufm = DeepLinearUFM(3, 4, 3, 5, ridge=0.005)
    start = ufm.random_point(np.random.default_rng(seed))
    trained = minimise(start)
    assert np.linalg.norm(trained.gradient()) < 1e-13
    assert trained.loss() == pytest.approx(ufm.loss(), abs=1e-14)
    assert trained.loss() < start.loss()
    measured = Spectrum.from_matrix(oracle(ufm, trained, features=True, ridge=True))
    assert measured.distance(ufm.spectrum()) < 1e-10
    head = Spectrum.from_matrix(ufm.head(trained).hessian())
    assert head.distance(ufm.spectrum(features=False, ridge=False)) < 1e-10


def test_minimise_says_when_it_does_not_get_there() -> None:
    ufm = DeepLinearUFM(2, 2, 2, 2, ridge=0.01)
    with pytest.raises(RuntimeError, match=r"tol = 1e-30 was not reached: the gradient has norm"):
        minimise(ufm.random_point(np.random.default_rng(0)), tol=1e-30)


def test_a_random_start_has_entries_of_variance_one_over_the_width() -> None:
    start = DeepLinearUFM(2, 200, 3, 50, ridge=1e-4).random_point(np.random.default_rng(0))
    assert start.parameters().var() * 50 == pytest.approx(1, abs=0.05)


def test_a_point_is_the_model() -> None:
    ufm = DeepLinearUFM(**SIZES, ridge=[0.01, 0.02, 0.03, 0.01])
    rng = np.random.default_rng(1)
    features, *weights = (rng.standard_normal(w.shape) for w in ufm.optimum().to_chain().weights)
    chain = ufm.point(features, weights)
    assert chain.loss() == pytest.approx(by_hand(ufm, chain), rel=1e-13)
    assert np.abs(chain.hessian() - oracle(ufm, chain, True, True)).max() < 1e-12
    assert np.abs(ufm.head(chain).hessian() - oracle(ufm, chain, False, False)).max() < 1e-12
    with pytest.raises(ValueError, match="sigma_yx must be 2×5"):
        ufm.point(features[:, :5], weights)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"classes": 1}, ValueError, "classes must be at least 2, got 1"),
        ({"classes": 2.0}, TypeError, "classes must be an integer, got 2.0"),
        ({"samples": 0}, ValueError, "samples must be at least 1, got 0"),
        ({"depth": 0}, ValueError, "depth must be at least 1, got 0"),
        ({"width": 1}, ValueError, r"width must be at least .* d ≥ K = 2, got d = 1"),
        ({"width": 0}, ValueError, "width must be at least 1, got 0"),
        ({"ridge": 0.0}, ValueError, "ridge must be positive, got 0"),
        ({"ridge": -1.0}, ValueError, "ridge must not be negative, got -1.0"),
        ({"ridge": [0.1, 0.1]}, ValueError, "ridge must be one number or 4, one for each layer"),
        (
            {"ridge": 1.0},
            ValueError,
            r"ridge must have a geometric mean below 0\.14623, the fold, .* got 1$",
        ),
        (
            {"ridge": [0.1, 0.4, 0.1, 0.4]},
            ValueError,
            r"ridge must have a geometric mean below 0\.14623, .* got 0\.2$",
        ),
    ],
)
def test_bad_models_are_refused(changes, error, message) -> None:
    with pytest.raises(error, match=message):
        DeepLinearUFM(**{**SIZES, "ridge": 0.01, **changes})


@pytest.mark.parametrize("sizes", [(2, 1, 2, 2), (3, 2, 2, 4), (4, 2, 3, 4), (3, 1, 4, 5)])
def test_points_of_lower_rank_are_local_minima(sizes: tuple[int, int, int, int]) -> None:
    limit = threshold(*sizes[:3])
    for ridge in (0.5 * limit, limit * np.geomspace(0.2, 0.7, sizes[2] + 1)):
        ufm = DeepLinearUFM(*sizes, ridge=ridge)
        for rank in range(ufm.classes + 1):
            chain = ufm.optimum(np.random.default_rng(rank), rank).to_chain()
            assert np.abs(chain.gradient()).max() < 1e-14
            for features in (True, False):
                for with_ridge in (True, False):
                    found = Spectrum.from_matrix(oracle(ufm, chain, features, with_ridge))
                    assert found.distance(ufm.spectrum(features, with_ridge, rank)) < 1e-12
            assert ufm.spectrum(rank=rank).values.min() > -1e-14


def test_a_bent_second_layer_costs_nothing() -> None:
    ufm = DeepLinearUFM(classes=3, samples=2, depth=3, width=5, ridge=1e-3)
    point = nonnegative_optimum(ufm, np.random.default_rng(0))
    bent = bend(point, np.eye(3) - 0.4 * (1 - np.eye(3)))
    assert bent.loss() == pytest.approx(point.loss(), abs=1e-14)
    assert np.allclose(np.maximum(bent.features(2), 0), point.features(2))
    assert bent.features(2).min() < -0.1


def test_the_parts_of_a_layer_add_up_in_any_coordinates() -> None:
    ufm = DeepLinearUFM(classes=3, samples=4, depth=3, width=5, ridge=1e-3)
    for layer in ufm.layers(ufm.random_point(np.random.default_rng(0))):
        hessian, cross = sum(equation_5(layer)), equation_5(layer).cross
        full = np.linalg.eigvalsh(hessian)[::-1]
        short = layer.eigenvalues()
        assert np.abs(full[: len(short)] - short[: len(full)]).max() < 1e-12
        left = np.linalg.eigvalsh(hessian - cross)[::-1]
        assert np.abs(left[:9] - layer.eigenvalues("cross")[:9]).max() < 1e-12


def test_the_parts_of_a_layer_with_more_coordinates_than_rows() -> None:
    """Two classes in five dimensions: without its part within, four rows of ten coordinates."""
    rng = np.random.default_rng(0)
    point = Point([rng.standard_normal(shape) for shape in ((5, 6), (4, 5), (2, 4))])
    layer = Layer(None, point, 1)
    for part in ("classes", "cross", "within"):
        left = np.linalg.eigvalsh(sum(equation_5(layer)) - getattr(equation_5(layer), part))[::-1]
        found = layer.eigenvalues(part)
        assert np.abs(left[: len(found)] - found).max() < 1e-12
        assert np.abs(left[len(found) :]).max(initial=0.0) < 1e-12


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([np.eye(2)], "at least one weight"),
        (
            [np.eye(2), np.eye(3)],
            r"weights\[1\] must have 2 columns to match weights\[0\] \(2×2\), got 3×3",
        ),
        ([np.ones((2, 3)), np.eye(2)], "as many columns for each class"),
    ],
)
def test_points_that_are_none_are_refused(weights: list[Array], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Point(weights)


def test_a_layer_says_which_it_is() -> None:
    assert repr(Layer("K = 2", Point([np.eye(2)] * 3), 2)) == "layer 2 of K = 2"
