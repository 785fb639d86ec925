"""The numbered forms of the paper against the oracle, on random and on awkward cases."""

import numpy as np
import pytest

from exacthessian.autograd import toy_paper as oracle
from exacthessian.papers import toy_paper as paper

RANDOM = np.random.default_rng(0).uniform(-2, 2, 20).tolist()


@pytest.mark.parametrize("a", [1.0, -1.0, 1e-3, 1e3, *RANDOM])
def test_theorem_1(a):
    found = paper.theorem_1(a, 1 / a)
    assert found.distance(oracle.spectrum_of_two_weights(a, 1 / a)) < 1e-9
