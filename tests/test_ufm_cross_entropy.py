"""The cross-entropy feature model and its collapsed points against automatic differentiation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exacthessian import autograd
from exacthessian.papers.deep_linear_ufm import equation_9
from exacthessian.studies.deep_linear_ufm import polytope
from exacthessian.ufm import Point
from exacthessian.ufm_cross_entropy import Collapse, critical_scales


@st.composite
def points(draw: st.DrawFn) -> Collapse:
    classes = draw(st.integers(2, 5))
    width = classes - 1 + draw(st.integers(0, 2))
    alpha = draw(st.floats(0.5, 8.0))
    return Collapse(classes, draw(st.integers(1, 3)), draw(st.integers(1, 3)), width, alpha)


@settings(deadline=None, max_examples=30)
@given(points(), st.integers(0, 99))
def test_a_collapsed_point_and_its_spectra(point: Collapse, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = point.point(rng)
    assert np.abs(model.gradient()).max() < 1e-14
    assert model.loss() == pytest.approx(point.loss(), abs=1e-13)
    assert autograd.spectrum(model).distance(point.spectrum()) < 1e-11
    first = model.weights[0].size
    weights = autograd.hessian(model)[first:, first:] - point.ridge * np.eye(
        model.parameters().size - first
    )
    found = np.linalg.eigvalsh(weights)[::-1]
    assert np.abs(found - point.spectrum(features=False).expand()).max() < 1e-13
    for layer in point.layers(rng):
        assert autograd.spectrum(layer).distance(point.layer_spectrum(layer.number)) < 1e-11


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("cross_entropy", [False, True])
def test_the_gradient_is_that_of_the_loss(relu: bool, cross_entropy: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = [(3, 6), (3, 3), (3, 3), (2, 3)]
    model = Point([rng.standard_normal(s) for s in shapes], 0.1, relu, cross_entropy)
    loss, parameters = autograd.loss_of(model)
    free = [parameter.requires_grad_() for parameter in parameters]
    loss(free).backward()
    found = np.concatenate([parameter.grad.numpy().ravel() for parameter in free])
    assert np.abs(found - model.gradient()).max() < 1e-14
    assert loss(free).item() == pytest.approx(model.loss(), abs=1e-14)


@pytest.mark.parametrize(("K", "L"), [(2, 3), (3, 3), (4, 2), (6, 4)])
def test_the_hessian_is_positive_from_the_stated_scale_on(K: int, L: int) -> None:
    below, above = (
        Collapse(K, 1, L, K, factor * critical_scales(K, L)[1]).spectrum().values.min()
        for factor in (0.99, 1.01)
    )
    assert below < -1e-4
    assert above > -1e-14
    assert critical_scales(K, L)[1] >= critical_scales(K, L)[0]
    assert critical_scales(K, 1) == (0.0, 0.0)


def test_the_polytope_beats_the_simplex_for_six_classes() -> None:
    for ridge in (1e-3, 1e-2, 5e-2):
        point = Collapse(6, 2, 2, 6, equation_9(6, 2, 2, ridge))
        assert polytope(point).loss() < point.loss()
        assert np.linalg.matrix_rank(polytope(point).outputs) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"width": 1}, "width must be at least classes − 1"), ({"alpha": 0.0}, "must be positive")],
)
def test_bad_points_are_refused(changes: dict[str, float], message: str) -> None:
    good = {"classes": 3, "samples": 1, "depth": 2, "width": 3, "alpha": 1.0}
    with pytest.raises(ValueError, match=message):
        Collapse(**(good | changes))
