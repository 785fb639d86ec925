"""The cross-entropy UFM: closed forms against automatic differentiation, sizes, and errors."""

import numpy as np
import pytest
import torch

from exacthessian import autograd
from exacthessian.autograd import ufm_cross_entropy as oracle
from exacthessian.papers import deep_linear_ufm_cross_entropy as ce
from exacthessian.papers.deep_linear_ufm_cross_entropy import Collapse
from exacthessian.spectrum import Spectrum

POINTS = [
    Collapse(2, 1, 1, 1, 0.7),
    Collapse(2, 3, 2, 3, 1.5),
    Collapse(2, 2, 3, 1, 0.4),
    Collapse(3, 1, 1, 3, 0.5),
    Collapse(3, 2, 2, 2, 1.0),
    Collapse(3, 2, 3, 4, 2.0),
    Collapse(4, 1, 3, 3, 1.2),
    Collapse(4, 2, 2, 5, 3.0),
    Collapse(5, 2, 2, 5, 4.0),
    Collapse(6, 1, 2, 6, 2.5),
]
each_point = pytest.mark.parametrize("point", POINTS, ids=str)


def tensors_at(point, seed=0):
    return autograd.tensors(point.parameters(np.random.default_rng(seed)))


def loss_of(point):
    return oracle.cross_entropy_loss(point.classes, point.samples, point.ridge)


def eigenvalues(matrix):
    return Spectrum.from_values(np.linalg.eigvalsh(matrix))


def gradient(loss, parameters):
    weights = [weight.clone().requires_grad_() for weight in parameters]
    return [g.numpy() for g in torch.autograd.grad(loss(weights), weights)]


def class_means(point, parameters, layer):
    """The class means of H_l, and of H_{l+1} = W_l H_l (for l = L the logits)."""
    product = parameters[0].numpy()
    for weight in parameters[1:layer]:
        product = weight.numpy() @ product
    means = product.reshape(point.width, point.classes, point.samples).mean(axis=2)
    return parameters[layer].numpy() @ means, means


def layer_hessian(point, parameters, layer):
    loss = oracle.layer_loss(parameters, layer, point.classes, point.samples)
    return autograd.dense_hessian(loss, [parameters[layer]])


@each_point
def test_the_point_is_critical_and_has_the_stated_loss_and_logits(point):
    parameters = tensors_at(point)
    assert max(np.abs(g).max() for g in gradient(loss_of(point), parameters)) < 1e-15
    assert abs(loss_of(point)(parameters).item() - point.loss) < 1e-14
    product = parameters[0]
    for weight in parameters[1:]:
        product = weight @ product
    logits = np.kron(point.alpha * ce.simplex(point.classes), np.ones(point.samples))
    assert np.allclose(product.numpy(), logits, atol=1e-13)
    shapes = [tuple(weight.shape) for weight in parameters]
    d, K = point.width, point.classes
    middle = [(d, d)] * (point.depth - 1)
    assert shapes == [(d, K * point.samples), *middle, (K, d)]


def test_another_ridge_makes_it_no_critical_point():
    point = Collapse(4, 2, 3, 5, 3.0)
    loss = oracle.cross_entropy_loss(4, 2, 1.01 * point.ridge)
    assert max(np.abs(g).max() for g in gradient(loss, tensors_at(point))) > 1e-4


def test_other_frames_give_another_point_and_the_same_spectrum():
    point = Collapse(3, 2, 2, 4, 2.0)
    one, other = tensors_at(point, 1), tensors_at(point, 2)
    assert not np.allclose(one[1], other[1])
    hessians = [autograd.dense_hessian(loss_of(point), at) for at in (one, other)]
    assert eigenvalues(hessians[0]).distance(eigenvalues(hessians[1])) < 1e-14


@each_point
def test_theorem_9_in_every_layer(point):
    parameters = tensors_at(point)
    for layer in range(1, point.depth + 1):
        hessian = layer_hessian(point, parameters, layer)
        assert eigenvalues(hessian).distance(ce.theorem_9(point, layer)) < 1e-13
        upper, lower = class_means(point, parameters, layer)
        closed = ce.theorem_9_matrix(point, upper, lower)
        assert np.abs(hessian - closed).max() < 1e-14


@each_point
def test_theorem_9_eigenvectors_span_their_spaces(point):
    parameters = tensors_at(point)
    hessian = layer_hessian(point, parameters, 1)
    upper, lower = class_means(point, parameters, 1)
    upper = upper / np.linalg.norm(upper, axis=0)
    lower = lower / np.linalg.norm(lower, axis=0)
    values = ce.theorem_9_eigenvalues(point)
    counts = ce.theorem_9_multiplicities(point.classes)
    groups = ce.theorem_9_eigenvectors(point.classes)
    for value, count, group in zip(values, counts, groups, strict=True):
        lifted = np.array([(upper @ matrix @ lower.T).ravel() for matrix in group])
        assert np.abs(lifted @ hessian - value * lifted).max() < 1e-14
        assert np.linalg.matrix_rank(lifted, tol=1e-10) == count


@pytest.mark.parametrize("classes", [3, 4, 5, 6])
def test_the_printed_eigenvectors_miss_the_symmetric_ones(classes):
    printed = ce.theorem_9_eigenvectors(classes, as_printed=True)
    ranks = [np.linalg.matrix_rank(g.reshape(len(g), -1), tol=1e-10) for g in printed]
    missing = classes * (classes - 3) // 2
    wanted = ce.theorem_9_multiplicities(classes)
    assert ranks == [wanted[0], wanted[1], wanted[2] - missing]


def test_the_printed_forms_are_the_leading_order():
    point = Collapse(4, 2, 3, 5, 6.0)
    parameters = tensors_at(point)
    upper, lower = class_means(point, parameters, 2)
    printed = ce.theorem_9_matrix(point, upper, lower, as_printed=True)
    remainder = layer_hessian(point, parameters, 2) - printed
    norm = np.abs(np.linalg.eigvalsh(remainder)).max()
    assert norm == pytest.approx(point.beta * np.exp(-6.0) * 3 / 4, rel=1e-10)
    assert ce.theorem_9_eigenvalues(point, as_printed=True) == pytest.approx(
        (point.beta, point.beta * 3 / 4, point.beta / 4), rel=1e-14
    )
    top = eigenvalues(printed).expand()[:9]
    counts = ce.theorem_9_multiplicities(4, as_printed=True)
    assert top == pytest.approx(np.repeat([1, 3 / 4, 1 / 4], counts) * point.beta, rel=1e-12)
    assert ce.theorem_9_multiplicities(2, as_printed=True) == (1, 1, -1)


@each_point
def test_beta_and_the_last_eigenvalue_through_the_ridge(point):
    unit = point.ridge * point.alpha
    assert point.beta == pytest.approx(unit * point.confidence, rel=1e-13)
    assert ce.theorem_9_eigenvalues(point)[2] == pytest.approx(unit / point.classes, rel=1e-13)


@pytest.mark.parametrize(("classes", "alpha"), [(2, 0.3), (3, 2.0), (5, 4.0), (4, 9.0)])
def test_softmax_curvature(classes, alpha):
    for label in range(classes):
        logits = alpha * ce.simplex(classes)[:, label]
        found = oracle.softmax_curvature(autograd.tensors([logits])[0], label)
        assert np.abs(found - ce.equation_23(classes, alpha, label)).max() < 1e-15
        printed = ce.equation_23(classes, alpha, label, as_printed=True)
        s = ce.simplex(classes)[:, label]
        remainder = (classes - 1) * ce.simplex(classes) - classes * np.outer(s, s)
        remainder /= (classes - 1 + np.exp(alpha)) ** 2
        assert np.abs(found - printed - remainder).max() < 1e-15


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_lemma_7_and_equation_24(classes):
    S, average = ce.simplex(classes), np.zeros((classes**2, classes**2))
    for c in range(classes):
        entries = np.eye(classes)
        entries[c], entries[:, c], entries[c, c] = -1, -1, classes - 1
        assert np.allclose(ce.lemma_7(classes, c), entries, atol=1e-14)
        average += np.kron(entries, np.outer(S[c], S[c])) / classes
    assert np.allclose(ce.equation_24(classes), average, atol=1e-14)


@each_point
def test_the_joint_spectra(point):
    parameters = tensors_at(point)
    full = eigenvalues(autograd.dense_hessian(loss_of(point), parameters))
    assert full.distance(ce.joint(point)) < 1e-13
    loss = oracle.weights_loss(parameters[0], point.classes, point.samples)
    weights = eigenvalues(autograd.dense_hessian(loss, parameters[1:]))
    assert weights.distance(ce.joint_weights(point)) < 1e-13


def test_the_zeros_of_the_joint_hessian_are_the_orbit():
    point = Collapse(4, 2, 3, 6, 4.0)
    stiefel = 3 * 6 - 3 * 4 // 2
    assert ce.joint(point).select("orbit").size == point.depth * stiefel


def papyan_by_hand(point, parameters, layer):
    """Own, class, cross and within part from gradients with every possible label."""
    K, n = point.classes, point.samples
    gradients, probabilities = oracle.label_gradients(parameters, layer, K)
    gradients = gradients.reshape(K, n, K, -1)
    weights = probabilities.reshape(K, n, K) / (K * n)
    size = gradients.shape[-1]
    parts = {name: np.zeros((size, size)) for name in ("own", "class", "cross", "within")}
    for c in range(K):
        others = [label for label in range(K) if label != c]
        g, w = gradients[c][:, others], weights[c][:, others]
        own, own_weights = gradients[c][:, c], weights[c][:, c]
        parts["own"] += np.einsum("i,ip,iq->pq", own_weights, own, own)
        cross_means = np.einsum("ic,icp->cp", w, g) / w.sum(axis=0)[:, None]
        mean = np.einsum("ic,icp->p", w, g) / w.sum()
        parts["class"] += w.sum() * np.outer(mean, mean)
        parts["cross"] += np.einsum(
            "c,cp,cq->pq", w.sum(axis=0), cross_means - mean, cross_means - mean
        )
        parts["within"] += np.einsum("ic,icp,icq->pq", w, g - cross_means, g - cross_means)
    return parts


@each_point
def test_papyan_parts(point):
    parameters = tensors_at(point)
    for layer in range(1, point.depth + 1):
        found = papyan_by_hand(point, parameters, layer)
        hessian = layer_hessian(point, parameters, layer)
        assert np.abs(sum(found.values()) - hessian).max() < 1e-14
        assert np.abs(found["within"]).max() < 1e-28
        for name, closed in ce.papyan_parts(point, layer).items():
            # Absolute, not relative: for two classes the cross part is zero.
            gap = eigenvalues(found[name]).expand() - closed.expand()
            assert np.abs(gap).max() < 1e-14


@pytest.mark.parametrize(("classes", "samples", "depth"), [(2, 1, 1), (3, 4, 2), (4, 2, 3)])
def test_equation_9_inverts_the_ridge_above_the_fold(classes, samples, depth):
    low = ce.fold(classes, depth)
    for alpha in (1.05 * low + 0.01, low + 1, low + 10, low + 300):
        ridge = Collapse(classes, samples, depth, classes, alpha).ridge
        assert ce.equation_9(classes, samples, depth, ridge) == pytest.approx(alpha, rel=1e-9)


def test_equation_9_takes_the_larger_solution_and_ends_at_the_fold():
    most = ce.largest_ridge(4, 2, 3)
    low = ce.fold(4, 3)
    assert ce.equation_9(4, 2, 3, most) == pytest.approx(low, rel=1e-6)
    below = Collapse(4, 2, 3, 4, low / 2)
    assert ce.equation_9(4, 2, 3, below.ridge) > low
    sides = [Collapse(4, 2, 3, 4, low * factor).ridge for factor in (0.99, 1.01)]
    assert max(sides) < most


def test_the_largest_ridge_of_one_layer_is_the_limit_of_small_scales():
    near = Collapse(3, 5, 1, 3, alpha=1e-9).ridge
    assert ce.largest_ridge(3, 5, 1) == pytest.approx(near, rel=1e-8)


def test_at_ridge_solves_equation_9():
    point = Collapse.at_ridge(4, 2, 3, 6, ridge=0.01)
    assert point.ridge == pytest.approx(0.01, rel=1e-13)
    assert point.alpha > ce.fold(4, 3)


@pytest.mark.parametrize(
    ("classes", "depth"), [(2, 2), (2, 4), (3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (6, 4)]
)
def test_positive_semidefinite_exactly_from_the_stated_scale(classes, depth):
    threshold = ce.positive_scale(classes, depth)
    assert threshold >= ce.fold(classes, depth)
    for factor, sign in ((0.99, -1), (1.01, 1)):
        point = Collapse(classes, 1, depth, classes, factor * threshold)
        least = ce.joint(point).values.min() / point.ridge
        if sign < 0:
            assert least < -1e-3
        else:
            assert least > -1e-14
        hessian = autograd.dense_hessian(loss_of(point), tensors_at(point))
        assert np.linalg.eigvalsh(hessian)[0] / point.ridge == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 4, 7])
def test_one_layer_is_positive_at_every_scale(classes):
    assert ce.positive_scale(classes, 1) == 0
    assert ce.joint(Collapse(classes, 2, 1, classes, 0.01)).values.min() > -1e-15


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("samples", [1, 3])
def test_the_polytope(classes, samples):
    point = Collapse(classes, samples, 3, classes, 2.5)
    logits = point.alpha * ce.polytope_logits(classes)
    assert np.linalg.matrix_rank(logits) == (classes + 1) // 2
    factors = ce.factorise(logits, samples, depth=3, width=classes)
    assert [w.shape for w in factors] == [w.shape for w in tensors_at(point)]
    loss = loss_of(point)(autograd.tensors(factors)).item()
    assert loss == pytest.approx(ce.polytope_loss(point), rel=1e-13)
    assert (loss < point.loss) == (classes >= 4)


def test_the_polytope_beats_collapse_where_it_is_proved():
    for classes, depth in [(4, 3), (5, 3), (6, 2), (7, 2), (10, 2)]:
        for alpha in (0.01, 1.0, 30.0):
            point = Collapse(classes, 3, depth, classes, alpha)
            assert ce.polytope_loss(point) < point.loss


def test_factorise_keeps_the_simplex_critical():
    point = Collapse(3, 2, 2, 4, 2.0)
    factors = ce.factorise(point.alpha * ce.simplex(3), 2, depth=2, width=4)
    found = gradient(loss_of(point), autograd.tensors(factors))
    assert max(np.abs(g).max() for g in found) < 1e-15


def test_minimise_finds_the_collapsed_point():
    point = Collapse.at_ridge(3, 2, 2, 4, ridge=0.02)
    rng = np.random.default_rng(0)
    start = [rng.standard_normal(w.shape) / 2 for w in point.parameters(rng)]
    end = autograd.tensors(oracle.minimise(loss_of(point), start))
    assert loss_of(point)(end).item() == pytest.approx(point.loss, abs=1e-13)
    full = eigenvalues(autograd.dense_hessian(loss_of(point), end))
    assert full.distance(ce.joint(point)) < 1e-6


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Collapse(1, 1, 1, 1, 1.0), ValueError, "classes must be at least 2, got 1"),
        (lambda: Collapse(2, 0, 1, 1, 1.0), ValueError, "samples must be at least 1, got 0"),
        (lambda: Collapse(2, 1, 0, 1, 1.0), ValueError, "depth must be at least 1, got 0"),
        (lambda: Collapse(2, 1, 1, 0, 1.0), ValueError, "width must be at least 1, got 0"),
        (lambda: Collapse(5, 1, 1, 3, 1.0), ValueError, "width must be at least classes − 1 = 4"),
        (lambda: Collapse(2, 1, 1, 1, 0.0), ValueError, "alpha must be positive, got 0"),
        (lambda: Collapse(2, 1, 1, 1, -1.0), ValueError, "alpha must be finite and not negative"),
        (lambda: Collapse(2.0, 1, 1, 1, 1.0), TypeError, "classes must be an integer, got 2.0"),
        (lambda: ce.simplex(1), ValueError, "classes must be at least 2, got 1"),
        (lambda: ce.fold(1, 2), ValueError, "classes must be at least 2, got 1"),
        (lambda: ce.largest_ridge(2, 0, 2), ValueError, "samples must be at least 1, got 0"),
        (lambda: ce.positive_scale(2, 0), ValueError, "depth must be at least 1, got 0"),
        (lambda: ce.equation_9(2, 1, 1, 0.0), ValueError, "ridge must be positive, got 0"),
        (lambda: ce.equation_9(2, 1, 1, 0.5), ValueError, "ridge must be below 0.5 for"),
        (
            lambda: ce.equation_9(4, 2, 3, 1.0),
            ValueError,
            r"ridge must be at most 0\.147114 for equation \(9\) to have a solution with 4 classes",
        ),
        (lambda: ce.equation_23(3, 1.0, 3), ValueError, "label must be below the number of"),
        (lambda: ce.lemma_7(3, -1), ValueError, "label must be at least 0, got -1"),
        (lambda: ce.theorem_9_multiplicities(1), ValueError, "classes must be at least 2"),
        (lambda: ce.theorem_9(POINTS[0], 2), ValueError, "layer must be at most the depth 1"),
        (lambda: ce.papyan_parts(POINTS[0], 0), ValueError, "layer must be at least 1, got 0"),
        (
            lambda: ce.theorem_9_matrix(POINTS[4], np.eye(2), np.eye(3)),
            ValueError,
            "upper must have one column per class, 3",
        ),
        (
            lambda: ce.theorem_9_matrix(POINTS[4], np.eye(3), np.zeros((3, 3))),
            ValueError,
            "lower must have no zero column",
        ),
        (lambda: ce.polytope_logits(1), ValueError, "classes must be at least 2, got 1"),
        (
            lambda: ce.factorise(np.ones((2, 3)), 1, 1, 3),
            ValueError,
            "logits must be square, got 2×3",
        ),
        (
            lambda: ce.factorise(np.eye(3), 1, 1, 2),
            ValueError,
            "width must be at least the rank 3 of logits, got 2",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_torch_loss_names_a_wrong_shape():
    loss = oracle.cross_entropy_loss(classes=3, samples=2, ridge=0.0)
    with pytest.raises(ValueError, match=r"parameters\[0\] must have 6 columns"):
        loss(autograd.tensors([np.ones((2, 5)), np.ones((3, 2))]))
    with pytest.raises(ValueError, match=r"parameters\[1\] must have 3 rows"):
        loss(autograd.tensors([np.ones((2, 6)), np.ones((4, 2))]))
