"""Labelled images from the files in which MNIST, CIFAR-10 and one's own collections come.

Nothing is downloaded and nothing is unpickled. `load_images` reads what is there, and where
something is missing it says which files it needs, and where the data sets are published.
"""

import gzip
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exacthessian.inputs import Array, require

Images: TypeAlias = tuple[Array, NDArray[np.int64]]

MNIST = {"train": "train", "test": "t10k"}
CIFAR = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
ADVICE = (
    "For MNIST put the four files *-ubyte (or *-ubyte.gz) of the MNIST database of handwritten "
    "digits there (published at yann.lecun.com/exdb/mnist); for CIFAR-10 the files *.bin of its "
    "binary version, cifar-10-binary.tar.gz (published at www.cs.toronto.edu/~kriz/cifar.html); "
    "or give an .npz file with the arrays images and labels."
)


def load_images(path: str | Path, part: str = "train") -> Images:
    """Images (N, …) as float64 and labels (N,) as whole numbers from 0.

    `path` is a folder with the files of MNIST (images (N, 28, 28)) or of CIFAR-10's binary version
    (images (N, 32, 32, 3)), whose `part` is "train" or "test"; or an .npz file with the arrays
    `images` and `labels`, which has no parts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(folder + "/two.npz", images=np.zeros((2, 8, 8)), labels=np.array([0, 1]))
    ...     images, labels = load_images(folder + "/two.npz")
    >>> images.shape, labels
    ((2, 8, 8), array([0, 1]))
    """
    require(part in MNIST, "part must be train or test", repr(part))
    place = Path(path)
    mnist = [*place.glob(f"{MNIST[part]}-images*-ubyte*"), *place.glob(f"{MNIST[part]}-labels*")]
    cifar = [place / name for name in CIFAR[part]]
    if place.is_file():
        with np.load(place) as stored:
            images, labels = stored["images"], stored["labels"]
    elif len(mnist) == 2:
        images, labels = map(_idx, mnist)
    elif all(file.is_file() for file in cifar):
        records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in cifar])
        images, labels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]
    else:
        raise FileNotFoundError(f"no images of the part {part!r} at {place}. {ADVICE}")
    found = f"{labels.dtype} of shape {labels.shape} for {len(images)} images"
    fit = labels.shape == images.shape[:1] and labels.dtype.kind in "iu"
    require(fit, f"{place} must have one whole number as label per image", found)
    return images.astype(np.float64), labels.astype(np.int64)


def balanced(images: ArrayLike, labels: ArrayLike, per_class: int) -> tuple[Images, Images]:
    """The first `per_class` images of every class, class by class, and all the others: each as
    (images, labels), with the images flattened, and shifted and scaled as a whole so that the
    chosen ones have mean 0 and deviation 1.

    >>> chosen, others = balanced([[1.0], [3.0], [5.0]], [0, 1, 0], per_class=1)
    >>> chosen[0].ravel(), chosen[1], others[0].ravel()
    (array([-1.,  1.]), array([0, 1]), array([3.]))
    """
    classes = np.asarray(labels, dtype=np.int64)
    flat = np.asarray(images, dtype=np.float64).reshape(len(classes), -1)
    least = int(np.bincount(classes).min())
    fit = 0 < per_class <= least
    require(fit, f"per_class must be from 1 to {least}, the smallest class", per_class)
    places = [np.flatnonzero(classes == label) for label in range(classes.max() + 1)]
    chosen = np.concatenate([found[:per_class] for found in places])
    others = np.setdiff1d(np.arange(len(classes)), chosen)
    scaled = (flat - flat[chosen].mean()) / flat[chosen].std()
    return (scaled[chosen], classes[chosen]), (scaled[others], classes[others])


def _idx(file: Path) -> NDArray[np.uint8]:
    """An idx file of bytes: 0, 0, 8, the number of axes, their big-endian lengths, the entries."""
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    expected = f"{file} must be an idx file of unsigned bytes, which starts with 0, 0, 8"
    require(data[:3] == b"\x00\x00\x08", expected, list(data[:3]))
    head = 4 + 4 * data[3]
    lengths = np.frombuffer(data[4:head], ">u4")
    return np.frombuffer(data, np.uint8, offset=head).reshape(lengths)
