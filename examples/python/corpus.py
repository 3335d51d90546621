#!/usr/bin/env python3
"""A language corpus of many small texts: packed, read in a new order each epoch, and resumed in the middle of one.

`corpus.py [TREE] [--texts N]`; needs the package `granulo` (`pip install ./crates/python`). TREE has the texts as
`*.txt`, `*.md`, `*.rs` or `*.py`; without it they are generated. It counts which byte follows which with numpy, and
reports the bits that a byte of the held out texts takes under that model; torch is not needed.
"""

import argparse
import json
import os
import random
import tempfile
from pathlib import Path

import granulo
import numpy as np

BATCH_FILES, HELD_OUT = 8, 10
SUBJECTS, VERBS = ["a store", "one record", "the index", "every batch"], ["holds", "follows", "moves", "ends"]


def generated(number):
    """A text of some sentences."""
    chance = random.Random(number)
    parts = (SUBJECTS, VERBS, SUBJECTS)
    sentences = (" ".join(map(chance.choice, parts)) for _ in range(chance.randint(1, 40)))
    return ". ".join(sentences).encode()


def texts(tree, count):
    """Keys and contents."""
    if tree is None:
        yield from ((f"texts/{number:06d}.txt", generated(number)) for number in range(count))
        return
    for root, directories, names in os.walk(tree):
        directories.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.suffix in (".txt", ".md", ".rs", ".py") and path.is_file():
                yield os.fspath(path.relative_to(tree)), path.read_bytes()


class Bigrams:
    """Which byte follows which, counted."""

    def __init__(self):
        self.counts = np.ones((256, 256))

    def pairs(self, batch):
        """Neighbouring bytes of each text of a batch, not across texts."""
        content = np.frombuffer(batch.buffer, np.uint8)
        ends = batch.offsets[1:]
        inside = np.ones(len(content), bool)
        inside[ends[(ends > 0) & (ends <= len(content))] - 1] = False
        first = np.flatnonzero(inside)
        return content[first], content[first + 1]

    def learn(self, batch):
        np.add.at(self.counts, self.pairs(batch), 1)

    def bits(self, batch):
        """Bits that the pairs take, and their number."""
        before, after = self.pairs(batch)
        shares = self.counts / self.counts.sum(axis=1, keepdims=True)
        return -np.log2(shares[before, after]).sum(), len(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", nargs="?", type=Path, metavar="TREE")
    parser.add_argument("--texts", type=int, default=5000, help="number of generated texts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "corpus")
        with granulo.Store(path, "x") as store, store.batch() as batch:
            for number, (key, content) in enumerate(texts(options.tree, options.texts)):
                batch[("held-out/" if number % HELD_OUT == 0 else "train/") + key] = content
        store = granulo.Store(path)
        shuffle = granulo.Shuffle(store.listing("train"), BATCH_FILES, seed=7, memory_bytes=64 << 20)
        print(f"{len(store):,} texts, {len(shuffle):,} batches an epoch")
        if len(shuffle) < 2:
            parser.error("there are too few texts for an epoch to be interrupted")

        model, seen = Bigrams(), []
        for batch in shuffle:
            model.learn(batch)
            seen.append(batch.indices.tolist())
            if len(seen) == len(shuffle) // 2:
                break
        # What a checkpoint keeps beside the weights: plain data.
        saved = json.dumps(shuffle.state_dict())

        resumed = granulo.Shuffle(store.listing("train"), BATCH_FILES, seed=7, memory_bytes=1 << 20)
        resumed.load_state_dict(json.loads(saved))
        for batch in resumed.batches():
            model.learn(batch)
            seen.append(batch.indices.tolist())
        rows = [row for batch in seen for row in batch]
        assert sorted(rows) == list(range(shuffle.files)), "each text exactly once, in spite of the interruption"
        print(f"resumed at batch {json.loads(saved)['batch']}: each of {shuffle.files:,} texts was read once")

        results = [model.bits(batch) for batch in store.load("held-out", BATCH_FILES)]
        bits, pairs = map(sum, zip(*results))
        print(f"held out texts: {bits / max(pairs, 1):.2f} bits a byte")


if __name__ == "__main__":
    main()
