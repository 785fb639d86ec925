"""What a phantom costs: processor time and memory to make it, the time for its spectrum, and how
well its eigenpairs fit. One fresh process for each, because memory is measured at its peak:

    python benchmarks/phantom_cost.py outliers 10000000

`make bench` puts a row for every kind into benchmarks/results.md.
"""

import json
import resource
import sys
import time

import torch

from exacthessian.autograd import hessian_operator
from exacthessian.phantoms import phantom


def main(kind: str, parameters: int) -> None:
    """Print the numbers of one phantom."""
    torch.set_num_threads(1)
    started = time.process_time()
    p = phantom(kind, parameters, seed=0)
    (x, y), weights = p.data, [weight.detach() for weight in p.model.parameters()]
    made = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    entries = len(p.spectrum)
    solved = time.process_time()
    product = hessian_operator(lambda w: p.loss(x @ w[0].T @ w[1].T @ w[2].T, y), weights)
    cost = {
        "P": p.size,
        "seconds": made - started,
        "gigabytes": peak * 1024 / 1e9,  # Linux counts in KiB
        "entries": entries,
        "spectrum": solved - made,
        "residual": p.residual(product.matvec),
    }
    print(json.dumps(cost))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
