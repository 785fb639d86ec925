"""Products over several processes: the same bits for any number of them, and faults that speak."""

import doctest
import json
import os
import re
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import ROOT
from exacthessian import top_eigenvalues
from exacthessian.autograd import distributed, gauss_newton_operator, hessian_operator
from exacthessian.autograd.distributed import run_sharded
from exacthessian.phantoms import phantom

WORKER = Path(__file__).with_name("distributed_worker.py")
ALONE = {name: value for name, value in os.environ.items() if name != "RANK"}
ENVIRONMENT = ALONE | {"OMP_NUM_THREADS": "1"}


def loss_sum(outputs, targets):
    return ((outputs - targets) ** 2).sum() / 2


def launch(case, folder, world):
    """(exit code, what was printed, seconds) of the worker under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(world), str(WORKER), case, str(folder)]
    started = time.perf_counter()
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False
    )
    return done.returncode, done.stdout + done.stderr, time.perf_counter() - started


def test_doctests():
    assert doctest.testmod(distributed).failed == 0


def test_the_bits_do_not_depend_on_the_number_of_processes(tmp_path):
    """P = 99 681 and N = 1003: the ten largest and eight known eigenvectors, refereed."""
    answers = {}
    for world in (0, 2, 3):
        folder = tmp_path / str(world)
        folder.mkdir()
        if world == 0:
            command = [sys.executable, str(WORKER), "right", str(folder)]
            subprocess.run(command, env=ENVIRONMENT, check=True, timeout=240)
        else:
            code, printed, _ = launch("right", folder, world)
            assert code == 0, printed
        for matrix in ("hessian", "gauss_newton"):
            answer = json.loads((folder / f"{matrix}.json").read_text())
            assert answer["error"] < 1e-10
            assert answer["residual"] < 1e-12
            assert answer == answers.setdefault(matrix, answer)


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("other weights", "rank 1 differs from rank 0 in its weights"),
        ("other dtype", "rank 1 differs from rank 0 in its dtype"),
        ("other architecture", "rank 1 differs from rank 0 in its architecture"),
        ("no data", r"rank 1 failed: ValueError: rows(250, 376) gave 0, 0 samples"),
        ("raises", "rank 1 failed: ArithmeticError: planted"),
        ("driver raises", "rank 0 failed: its own message says why"),
        ("hangs", "rank 1 died, or did not answer in time"),
        ("late", "rank 1 did not come within 6 seconds"),
        ("killed", "rank      : 1 (local_rank: 1)"),  # in torchrun's own words
    ],
)
def test_a_fault_ends_the_run_on_every_rank_and_names_the_rank(tmp_path, case, sentence):
    code, printed, seconds = launch(case, tmp_path, world=3)
    assert code != 0
    assert sentence in printed
    assert list(tmp_path.iterdir()) == []  # no partial result
    assert seconds < 90


def by_hand(case, folder):
    """The exit codes and messages of two ranks without a launcher."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), case, str(folder)],
            env=ENVIRONMENT | address | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=120)[1] for rank in ranks]
    return [rank.returncode for rank in ranks], said


@pytest.mark.parametrize("dead", [0, 1])
def test_without_a_launcher_the_survivors_name_the_dead(tmp_path, dead):
    """Rank 0 also holds the store, over which ranks say that they live."""
    codes, said = by_hand("killed 0" if dead == 0 else "killed", tmp_path)
    assert codes[dead] == -9
    assert codes[1 - dead] == 1
    assert f"RankError: rank {dead} died, or did not answer in time" in said[1 - dead]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the sockets of a process from /proc")
def test_nothing_listens_beyond_the_loopback_interface(tmp_path):
    codes, said = by_hand("listens", tmp_path)
    assert codes == [0, 0], said
    assert [(tmp_path / f"doors {rank}").read_text() for rank in range(2)] == ["", ""]


def test_a_killed_run_of_two_processes_is_resumed_by_one(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    killed.mkdir()
    whole.mkdir()
    assert launch("checkpoint killed", killed, world=2)[0] != 0
    assert [path.name for path in killed.iterdir()] == ["products"]
    for folder in (killed, whole):
        command = [sys.executable, str(WORKER), "checkpoint", str(folder)]
        subprocess.run(command, env=ENVIRONMENT, check=True, timeout=240)
    assert (killed / "hessian.json").read_text() == (whole / "hessian.json").read_text()
    assert (killed / "products").read_bytes() == (whole / "products").read_bytes()


def test_the_spectrum_study_has_the_same_bits_in_two_processes():
    study = [str(ROOT / "benchmarks" / "spectrum_study.py")]
    tiny = "--width 4 --blocks 1 --context 6 --training 5 --windows 9 --shards 4 --top 3 --steps 6"
    study += tiny.split()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    said = [
        subprocess.run(
            [sys.executable, *prefix, *study],
            env=ENVIRONMENT,
            check=True,
            capture_output=True,
            text=True,
            timeout=240,
        )
        for prefix in ([], launcher)
    ]
    found = [re.search(r"bits: (\w{64})", done.stdout)[1] for done in said]
    assert found[0] == found[1]
    for done in said:
        assert "expected bytes of traffic per product:" in done.stdout
        assert re.search(r"\d+ products, .* × the expected", done.stdout)
        assert "product/s]" in done.stderr  # the progress bar


def test_the_spectrum_study_refuses_too_many_shards():
    study = [sys.executable, str(ROOT / "benchmarks" / "spectrum_study.py"), "--windows", "5"]
    done = subprocess.run(
        study, env=ENVIRONMENT, check=False, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1
    assert "at most the 5 windows, got 8" in done.stderr


@pytest.mark.parametrize("world", [2, 3])
def test_sharded_parameters_have_two_exact_products_and_a_wrong_one_next_to_them(tmp_path, world):
    """FSDP2: gradients that are not declared partial are silently wrong by half of ‖H‖."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
    command += [str(world), str(WORKER.with_name("fsdp_worker.py")), str(tmp_path)]
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, timeout=240)
    right, second, obvious = map(float, (tmp_path / "residuals").read_text().split())
    assert right < 1e-12
    assert second < 1e-12
    assert obvious > 0.2


# --- one process, no group --------------------------------------------------------------------


@pytest.fixture(name="p", scope="module")
def a_phantom():
    return phantom("outliers", 2000, seed=4, samples=101)


def run(p, work, **options):
    x, y = p.data
    return run_sharded(work, p.model, loss_sum, lambda a, b: (x[a:b], y[a:b]), len(x), **options)


@pytest.mark.parametrize("shards", [1, 3, 8, 101])
def test_any_number_of_shards_is_the_oracle(p, shards):
    v = np.random.default_rng(0).standard_normal(p.size)
    x, y = p.data
    weights = [weight.detach().clone() for weight in p.model.parameters()]

    def outputs(w, x):
        return x @ w[0].T @ w[1].T @ w[2].T

    for matrix, exact in (
        ("hessian", hessian_operator(lambda w: p.loss(outputs(w, x), y), weights)),
        (
            "gauss_newton",
            gauss_newton_operator(lambda w: outputs(w, x), lambda z: p.loss(z, y), weights),
        ),
    ):
        found = run(p, lambda H: H @ v, matrix=matrix, shards=shards)
        np.testing.assert_allclose(found, exact @ v, atol=1e-12 * p.spectrum.norm)


def test_attention_and_a_model_in_float32():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    x = torch.randn(5, 3, 4)
    double = layer.double()
    size = sum(weight.numel() for weight in layer.parameters())
    v = np.random.default_rng(0).standard_normal(size)

    def rows(a, b):
        weight = next(layer.parameters())
        return x[a:b].to(weight), torch.zeros(b - a, 3, 4).to(weight)

    exact = run_sharded(lambda H: H @ v, double, loss_sum, rows, 5, shards=2)
    single = run_sharded(lambda H: H @ v, layer.float(), loss_sum, rows, 5, shards=2)
    assert np.abs(exact - single).max() < 1e-4 * np.abs(exact).max()


def test_a_killed_run_is_resumed_to_the_same_bits(p, tmp_path):
    path, real = tmp_path / "products", []
    module = p.model

    def search(limit):
        def work(operator):
            seen = 0

            def matvec(v):
                nonlocal seen
                seen += 1
                if seen > limit:
                    raise KeyboardInterrupt
                return operator.matvec(v)

            wrapped = type(operator)(operator.shape, matvec=matvec, dtype=np.float64)
            return top_eigenvalues(wrapped, 5, np.random.default_rng(0)).values

        return work

    handle = module[0].register_forward_pre_hook(lambda *_: real.append(1))
    whole = run(p, search(1000))
    products = len(real) // 8
    with pytest.raises(KeyboardInterrupt):
        run(p, search(12), checkpoint=path)
    with path.open("ab") as file:
        file.write(b"half a product")
    real.clear()
    np.testing.assert_array_equal(run(p, search(1000), checkpoint=path), whole)
    assert len(real) // 8 == products - 12
    handle.remove()


def test_a_checkpoint_of_something_else_is_refused(p, tmp_path):
    path = tmp_path / "products"
    run(p, lambda H: H @ np.ones(p.size), checkpoint=path)
    with pytest.raises(ValueError, match="is of another run: its vectors differ"):
        run(p, lambda H: H @ np.zeros(p.size), checkpoint=path)
    for options in ({"shards": 4}, {"matrix": "gauss_newton"}):
        with pytest.raises(ValueError, match="is of another model, loss or data"):
            run(p, lambda H: H @ np.ones(p.size), checkpoint=path, **options)
    with pytest.raises(ValueError, match="is of another model, loss or data"):
        run(phantom("outliers", 2000, seed=5), lambda H: H @ np.ones(p.size), checkpoint=path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 102}, "shards must be at most the number of samples 101, got 102"),
        ({"shards": 0}, "shards must be at least 1, got 0"),
        ({"matrix": "fisher"}, "matrix must be 'hessian' or 'gauss_newton', got 'fisher'"),
    ],
)
def test_bad_options_are_refused(p, options, message):
    with pytest.raises(ValueError, match=message):
        run(p, lambda H: H, **options)


def test_a_bad_vector_is_refused(p):
    with pytest.raises(ValueError, match="vector must be finite"):
        run(p, lambda H: H @ np.full(p.size, np.nan))


def test_more_processes_than_shards_are_refused(p, monkeypatch):
    monkeypatch.setattr(distributed.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(distributed.dist, "get_world_size", lambda: 9)
    with pytest.raises(ValueError, match="shards must be at least the 9 ranks, got 8"):
        distributed._Team(p.model, loss_sum, 101, "hessian", 8, group=object())


def test_more_ranks_than_samples_are_refused_before_they_meet(p, monkeypatch):
    """No address is set: a rank that tried to meet the others would fail otherwise."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "102")
    with pytest.raises(
        ValueError, match="samples must be at least the number of ranks 102, got 101"
    ):
        run(p, lambda operator: None)


def test_a_tool_that_is_missing_is_named_with_what_is_known_of_it():
    """An unknown promise is an error; so that nothing runs, the known one is of an absent tool."""
    script = [sys.executable, str(ROOT / "benchmarks" / "referee_tools.py")]
    run_it = {"env": ENVIRONMENT, "check": False, "capture_output": True, "text": True}
    done = subprocess.run([*script, "nobody/nothing"], timeout=240, **run_it)
    assert done.returncode == 1
    assert "no promise is called nobody/nothing" in done.stderr
    if find_spec("asdl") is None:
        done = subprocess.run([*script, "asdl/eigenvalues"], timeout=240, **run_it)
        assert done.returncode == 0
        assert "asdfghjkl is not installed (pip install" in done.stdout
        assert "recorded: 1.0 on 20" in done.stdout
