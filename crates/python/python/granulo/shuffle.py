"""The exact shuffle: every epoch a uniformly random permutation of the whole data set, read in bounded memory.

The permutation is drawn first, by a function of seed and epoch, so it is exactly uniform and the same for any memory,
number of workers and ranks. Then the order is cut into **runs** that fit in half of the memory; a run is read in disk
order, neighbours together, and handed out in the order that was drawn, while the next one is read. With memory for a
quarter of the data, an epoch is eight ascending passes that read an eighth of the records each, and every record once.

Where reads with gaps are slow (disks), ``scratch`` names a directory on a fast device: one pass without gaps spreads
the contents over files there, one for each run, and a second one reads them. The order is the same.

``order="window"`` is the cheaper choice of stream loaders: disk order through a buffer of ``window`` files. It is not
uniform; :func:`distance_from_uniform` measures how far from it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _granulo
from .errors import UsageError
from .listing import Batch, Listing
from .store import DEFAULT_THREADS

#: What a state depends on, besides the files: a state of another data set or order is refused.
_FIXED = ("seed", "order", "window", "batch_files", "files", "ranks", "drop_last")


class Shuffle:
    """Batches of a listing, in a new order each epoch.

    Iterating yields the batches of one epoch, from where it is, and then moves to the next epoch.

    ``memory_bytes`` bounds the contents that a process has in memory (two runs; at least one batch each). ``ranks``
    processes that train together each get every ``ranks``-th file of the order; with ``drop_last`` all get as many full
    batches. ``seed`` and epoch determine the order, together with the number of files.
    """

    def __init__(
        self,
        listing: Listing,
        batch_files: int = 256,
        *,
        seed: int = 0,
        order: str = "exact",
        window: int = 0,
        rank: int = 0,
        ranks: int = 1,
        drop_last: bool = False,
        memory_bytes: int = 1 << 30,
        threads: int = DEFAULT_THREADS,
        scratch: str | os.PathLike[str] | None = None,
    ) -> None:
        if batch_files < 1 or not 0 <= rank < ranks:
            raise UsageError(22, "a batch has at least one file, and a rank is below the number of ranks")
        if order not in ("exact", "window", "disk") or (order == "window") != (window > 0):
            raise UsageError(22, "the order is 'exact', 'disk', or 'window' with a window of files")
        if scratch is not None and order != "exact":
            raise UsageError(22, "scratch space is for the exact order: the others read in disk order anyway")
        self.listing = listing
        self.batch_files = batch_files
        self.seed = seed
        self.order = order
        self.window = window
        self.rank = rank
        self.ranks = ranks
        self.drop_last = drop_last
        self.memory_bytes = memory_bytes
        self.threads = threads
        self.scratch = None if scratch is None else os.path.abspath(scratch)
        self.epoch = 0
        self.batch = 0
        self._spread: tuple[int, str] | None = None
        # Told of jumps: a data set of torch shares the position with its workers.
        self._jumped: Callable[[], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_jumped": None}

    @property
    def files(self) -> int:
        """Number of files of the data set."""
        return len(self.listing)

    def __len__(self) -> int:
        """Number of batches of this rank in an epoch."""
        if self.drop_last:
            return self.files // (self.ranks * self.batch_files)
        of_rank = (self.files + self.ranks - 1 - self.rank) // self.ranks
        return -(-of_rank // self.batch_files)

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of an epoch, unless it is in it already."""
        if epoch != self.epoch:
            self._jump(epoch, 0)

    def _jump(self, epoch: int, batch: int) -> None:
        self.epoch, self.batch = epoch, batch
        if self._jumped is not None:
            self._jumped()

    def rows(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.uint32]:
        """Rows of the listing in the order of this epoch, ``uint32``: all ranks together. Nothing is read."""
        positions = _granulo.order_of(
            self.order, self.files, self.seed, self.epoch, self.window, None, start, stop
        )
        rows = np.frombuffer(positions, dtype="<u4")
        return rows if self.order == "exact" else self.listing.by_place[rows]

    def batches(self, worker: int = 0, workers: int = 1) -> Iterator[Batch]:
        """The batches of this epoch that are one worker's, from where the epoch is: every ``workers``-th one."""
        with ExitStack() as stack:
            scratch = None
            if self.scratch is not None:
                if self._spread is None or self._spread[0] != self.epoch:
                    if workers > 1:
                        raise UsageError(22, "call spread() before workers start: they share what it writes")
                    stack.enter_context(self.spread())
                assert self._spread is not None
                scratch = self._places(self._spread[1], fill=False)
            yield from self.listing.batches(
                self.order, self.batch_files, seed=self.seed, epoch=self.epoch, window=self.window, rank=self.rank,
                ranks=self.ranks, worker=worker, workers=workers, first_batch=self.batch, drop_last=self.drop_last,
                memory_bytes=self.memory_bytes, threads=self.threads, scratch=scratch,
            )

    def __iter__(self) -> Iterator[Batch]:
        if self.batch >= len(self) > 0:
            # The last batch was handed out, and nobody asked for another one.
            self.epoch, self.batch = self.epoch + 1, 0
        epoch = self.epoch
        for batch in self.batches():
            self.batch += 1
            yield batch
        self.epoch, self.batch = epoch + 1, 0

    def _places(self, directory: str, fill: bool) -> _granulo.Scratch:
        listing = self.listing
        return _granulo.Scratch(
            listing.store, listing.table, self.seed, self.epoch, directory, self.memory_bytes, self.threads, fill
        )

    @contextmanager
    def spread(self) -> Iterator[None]:
        """The first pass of this epoch: writes the contents to scratch space, once for all workers that start inside.

        Needs as much scratch space as the data set has bytes, and 8 bytes a file; it is free again at the end of the
        block.
        """
        if self.scratch is None:
            raise UsageError(22, "no scratch directory was named")
        owner, directory = os.getpid(), tempfile.mkdtemp(prefix="granulo-", dir=self.scratch)
        try:
            self._places(directory, fill=True)
            self._spread = (self.epoch, directory)
            yield
        finally:
            self._spread = None
            # A forked child that leaves the block does not end that of its parent.
            if os.getpid() == owner:
                shutil.rmtree(directory, ignore_errors=True)

    def _order_checksum(self) -> str:
        """Of what the order is one of: the files by name and, unless it is exact, their order on disk."""
        names, places = self.listing.table.checksums()
        return f"{names:016x}" if self.order == "exact" else f"{names:016x}{places:016x}"

    def state_dict(self, batches_done: int | None = None, epoch: int | None = None) -> dict[str, Any]:
        """Where it is, as plain data: which batch of which epoch is next.

        With workers, the batches are counted where they arrive: ``batches_done`` of ``epoch`` (default: this one) since
        its beginning.
        """
        batch = self.batch if batches_done is None else batches_done
        epoch = self.epoch if epoch is None else epoch
        if batch >= len(self):
            epoch, batch = epoch + 1, 0
        fixed = {name: getattr(self, name) for name in _FIXED}
        return {
            "granulo_shuffle": 1, "epoch": epoch, "batch": batch, "order_checksum": self._order_checksum(), **fixed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where a state was: what follows is identical to what would have followed there."""
        if state.get("granulo_shuffle") != 1:
            raise UsageError(22, "it is not the state of a shuffle, or that of a newer granulo")
        for name in _FIXED:
            if state[name] != getattr(self, name):
                raise UsageError(22, f"the state has {name}={state[name]!r}, this shuffle {getattr(self, name)!r}")
        if state.get("order_checksum") != self._order_checksum():
            moved = "" if self.order == "exact" else ", or their order on disk has changed, as compaction changes it"
            raise UsageError(22, f"the state is of other files than this listing has{moved}: begin the epoch again")
        self._jump(state["epoch"], state["batch"])


def distance_from_uniform(ranks: npt.NDArray[Any]) -> float:
    """How far an order of files is from a uniformly random one; 0 to 1.

    ``ranks``: for each position, the rank of its file in disk order. The figure is the Kolmogorov-Smirnov distance
    between the distances that files moved, as shares of the whole, and those of a random permutation, of which a share
    of ``2x - x²`` moves by no more than *x*. A random permutation of n files has about ``1 / sqrt(n)``, disk order 1.
    """
    count = len(ranks)
    moved = np.sort(np.abs(np.asarray(ranks, dtype=np.int64) - np.arange(count))) / count
    expected = 2 * moved - moved**2
    steps = np.arange(count + 1) / count
    return float(max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])))
