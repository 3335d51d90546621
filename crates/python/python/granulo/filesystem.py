"""The store as an fsspec file system, ``granulo://``: for pandas, pyarrow, zarr, Dask and all that use fsspec.

A path is a key, and the store is an option: ``fsspec.filesystem("granulo", store="/data/pictures")``. In one URL both
are separated by the first ``!/``: ``granulo:///data/pictures!/cats/1.jpg``. ``mode`` is that of :class:`granulo.Store`
(default ``"r"``).

A file is written when it is closed, whole; until then it is in memory. Directories are those of the store.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import io
import os
import threading
import weakref
from collections.abc import Iterable
from glob import has_magic
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem, _Cached, make_instance

from . import _granulo
from .errors import BusyError, DirectoryError, ExistsError, NotFoundError, StoreError, UsageError
from .store import DEFAULT_THREADS, Store

#: How a URL begins.
SCHEME = "granulo://"
#: Between the path of the store and the key, in a URL.
SEPARATOR = "!/"


def _parts_of(path: str) -> tuple[str | None, str]:
    """The path of the store, if a URL names one, and the key. What is no URL is a key, whatever is in it."""
    if not path.startswith(SCHEME):
        return None, path
    store, separator, key = path.removeprefix(SCHEME).partition(SEPARATOR)
    return (store, key) if separator else (None, store)


#: Stores that file systems of this process write: fsspec makes one for each thread, and a store has one writer.
_WRITERS: weakref.WeakValueDictionary[tuple[int, str], Store] = weakref.WeakValueDictionary()
_OPENING = threading.Lock()


def _renew_lock() -> None:
    """In a forked child: another thread of the parent may have had it."""
    global _OPENING
    _OPENING = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _opened(path: str, mode: str) -> Store:
    """The store at a path; one for all threads that write it."""
    if mode not in ("a", "r+"):
        return Store(path, mode)
    with _OPENING:
        place = os.getpid(), os.path.realpath(path)
        store = _WRITERS.get(place)
        if store is None or store.closed:
            store = _WRITERS[place] = Store(path, mode)
        return store


class _Name(str):
    """A key that becomes its URL behind the protocol: Hugging Face datasets opens and keeps files by this."""

    url: str

    def __new__(cls, key: str, url: str) -> _Name:
        name = super().__new__(cls, key)
        name.url = url
        return name

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.url

    def __radd__(self, other: str) -> str:
        return self.url if other == SCHEME else other + str(self)


class _CurrentDirectory:
    """The current directory, as an attribute of a class."""

    def __get__(self, instance: object, owner: type) -> str:
        return os.getcwd()


class _Kept(_Cached):
    """Kept by their arguments, as fsspec does; not by a store, which they name by path only, nor once it is closed."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if isinstance(args[0] if args else options.get("store"), Store):
            options["skip_instance_cache"] = True
        found = super().__call__(*args, **options)
        if found.store.closed and cls._cache.pop(found._fs_token, None) is not None:
            found = super().__call__(*args, **options)
        return found


class GranuloFileSystem(AbstractFileSystem, metaclass=_Kept):
    """Files of a store. ``store``: its path, or an open :class:`granulo.Store`; ``mode``: as in that."""

    protocol = "granulo"
    root_marker = ""
    # fsspec keeps file systems by their arguments, and what a relative path means depends on this.
    _current_directory = _CurrentDirectory()
    _extra_tokenize_attributes = ("_current_directory",)

    def __init__(self, store: Any = None, mode: str = "r", threads: int = DEFAULT_THREADS, **options: Any) -> None:
        super().__init__(**options)
        if store is None:
            raise ValueError(f"name the store: store='/path', or {SCHEME}/path{SEPARATOR}key")
        self.store = store if isinstance(store, Store) else _opened(os.fspath(store), mode)
        self.threads = threads

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return _parts_of(os.fspath(path))[1].strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        store, _ = _parts_of(path)
        return {} if store is None else {"store": store}

    def unstrip_protocol(self, name: str) -> str:
        return f"{SCHEME}{os.fspath(self.store.path)}{SEPARATOR}{self._strip_protocol(name)}"

    def __reduce__(self) -> Any:
        """By the path that was opened, for reading: one that was given may be relative to another directory."""
        options = {**self.storage_options, "store": self.store.path, "mode": "r", "threads": self.threads}
        return make_instance, (type(self), (), options)

    def _about(self, key: str, stat: _granulo.Stat) -> dict[str, Any]:
        kind = stat.kind if stat.kind in ("file", "directory") else "link" if stat.kind == "symlink" else "other"
        return {
            "name": key,
            "size": stat.size_bytes,
            "type": kind,
            "mode": stat.mode,
            "uid": stat.uid,
            "gid": stat.gid,
            "mtime": stat.mtime_ns / 1e9,
        }

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        key = self._strip_protocol(path)
        return self._about(key, self.store.stat(key))

    def exists(self, path: str, **options: Any) -> bool:
        try:
            self.info(path)
        except (NotFoundError, UsageError):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        key = self._strip_protocol(path)
        about = self.info(key)
        if about["type"] == "directory":
            entries = [self._about(*entry) for entry in self.store.walk(key, recursive=False)]
        else:
            entries = [about]
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        if maxdepth is not None:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        key = self._strip_protocol(path)
        found = {}
        for name, stat in self.store.walk(key):
            if stat.kind != "directory" or withdirs:
                found[name] = self._about(name, stat)
        if withdirs and key and key not in found and self.isdir(key):
            found[key] = self.info(key)
        return found if detail else sorted(found)

    def glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        """In detail, names become URLs behind the protocol: see :class:`_Name`."""
        found = super().glob(path, maxdepth=maxdepth, **options)
        if not options.get("detail"):
            return found
        return {_Name(name, self.unstrip_protocol(name)): about for name, about in found.items()}

    def created(self, path: str) -> datetime.datetime:
        return self.modified(path)

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        key = self._strip_protocol(path)
        if start is None and end is None:
            return self.store[key]
        size = self.info(key)["size"]
        first, stop, _ = slice(start, end).indices(size)
        return self.store.read_range(key, first, stop)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        """Ranges of many files; all those that are whole files in one call of ``read_many``."""
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        wanted = list(zip(paths, starts, ends, strict=True))
        whole = [at for at, (_, start, end) in enumerate(wanted) if not start and end is None]
        contents = self._read_many([wanted[at][0] for at in whole])
        given = dict(zip(whole, contents, strict=True)) if contents is not None else {}
        return [given[at] if at in given else self._cat_or_error(*wanted[at], on_error) for at in range(len(wanted))]

    def _cat_or_error(self, path: str, start: int | None, end: int | None, on_error: str) -> Any:
        try:
            return self.cat_file(path, start, end)
        except Exception as error:
            if on_error == "raise":
                raise
            return error

    def _read_many(self, paths: list[str]) -> list[bytes] | None:
        """Whole files in one call; ``None`` if one of them cannot be read, to try them one by one."""
        try:
            buffer, offsets = self.store.read_many([self._strip_protocol(path) for path in paths], threads=self.threads)
        except StoreError:
            return None
        return [bytes(buffer[start:stop]) for start, stop in zip(offsets[:-1], offsets[1:], strict=True)]

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        if len(paths) < 2 and not isinstance(path, list) and paths[0] == self._strip_protocol(path):
            return super().cat(path, recursive=recursive, on_error=on_error, **options)
        # Directories that were found are left out; one that was named is an error.
        given = [path] if isinstance(path, (str, os.PathLike)) else path
        named = {one for one in map(self._strip_protocol, given) if not (recursive or has_magic(one))}
        files = [one for one in paths if one in named or not self.isdir(one)]
        start, end = options.get("start"), options.get("end")
        contents = self._read_many(files) if start is None and end is None else None
        if contents is not None:
            return dict(zip(files, contents, strict=True))
        found = {one: self._cat_or_error(one, start, end, on_error) for one in files}
        return {one: content for one, content in found.items() if on_error != "omit" or isinstance(content, bytes)}

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        key = self._strip_protocol(path)
        if mode == "create" and self.exists(key):
            raise ExistsError(17, "it exists", key)
        if self._intrans:
            # Stored with the transaction, as what is written to open files.
            with self.open(key, "xb" if mode == "create" else "wb") as file:
                file.write(value)
        else:
            self._put(key, value)

    def _put(self, key: str, content: Any) -> None:
        """Stores a file; one that was there keeps its permissions."""
        mode = 0o644
        with contextlib.suppress(NotFoundError, UsageError):
            about = self.info(key)
            mode = about["mode"] if about["type"] == "file" else mode
        self.store.put(key, content, mode)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        # Everything is below the root.
        own, new = (key and key + b"/" for key in map(_granulo.normal_key, (source, target)))
        if new.startswith(own):
            # fsspec moves by copying and removing: that would remove the copy as well.
            raise UsageError(22, "it is the same object, or below it", target)
        about = self.info(source)
        if about["type"] == "directory":
            self.makedirs(target, exist_ok=True)
        elif about["type"] == "link":
            raise UsageError(22, "it is a symbolic link, which is not copied", source)
        else:
            self.store.put(target, self.store[source], about["mode"])

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        # Expanded once: afterwards, a pattern may match what was copied.
        sources = self.expand_path(path1)
        if not isinstance(path2, list) and sources == [self._strip_protocol(path2)]:
            raise UsageError(22, "it is the same object, or below it", path2)
        directories = [key for key in sources if not recursive and self.isdir(key)]
        if directories and not (isinstance(path1, str) and has_magic(path1)):
            raise DirectoryError(21, "it is a directory: move it with recursive=True", directories[0])
        self.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise")
        # Of a pattern, directories are not copied without recursion.
        self._remove([key for key in sources if key not in directories], recursive, maxdepth)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        key = self._strip_protocol(path)
        if self.exists(key):
            raise ExistsError(17, "it exists", key)
        if not create_parents and not self.isdir(self._parent(key)):
            raise NotFoundError(2, "no such directory", self._parent(key))
        self.store.make_directory(key)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        key = self._strip_protocol(path)
        if not self.isdir(key):
            self.mkdir(key)
        elif not exist_ok:
            raise ExistsError(17, "it exists", key)

    def rmdir(self, path: str) -> None:
        key = self._strip_protocol(path)
        if self.info(key)["type"] != "directory":
            raise NotADirectoryError(20, "it is not a directory", key)
        self.store.remove(key)

    def rm_file(self, path: str) -> None:
        key = self._strip_protocol(path)
        if self.isdir(key):
            raise DirectoryError(21, "it is a directory", key)
        self.store.remove(key)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        keys = self._tops(path) if recursive else self.expand_path(path)
        for key in keys:
            if not self.exists(key):
                raise NotFoundError(2, "no such key", key)
        self._remove(keys, recursive, maxdepth)

    def _remove(self, keys: list[str], recursive: bool, maxdepth: int | None) -> None:
        """Removes what has these names, in which nothing is a pattern any more."""
        for key in keys:
            if recursive and maxdepth is None:
                self.store.remove_tree(key)
            elif self.isdir(key):
                self.rmdir(key)
            else:
                self.rm_file(key)

    def _tops(self, path: Any) -> list[str]:
        """What a recursive removal begins at, patterns expanded."""
        return [key for one in (path if isinstance(path, list) else [path]) for key in self.expand_path(one)]

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Any:
        key = self._strip_protocol(path)
        try:
            kind = self.info(key)["type"]
        except NotFoundError:
            if "r" in mode:
                raise
            kind = None
        if "x" in mode and kind is not None:
            raise ExistsError(17, "it exists", key)
        if kind == "directory":
            raise DirectoryError(21, "it is a directory", key)
        if kind == "other" and "w" not in mode:
            raise UsageError(22, "it is a device, fifo or socket, which has no content", key)
        if kind == "link" and "a" in mode:
            raise UsageError(22, "it is a symbolic link, to which nothing is appended", key)
        return StoreFile(self, key, mode, block_size or "default", **options)


class StoreFile(AbstractBufferedFile):
    """A file of a store, read in ranges, or written whole when it is closed.

    Ranges are of what was opened: a file that is replaced before it was read to its end is a :class:`BusyError`.
    """

    def __init__(self, fs: GranuloFileSystem, path: str, mode: str = "rb", block_size: Any = "default", **options: Any):
        before = fs.store.get(path, b"") if "a" in mode else b""
        if mode == "rb":
            opened = fs.store.stat(path)
            self._details, self._version = fs._about(path, opened), (opened.size_bytes, opened.mtime_ns)
        super().__init__(fs, path, mode, block_size, **options)
        self._pieces: list[bytes] = []
        if before:
            self._pieces.append(before)
            self.loc = len(before)
        elif "a" in mode:
            self.loc = 0

    def _fetch_range(self, start: int, end: int) -> bytes:
        content: bytes = self.fs.store.read_range(self.path, start, end)
        now = self.fs.store.stat(self.path)
        if (now.size_bytes, now.mtime_ns) != self._version:
            raise BusyError(errno.EBUSY, "it was replaced while it was being read: open it again", self.path)
        return content

    def _initiate_upload(self) -> None:
        """Nothing: the store gets a file whole."""

    def _upload_chunk(self, final: bool = False) -> bool:
        self.buffer.seek(0)
        self._pieces.append(self.buffer.read())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Stores the file."""
        if "x" in self.mode and self.fs.exists(self.path):
            raise ExistsError(17, "it exists", self.path)
        self.fs._put(self.path, b"".join(self._pieces))
        self._pieces = []

    def discard(self) -> None:
        """Forgets what was written."""
        self._pieces = []
        self.buffer = io.BytesIO()
