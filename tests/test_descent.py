"""Descents: the record agrees with stepping by hand, and nothing goes to standard error."""

import numpy as np
import pytest

from exacthessian import live
from exacthessian.aligned import AlignedChain
from exacthessian.chain import LinearChain
from exacthessian.descent import Descent, descend


def small_chain() -> LinearChain:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape) / 2 for shape in ((4, 3), (5, 4), (2, 5))]
    return LinearChain(weights, np.eye(3), rng.standard_normal((2, 3)), half_y2=4.0)


def aligned_chain() -> AlignedChain:
    return AlignedChain.balanced((3, 4, 4, 2), lam=[0.9, 0.6], target=[1.0, 1.0], half_y2=1.0)


@pytest.mark.parametrize("start", [small_chain(), aligned_chain()], ids=["linear", "aligned"])
def test_a_descent_is_step_after_step(start):
    path = descend(start, eta=0.05, steps=7)
    state = start
    for time, recorded in zip(path.times, path.states, strict=True):
        assert type(recorded) is type(start)
        assert path.losses[time] == recorded.loss() == state.loss()
        state = state.step(0.05)
    assert path.times == tuple(range(8))
    assert np.all(np.diff(path.losses) < 0)
    assert path.last is path.states[7]


def test_the_two_kinds_of_chain_descend_alike():
    aligned = descend(aligned_chain(), 0.1, 20)
    linear = descend(aligned_chain().to_chain(), 0.1, 20)
    np.testing.assert_allclose(aligned.losses, linear.losses, rtol=1e-12, atol=1e-15)
    for one, other in zip(aligned.last.to_chain().weights, linear.last.weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)


def test_only_the_named_steps_are_kept_in_order():
    everything = descend(small_chain(), 0.05, 6)
    path = descend(small_chain(), 0.05, 6, record=[5, 2, 2])
    assert path.times == (2, 5)
    assert len(path.losses) == 7
    for time, state in zip(path.times, path.states, strict=True):
        assert np.array_equal(state.parameters(), everything.states[time].parameters())
    assert path.last is path.states[-1]


def test_no_steps_keep_the_start():
    start = small_chain()
    path = descend(start, 0.1, 0)
    assert path.times == (0,)
    assert path.states == (start,)


@pytest.mark.parametrize("at_the_keyboard", [False, True])
def test_a_long_descent_shows_a_bar_to_a_reader_and_to_nobody_else(
    capsys, monkeypatch, at_the_keyboard
):
    monkeypatch.setattr(live, "PATIENCE", 0.0)
    monkeypatch.setattr(live, "is_live", lambda: at_the_keyboard)
    descend(aligned_chain(), 0.1, 30)
    written = capsys.readouterr()
    assert written.err == ""
    assert ("30" in written.out) == at_the_keyboard


def test_the_record_cannot_be_changed():
    path = descend(aligned_chain(), 0.1, 3)
    assert isinstance(path, Descent)
    with pytest.raises(ValueError, match="read-only"):
        path.losses[0] = 0.0
    with pytest.raises(AttributeError):
        path.times = ()


def test_an_overflow_names_its_step():
    with pytest.raises(ValueError, match="overflow") as caught:
        descend(aligned_chain().to_chain(), 50.0, 40)
    assert any(note.startswith("in step ") for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"steps": -1}, ValueError, "steps must be at least 0"),
        ({"steps": 2.5}, TypeError, "steps must be an integer"),
        ({"record": [4]}, ValueError, "record must not go beyond the 3 steps, got 4"),
        ({"record": [-1]}, ValueError, "record must be at least 0"),
        ({"record": [0.5]}, TypeError, "record must be an integer"),
        ({"record": []}, ValueError, "record must name at least one step"),
        ({"eta": 0.0}, ValueError, "eta must be positive"),
    ],
)
def test_bad_input_is_named(change, error, message):
    arguments = {"start": aligned_chain(), "eta": 0.1, "steps": 3} | change
    with pytest.raises(error, match=message):
        descend(**arguments)
