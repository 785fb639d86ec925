"""The torch classifiers: shapes, losses, and that training does what it says."""

import numpy as np
import pytest
import torch

from exacthessian.studies import classifier

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 16))
Y = np.repeat(np.arange(3), 4)


def run(**changes):
    settings = {"keep": [0, 40], "width": 5, "depth": 3, "rate": 1e-2} | changes
    return classifier.train_classifier((X, Y), (X, Y), **settings)


def head_loss(snapshot, ridge, feature_ridge):
    features, *weights = snapshot.weights
    output = features
    for weight in weights:
        output = weight @ output
    fit = ((output - np.eye(3)[Y].T) ** 2).sum() / (2 * len(Y))
    head = sum((weight**2).sum() for weight in weights)
    return fit + ridge / 2 * head + feature_ridge / 2 * (features**2).sum()


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
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
    assert np.array_equal(first.weights[0], second.weights[0])
    assert not np.allclose(first.weights[0], other.weights[0])


def test_it_learns():
    first, last = run(keep=[0, 200])
    assert [first.step, last.step] == [0, 200]
    assert last.loss < first.loss / 5
    assert last.accuracy == 1.0
    assert [weight.shape for weight in last.weights] == [(5, 12), (5, 5), (5, 5), (3, 5)]
