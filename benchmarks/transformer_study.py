"""The transformer study of the chapter "Cracking the Hessian" at any size and on any text.

    python benchmarks/transformer_study.py --width 64 --heads 4 --blocks 4 --context 128 \\
        --steps 5000 --seeds 5 --text my_text.txt

Three networks of equal size (softmax attention, an MLP instead, fixed mixing) are trained from each
seed. At each checkpoint the loss, the residual and the largest eigenvalues of the Hessian and of
the Gauss–Newton matrix are measured, with attention also those of the Hessian in which the tangent
replaces softmax. Then attention sinks of growing strength, on ordinary and on massive tokens, are
forced on the trained networks. Without arguments it runs at the size of the chapter, in minutes.
"""

import argparse
from pathlib import Path

import kept_studies
import numpy as np

from exacthessian.studies import transformer as tf


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="The transformer study at any size.")
    sizes = {"width": 16, "heads": 2, "blocks": 2, "context": 32, "steps": 600, "seeds": 8}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=3e-3, help="Adam's learning rate")
    parser.add_argument("--massive", type=float, default=5.0, help="size of the massive value")
    parser.add_argument("--text", type=Path, help="a text file instead of the book's primer")
    return parser.parse_args()


def main() -> None:
    """Run the study and print its tables."""
    asked = arguments()
    late = np.geomspace(min(30, asked.steps), asked.steps, 7).round().astype(int)
    checkpoints, biases = [0, *np.unique(late).tolist()], [0.0, 2.0, 4.0, 8.0]
    found = kept_studies.transformers(
        seeds=list(range(asked.seeds)),
        checkpoints=checkpoints,
        biases=biases,
        massive=asked.massive,
        text=asked.text.read_text(encoding="utf-8") if asked.text else tf.PRIMER,
        **{name: getattr(asked, name) for name in ("rate", "width", "heads", "blocks", "context")},
    )
    print("mixer    seed   step   loss  residual  sharpness   error  with tangent")
    for mixer in tf.MIXERS:
        for seed, rows in enumerate(found[mixer]):
            for step, (loss, residual, high, newton, tangent) in zip(
                checkpoints, rows, strict=True
            ):
                errors = abs(high - newton) / high, abs(tangent - newton) / tangent
                print(
                    f"{mixer:8} {seed:4} {step:6} {loss:6.3f} {residual:9.3f} {high:10.2f} "
                    f"{errors[0]:7.3f} {errors[1]:13.3f}"
                )
    for name in ("sink", "massive sink"):
        print(f"\n{name}: seed  bias  attention on first   loss  lambda_min  lambda_max")
        for seed, rows in enumerate(found[name]):
            for bias, (share, loss, low, high) in zip(biases, rows, strict=True):
                print(f"{seed:10} {bias:5.0f} {share:19.2f} {loss:6.3f} {low:11.2f} {high:11.2f}")


if __name__ == "__main__":
    main()
