"""Exceptions of the package. Each is also the usual one of Python, and an ``OSError`` with the ``errno`` that fits.

``except KeyError`` and ``except FileNotFoundError`` both catch what is missing; ``except granulo.StoreError`` catches
all.
"""

from __future__ import annotations

__all__ = [
    "AccessError",
    "BusyError",
    "CorruptError",
    "DirectoryError",
    "ExistsError",
    "InterruptedWorkError",
    "LostError",
    "NewerVersionError",
    "NoSpaceError",
    "NotFoundError",
    "NotRecognisedError",
    "ReadOnlyError",
    "StoreError",
    "UsageError",
]


class StoreError(OSError):
    """Base of all exceptions of granulo: ``errno``, ``strerror`` (prose) and, for a key, ``filename``."""

    def __str__(self) -> str:
        if self.strerror is None:
            # Made of a message alone, as torch does with those of its workers.
            return super().__str__()
        if self.filename is not None:
            return f"{self.strerror}: {self.filename!r}"
        return str(self.strerror)


class NotFoundError(StoreError, FileNotFoundError, KeyError):
    """A key, a store or a snapshot that does not exist."""


class UsageError(StoreError, ValueError):
    """A request that cannot be: a key with ``..``, an unknown model."""


class NotRecognisedError(StoreError, ValueError):
    """A file in a format that granulo does not read."""


class NewerVersionError(StoreError):
    """What a newer granulo wrote."""


class AccessError(StoreError, PermissionError):
    """The operating system refused access."""


class CorruptError(StoreError):
    """Bytes that contradict their checksums, on every copy."""


class LostError(StoreError):
    """Loss that redundancy cannot repair."""


class NoSpaceError(StoreError):
    """A device is full."""


class BusyError(StoreError, BlockingIOError):
    """Another process writes: a store has one writer."""


class ReadOnlyError(StoreError):
    """The store was opened for reading, or has become read-only after a failed write."""


class ExistsError(StoreError, FileExistsError):
    """It exists already."""


class DirectoryError(StoreError, IsADirectoryError):
    """A directory, where a file is needed."""


class InterruptedWorkError(StoreError):
    """Work that was asked to stop."""
