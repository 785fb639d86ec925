"""The torch classifiers: shapes, losses, and that training does what it says."""

import numpy as np
import pytest
import torch

from exacthessian.autograd import classifier

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 16))
Y = np.repeat(np.arange(3), 4)


def run(**changes):
    settings = {"keep": [0, 40], "width": 5, "depth": 3, "rate": 1e-2} | changes
    return classifier.train_classifier((X, Y), (X, Y), **settings)


def head_loss(snapshot, ridge, feature_ridge):
    output = snapshot.features
    for weight in snapshot.weights:
        output = weight @ output
    fit = ((output - np.eye(3)[Y].T) ** 2).sum() / (2 * len(Y))
    head = sum((weight**2).sum() for weight in snapshot.weights)
    return fit + ridge / 2 * head + feature_ridge / 2 * (snapshot.features**2).sum()


@pytest.mark.parametrize("kind", classifier.MAPS)
def test_the_loss_is_the_stated_one(kind):
    """The penalty on the features is λ/n, n = 4 samples in a class."""
    for snapshot in run(kind=kind, ridge=0.02):
        assert abs(snapshot.loss - head_loss(snapshot, 0.02, 0.02 / 4)) < 1e-6


def test_weight_decay_leaves_the_features_free():
    for snapshot in run(penalty="weights", ridge=0.02):
        assert snapshot.loss > head_loss(snapshot, 0.02, 0.0)
    without = run(penalty="weights", ridge=0.0)[-1]
    assert abs(without.loss - head_loss(without, 0.0, 0.0)) < 1e-6


def test_training_is_repeatable_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second, other = run()[-1], run()[-1], run(seed=1)[-1]
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(first.features, second.features)
    assert not np.allclose(first.features, other.features)


def test_it_learns():
    first, last = run(keep=[0, 200])
    assert [first.step, last.step] == [0, 200]
    assert last.loss < first.loss / 5
    assert last.accuracy == 1.0
    assert [weight.shape for weight in last.weights] == [(5, 5), (5, 5), (3, 5)]


def test_feature_model_loss_by_hand():
    """One class, two layers, one sample: pre-activation −6 is cut off, and +6 is not."""
    for sign, expected in ((1.0, (6 * 4 - 1) ** 2 / 2), (-1.0, 0.5)):
        parameters = [torch.full((1, 1), value, dtype=torch.float64) for value in (2 * sign, 4, 3)]
        assert classifier.feature_model_loss(1)(parameters).item() == expected
        penalty = 0.1 / 2 * (4 + 16 + 9)
        with_ridge = classifier.feature_model_loss(1, ridge=0.1)(parameters).item()
        assert abs(with_ridge - expected - penalty) < 1e-12
    linear = classifier.feature_model_loss(1, relu=False)(parameters).item()
    assert linear == (-6 * 4 - 1) ** 2 / 2


def test_bad_arguments():
    with pytest.raises(ValueError, match="penalty must be one of features, weights, got 'none'"):
        run(penalty="none")
    with pytest.raises(ValueError, match="kind must be one of dense, convolutional, got 'resnet'"):
        run(kind="resnet")
    with pytest.raises(ValueError, match=r"slope_at_zero must be 0 or 1, got 0\.5"):
        classifier.feature_model_loss(1, slope_at_zero=0.5)
    with pytest.raises(ValueError, match=r"training must be images \(N, p²\).*\(12, 16\).*\(11,\)"):
        classifier.train_classifier((X, Y[:-1]), (X, Y), keep=[0])
    with pytest.raises(ValueError, match="held_out must hold square images, got 15 pixels"):
        classifier.train_classifier((X, Y), (X[:, 1:], Y), keep=[0])
