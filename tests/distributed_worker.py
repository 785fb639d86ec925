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
    """Rank 1 fails in the middle of its third product."""
    global products
    products += 1
    if rank == 1 and products > 10:
        if case == "killed":
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


if rank == 1:
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
        timeout=6.0 if case == "hangs" else 60.0,
        checkpoint=folder / "products" if case.startswith("checkpoint") else None,
    )
    if rank == 0:
        (folder / f"{matrix}.json").write_text(json.dumps(found))
    else:
        assert found is None
