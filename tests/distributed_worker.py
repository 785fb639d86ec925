"""What every process of test_distributed runs: `distributed_worker.py CASE FOLDER`."""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from exacthessian import top_eigenvalues
from exacthessian.autograd.distributed import run_sharded
from exacthessian.phantoms import phantom

torch.set_num_threads(1)
case, folder = sys.argv[1], Path(sys.argv[2])
rank = int(os.environ.get("RANK", "0"))
faulty = rank == (0 if case.endswith(" 0") else 1)
size = 100_000 if case == "right" else 2_000
p = phantom("outliers", size, seed=0, samples=1003)
x, y = p.data
products = 0


def loss_sum(outputs, targets):
    """Half the sum of squares."""
    return ((outputs - targets) ** 2).sum() / 2


def rows(a, b):
    """The samples a, …, b − 1."""
    if case == "no data" and rank == 1:
        return x[:0], y[:0]
    return x[a:b], y[a:b]


def misbehave(module, _):
    """The faulty rank fails in the middle of its third product."""
    global products
    products += 1
    if faulty and products > 10:
        if "killed" in case:
            os.kill(os.getpid(), signal.SIGKILL)
        if case == "hangs":
            time.sleep(1000)
        if case == "raises":
            raise ArithmeticError("planted")


def work(operator):
    """Ten eigenvalues, ten diagonal entries and the bits of one product."""
    if case == "driver raises":
        raise ArithmeticError("planted")
    v = np.random.default_rng(1).standard_normal(p.size)
    image = operator @ v
    top = top_eigenvalues(operator, 10, np.random.default_rng(0))
    exact = p.spectrum if matrix == "hessian" else p.gauss_newton_spectrum
    return {
        "product": hashlib.sha256(image.tobytes()).hexdigest(),
        "top": hashlib.sha256(top.values.tobytes()).hexdigest(),
        "error": float(np.abs(top.values / exact.values[:10] - 1).max()),
        "residual": p.residual(lambda u: operator @ u) if matrix == "hessian" else 0.0,
    }


def doors():
    """The addresses beyond loopback on which this process listens."""
    links = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")[:-1]]
    own = {link[8:-1] for link in links if link.startswith("socket:")}
    tables = [Path("/proc/self/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    listening = [row[1] for row in rows if row[3] == "0A" and row[9] in own]
    assert listening  # gloo has doors
    return [address for address in listening if not address.startswith("0100007F")]


if faulty:
    if case == "late":
        time.sleep(1000)
    with torch.no_grad():
        if case == "other weights":
            p.model[1].weight[0, 0] += 1e-9
        if case == "other dtype":
            p.model.float()
        if case == "other architecture":
            p.model.append(torch.nn.Identity()).append(torch.nn.Linear(2, 2, bias=False).double())
p.model[0].register_forward_pre_hook(misbehave)
for matrix in ("hessian", "gauss_newton") if case == "right" else ("hessian",):
    found = run_sharded(
        work,
        p.model,
        loss_sum,
        rows,
        len(x),
        matrix=matrix,
        timeout=6.0 if case in ("hangs", "late") else 60.0,
        checkpoint=folder / "products" if case.startswith("checkpoint") else None,
    )
    if rank == 0:
        (folder / f"{matrix}.json").write_text(json.dumps(found))
    else:
        assert found is None
if case == "listens":
    (folder / f"doors {rank}").write_text(" ".join(doors()))
