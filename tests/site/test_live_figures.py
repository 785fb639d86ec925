"""What live figures compute in the browser, against the package: numbers, not pictures."""

import numpy as np
import pytest
from site_pages import ROOT

from exacthessian import AlignedChain, Spectrum
from exacthessian.attention import ScalarAttention
from exacthessian.chain import LinearChain
from exacthessian.mode import edge, rotating_cycle, rotating_edge, two_cycle
from exacthessian.scalar import TwoLayer
from exacthessian.studies.depth_not_data import membership
from exacthessian.ufm import DeepLinearUFM, threshold

TOLERANCE = 1e-10
CALL = """async ([name, all]) => {
    const S = await import('/spectrum.js');
    return all.map((given) => S[name](...given));
}"""
SPECTRA = """async (all) => {
    const S = await import('/spectrum.js');
    return all.map(({chain, eta}) => {
        const entries = S.sorted(S.spectrum(chain)), next = S.step(chain, eta);
        return {values: entries.map((e) => e.value), counts: entries.map((e) => e.count),
                kinds: entries.map((e) => S.KINDS[e.kind]), loss: S.loss(chain),
                size: S.size(chain), product: S.product(chain), layers: next.layers};
    });
}"""
DENSE = """async (all) => {
    const S = await import('/spectrum.js');
    return all.map(({chain, tilt, eta}) => {
        const weights = S.matrices(chain, tilt);
        return {values: S.matrixSpectrum(weights, chain), weights,
                moved: S.matrixStep(weights, chain, eta), ...S.matrixLoss(weights, chain)};
    });
}"""


def random_chain(seed: int) -> AlignedChain:
    """A random aligned chain; every third one is degenerate in some way."""
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(1, 6))
    widths = rng.integers(1, 8, depth + 1)
    style = seed % 9
    if style == 0:
        widths[:] = 1
    if style == 1:
        widths[rng.integers(depth + 1)] = 1
    ranges = np.minimum(widths[1:], widths[:-1])
    layers = [rng.normal(1, 0.6, size) for size in ranges]
    data, target = rng.gamma(2, 1, widths[0]), rng.normal(0, 2, min(widths[0], widths[-1]))
    if style == 2:  # all singular values equal, at the minimum
        layers, data[:], target[:] = [np.ones(size) for size in ranges], 1.0, 1.0
    if style == 3:  # a layer of zeros
        layers[rng.integers(depth)][:] = 0.0
    if style == 4:  # everything zero
        layers = [np.zeros(size) for size in ranges]
    if style == 5:  # inputs and targets with a kernel
        data[len(data) // 2 :] = 0.0
        target[:] = np.where(rng.random(len(target)) < 0.5, 0.0, target)
    ridge = rng.gamma(1, 0.2, depth) if style in (4, 6) else np.zeros(depth)
    return AlignedChain(
        tuple(widths.tolist()), tuple(layers), data, target, rng.gamma(2), ridge.tolist()
    )


def as_script(chain: AlignedChain) -> dict:
    """A chain as the scripts write it."""
    return {
        "widths": list(chain.widths),
        "layers": [values.tolist() for values in chain.singular_values],
        "data": chain.data.tolist(),
        "target": chain.target.tolist(),
        "ridge": np.asarray(chain.ridge).tolist(),
        "halfY2": chain.half_y2,
    }


def assert_close(found, truth, scale=0.0):
    found, truth = np.asarray(found, dtype=float), np.asarray(truth, dtype=float)
    assert found.shape == truth.shape
    size = max(scale, np.abs(truth).max(initial=0.0))
    assert np.abs(found - truth).max(initial=0.0) <= TOLERANCE * size


CHAINS = [random_chain(seed) for seed in range(270)]


def test_the_module_is_small_and_needs_nothing():
    text = (ROOT / "book" / "web" / "spectrum.js").read_text(encoding="utf-8")
    assert len(text.encode()) <= 30_000
    assert "import " not in text


def test_spectra_losses_and_steps_are_those_of_the_package(web):
    settings = [{"chain": as_script(chain), "eta": 0.05} for chain in CHAINS]
    for chain, found in zip(CHAINS, web.evaluate(SPECTRA, settings), strict=True):
        truth = chain.spectrum().expand()
        counts = np.array(found["counts"], dtype=int)
        assert found["size"] == counts.sum() == chain.size
        assert_close(np.repeat(found["values"], counts), truth)
        assert_close(found["product"], chain.product)
        assert_close(found["loss"], chain.loss(), chain.half_y2)
        for layer, moved in zip(found["layers"], chain.step(0.05).singular_values, strict=True):
            assert_close(layer, moved, 1e-3)


def test_modes_that_agree_give_eigenvalues_that_are_equal(web):
    net = AlignedChain.balanced((10, 20, 20, 16), np.ones(4), target=np.ones(4))
    (found,) = web.evaluate(SPECTRA, [{"chain": as_script(net), "eta": 0.1}])
    pairs = zip(found["values"], found["counts"], strict=True)
    assert sum(count for value, count in pairs if value == 3) == 16
    assert set(found["values"]) == {3, 1, 0}


def test_colours_are_those_of_the_study(web):
    """Dominant, bulk and zero, where the eigenvectors that move W are well apart from the rest."""
    cases = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rank, depth = int(rng.integers(1, 4)), int(rng.integers(2, 5))
        lam = rng.uniform(0.9, 1.1, rank)
        target = lam**depth + rng.normal(0, 0.01, rank)
        cases.append(AlignedChain.balanced((5, *[6] * (depth - 1), 4), lam, target=target))
    found = web.evaluate(SPECTRA, [{"chain": as_script(chain), "eta": 0.1} for chain in cases])
    for chain, entry in zip(cases, found, strict=True):
        truth = membership(chain, np.count_nonzero(chain.target))
        counts = np.array(entry["counts"], dtype=int)
        values, kinds = np.repeat(entry["values"], counts), np.repeat(entry["kinds"], counts)
        for kind in ("dominant", "bulk", "zero"):
            assert_close(values[kinds == kind], truth.select(kind).expand(), 1.0)


def test_two_cycles(web):
    rng = np.random.default_rng(0)
    cases = []
    for _ in range(200):
        depth, sigma = int(rng.integers(2, 7)), float(rng.gamma(2, 3) + 0.05)
        cases.append((depth, sigma, float(edge(depth, sigma) * (1 + rng.exponential(0.1) + 1e-5))))
    for case, found in zip(cases, web.evaluate(CALL, ["twoCycle", cases]), strict=True):
        assert_close(found, two_cycle(*case))


def test_two_layers(web):
    rng = np.random.default_rng(1)
    cases = [
        (rng.normal(size=m), rng.normal(size=m) * (k % 5 > 0), rng.gamma(2), rng.normal())
        for k, m in enumerate(rng.integers(1, 12, 200))
    ]
    cases = [(w, w if k % 7 == 0 else v, s2, yx) for k, (w, v, s2, yx) in enumerate(cases)]
    given = [(w.tolist(), v.tolist(), s2, yx) for w, v, s2, yx in cases]
    for case, found in zip(cases, web.evaluate(CALL, ["twoLayer", given]), strict=True):
        network = TwoLayer(*case)
        assert_close(found, [*network.outliers(), network.d])


def test_attention(web):
    rng = np.random.default_rng(2)
    given, layers = [], []
    for k in range(200):
        n, width = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        query = rng.normal(size=width)
        key = query if k % 7 == 0 else rng.normal(size=width) * (k % 5 > 0)
        x, y = rng.normal(size=n), rng.normal(size=n)
        value, sink = float(rng.normal() * (k % 11 > 0)), float(rng.gamma(1, 2) * (k % 2))
        layers.append(ScalarAttention(value, query, key, (x,), (y,)).with_sink(sink))
        given.append((value, query.tolist(), key.tolist(), x.tolist(), y.tolist(), sink))
    for layer, found in zip(layers, web.evaluate(CALL, ["attention", given]), strict=True):
        head = layer.head()
        assert_close([*found["outliers"], found["gamma"]], [*head.outliers(), head.gamma])
        assert_close(found["loss"], layer.loss())
        assert_close(found["rows"], layer.attention()[0])


def test_collapse(web):
    rng = np.random.default_rng(3)
    cases = []
    for _ in range(60):
        classes, samples, depth = (int(n) for n in rng.integers([2, 1, 1], [6, 6, 6]))
        width = classes + int(rng.integers(0, 5))
        limit = threshold(classes, samples, depth)
        cases.append((classes, samples, depth, width, float(limit * rng.uniform(0.01, 0.99))))
    made = web.evaluate(CALL, ["collapsed", cases])
    found = web.evaluate(SPECTRA, [{"chain": point["chain"], "eta": 0.1} for point in made])
    for case, point, entry in zip(cases, made, found, strict=True):
        ufm = DeepLinearUFM(*case)
        assert_close(point["C"], ufm.fit)
        counts = np.array(entry["counts"], dtype=int)
        assert_close(np.repeat(entry["values"], counts), ufm.spectrum().expand())
        assert_close(entry["loss"], ufm.loss())


def test_full_matrices(web):
    chains = [chain for chain in CHAINS if chain.size <= 60][:120]
    settings = [{"chain": as_script(c), "tilt": 0.3, "eta": 0.05} for c in chains]
    for given, found in zip(chains, web.evaluate(DENSE, settings), strict=True):
        aligned = given.to_chain()
        net = LinearChain(
            tuple(np.array(weight) for weight in found["weights"]),
            *(aligned.sigma_xx, aligned.sigma_yx, given.half_y2, given.ridge),
        )
        assert_close(found["values"], Spectrum.from_matrix(net.hessian()).expand())
        assert_close(found["loss"], net.loss(), given.half_y2)
        assert_close(found["W"], net.product, 1e-3)
        for moved, weight in zip(found["moved"], net.step(0.05).weights, strict=True):
            assert_close(moved, weight, 1e-3)


def test_the_rotating_cycle(web):
    rng = np.random.default_rng(4)
    cases = []
    for _ in range(60):
        second = float(rng.gamma(2, 3) + 0.1)
        first = second + float(rng.exponential(0.1) * second)
        cases.append((first, second, rotating_edge(2, first, second) * (1 + rng.uniform(0, 0.2))))
    for case, found in zip(cases, web.evaluate(CALL, ["rotatingCycle", cases]), strict=True):
        for layer, truth in zip(found, rotating_cycle(2, *case)[0].weights, strict=True):
            assert_close(layer, truth)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"widths": [2, 0, 2]}, "at least 1, not 0"),
        ({"widths": [2]}, "at least two widths"),
        ({"layers": [[1.0]]}, "2 layers"),
        ({"data": [-1.0]}, "cannot be negative"),
        ({"target": [1.0, 2.0, 3.0]}, "at most 2 values"),
        ({"layers": [[1e200, 1.0], [1e200, 1.0]]}, "overflow"),
    ],
)
def test_bad_input_gets_a_sentence(web, change, words):
    good = {"widths": [2, 2, 2], "layers": [[1.0, 1.0], [1.0, 1.0]], "target": [1.0, 1.0]}
    said = web.evaluate(
        """async (chain) => {
            const S = await import('/spectrum.js');
            try { S.spectrum(chain); S.step(chain, 1e10); } catch (e) { return e.message; }
            return '';
        }""",
        {**good, **change},
    )
    assert words in said
