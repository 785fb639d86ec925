"""The edge-of-stability paper's figures that need a model or data this repository does not have.

    python benchmarks/edge_of_stability.py image  MODEL IMAGE.npy  --eta 0.01 --steps 2000
    python benchmarks/edge_of_stability.py pairs  MODEL PAIRS.tsv  --eta 1e-4 --rank 8

`image` (Figures 9a, 9b) fits a network with a fixed input to one image and prints the sharpness on
the way, in units of 2/η. `pairs` (Figures 20, 21) fine-tunes a pretrained encoder of sentences with
low-rank adapters on scored pairs (a tab-separated file, one `score<TAB>first<TAB>second` per line,
as in the STS-B task) and prints the loss and the correlation of the scores.

MODEL is `file.py:function`. For `image` the function returns a torch module and its input; for
`pairs`, a torch module that maps what the second value, a function of two lists of sentences,
returns to one score per pair. For BERT with the transformers package that is, in full:

    def bert():
        tokens = AutoTokenizer.from_pretrained(FOLDER)
        network = AutoModelForSequenceClassification.from_pretrained(FOLDER, num_labels=1)
        class Score(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.network = network
            def forward(self, batch):
                return self.network(**batch).logits[:, 0]
        def encode(first, second):
            return tokens(first, second, padding=True, truncation=True, max_length=128,
                          return_tensors="pt")
        return Score(), encode
"""

import argparse
import csv
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.functional import mse_loss

from exacthessian.studies.beyond_edge_of_stability import descent, edge_ratio

EXAMPLES, BATCH, SCALE = 512, 64, 1e-3  # as in the paper's appendix B.6


class Adapted(torch.nn.Module):
    """A frozen linear layer plus a trainable product of low rank: x ↦ linear(x) + B A x, with A of
    shape (rank, in) and B of shape (out, rank), both Gaussian times `scale` at the start.
    """

    def __init__(
        self, linear: torch.nn.Linear, rank: int, scale: float, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.linear = linear
        kind = linear.weight.dtype
        down = scale * rng.standard_normal((rank, linear.in_features))
        up = scale * rng.standard_normal((linear.out_features, rank))
        self.down = torch.nn.Parameter(torch.tensor(down, dtype=kind))
        self.up = torch.nn.Parameter(torch.tensor(up, dtype=kind))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output with its adapter, (…, in) → (…, out)."""
        return cast(torch.Tensor, self.linear(x) + x @ self.down.mT @ self.up.mT)


def adapt(
    module: torch.nn.Module, rank: int, scale: float, rng: np.random.Generator
) -> list[torch.Tensor]:
    """Freeze `module`, give every linear layer in it an adapter in place, and return the adapters'
    parameters: the only ones left to train.

    >>> net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    >>> [tuple(p.shape) for p in adapt(net, rank=1, scale=1e-3, rng=np.random.default_rng(0))]
    [(1, 5), (3, 1), (1, 3), (2, 1)]
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1, got {rank}")
    module.requires_grad_(False)
    places = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.Linear)
    ]
    if not places:
        raise ValueError("module must contain a linear layer to adapt, got none")
    adapters: list[torch.Tensor] = []
    for parent, name, child in places:
        adapted = Adapted(child, rank, scale, rng)
        setattr(parent, name, adapted)
        adapters += [adapted.down, adapted.up]
    return adapters


def made_by(place: str) -> Any:
    """What the function named by `file.py:function` returns."""
    path, _, name = place.rpartition(":")
    if not Path(path).is_file():
        raise SystemExit(f"MODEL must be file.py:function with an existing file, got {place!r}")
    functions = runpy.run_path(path)
    if name not in functions:
        raise SystemExit(f"MODEL must name a function of {path}, got {name!r}")
    return functions[name]()


def fit_image(
    model: str, image: str, eta: float, steps: int, every: int
) -> Iterator[tuple[int, float, float]]:
    """Step, loss ‖G − image‖² and ε = η λ_max / 2 along gradient descent."""
    module, fixed = made_by(model)
    named = dict(module.named_parameters())
    if {weight.dtype for weight in named.values()} != {torch.float64}:
        raise SystemExit("MODEL must have float64 parameters: call module.double() first")
    parameters = [weight.detach().clone() for weight in named.values()]
    target = torch.tensor(np.load(image), dtype=parameters[0].dtype)

    def loss(theta: list[torch.Tensor]) -> torch.Tensor:
        weights = dict(zip(named, theta, strict=True))
        # Copies, because batch normalisation writes into its buffers.
        weights |= {name: buffer.clone() for name, buffer in module.named_buffers()}
        output = functional_call(module, weights, (fixed,))
        return (output.reshape(target.shape) - target).square().sum()

    for step, (now, value) in enumerate(descent(loss, parameters, eta, steps)):
        if step % every == 0:
            yield step, float(value), edge_ratio(loss, now, eta)


def fine_tune(
    model: str, pairs: str, eta: float, rank: int, epochs: int, seed: int
) -> Iterator[tuple[int, float, float]]:
    """Epoch, mean-squared loss and Pearson correlation on the training pairs."""
    module, encode = made_by(model)
    rng = np.random.default_rng(seed)
    parameters = adapt(module, rank, SCALE, rng)
    with open(pairs, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    chosen = [rows[i] for i in rng.permutation(len(rows))[:EXAMPLES]]
    scores = torch.tensor([float(row[0]) for row in chosen])

    def predicted(pick: Any) -> torch.Tensor:
        batch = [chosen[i] for i in pick]
        return module(encode([row[1] for row in batch], [row[2] for row in batch]))

    for epoch in range(epochs + 1):
        with torch.no_grad():
            now = predicted(range(len(chosen)))
        correlation = float(np.corrcoef(now.numpy(), scores.numpy())[0, 1])
        yield epoch, float(mse_loss(now, scores.to(now.dtype))), correlation
        for pick in np.array_split(rng.permutation(len(chosen)), -(-len(chosen) // BATCH)):
            error = mse_loss(predicted(pick), scores[pick].to(now.dtype))
            with torch.no_grad():
                for parameter, slope in zip(
                    parameters, torch.autograd.grad(error, parameters), strict=True
                ):
                    parameter -= eta * slope


def main() -> None:
    """Run one of the two experiments and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    image = commands.add_parser("image", help="Figures 9a and 9b")
    image.add_argument("model")
    image.add_argument("image")
    image.add_argument("--eta", type=float, required=True)
    image.add_argument("--steps", type=int, default=2000)
    image.add_argument("--every", type=int, default=100)
    pairs = commands.add_parser("pairs", help="Figures 20 and 21")
    pairs.add_argument("model")
    pairs.add_argument("pairs")
    pairs.add_argument("--eta", type=float, default=1e-4)
    pairs.add_argument("--rank", type=int, default=8)
    pairs.add_argument("--epochs", type=int, default=50)
    pairs.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    if options.pop("command") == "image":
        print("step  loss  ε")
        rows = fit_image(**options)
    else:
        print("epoch  loss  correlation")
        rows = fine_tune(**options)
    for count, loss, last in rows:
        print(f"{count:5d}  {loss:.6g}  {last:.4f}", flush=True)


if __name__ == "__main__":
    main()
