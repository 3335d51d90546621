"""Data sets for torch, which is imported here and nowhere else in the package, and is not a dependency of it.

Both pickle, and may be used by any number of forked or spawned workers: a store is opened again in each process, and
the listing is one for all of them. Contents are ``uint8`` tensors over the memory they were read into.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from .listing import Batch, Listing
from .shuffle import Shuffle
from .store import DEFAULT_THREADS


def _tensor(content: Any) -> torch.Tensor:
    """A ``uint8`` tensor over a writable buffer."""
    return torch.frombuffer(content, dtype=torch.uint8) if len(content) else torch.empty(0, dtype=torch.uint8)


def to_tensors(batch: Batch) -> dict[str, torch.Tensor]:
    """A batch as tensors: ``indices`` (n,) and ``offsets`` (n + 1,; bytes) of ``int64``, ``content`` of ``uint8``."""
    return {
        "indices": torch.tensor(batch.indices.tolist(), dtype=torch.int64),
        "content": _tensor(batch.buffer),
        "offsets": torch.tensor(batch.offsets.tolist(), dtype=torch.int64),
    }


class FileDataset(Dataset):
    """The files of a listing by row number (map style).

    An item is ``transform(row, content)``; without a transform, the content as a ``uint8`` tensor of shape (size in
    bytes,). Whole batches (``__getitems__``, since torch 2.0) are one call of ``read_many``.
    """

    def __init__(
        self,
        listing: Listing,
        transform: Callable[[int, torch.Tensor], Any] | None = None,
        threads: int = DEFAULT_THREADS,
    ) -> None:
        self.listing = listing
        self.transform = transform
        self.threads = threads

    def __len__(self) -> int:
        return len(self.listing)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, list):
            # A batch sampler as the sampler of a loader that makes no batches.
            return self.__getitems__(row)
        row = operator.index(row)
        if not -len(self) <= row < len(self):
            raise IndexError(f"a data set of {len(self)} files has no file {row}")
        return self.__getitems__([row % len(self)])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        rows = [int(row) for row in rows]
        buffer, offsets = self.listing.read_many(rows, self.threads)
        whole = memoryview(buffer)
        contents = [_tensor(whole[start:stop]) for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]
        if self.transform is None:
            return contents
        return [self.transform(row, content) for row, content in zip(rows, contents, strict=True)]


class ShuffledDataset(IterableDataset):
    """The batches of a :class:`granulo.Shuffle` (iterable style); use it with ``DataLoader(..., batch_size=None)``.

    An item is ``transform(batch)``; without a transform, the dictionary of :func:`to_tensors`. The order of the batches
    is the same for any number of workers. Call :meth:`set_epoch` before each epoch; workers that persist learn of it.
    """

    def __init__(self, shuffle: Shuffle, transform: Callable[[Batch], Any] | None = None) -> None:
        self.shuffle = shuffle
        self.transform = transform
        #: Epoch and next batch, in memory that all workers share.
        self._position = torch.tensor([shuffle.epoch, shuffle.batch], dtype=torch.int64).share_memory_()
        shuffle._jumped = self._share

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A copy has memory of its own. That of a worker is shared already.
        self._position.share_memory_()
        self.shuffle._jumped = self._share

    def __len__(self) -> int:
        """Number of batches of this rank in an epoch."""
        return len(self.shuffle)

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of an epoch, unless it is in it already."""
        if epoch != int(self._position[0]):
            # Not by the shuffle, which may tell another data set.
            self.shuffle.epoch, self.shuffle.batch = epoch, 0
            self._share()

    def _share(self) -> None:
        self._position[0], self._position[1] = self.shuffle.epoch, self.shuffle.batch

    def state_dict(self, batches_done: int | None = None) -> dict[str, Any] | None:
        """The state after ``batches_done`` batches of this epoch have arrived here: see :meth:`Shuffle.state_dict`.

        Without a number, after those that were read in this process, so where there are no workers; ``None`` in a
        worker, which knows only its own.
        """
        if batches_done is not None:
            # The shuffle may be in another epoch: read by itself meanwhile, or by another data set.
            return self.shuffle.state_dict(batches_done, int(self._position[0]))
        return None if get_worker_info() is not None else self.shuffle.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where a state was."""
        self.shuffle._jumped = self._share
        self.shuffle.load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:
        about = get_worker_info()
        worker, workers = (0, 1) if about is None else (about.id, about.num_workers)
        shuffle = self.shuffle
        shuffle.epoch, shuffle.batch = (int(number) for number in self._position)
        transform = self.transform or to_tensors
        # A loader asks its workers in turn, beginning with the first: the first batch is that one's.
        first = shuffle.batch % workers
        for batch in shuffle.batches((worker + first) % workers, workers):
            if about is None:
                shuffle.batch += 1
            yield transform(batch)


def samples(batch: Batch) -> list[npt.NDArray[np.uint8]]:
    """The contents of a batch as ``uint8`` arrays over its memory."""
    whole = np.frombuffer(batch.buffer, dtype=np.uint8)
    return [whole[start:stop] for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]
