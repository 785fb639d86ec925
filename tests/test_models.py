"""The oracle of a model: one call, symmetric, from raw data, for every class of ours."""

import numpy as np
import pytest

from exacthessian import AlignedChain, LinearChain, autograd


def second_differences(loss, at, h=1e-3):
    """Differences of the loss of a model alone, exact for a polynomial up to rounding and h²."""
    steps = h * np.eye(len(at))
    return np.array(
        [
            [
                loss(at + p + q) - loss(at + p - q) - loss(at - p + q) + loss(at - p - q)
                for q in steps
            ]
            for p in steps
        ]
    ) / (4 * h**2)


def chain(rng) -> LinearChain:
    weights = [rng.standard_normal(shape) for shape in ((3, 2), (2, 3), (2, 2))]
    X, Y = rng.standard_normal((2, 9)), rng.standard_normal((2, 9))
    return LinearChain.from_data(X, Y, weights, ridge=[0.1, 0.2, 0.3])


def aligned(rng, bases=True) -> AlignedChain:
    widths = (2, 4, 3, 3)
    return AlignedChain(
        widths,
        tuple(rng.standard_normal(size) for size in (2, 3, 3)),
        data=[1.5, 0.5],
        target=[1.0, -2.0],
        half_y2=3.0,
        ridge=0.25,
        bases=tuple(np.linalg.qr(rng.standard_normal((d, d)))[0] for d in widths)
        if bases
        else None,
    )


def test_the_hessian_of_a_chain_is_that_of_its_loss():
    model = chain(np.random.default_rng(0))
    wanted = second_differences(lambda t: model.with_parameters(t).loss(), model.parameters())
    found = autograd.hessian(model)
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())
    assert np.array_equal(found, found.T)
    assert found.dtype == np.float64


@pytest.mark.parametrize("bases", [True, False])
def test_an_aligned_chain_is_differentiated_in_the_order_of_its_layers(bases):
    model = aligned(np.random.default_rng(1), bases)
    loss, parameters = autograd.loss_of(model)
    assert loss(parameters).item() == pytest.approx(model.loss(), rel=1e-13)
    flat = np.concatenate([weight.numpy().ravel() for weight in parameters])
    np.testing.assert_allclose(flat, model.to_chain().parameters(), atol=1e-15)
    assert autograd.spectrum(model).distance(model.spectrum()) < 1e-14


def test_an_unknown_class_is_refused_with_the_known_ones():
    with pytest.raises(TypeError, match=r"one of .*AlignedChain.*LinearChain.*, got ndarray"):
        autograd.hessian(np.eye(2))
