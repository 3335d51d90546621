"""The store: a mapping from keys (paths) to contents (bytes).

Keys are ``str`` or ``bytes``. A ``str`` stands for its UTF-8 bytes; bytes that are not UTF-8 are surrogates in it
(``surrogateescape``), as in file names everywhere in Python, so any byte but NUL survives, and ``/`` separates
components.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from . import _granulo
from .errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from .listing import Batch, Listing

Key = Union[str, bytes, "os.PathLike[str]"]

#: Threads of a call that reads many files, if it is not told.
DEFAULT_THREADS = 8
#: Threads of :meth:`Store.read_many`, which nobody else reads beside: what it asks a device for at once.
READ_MANY_THREADS = 16


def _bytes_of(content: Any) -> bytes:
    """Content as ``bytes``: of anything with the buffer protocol, but not of ``str``."""
    if isinstance(content, bytes):
        return content
    return memoryview(content).tobytes()


def _leave_locks() -> None:
    """In a forked child: the locks of stores that its parent writes are the parent's alone, and end with it."""
    for descriptor in _granulo.inherited_locks():
        os.close(descriptor)


os.register_at_fork(after_in_child=_leave_locks)


def _rows_of(rows: Any, count: int) -> npt.NDArray[np.uint32]:
    """Row numbers of a listing of ``count`` files. A mask is no list of them, and a fraction is none."""
    numbers = np.asarray(rows)
    if numbers.size == 0:
        return np.zeros(0, dtype="<u4")
    if numbers.dtype.kind not in "iu":
        raise UsageError(errno.EINVAL, f"row numbers are integers, not {numbers.dtype}; for a mask: numpy.flatnonzero")
    for row in (numbers.min(), numbers.max()):
        if not 0 <= row < count:
            raise UsageError(errno.EINVAL, f"there is no file {row}")
    return numbers.astype("<u4")


class Store(_granulo.Store):
    """An open store.

    ``Store(path)`` opens it for reading; any number of processes may, beside one that writes. Modes: ``"r"`` (read),
    ``"r+"`` (read and write what exists), ``"a"`` (the same, created if missing), ``"x"`` (created, must not exist).

    ``cutoff_bytes``, ``fast`` and ``slow`` describe a store that is created: the size up to which a file is small, and
    directories on flash and on disks (see ``granulo store init --help``). By default it is one directory.

    A store can be pickled, and used after a fork: the other process opens it again, for reading.

    >>> store = Store("pictures", "a")                                                        # doctest: +SKIP
    >>> store["cats/1.jpg"] = b"..."                                                          # doctest: +SKIP
    >>> store["cats/1.jpg"]                                                                   # doctest: +SKIP
    b'...'
    """

    # The constructor of the extension has the arguments; a subclass of it needs none of its own.

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"granulo.Store({os.fspath(self.path)!r}{', writable' if self.writable else ''})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        self.close()

    def __getitem__(self, key: Key) -> bytes:
        """The content of a file (of a symbolic link, its target), verified. Up to 1 GiB; see ``read_range``.

        Raises :class:`NotFoundError` (a ``KeyError``) if there is none, :class:`DirectoryError` for a directory,
        :class:`UsageError` for a device, fifo or socket.
        """
        content = self.read(key)
        if content is None:
            raise NotFoundError(2, "no such key", key)
        return content

    def get(self, key: Key, default: Any = None) -> Any:
        """The content of a file, or ``default``."""
        content = self.read(key)
        return default if content is None else content

    def __len__(self) -> int:
        """Number of files (names of them). It walks the index, and takes time in proportion."""
        return self.count("")

    def __bool__(self) -> bool:
        """True: an open store is something, even without files."""
        return True

    def __iter__(self) -> Iterator[str]:
        """Keys of all files, in key order."""
        return self.keys()

    def keys(self, below: Key = "") -> Iterator[str]:
        """Keys of all files at and below a key, in key order. For millions of them, see :meth:`listing`."""
        return (key for key, stat in self.entries(below) if stat.kind == "file")

    def walk(self, below: Key = "", recursive: bool = True) -> Iterator[tuple[str, _granulo.Stat]]:
        """``(key, stat)`` of all objects at and below a key, or in one directory, in key order and of one state."""
        return self.entries(below, recursive)

    def read_many(
        self,
        keys: Sequence[Any] | npt.NDArray[Any],
        listing: Listing | None = None,
        threads: int = READ_MANY_THREADS,
    ) -> tuple[bytearray, npt.NDArray[np.int64]]:
        """The contents of many files in one buffer, with their offsets.

        ``keys`` are keys, or row numbers of ``listing``, which need no look-up. Returns ``(buffer, offsets)``: content
        *i* is ``buffer[offsets[i]:offsets[i + 1]]``; ``offsets`` has ``len(keys) + 1`` entries of ``int64``, in bytes.
        The buffer is writable and used by nobody else: ``np.frombuffer(buffer, np.uint8)``,
        ``pyarrow.py_buffer(buffer)`` and ``torch.frombuffer(buffer, dtype=torch.uint8)`` take it without a copy.

        Records are read in disk order by up to ``threads`` threads (more than one or two only if a device is waited
        for), neighbours together, without the interpreter.
        """
        if listing is not None:
            buffer, offsets = self.read_rows(listing.table, _rows_of(keys, len(listing)).tobytes(), threads)
        else:
            if isinstance(keys, (str, bytes)):
                raise TypeError("keys are a sequence of keys, not one key")
            # Arrow's values are not those of Python.
            names = keys.to_pylist() if hasattr(keys, "to_pylist") else list(keys)
            buffer, offsets = self.read_keys(names, threads)
        return buffer, np.frombuffer(offsets, dtype="<i8")

    def put(self, key: Key, content: Any, mode: int = 0o644, mtime_ns: int | None = None) -> None:
        """Stores a file; durable on return. Directories above it are created. For many, use :meth:`batch`.

        ``mode`` are its permissions, ``mtime_ns`` its modification time in nanoseconds since 1970 (default: now).
        """
        super().put(key, _bytes_of(content), mode, mtime_ns)

    def __setitem__(self, key: Key, content: Any) -> None:
        self.put(key, content)

    def remove(self, key: Key) -> None:
        """Removes a file, a link or an empty directory; durable on return. Raises ``KeyError`` if there is none."""
        if not self.remove_object(key, False):
            raise NotFoundError(2, "no such key", key)

    def __delitem__(self, key: Key) -> None:
        self.remove(key)

    def remove_tree(self, key: Key) -> bool:
        """Removes an object and all below it; returns whether it existed."""
        return self.remove_object(key, True)

    def batch(self) -> WriteBatch:
        """Changes that are committed together, at the end of a ``with`` block; an exception in it discards the rest.

        Up to 8 MiB are atomic: contents, keys, and half a KiB for each change. A larger batch is committed in pieces of
        at most that size.
        """
        return WriteBatch(self.open_batch())

    def listing(self, below: Key = "", at: str | None = None) -> Listing:
        """All files at and below a key as one object: see :class:`Listing`. ``at`` names a snapshot."""
        from .listing import Listing

        return Listing(self, self.table(below, at))

    def load(
        self, below: Key = "", batch_files: int = 256, memory_bytes: int = 256 << 20, threads: int = DEFAULT_THREADS
    ) -> Iterator[Batch]:
        """All files at and below a key in disk order, in batches that are read ahead."""
        return self.listing(below).batches("disk", batch_files, memory_bytes=memory_bytes, threads=threads)


class WriteBatch:
    """Changes that are committed together; see :meth:`Store.batch`."""

    def __init__(self, batch: _granulo.Batch) -> None:
        self._batch = batch

    def put(self, key: Key, content: Any, mode: int = 0o644, mtime_ns: int | None = None) -> None:
        """Stores a file with the batch."""
        self._batch.put(key, _bytes_of(content), mode, mtime_ns)

    __setitem__ = put

    def remove(self, key: Key) -> None:
        """Removes a file, a link or an empty directory with the batch; nothing happens if there is none."""
        self._batch.remove(key)

    __delitem__ = remove

    def commit(self) -> None:
        """Makes what was given durable; the batch goes on until the end of the block."""
        self._batch.commit()

    def __enter__(self) -> WriteBatch:
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._batch.commit()
        finally:
            self._batch.end()

