"""Labelled images from the files in which MNIST, CIFAR-10 and one's own collections come.

Nothing is downloaded and nothing is unpickled. `load_images` reads what is there, and where
something is missing it says which file, and where the data sets are published.
"""

import gzip
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exacthessian.inputs import Array, whole_number

Images: TypeAlias = tuple[Array, NDArray[np.int64]]

CIFAR_SHAPE = (3, 32, 32)
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
CIFAR_FILES = {
    "train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    "test": ("test_batch.bin",),
}
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
    if part not in MNIST_FILES:
        raise ValueError(f"part must be train or test, got {part!r}")
    place = Path(path)
    if place.is_file() and place.suffix == ".npz":
        return _npz(place)
    if place.is_dir():
        if any(_found(place, name) for name in MNIST_FILES[part]):
            images, labels = (_idx(_required(place, name)) for name in MNIST_FILES[part])
            return _checked(place, images, labels)
        if any((place / name).is_file() for name in CIFAR_FILES[part]):
            records = [_cifar(_required(place, name)) for name in CIFAR_FILES[part]]
            images, labels = (np.concatenate(arrays) for arrays in zip(*records, strict=True))
            return _checked(place, images, labels)
    raise FileNotFoundError(f"no images of the part {part!r} at {place}. {ADVICE}")


def balanced(images: ArrayLike, labels: ArrayLike, per_class: int) -> tuple[Images, Images]:
    """The first `per_class` images of every class, class by class, and all the others: each as
    (images, labels), with the images flattened, and shifted and scaled as a whole so that the
    chosen ones have mean 0 and deviation 1.

    >>> chosen, others = balanced([[1.0], [3.0], [5.0]], [0, 1, 0], per_class=1)
    >>> chosen[0].ravel(), chosen[1], others[0].ravel()
    (array([-1.,  1.]), array([0, 1]), array([3.]))
    """
    count = whole_number("per_class", per_class, least=1)
    pixels, classes = _checked(Path("images"), np.asarray(images), np.asarray(labels))
    places = [np.flatnonzero(classes == label) for label in range(int(classes.max()) + 1)]
    for label, found in enumerate(places):
        if len(found) < count:
            raise ValueError(
                f"per_class must be at most the number of images of each class, "
                f"got {count}, but class {label} has {len(found)}"
            )
    chosen = np.concatenate([found[:count] for found in places])
    others = np.setdiff1d(np.arange(len(classes)), chosen)
    flat = pixels.reshape(len(pixels), -1)
    deviation = flat[chosen].std()
    if deviation == 0:
        raise ValueError("images must not all be the same shade of grey")
    scaled = (flat - flat[chosen].mean()) / deviation
    return (scaled[chosen], classes[chosen]), (scaled[others], classes[others])


def _found(place: Path, name: str) -> Path | None:
    """The file `name` or `name`.gz in the folder, or None."""
    return next((f for f in (place / name, place / f"{name}.gz") if f.is_file()), None)


def _required(place: Path, name: str) -> Path:
    file = _found(place, name)
    if file is None:
        raise FileNotFoundError(f"{place} lacks the file {name}. {ADVICE}")
    return file


def _idx(file: Path) -> NDArray[np.uint8]:
    """An idx file of bytes: 0, 0, 8, the number of axes, their big-endian lengths, the entries."""
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise ValueError(f"{file} must be an idx file of unsigned bytes, it starts differently")
    head = 4 + 4 * data[3]
    lengths = [int.from_bytes(data[i : i + 4], "big") for i in range(4, head, 4)]
    if len(data) != head + int(np.prod(lengths)):
        raise ValueError(
            f"{file} must hold {head + int(np.prod(lengths))} bytes for an array of shape "
            f"{tuple(lengths)}, it has {len(data)}"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(lengths)


def _cifar(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Records of one label and 3·32·32 bytes, colour by colour; colours go to the last axis."""
    data = np.frombuffer(file.read_bytes(), np.uint8)
    size = 1 + int(np.prod(CIFAR_SHAPE))
    if len(data) == 0 or len(data) % size:
        raise ValueError(f"{file} must hold records of {size} bytes, it has {len(data)} bytes")
    records = data.reshape(-1, size)
    return records[:, 1:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1), records[:, 0]


def _npz(file: Path) -> Images:
    with np.load(file) as stored:
        missing = {"images", "labels"} - set(stored.files)
        if missing:
            raise ValueError(
                f"{file} must hold the arrays images and labels, it lacks "
                f"{' and '.join(sorted(missing))}"
            )
        return _checked(file, stored["images"], stored["labels"])


def _checked(place: Path, images: NDArray[np.generic], labels: NDArray[np.generic]) -> Images:
    if images.ndim == 0 or images.dtype.kind not in "iuf":
        raise ValueError(f"{place} must hold real numbers as images, got dtype {images.dtype}")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu" or len(labels) == 0:
        raise ValueError(
            f"{place} must have one whole number as label per image, at least one, got "
            f"{labels.dtype} of shape {labels.shape} for {len(images)} images"
        )
    if labels.min() < 0:
        raise ValueError(f"{place} must have labels from 0, got {labels.min()}")
    return images.astype(np.float64), labels.astype(np.int64)
