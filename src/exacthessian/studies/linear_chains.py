"""The picture of *Linear chains*: the spectrum of a network that learns two directions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from exacthessian import figures
from exacthessian.aligned import AlignedChain
from exacthessian.descent import descend
from exacthessian.spectrum import Spectrum

LEARNED = 2
COLOURS = {
    "two learned directions": figures.PURPLE,
    "one learned, one spare": figures.ORANGE,
    "two spare directions": figures.GREEN,
}


def trained(depth: int, steps: int) -> AlignedChain:
    """A balanced chain that starts small and descends for some steps towards two ones.

    >>> trained(3, 1000).spectrum()
    Spectrum(3 × 4, 1 × 14, 0 × 134)
    """
    widths = (6, *[8] * (depth - 1), 5)
    start = AlignedChain.balanced(widths, [0.5, 0.4], target=[1.0, 1.0])
    return descend(start, eta=0.1, steps=steps, record=[steps]).last


def by_kind(chain: AlignedChain) -> Spectrum:
    """The spectrum from the blocks, each labelled by how many of its directions are spare.

    >>> sorted(set(by_kind(trained(2, 0)).labels)) == sorted(COLOURS)
    True
    """

    def kind(label: str) -> str:
        indices: Sequence[int] = [int(i) for i in label.strip("{}").split(",")]
        return list(COLOURS)[sum(i > LEARNED for i in (indices[0], indices[-1]))]

    found = chain.spectrum()
    return Spectrum(found.values, found.multiplicities, tuple(map(kind, found.labels)))


def draw(depth: int, steps: int) -> Figure:
    """One frame: the eigenvalues of the dense Hessian as dots, the theorem as lines."""
    chain = trained(depth, steps)
    title = f"depth {depth}, after {steps} steps of descent"
    dense = np.linalg.eigvalsh(chain.hessian())
    return figures.spectrum(dense, by_kind(chain), COLOURS, (-1.2, 5.3), title)


def describe(depth: int, steps: int) -> str:
    """What a frame shows, in words.

    >>> describe(2, 320)[:70]
    'Sorted eigenvalues for depth 2 after 320 steps; the largest is 2.00, a'
    """
    top = trained(depth, steps).spectrum().values[0]
    return (
        f"Sorted eigenvalues for depth {depth} after {steps} steps; "
        f"the largest is {top:.2f}, and the dots lie on the theorem's lines."
    )
