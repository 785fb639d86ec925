"""The transformer study of the chapter "Cracking the Hessian" at any size and on any text.

    python benchmarks/transformer_study.py --width 64 --heads 4 --blocks 4 --context 128 \\
        --steps 5000 --seeds 5 --text my_text.txt

Three networks of equal size (softmax attention, an MLP instead, fixed mixing) are trained from each
seed. At each checkpoint the loss, the residual and the largest eigenvalues of the Hessian and of
the Gauss–Newton matrix are measured, with attention also those of the Hessian in which the tangent
replaces softmax. Then attention sinks of growing strength are forced on the trained networks.
Without arguments it runs at the size of the chapter, for a minute or two on one thread.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator

from exacthessian.autograd import transformer as tf
from exacthessian.spectrum import spectral_density

BIASES = (0.0, 2.0, 4.0, 8.0)
State = list[torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="The transformer study at any size.")
    sizes = {"width": 16, "heads": 2, "blocks": 2, "context": 32, "steps": 600, "seeds": 3}
    for name, default in (sizes | {"batch": 16, "sequences": 8, "products": 32}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=3e-3, help="Adam's learning rate")
    parser.add_argument("--text", type=Path, help="a text file instead of the book's primer")
    return parser.parse_args()


def ends(operator: LinearOperator, products: int) -> tuple[float, float]:
    """The least and the largest Ritz value after some products."""
    lanczos = spectral_density(operator, np.random.default_rng(0), steps=products, probes=1)
    return float(lanczos.nodes.min()), float(lanczos.nodes.max())


def relative_error(
    net: tf.Transformer, state: State, data: Batch, products: int, tangent: bool = False
) -> tuple[float, float]:
    """|λ_max(H) − λ_max(G)| / λ_max(H), and λ_max(H)."""
    hessian, gauss_newton = tf.curvature(net, state, *data, tangent=tangent)
    high = ends(hessian, products)[1]
    return abs(high - ends(gauss_newton, products)[1]) / high, high


def approximation(asked: argparse.Namespace, codes: np.ndarray) -> list[tuple[State, Batch]]:
    """Train and measure every variant; return where the runs with attention ended."""
    late = np.geomspace(min(30, asked.steps), asked.steps, 7).round().astype(int)
    checkpoints = [0, *np.unique(late).tolist()]
    ended = []
    print("mixer    seed   step   loss  residual  sharpness   error  with tangent")
    for mixer in tf.MIXERS:
        net = tf.Transformer(mixer, asked.width, asked.heads, asked.blocks, asked.context)
        for seed in range(asked.seeds):
            rng = np.random.default_rng(seed)
            start = net.start(rng)
            data = tf.windows(codes, net.context, asked.sequences, rng)
            states = tf.train(net, start, codes, checkpoints, rng, asked.batch, asked.rate)
            for step, state in zip(checkpoints, states, strict=True):
                logits = net.logits(state, data[0])
                loss = tf.cross_entropy(logits, data[1]).item()
                error, high = relative_error(net, state, data, asked.products)
                line = f"{mixer:8} {seed:4} {step:6} {loss:6.3f} "
                line += f"{tf.residual_norm(logits, data[1]):9.3f} {high:10.2f} {error:7.3f}"
                if mixer == "softmax":
                    straight, _ = relative_error(net, state, data, asked.products, tangent=True)
                    line += f" {straight:13.3f}"
                print(line, flush=True)
            if mixer == "softmax":
                ended.append((states[-1], data))
    return ended


def sinks(asked: argparse.Namespace, ended: list[tuple[State, Batch]]) -> None:
    """The edges of the spectrum of the trained networks as a sink grows."""
    net = tf.Transformer("softmax", asked.width, asked.heads, asked.blocks, asked.context)
    print("\nseed  bias  attention on first   loss  lambda_min  lambda_max")
    for seed, (state, data) in enumerate(ended):
        for bias in BIASES:
            hessian, _ = tf.curvature(net, state, *data, sink=bias)
            low, high = ends(hessian, asked.products)
            loss = tf.cross_entropy(net.logits(state, data[0], bias), data[1]).item()
            weight = net.attention_on_first(state, data[0], bias)
            print(
                f"{seed:4} {bias:5.0f} {weight:19.2f} {loss:6.3f} {low:11.2f} {high:11.2f}",
                flush=True,
            )


def main() -> None:
    """Run the study."""
    asked = arguments()
    torch.set_num_threads(1)
    codes = tf.encode(asked.text.read_text(encoding="utf-8") if asked.text else tf.primer())
    net = tf.Transformer("softmax", asked.width, asked.heads, asked.blocks, asked.context)
    print(f"{net.size} parameters, {len(codes)} characters, {asked.seeds} seeds\n")
    sinks(asked, approximation(asked, codes))


if __name__ == "__main__":
    main()
