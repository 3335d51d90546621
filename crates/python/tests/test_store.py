"""The store as a mapping: beside a dict, with every key there may be, and with the exceptions that it promises."""

import collections
import errno
import inspect
import os
import pickle
import subprocess
import sys
import threading

import granulo
import numpy as np
import pyarrow as pa
import pytest
from conftest import KEYS, content_of, write_files
from granulo.filesystem import GranuloFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

names = st.binary(min_size=1, max_size=12).filter(lambda name: not set(name) & {0, 47} and name not in (b".", b".."))
operations = st.lists(
    st.tuples(st.sampled_from(["put", "batch", "remove", "get", "many"]), names, st.binary(max_size=200)), max_size=30
)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(operations)
def test_it_is_a_dict_of_files(tmp_path_factory, operations):
    model: dict[bytes, bytes] = {}
    path = tmp_path_factory.mktemp("model") / "s"
    with granulo.Store(path, "x") as store:
        for operation, name, content in operations:
            key = b"d/" + name
            if operation == "put":
                store[key] = model[key] = content
            elif operation == "batch":
                with store.batch() as batch:
                    batch[key] = content
                    batch[key + b"2"] = content
                model[key] = model[key + b"2"] = content
            elif operation == "remove":
                if key in model:
                    del store[key], model[key]
                else:
                    with pytest.raises(KeyError):
                        del store[key]
            elif operation == "get":
                assert store.get(key) == model.get(key)
                assert (key in store) == (key in model)
            else:
                buffer, offsets = store.read_many(list(model))
                assert [bytes(buffer[a:b]) for a, b in zip(offsets, offsets[1:])] == list(model.values())
    for mode in ("r", "r+"):
        with granulo.Store(path, mode) as store:
            assert {os.fsencode(key): store[key] for key in store} == model
            assert len(store) == len(model)


def test_every_byte_but_nul_and_slash_survives_in_a_key(tmp_path):
    every = bytes(byte for byte in range(1, 256) if byte != 47)
    with granulo.Store(tmp_path / "s", "x") as store:
        store[every] = b"1"
        assert list(store) == [os.fsdecode(every)]
        assert store[os.fsdecode(every)] == store[every] == b"1"
        for wrong in (b"a\0b", "a/../b", b"."):
            with pytest.raises(granulo.UsageError) as caught:
                store[wrong]
            assert isinstance(caught.value, ValueError) and caught.value.errno == errno.EINVAL
        with pytest.raises(TypeError):
            store[7]
        assert store["/" + os.fsdecode(every) + "/"] == b"1"


def test_exceptions_are_those_of_python(tmp_path, home):
    store = granulo.Store(home)
    for kind in (KeyError, FileNotFoundError, OSError, granulo.NotFoundError, granulo.StoreError):
        with pytest.raises(kind):
            store["no/such"]
    with pytest.raises(FileNotFoundError) as caught:
        store.read_many(["cats/0000.bin", "no/such"])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "no/such")
    with pytest.raises(IsADirectoryError):
        store["cats"]
    with pytest.raises(granulo.ReadOnlyError) as caught:
        store["new"] = b""
    assert caught.value.errno == errno.EROFS
    with pytest.raises(FileNotFoundError):
        granulo.Store(tmp_path / "none")
    with pytest.raises(FileExistsError):
        granulo.Store(home, "x")
    with pytest.raises(ValueError):
        granulo.Store(home, "rw")
    with granulo.Store(tmp_path / "s", "x"), pytest.raises(BlockingIOError):
        granulo.Store(tmp_path / "s", "r+")
    store.close()
    with pytest.raises(ValueError):
        store["cats/0000.bin"]


def import_tree(path, tree):
    """A new store with a tree, as the command imports it."""
    granulo.Store(path, "x").close()
    command = [sys.executable, "-m", "granulo._command", "store", "import", path, tree]
    subprocess.run(command, check=True, capture_output=True)
    return granulo.Store(path)


def test_the_root_has_the_attributes_that_it_was_given(tmp_path, store):
    (tmp_path / "tree").mkdir(mode=0o700)
    os.utime(tmp_path / "tree", ns=(0, 5_000_000_007))
    imported = import_tree(tmp_path / "s", tmp_path / "tree")
    about = imported.stat("")
    assert (about.kind, about.mode, about.mtime_ns) == ("directory", 0o040700, 5_000_000_007)
    given = os.stat(tmp_path / "tree")
    assert (about.uid, about.gid, about.names) == (given.st_uid, given.st_gid, 1)
    assert GranuloFileSystem(imported, skip_instance_cache=True).info("")["mode"] == 0o040700
    # This one was given none.
    assert (store.stat("").mode, store.stat("/").mtime_ns) == (0o040755, 0)


def test_what_has_no_content_is_an_error_in_every_way_of_reading(tmp_path):
    tree = tmp_path / "tree"
    (tree / "directory").mkdir(parents=True)
    (tree / "file").write_bytes(b"content")
    os.mkfifo(tree / "fifo")
    store = import_tree(tmp_path / "s", tree)
    keys = {os.path.basename(key): key for key, _ in store.walk()}
    fifo, directory, file = keys["fifo"], keys["directory"], keys["file"]
    assert store.stat(fifo).kind == "special"
    fs = GranuloFileSystem(store, skip_instance_cache=True)
    for key, kind in ((fifo, granulo.UsageError), (directory, granulo.DirectoryError), ("", granulo.DirectoryError)):
        for read in (
            lambda key: store[key],
            store.get,
            lambda key: store.read_many([file, key]),
            lambda key: store.read_range(key, 0, 8),
            fs.open,
        ):
            with pytest.raises(kind) as caught:
                read(key)
            assert caught.value.filename == key
        assert key not in store
    assert file in store and store.read_range(file, 3, 3) == b"" and store.read_range(file, 7, 9) == b""
    # What cannot be read does not end in another content.
    with pytest.raises(granulo.UsageError):
        fs.cat("", recursive=True)
    assert fs.cat("", recursive=True, on_error="omit") == {file: b"content"}


def test_a_directory_is_not_opened_for_writing_nor_a_link_for_appending(tmp_path):
    (tmp_path / "tree" / "directory").mkdir(parents=True)
    (tmp_path / "tree" / "link").symlink_to("elsewhere")
    fs = GranuloFileSystem(import_tree(tmp_path / "s", tmp_path / "tree"))
    for mode in ("wb", "ab"):
        with pytest.raises(IsADirectoryError):
            fs.open("directory", mode)
    with pytest.raises(granulo.UsageError, match="symbolic link"):
        fs.open("link", "ab")
    assert fs.cat_file("link") == b"elsewhere"


def test_read_many_is_one_buffer_that_numpy_and_arrow_take_without_a_copy(store):
    keys = [KEYS[at] for at in (5, 599, 0, 5)]
    buffer, offsets = store.read_many(keys)
    assert offsets.dtype == np.int64 and len(offsets) == 5 and offsets[-1] == len(buffer)
    assert [bytes(buffer[a:b]) for a, b in zip(offsets, offsets[1:])] == [content_of(key) for key in keys]
    array = np.frombuffer(buffer, np.uint8)
    assert array.flags.writeable
    address = pa.py_buffer(buffer).address
    assert address == array.__array_interface__["data"][0]
    buffer, offsets = store.read_many([])
    assert len(buffer) == 0 and offsets.tolist() == [0]


def test_large_and_sparse_files_and_ranges(tmp_path):
    large = np.random.default_rng(1).bytes(1_000_000)
    with granulo.Store(tmp_path / "s", "x", cutoff_bytes=4096) as store:
        store.put("large", bytearray(large), mode=0o600, mtime_ns=5_000_000_007)
        store["empty"] = memoryview(b"")
        assert store["large"] == large and store["empty"] == b""
        buffer, offsets = store.read_many(["empty", "large", "empty"])
        assert bytes(buffer) == large and offsets.tolist() == [0, 0, 1_000_000, 1_000_000]
        assert store.read_range("large", 70_000, 70_010) == large[70_000:70_010]
        assert store.read_range("large", 999_990, 2_000_000) == large[-10:]
        about = store.stat("large")
        assert (about.kind, about.size_bytes) == ("file", 1_000_000)
        assert (about.mode, about.mtime_ns) == (0o100600, 5_000_000_007)
        assert about.names == 1 and about.allocated_bytes > 1_000_000
        assert store.status()["files"] == 2
        with pytest.raises(TypeError):
            store["text"] = "not bytes"
        for array in (np.ones(3, np.float16), np.ones((2, 3), order="F"), np.arange(9)[::2], np.empty((0, 3))):
            store["array"] = array
            assert store["array"] == array.tobytes()


def test_a_giant_file_is_refused_before_there_is_memory_for_it(tmp_path):
    with open(tmp_path / "giant", "wb") as file:
        file.truncate(1 << 40)
    granulo.Store(tmp_path / "s", "x").close()
    (tmp_path / "tree").mkdir()
    (tmp_path / "giant").rename(tmp_path / "tree" / "giant")
    command = [sys.executable, "-m", "granulo._command", "store", "import", tmp_path / "s", tmp_path / "tree"]
    subprocess.run(command, check=True, capture_output=True)
    with granulo.Store(tmp_path / "s") as store:
        listing = store.listing()
        for read in (
            lambda: store.read_many(["giant"]),
            lambda: listing.read_many([0]),
            lambda: list(granulo.Shuffle(listing)),
            lambda: list(granulo.Shuffle(listing, scratch=tmp_path, memory_bytes=1 << 20)),
        ):
            with pytest.raises(granulo.UsageError, match="1 GiB"):
                read()


LITTLE_MEMORY = """
import resource, sys, granulo
store = granulo.Store(sys.argv[1])
listing = store.listing("many")
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.getrlimit(resource.RLIMIT_AS)[1]))
for read in (
    lambda: store.read_range("giant", 0, 1 << 40),
    lambda: store.read_many(list(listing)),
    lambda: list(listing.batches("disk", 4)),
):
    try:
        read()
    except (MemoryError, granulo.UsageError) as error:
        print(type(error).__name__)
"""


def test_too_little_memory_is_an_exception(tmp_path):
    tree = tmp_path / "tree"
    (tree / "many").mkdir(parents=True)
    for name, size in (("giant", 1 << 40), *((f"many/{number}", 1 << 30) for number in range(4))):
        with open(tree / name, "wb") as file:
            file.truncate(size)
    import_tree(tmp_path / "s", tree).close()
    command = [sys.executable, "-c", LITTLE_MEMORY, tmp_path / "s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["MemoryError", "MemoryError", "UsageError"], done.stderr


def test_a_batch_is_all_or_nothing(tmp_path):
    with granulo.Store(tmp_path / "s", "x") as store:
        with pytest.raises(RuntimeError), store.batch() as batch:
            batch["a"] = b"1"
            raise RuntimeError
        assert "a" not in store
        with store.batch() as batch:
            batch["a"] = b"1"
            batch["b"] = b"2"
            del batch["a"]
            assert "b" not in store
        assert list(store) == ["b"]
        with pytest.raises(ValueError), store.batch() as batch:
            batch["x/../y"] = b""
        with store.batch() as batch:
            batch["c"] = b"3"
        with pytest.raises(ValueError, match="ended"):
            batch["late"] = b"4"
        assert list(store) == ["b", "c"]


def test_a_batch_is_committed_in_pieces_of_what_fits(tmp_path):
    with granulo.Store(tmp_path / "s", "x") as store:
        with pytest.raises(RuntimeError), store.batch() as batch:
            batch["a"] = bytes(7 << 20)
            batch["b"] = bytes((1 << 20) - 5000)
            batch.remove("none")
            batch["c"] = b""
            assert list(store) == []
            batch["d"] = bytes(5000)
            assert list(store) == ["a", "b", "c"]
            raise RuntimeError
        assert list(store) == ["a", "b", "c"]
        # Without content, too, a piece is what the store commits as a whole.
        with store.batch() as batch:
            for number in range(20_000):
                batch[f"empty/{number}"] = b""
            assert 15_000 < len(store) < 16_000
        assert len(store) == 20_003


def test_walk_and_remove_tree(tmp_path):
    write_files(tmp_path / "s", ["a/1", "a/b/2", "c"])
    with granulo.Store(tmp_path / "s", "r+") as store:
        assert [(key, stat.kind) for key, stat in store.walk()] == [
            ("a", "directory"), ("a/1", "file"), ("a/b", "directory"), ("a/b/2", "file"), ("c", "file"),
        ]
        assert [key for key, _ in store.walk("a", recursive=False)] == ["a/1", "a/b"]
        assert list(store.keys("a")) == ["a/1", "a/b/2"]
        assert store.remove_tree("a") and not store.remove_tree("a")
        assert list(store) == ["c"]
        with pytest.raises(KeyError):
            store.remove("a")


def test_other_threads_run_while_a_walk_reads(store):
    # Nothing but the walk lets go of the interpreter between two entries that are added to a deque.
    found, whole = collections.deque(), len(list(store.walk()))
    met, is_over = threading.Event(), threading.Event()

    def look():
        while not met.is_set() and not is_over.is_set():
            if 0 < len(found) < whole:
                met.set()

    looking, interval = threading.Thread(target=look), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    looking.start()
    try:
        for _ in range(5000):
            found.clear()
            found.extend(store.walk())
            assert len(found) == whole
            if met.is_set():
                break
    finally:
        is_over.set()
        looking.join()
        sys.setswitchinterval(interval)
    assert met.is_set()


def test_a_store_pickles_by_its_path(store):
    again = pickle.loads(pickle.dumps(store))
    assert again[KEYS[3]] == content_of(KEYS[3]) and not again.writable


def test_load_returns_everything_in_disk_order(store):
    listing = store.listing()
    rows = np.concatenate([batch.indices for batch in store.load(batch_files=64, memory_bytes=100_000)])
    assert rows.tolist() == listing.by_place.tolist()
    contents = {listing[row]: bytes(batch[at]) for batch in store.load("dogs") for at, row in enumerate(batch.indices)}
    assert len(contents) == 200


def test_everything_public_is_described():
    for name in granulo.__all__:
        described = {name: getattr(granulo, name)}
        if inspect.isclass(described[name]) and not issubclass(described[name], BaseException):
            members = inspect.getmembers(described[name])
            described |= {f"{name}.{member}": value for member, value in members if not member.startswith("_")}
        assert [what for what, value in described.items() if not value.__doc__] == []
