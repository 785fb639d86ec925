"""The image loader, on tiny files in the formats of MNIST and CIFAR-10 that the tests write."""

import gzip

import numpy as np
import pytest
from sklearn.datasets import load_digits

from exacthessian.studies.images import CIFAR, MNIST, balanced, load_images

RNG = np.random.default_rng(0)


def write_idx(file, array, zipped=False):
    lengths = b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    data = bytes([0, 0, 8, array.ndim]) + lengths + array.astype(np.uint8).tobytes()
    if zipped:
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(data))
    else:
        file.write_bytes(data)


def write_mnist(folder, part, count, zipped):
    images, labels = RNG.integers(0, 256, (count, 28, 28)), RNG.integers(0, 10, count)
    write_idx(folder / f"{MNIST[part]}-images-idx3-ubyte", images, zipped)
    write_idx(folder / f"{MNIST[part]}-labels-idx1-ubyte", labels, zipped)
    return images, labels


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("part", ["train", "test"])
def test_mnist(tmp_path, part, zipped):
    images, labels = write_mnist(tmp_path, part, 7, zipped)
    found = load_images(tmp_path, part)
    assert np.array_equal(found[0], images)
    assert np.array_equal(found[1], labels)
    assert found[0].dtype == np.float64
    assert found[1].dtype == np.int64


@pytest.mark.parametrize("part", ["train", "test"])
def test_cifar(tmp_path, part):
    """A pixel's red, green and blue are 1024 bytes apart in the file and adjacent in the array."""
    expected = []
    for name in CIFAR[part]:
        records = RNG.integers(0, 256, (2, 3073), dtype=np.uint8)
        records[:, 0] = RNG.integers(0, 10, 2)
        (tmp_path / name).write_bytes(records.tobytes())
        expected.append(records)
    records = np.concatenate(expected)
    images, labels = load_images(str(tmp_path), part)
    assert images.shape == (len(records), 32, 32, 3)
    assert np.array_equal(labels, records[:, 0])
    for row, column, colour in [(0, 0, 0), (0, 1, 0), (1, 0, 2), (31, 5, 1)]:
        place = 1 + 1024 * colour + 32 * row + column
        assert np.array_equal(images[:, row, column, colour], records[:, place])


def test_npz(tmp_path):
    digits = load_digits()
    np.savez(tmp_path / "digits.npz", images=digits.images, labels=digits.target)
    images, labels = load_images(tmp_path / "digits.npz")
    assert np.array_equal(images, digits.images)
    assert np.array_equal(labels, digits.target)


def test_nothing_there_says_how_to_get_it(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "absent.npz"):
        with pytest.raises(FileNotFoundError, match=r"MNIST database.*cifar-10-binary"):
            load_images(place)


def test_a_missing_file_is_asked_for(tmp_path):
    write_mnist(tmp_path, "train", 3, zipped=False)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="the four files"):
        load_images(tmp_path)
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073))
    with pytest.raises(FileNotFoundError, match="no images of the part 'train'"):
        load_images(tmp_path)


def test_spoiled_files_are_refused(tmp_path):
    write_mnist(tmp_path, "test", 3, zipped=False)
    file = tmp_path / "t10k-images-idx3-ubyte"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="reshape"):
        load_images(tmp_path, "test")
    file.write_bytes(b"\x1f\x8b\x08\x03" + whole[4:])
    with pytest.raises(ValueError, match="must be an idx file"):
        load_images(tmp_path, "test")
    own = tmp_path / "own.npz"
    for labels in (np.array([0.0, 1.0]), np.array([0, 1, 2])):
        np.savez(own, images=np.zeros((2, 2)), labels=labels)
        with pytest.raises(ValueError, match=r"one whole number as label per image.* for 2"):
            load_images(own)
    with pytest.raises(ValueError, match="part must be train or test, got 'dev'"):
        load_images(own, "dev")


def test_balanced():
    digits = load_digits()
    (x, y), (rest, answers) = balanced(digits.images, digits.target, per_class=5)
    assert np.array_equal(y, np.repeat(np.arange(10), 5))
    assert x.shape == (50, 64)
    assert abs(x.mean()) < 1e-12
    assert abs(x.std() - 1) < 1e-12
    assert len(rest) == len(answers) == len(digits.target) - 50
    first = digits.images[digits.target == 3][0].ravel()
    assert np.allclose(np.corrcoef(x[15], first)[0, 1], 1)
    scale = np.ptp(x[15]) / np.ptp(first)
    assert np.allclose(rest - rest[0], scale * (_others(digits) - _others(digits)[0]))
    with pytest.raises(ValueError, match="from 1 to 1, the smallest class, got 2"):
        balanced([[0.0], [1.0], [2.0]], [0, 1, 0], per_class=2)
    with pytest.raises(ValueError, match="per_class must be from 1 to 1"):
        balanced([[1.0], [1.0]], [0, 1], per_class=0)


def _others(digits):
    seen = np.zeros(10, dtype=int)
    rows = []
    for image, label in zip(digits.images, digits.target, strict=True):
        seen[label] += 1
        if seen[label] > 5:
            rows.append(image.ravel())
    return np.array(rows)
