#!/usr/bin/env python3
"""Image classification on generated images, once from files by open() and once from a store by the exact shuffle.

`images.py [--images N] [--epochs N]`; needs the package `granulo` (`pip install ./crates/python`). The classifier is a
linear one in numpy. If torch is installed, its DataLoader reads the store with two workers; it says which.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import granulo
import numpy as np

try:
    from granulo.torch import ShuffledDataset
    from torch.utils.data import DataLoader
except ImportError:
    DataLoader = None

CLASSES, PIXELS, BATCH_FILES = 4, 32 * 32 * 3, 64


def image(number):
    """Class and bytes of an image: a pattern of its class, under noise."""
    kind = number % CLASSES
    pattern = np.random.default_rng(kind).normal(0, 12, PIXELS)
    noise = np.random.default_rng(1000 + number).normal(128, 40, PIXELS)
    return kind, np.clip(pattern + noise, 0, 255).astype(np.uint8).tobytes()


def write(place, images):
    """The same images as files and in a store, a directory for each class."""
    with granulo.Store(place / "store", "x") as store, store.batch() as batch:
        for number in range(images):
            kind, content = image(number)
            key = f"{kind}/{number:06d}.rgb"
            (place / "files" / str(kind)).mkdir(parents=True, exist_ok=True)
            (place / "files" / key).write_bytes(content)
            batch[key] = content


def scaled(pixels):
    """Bytes of images as rows of numbers around 0."""
    return (np.frombuffer(pixels, np.uint8).reshape(-1, PIXELS).astype(np.float32) - 128) / 64


def decode(labels, batch):
    """Pixels and classes of a batch of a listing."""
    return scaled(batch.buffer), labels[batch.indices]


def from_files(place):
    """A function of the epoch: batches of the files in a random order."""
    keys = sorted(str(path) for path in (place / "files").rglob("*.rgb"))
    labels = np.array([int(key.split("/")[-2]) for key in keys])

    def epoch(number):
        order = np.random.default_rng(number).permutation(len(keys))
        for rows in np.split(order, range(BATCH_FILES, len(order), BATCH_FILES)):
            yield scaled(b"".join(Path(keys[row]).read_bytes() for row in rows)), labels[rows]

    return epoch


def from_store(place):
    """The same of the store, in a uniformly random order and read ahead; with torch, by two workers."""
    store = granulo.Store(place / "store")
    labels = np.array([int(key.split("/")[0]) for key in store.keys()])
    shuffle = granulo.Shuffle(store.listing(), BATCH_FILES, seed=1)
    if DataLoader is not None:
        loader = DataLoader(ShuffledDataset(shuffle, partial(decode, labels)), None, num_workers=2, collate_fn=tuple)

    def epoch(number):
        if DataLoader is None:
            shuffle.set_epoch(number)
            return map(partial(decode, labels), shuffle)
        loader.dataset.set_epoch(number)
        return iter(loader)

    return epoch


def classifier():
    """A linear one: a function that learns from a batch, and one that returns the classes of images."""
    weights = np.zeros((PIXELS, CLASSES), np.float32)

    def learn(pixels, labels):
        scores = np.exp(pixels @ weights - (pixels @ weights).max(axis=1, keepdims=True))
        gradient = scores / scores.sum(axis=1, keepdims=True) - np.eye(CLASSES, dtype=np.float32)[labels]
        weights[:] -= 0.01 * pixels.T @ gradient / len(labels)

    return learn, lambda pixels: (pixels @ weights).argmax(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    print("store: no workers, as torch is not installed" if DataLoader is None else "store: two workers of torch")
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), options.images)
        for name, epochs in (("files", from_files(Path(place))), ("store", from_store(Path(place)))):
            learn, classes = classifier()
            start = time.perf_counter()
            for epoch in range(options.epochs):
                right = 0
                for pixels, labels in epochs(epoch):
                    right += (classes(pixels) == np.asarray(labels)).sum()
                    learn(pixels, labels)
            seconds = (time.perf_counter() - start) / options.epochs
            print(f"{name}: {seconds:.2f} s an epoch; {right / options.images:.1%} right in the last one")


if __name__ == "__main__":
    main()
