"""The ReLU feature model, its Hessians and measures, against autograd and dense matrices."""

from dataclasses import replace

import numpy as np
import pytest

from exacthessian import autograd
from exacthessian.autograd import classifier
from exacthessian.papers import deep_linear_ufm_relu as relu
from exacthessian.papers.deep_linear_ufm_relu import FeatureModel
from exacthessian.ufm import DeepLinearUFM

SIZES = [(2, 1, 2, 2), (2, 3, 4, 3), (3, 2, 5, 3), (3, 1, 3, 4), (4, 2, 9, 2)]


def settings(ridge=1e-3):
    return [DeepLinearUFM(K, n, depth, d, ridge) for K, n, d, depth in SIZES]


def random_model(ufm, seed, rectified=True):
    rng = np.random.default_rng(seed)
    return relu.gaussian_start(ufm.classes, ufm.samples, ufm.width, ufm.depth, rng, relu=rectified)


def oracle_layer(model, layer, slope_at_zero=1.0):
    """Gradient and Hessian of the data loss in W_l alone, by torch."""
    loss = classifier.feature_model_loss(
        model.classes, relu=model.relu, slope_at_zero=slope_at_zero
    )
    tensors = autograd.tensors([*model.weights, model.features])

    def of_layer(own):
        return loss([*tensors[: layer - 1], own[0], *tensors[layer:]])

    return autograd.dense_hessian(of_layer, [tensors[layer - 1]])


def oracle_gradients(model, ridge):
    loss = classifier.feature_model_loss(model.classes, ridge, model.relu)
    tensors = [t.requires_grad_() for t in autograd.tensors([*model.weights, model.features])]
    loss(tensors).backward()
    return [t.grad.numpy() for t in tensors]


@pytest.mark.parametrize("rectified", [True, False])
@pytest.mark.parametrize("ufm", settings())
def test_loss_and_gradients_match_autograd(ufm, rectified):
    model = random_model(ufm, 0, rectified)
    loss = classifier.feature_model_loss(model.classes, 0.3, rectified)
    value = loss(autograd.tensors([*model.weights, model.features])).item()
    assert abs(model.loss(0.3) - value) < 1e-13
    for own, other in zip(model.gradients(0.3), oracle_gradients(model, 0.3), strict=True):
        assert np.abs(own - other).max() < 1e-14


@pytest.mark.parametrize("rectified", [True, False])
@pytest.mark.parametrize("ufm", settings())
def test_layer_hessian_matches_autograd_at_random_points(ufm, rectified):
    model = random_model(ufm, 1, rectified)
    for layer in range(1, ufm.depth + 1):
        dense = model.hessian(layer)
        assert np.abs(dense - oracle_layer(model, layer)).max() < 1e-13
        parts = model.parts(layer)
        values = np.linalg.eigvalsh(dense)[::-1]
        found = parts.eigenvalues()
        shared = min(len(values), len(found))
        assert np.abs(values[:shared] - found[:shared]).max() < 1e-12
        assert np.abs(found[shared:]).max(initial=0.0) < 1e-12
        assert np.abs(values[shared:]).max(initial=0.0) < 1e-12


@pytest.mark.parametrize("ufm", settings())
def test_the_parts_are_those_of_appendix_c2(ufm):
    """By the definition, from the vectors v_icc' one by one, at a random ReLU point."""
    model, layer = random_model(ufm, 2), 1
    K, n = ufm.classes, ufm.samples
    slopes, inputs = model.slopes(layer), model.features_into(layer)
    v = np.array(
        [
            [[np.kron(slopes[c * n + i, e], inputs[:, c * n + i]) for e in range(K)]
             for i in range(n)]
            for c in range(K)
        ]
    )  # fmt: skip
    pairs = v.mean(axis=1)
    centres = pairs.mean(axis=1)
    outer = {
        "class": sum(np.outer(x, x) for x in centres),
        "cross": sum(
            np.outer(pairs[c, e] - centres[c], pairs[c, e] - centres[c]) / K
            for c in range(K)
            for e in range(K)
        ),
        "within": sum(
            np.outer(v[c, i, e] - pairs[c, e], v[c, i, e] - pairs[c, e]) / (K * n)
            for c in range(K)
            for i in range(n)
            for e in range(K)
        ),
    }
    assert np.abs(sum(outer.values()) - model.hessian(layer)).max() < 1e-13
    for name in outer:
        rest = sum(matrix for other, matrix in outer.items() if other != name)
        values = np.linalg.eigvalsh(rest)[::-1]
        found = model.parts(layer).eigenvalues(without=name)
        shared = min(len(values), len(found))
        assert np.abs(values[:shared] - found[:shared]).max() < 1e-12


@pytest.mark.parametrize("slope", [0.0, 1.0])
@pytest.mark.parametrize("ufm", [*settings(), DeepLinearUFM(2, 3, 2, 4, [0.02, 0.01, 0.005])])
def test_theorem_7_in_both_conventions(ufm, slope):
    model = relu.definition_2(ufm, np.random.default_rng(3))
    for layer in range(1, ufm.depth):
        exact = relu.theorem_7(ufm, model, layer, slope)
        assert np.abs(exact - oracle_layer(model, layer, slope)).max() < 1e-13
        assert np.abs(exact - model.hessian(layer, slope)).max() < 1e-13
        count = ufm.classes**2 if slope else ufm.classes
        values = np.linalg.eigvalsh(exact)
        assert np.allclose(values[-count:], ufm.curvatures[layer], rtol=1e-10)
        assert np.abs(values[:-count]).max(initial=0.0) < 1e-13


@pytest.mark.parametrize("ufm", [*settings(), DeepLinearUFM(2, 3, 2, 4, [0.02, 0.01, 0.005])])
def test_definition_2_is_a_linear_optimum_that_relu_does_not_see(ufm):
    model = relu.definition_2(ufm, np.random.default_rng(4))
    chain = ufm.point(model.features, model.weights)
    assert abs(chain.loss() - ufm.loss()) < 1e-14
    assert np.abs(chain.gradient()).max() < 1e-14
    linear = replace(model, relu=False)
    for layer in range(1, ufm.depth + 1):
        assert np.array_equal(model.features_into(layer), linear.features_into(layer))
        assert np.array_equal(model.slopes(layer), linear.slopes(layer))
        if layer > 1:
            zeros = np.sum(model.features_before(layer) == 0)
            assert zeros == (ufm.classes - 1) * ufm.width * ufm.samples


def overlaps(K, rng):
    """Random M: positive semidefinite, unit diagonal, nothing positive off it."""
    off = np.triu(-rng.uniform(0, 1 / (K - 1), (K, K)), 1)
    return np.eye(K) + off + off.T


@pytest.mark.parametrize("ufm", [*settings(), DeepLinearUFM(2, 3, 2, 4, [0.02, 0.01, 0.005])])
def test_equal_loss_family(ufm):
    rng = np.random.default_rng(5)
    model = relu.definition_2(ufm, rng)
    K = ufm.classes
    simplex = K / (K - 1) * (np.eye(K) - 1 / K)
    for overlap in (np.eye(K), overlaps(K, rng), np.minimum(simplex, np.eye(K))):
        moved = relu.equal_loss(model, overlap)
        ridges = ufm.ridge
        penalty = sum(
            lam * (a**2).sum() / 2
            for lam, a in zip(ridges, (moved.features, *moved.weights), strict=True)
        )
        assert abs(moved.loss(0.0) + penalty - ufm.loss()) < 1e-14
        assert np.abs(moved.means(2) - model.means(2) @ overlap).max() < 1e-13
        assert np.abs(moved.features_into(2) - model.features_into(2)).max() < 1e-13
        assert relu.family_distance(moved.means(2)) < 1e-12
        gradients = moved.gradients()
        for gradient, lam, weight in zip(
            gradients, (*ridges[1:], ridges[0]), (*moved.weights, moved.features), strict=True
        ):
            assert np.abs(gradient + lam * weight).max() < 1e-13


def test_minimal_example_is_a_degenerate_minimum():
    """K = d = L = 2, n = 1: no zero pre-activation, no negative curvature, rank 2 instead of 4."""
    ufm = DeepLinearUFM(2, 1, 2, 2, 0.02)
    model = relu.definition_2(ufm, np.random.default_rng(0))
    moved = relu.equal_loss(model, [[1.0, -0.5], [-0.5, 1.0]])
    assert np.abs(moved.features_before(2)).min() > 0.4
    loss = classifier.feature_model_loss(2, 0.02)
    full = autograd.dense_hessian(loss, autograd.tensors([*moved.weights, moved.features]))
    values = np.linalg.eigvalsh(full)
    assert values[0] > -1e-14
    assert np.sum(values < 1e-12) == 2
    assert np.linalg.matrix_rank(moved.hessian(1), tol=1e-12) == 2
    # An overlap of the wrong sign costs: the ReLU lets it through.
    wrong = replace(moved, features=np.abs(moved.features))
    assert wrong.loss(0.02) > ufm.loss() + 1e-3


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_theorem_8_is_the_best_loss_of_its_members(depth):
    rng = np.random.default_rng(6)
    ufm = DeepLinearUFM(2, 3, depth, 5, 5e-3)
    for _ in range(5):
        tilts = rng.uniform(0.1, 0.8, depth - 1)
        unit = relu.class_member(2, 3, 5, tilts, np.ones(depth + 1), rng)
        for layer in range(2, depth + 1):
            assert relu.frame_distance(unit.means(layer)) < 1e-12
            positive = np.maximum(unit.means(layer), 0)
            assert relu.frame_distance(positive) < 1e-12
            ratio = np.linalg.norm(positive) / np.linalg.norm(unit.means(layer))
            assert abs(ratio - np.cos(tilts[layer - 2])) < 1e-12
        assert np.allclose([np.linalg.norm(w) for w in (unit.features, *unit.weights)], 1)
        output = unit.features_before(depth + 1)
        beta = 3**-0.5 * 2 ** (-(depth + 1) / 2) * np.prod(np.cos(tilts))
        assert np.abs(output - beta * unit.targets).max() < 1e-14
        norms = np.linspace(0.5, 3.0, 50001)
        values = (1 - beta * norms ** (depth + 1)) ** 2 / 2 + 5e-3 * (depth + 1) / 2 * norms**2
        assert abs(relu.theorem_8(ufm, tilts) - min(values.min(), 0.5)) < 1e-7
        assert relu.theorem_8(ufm, tilts) > ufm.loss()
    assert relu.theorem_8(ufm, np.zeros(depth - 1)) == ufm.loss()
    assert relu.theorem_8(ufm, np.full(depth - 1, 1.57)) == 0.5


@pytest.mark.parametrize("rectified", [True, False])
@pytest.mark.parametrize("ufm", settings())
def test_measures_from_dense_matrices(ufm, rectified):
    model = random_model(ufm, 7, rectified)
    layer = ufm.depth - 1
    dense = model.hessian(layer)
    gradient = model.gradients()[layer - 1].ravel()
    upper, lower = model.means(layer + 1), model.means(layer)
    before = model.features_before(layer)
    by_hand = [before[:, c * ufm.samples : (c + 1) * ufm.samples].mean(1) for c in range(2)]
    assert np.allclose(lower[:, :2].T, by_hand)
    f, shares = relu.alignment(model, layer), relu.gradient_shares(model, layer)
    for c in range(ufm.classes):
        for e in range(ufm.classes):
            v = np.kron(upper[:, c], lower[:, e])
            image = dense @ v
            size = (v @ v) * (image @ image)
            cosine = (v @ image) ** 2 / size if size else 0.0
            assert abs(f[c, e] - cosine) < 1e-10
            size = (v @ v) * (gradient @ gradient)
            share = (v @ gradient) ** 2 / size if size else 0.0
            assert abs(shares[c, e] - share) < 1e-10
    weight = model.weights[layer - 1]
    left, right = relu.singular_alignment(model, layer)
    u, v = upper[:, 0], lower[:, 0]
    assert abs(left[0] - u @ weight @ weight.T @ u / np.linalg.norm(u)
               / np.linalg.norm(weight @ weight.T @ u)) < 1e-12  # fmt: skip
    assert abs(right[0] - v @ weight.T @ weight @ v / np.linalg.norm(v)
               / np.linalg.norm(weight.T @ weight @ v)) < 1e-12  # fmt: skip


def test_frame_and_family_distance():
    assert abs(relu.frame_distance([[1.0, 1.0]]) - np.sqrt(2 - np.sqrt(2))) < 1e-12
    rng = np.random.default_rng(8)
    frame = relu.nonnegative_frame(9, 3, rng)
    assert np.all(frame >= 0)
    assert relu.frame_distance(3 * frame) < 1e-14
    assert relu.family_distance(3 * frame @ overlaps(3, rng)) < 1e-12
    assert relu.family_distance(frame @ (np.eye(3) - 0.1 * np.eye(3, k=1))) > 0.03
    assert relu.family_distance(frame * np.array([1.0, 1.0, 2.0])) > 0.1
    outside = frame.copy()
    outside[:, 0] -= 0.3 * np.linalg.svd(frame)[0][:, 5]
    assert relu.family_distance(outside) > 0.03


def test_negative_share():
    assert relu.negative_share([-2e-6, -1e-6, 0.0, 1.0]) == 0.25
    assert relu.negative_share([-2e-6, -1e-6, 0.0, 1.0], size=1e-7) == 0.5


def test_training_is_descent_with_momentum():
    """Two steps by hand, and the same models from one stage or two."""
    ufm = settings()[1]
    start = random_model(ufm, 9)
    lam, rate, momentum = 0.01, 0.1, 0.5
    kept = relu.train(start, lam, [(1, rate, momentum), (1, rate, momentum)], keep=[0, 1, 2])
    first = start.gradients(lam)
    speed = first
    point = [
        w - rate * (g + momentum * v)
        for w, g, v in zip((*start.weights, start.features), first, speed, strict=True)
    ]
    for own, other in zip((*kept[1].weights, kept[1].features), point, strict=True):
        assert np.abs(own - other).max() < 1e-15
    second = FeatureModel(tuple(point[:-1]), point[-1]).gradients(lam)
    for own, old, g, v in zip(
        (*kept[2].weights, kept[2].features), point, second, speed, strict=True
    ):
        moved = old - rate * (g + momentum * (momentum * v + g))
        assert np.abs(own - moved).max() < 1e-15
    assert np.array_equal(kept[0].features, start.features)
    whole = relu.train(start, lam, [(2, rate, momentum)], keep=[2])[2]
    assert np.array_equal(whole.features, kept[2].features)
    with pytest.raises(ValueError, match=r"keep must hold steps from 0 to 2, got \[3\]"):
        relu.train(start, lam, [(2, rate, 0.0)], keep=[1, 3])


def test_minimum_reaches_the_closed_form():
    ufm = DeepLinearUFM(3, 4, 3, 6, 2e-3)
    found = relu.minimum(random_model(ufm, 10, rectified=False), 2e-3)
    assert abs(found.loss(2e-3) - ufm.loss()) < 1e-12
    assert np.allclose(relu.alignment(found, 2), 1)
    assert np.allclose(found.parts(2).eigenvalues()[:9], ufm.curvatures[2], rtol=1e-4)


def test_the_rule_for_small_entries():
    """Entries up to `zero` in size take σ'(0); larger ones keep their sign's slope."""
    model = FeatureModel((np.eye(3), np.eye(3)), np.diag([-1e-7, 1e-7, -1e-5]))
    assert np.array_equal(np.diagonal(model.slopes(1)[0])[:1], [0.0])
    ruled = replace(model, zero=1e-6)
    gates = [np.diagonal(ruled.slopes(1, slope)[c])[c] for slope in (1.0, 0.0) for c in range(3)]
    assert gates == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_bad_arguments():
    eye = np.eye(2)
    with pytest.raises(ValueError, match="weights must hold at least one matrix"):
        FeatureModel((), eye)
    with pytest.raises(ValueError, match=r"shape \(2, 3\) cannot follow weights\[0\] of shape"):
        FeatureModel((eye, np.ones((2, 3))), eye)
    with pytest.raises(ValueError, match=r"cannot follow features of shape \(3, 2\)"):
        FeatureModel((eye, eye), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"each of the 2 classes.*got 3 columns"):
        FeatureModel((eye,), np.ones((2, 3)))
    model = FeatureModel((eye, eye), eye)
    with pytest.raises(ValueError, match=r"layer must be at most L \+ 1 = 3, got 4"):
        model.features_before(4)
    with pytest.raises(ValueError, match="layer must be at most L = 2, got 3"):
        model.hessian(3)
    with pytest.raises(ValueError, match="without must be one of class, cross, within, got 'all'"):
        model.parts(1).eigenvalues("all")
    ufm = DeepLinearUFM(2, 1, 2, 2, 0.02)
    with pytest.raises(ValueError, match="layer must be below L = 2, got 2"):
        relu.theorem_7(ufm, model, 2)
    with pytest.raises(ValueError, match="slope_at_zero must be 0 or 1, got 2"):
        relu.theorem_7(ufm, model, 1, 2)
    with pytest.raises(ValueError, match="width must be at least the number of classes, 3, got 2"):
        relu.nonnegative_frame(2, 3, np.random.default_rng(0))
    with pytest.raises(ValueError, match="depth L ≥ 2"):
        relu.equal_loss(FeatureModel((eye,), eye), eye)
    with pytest.raises(ValueError, match="symmetric 2×2 matrix"):
        relu.equal_loss(model, np.eye(3))
    with pytest.raises(ValueError, match="positive semidefinite"):
        relu.equal_loss(model, [[1.0, -2.0], [-2.0, 1.0]])
    with pytest.raises(ValueError, match="nothing positive off it"):
        relu.equal_loss(model, [[1.0, 0.5], [0.5, 1.0]])
    with pytest.raises(ValueError, match="ones on the diagonal"):
        relu.equal_loss(model, [[2.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="tilts must hold L − 1 = 1 angles, got 2"):
        relu.theorem_8(ufm, [0.1, 0.1])
    for tilt in (1.6, -0.1):
        with pytest.raises(ValueError, match=r"tilts must lie in \[0, π/2\)"):
            relu.theorem_8(ufm, [tilt])
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="each of 2 layers, got 2"):
        relu.class_member(2, 1, 4, [0.1], [1.0, 1.0], rng)
    with pytest.raises(ValueError, match="at least 2K = 4 for two frames, got 3"):
        relu.class_member(2, 1, 3, [0.1], [1.0, 1.0, 1.0], rng)
    with pytest.raises(ValueError, match="must not all be zero"):
        relu.frame_distance(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="positive entry in every column"):
        relu.family_distance([[1.0, -1.0]])
