"""Listings: all files of a store as one object, shared by all processes.

A listing has 28 to 32 bytes of shared memory a file and no Python object for any of them; the names are in a file
without a name, in the directory for temporary files (``TMPDIR``), a few bytes each. Both are gone when the last process
that has the listing has ended, whichever way. A forked worker has it; a pickled one is opened by its descriptors, so
the process that pickled it must live until it is unpickled.

A listing is one state of the store. While the process that made it keeps it, what it lists is not freed, whatever
others write, remove or compact.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _granulo
from .errors import NotFoundError
from .store import DEFAULT_THREADS, READ_MANY_THREADS, Key, Store

if TYPE_CHECKING:
    import pyarrow


#: Names that are read together; a block on disk has 1,024.
_BLOCK_NAMES = 1 << 14


@dataclass(frozen=True, eq=False)
class Batch:
    """Some files of a listing and their contents.

    ``indices``: their row numbers, ``uint32`` of shape (n,). ``buffer``: the contents one after the other, a writable
    ``bytearray``. ``offsets``: where each begins and the last one ends, ``int64`` of shape (n + 1,), in bytes.
    """

    indices: npt.NDArray[np.uint32]
    buffer: bytearray
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, at: int) -> memoryview:
        """Content of the ``at``-th file, without a copy."""
        if not -len(self) <= at < len(self):
            raise IndexError(f"a batch of {len(self)} files has no file {at}")
        at %= len(self)
        return memoryview(self.buffer)[self.offsets[at] : self.offsets[at + 1]]

    def __iter__(self) -> Iterator[memoryview]:
        return (self[at] for at in range(len(self)))

    def to_arrow(self) -> pyarrow.LargeBinaryArray:
        """The contents as a ``pyarrow.LargeBinaryArray`` over the same memory."""
        import pyarrow as pa

        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.buffer)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


class Listing:
    """All files at and below a key, in key order; made by :meth:`Store.listing`.

    Row numbers (``uint32``) stand for files: ``store.read_many(rows, listing)`` reads them without looking anything up.
    """

    def __init__(self, store: Store, table: _granulo.Table) -> None:
        self.store = store
        self.table = table

    def __len__(self) -> int:
        """Number of files."""
        return len(self.table)

    def __repr__(self) -> str:
        return f"<granulo.Listing of {len(self):,} files of {os.fspath(self.store.path)!r}>"

    def __getitem__(self, row: int) -> str:
        """Key of a row; reads a block of names."""
        row = operator.index(row)
        if not -len(self) <= row < len(self):
            raise IndexError(f"a listing of {len(self)} files has no file {row}")
        return self.table.name(row % len(self))

    def __iter__(self) -> Iterator[str]:
        """All keys, a block of names at a time."""
        for start in range(0, len(self), _BLOCK_NAMES):
            offsets, data, _ = self.table.names_between(start, start + _BLOCK_NAMES)
            for begin, end in itertools.pairwise(np.frombuffer(offsets, dtype="<i8").tolist()):
                yield data[begin:end].decode("utf-8", "surrogateescape")

    def __copy__(self) -> Listing:
        """Itself: it never changes, and a copy would not keep what it lists from being freed."""
        return self

    def __deepcopy__(self, memo: Any) -> Listing:
        """As a copy."""
        return self

    def index(self, key: Key) -> int:
        """Row of a key; ``KeyError`` if it is not listed."""
        row = self.table.find(key)
        if row is None:
            raise NotFoundError(2, "not in this listing", key)
        return row

    def __contains__(self, key: Key) -> bool:
        return self.table.find(key) is not None

    @property
    def sizes(self) -> npt.NDArray[np.uint64]:
        """Sizes in bytes: ``uint64`` of shape (n,). Computed on each access."""
        return np.frombuffer(self.table.sizes(), dtype="<u8")

    @property
    def modes(self) -> npt.NDArray[np.uint16]:
        """Type and permissions as in ``st_mode``: ``uint16`` of shape (n,)."""
        return np.frombuffer(self.table.modes(), dtype="<u2")

    @property
    def segments(self) -> npt.NDArray[np.uint64]:
        """Number of the segment that has the record: ``uint64`` of shape (n,)."""
        return np.frombuffer(self.table.segments(), dtype="<u8")

    @property
    def segment_offsets(self) -> npt.NDArray[np.uint64]:
        """Offset of the record in its segment, in bytes: ``uint64`` of shape (n,)."""
        return np.frombuffer(self.table.segment_offsets(), dtype="<u8")

    @property
    def by_place(self) -> npt.NDArray[np.uint32]:
        """Rows in the order of their places in the segments: ``uint32`` of shape (n,)."""
        return np.frombuffer(self.table.by_place(), dtype="<u4")

    def names_between(self, start: int, stop: int) -> pyarrow.Array:
        """Keys of the rows from ``start`` to ``stop`` as an Arrow array: see :attr:`names`."""
        import pyarrow as pa

        offsets, data, is_text = self.table.names_between(start, stop)
        kind = pa.large_string() if is_text else pa.large_binary()
        return pa.Array.from_buffers(kind, len(offsets) // 8 - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    @property
    def names(self) -> pyarrow.Array:
        """Keys of all rows: ``large_string``, or ``large_binary`` if one is not UTF-8. Read from disk each time."""
        return self.names_between(0, len(self))

    @property
    def memory_bytes(self) -> int:
        """Shared memory that the listing takes, once for all processes, in bytes."""
        return self.table.memory()[0]

    def batches(
        self,
        order: str = "exact",
        batch_files: int = 256,
        *,
        seed: int = 0,
        epoch: int = 0,
        window: int = 0,
        buckets: int | None = None,
        rank: int = 0,
        ranks: int = 1,
        worker: int = 0,
        workers: int = 1,
        first_batch: int = 0,
        drop_last: bool = False,
        memory_bytes: int = 256 << 20,
        threads: int = DEFAULT_THREADS,
        scratch: _granulo.Scratch | None = None,
    ) -> Iterator[Batch]:
        """Batches of the files in an order, read ahead: what :class:`Shuffle` is made of, which is easier to use."""
        reader = _granulo.Reader(
            self.store, self.table, order, seed, epoch, window, buckets, rank, ranks, worker, workers, batch_files,
            drop_last, first_batch, memory_bytes, threads, scratch,
        )
        for indices, buffer, offsets in reader:
            yield Batch(np.frombuffer(indices, dtype="<u4"), buffer, np.frombuffer(offsets, dtype="<i8"))

    def read_many(
        self, rows: Sequence[int] | npt.NDArray[Any], threads: int = READ_MANY_THREADS
    ) -> tuple[bytearray, npt.NDArray[np.int64]]:
        """As :meth:`Store.read_many`, of rows of this listing."""
        return self.store.read_many(rows, self, threads)

    def __reduce__(self) -> tuple[Any, ...]:
        descriptors = self.table.descriptors()
        if get_spawning_popen() is not None:
            # The child of multiprocessing gets the descriptors themselves.
            return _open_inherited, (self.store, *map(reduction.DupFd, descriptors))
        identities = tuple((os.fstat(number).st_dev, os.fstat(number).st_ino) for number in descriptors)
        return _open_of_process, (self.store, os.getpid(), descriptors, identities)


def _open_inherited(store: Store, *duplicates: Any) -> Listing:
    """A listing from descriptors that this process was given."""
    descriptors = [duplicate.detach() for duplicate in duplicates]
    try:
        table = _granulo.Table.from_files(*(f"/proc/self/fd/{number}" for number in descriptors))
    finally:
        for number in descriptors:
            os.close(number)
    return Listing(store, table)


def _open_of_process(
    store: Store, process: int, descriptors: tuple[int, int], identities: tuple[tuple[int, int], ...]
) -> Listing:
    """A listing from the descriptors of the process that pickled it."""
    paths = [f"/proc/{process}/fd/{number}" for number in descriptors]
    found: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            about = os.stat(path)
            found.append((about.st_dev, about.st_ino))
        except OSError:
            found.append(None)
    if tuple(found) != identities:
        raise NotFoundError(2, "the process that pickled the listing has ended, or no longer has it")
    return Listing(store, _granulo.Table.from_files(*paths))
