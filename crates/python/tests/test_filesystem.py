"""The fsspec file system: fsspec's own abstract tests, and what is granulo's."""

import os
import pickle
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import fsspec
import fsspec.tests.abstract as abstract
import granulo
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
from conftest import KEYS, content_of
from granulo.filesystem import GranuloFileSystem


class Fixtures(abstract.AbstractFixtures):
    """A new store for each test."""

    @pytest.fixture
    def fs(self, tmp_path):
        filesystem = GranuloFileSystem(tmp_path / "s", mode="x", skip_instance_cache=True)
        yield filesystem
        filesystem.store.close()

    @pytest.fixture
    def fs_path(self, fs):
        fs.mkdir("tests")
        return "tests"


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


@pytest.fixture
def fs(home):
    return fsspec.filesystem("granulo", store=os.fspath(home))


def test_listings_and_patterns(fs):
    assert fs.ls("", detail=False) == ["cats", "dogs", "owls"]
    assert fs.ls("/cats/", detail=False) == KEYS[:200]
    assert fs.ls("cats/0000.bin", detail=False) == ["cats/0000.bin"]
    assert fs.find("dogs") == KEYS[200:400] and fs.find("") == KEYS
    assert fs.glob("*/000[12].bin") == [f"{group}/000{n}.bin" for group in ("cats", "dogs", "owls") for n in (1, 2)]
    about = fs.info("owls/0005.bin")
    assert (about["type"], about["size"], about["name"]) == ("file", len(content_of("owls/0005.bin")), "owls/0005.bin")
    assert fs.info("")["type"] == fs.info("owls")["type"] == "directory"
    assert fs.isdir("cats") and fs.isfile("cats/0001.bin") and not fs.exists("lions")
    assert fs.du("cats") == sum(len(content_of(key)) for key in KEYS[:200])
    for missing in (fs.ls, fs.info, fs.cat, fs.open):
        with pytest.raises(FileNotFoundError):
            missing("lions")


def test_reading_in_every_way(fs):
    content = content_of(KEYS[7])
    assert fs.cat(KEYS[7]) == fs.cat_file(KEYS[7]) == content
    assert fs.cat_file(KEYS[7], 10, 30) == content[10:30] and fs.cat_file(KEYS[7], -10) == content[-10:]
    assert fs.cat(KEYS[:9]) == {key: content_of(key) for key in KEYS[:9]}
    assert fs.cat("owls/*") == {key: content_of(key) for key in KEYS[400:]}
    ranges = fs.cat_ranges([*KEYS[:3], "no", KEYS[3]], [0, 5, None, 0, 2], [None, 9, None, None, None])
    assert [ranges[0], ranges[1], ranges[2], ranges[4]] == [
        content_of(KEYS[0]), content_of(KEYS[1])[5:9], content_of(KEYS[2]), content_of(KEYS[3])[2:],
    ]
    assert isinstance(ranges[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["no"], [0], [1], on_error="raise")
    with fs.open(KEYS[7]) as file:
        file.seek(17)
        assert file.read(5) == content[17:22] and file.read() == content[22:]
    with pytest.raises(granulo.ReadOnlyError):
        fs.pipe("new", b"")


def test_writing(tmp_path):
    fs = fsspec.filesystem("granulo", store=os.fspath(tmp_path / "s"), mode="x", skip_instance_cache=True)
    with fs.open("d/a", "wb") as file:
        file.write(b"1" * 7_000_000)
        file.write(b"2")
        assert not fs.exists("d/a")
    assert fs.cat("d/a") == b"1" * 7_000_000 + b"2"
    with fs.open("d/a", "wb") as file:
        file.write(b"short")
    with fs.open("d/a", "ab") as file:
        file.write(b" and longer")
    assert fs.cat("d/a") == b"short and longer"
    with fs.open("d/empty", "wb"):
        pass
    assert fs.cat("d/empty") == b""
    with pytest.raises(FileExistsError):
        fs.open("d/a", "xb")
    with fs.open("d/text", "w", encoding="utf-8") as file:
        file.write("grün")
    assert fs.read_text("d/text", encoding="utf-8") == "grün"
    fs.mv("d/text", "e/text")
    assert not fs.exists("d/text") and fs.exists("e/text")
    with pytest.raises(FileExistsError):
        fs.mkdir("d")
    fs.makedirs("d", exist_ok=True)
    fs.mkdir("f/g")
    fs.rmdir("f/g")
    with pytest.raises(IsADirectoryError):
        fs.rm_file("d")
    fs.rm(["d", "e"], recursive=True)
    assert fs.ls("", detail=False) == ["f"]
    fs.store.close()


def test_a_url_names_store_and_key(home):
    url = f"granulo://{home}!/cats/0003.bin"
    with fsspec.open(url) as file:
        assert file.read() == content_of("cats/0003.bin")
    fs, path = fsspec.url_to_fs(url)
    assert path == "cats/0003.bin" and fs.unstrip_protocol(path) == url
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat(path) == content_of(path)
    with pytest.raises(ValueError, match="name the store"):
        fsspec.filesystem("granulo")


def test_a_relative_path_is_that_of_the_current_directory(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with granulo.Store(tmp_path / name / "s", "x") as store:
            store["which"] = name.encode()
    for name in ("a", "b", "a"):
        monkeypatch.chdir(tmp_path / name)
        fs = fsspec.filesystem("granulo", store="s")
        assert fs.cat("which") == name.encode()
        assert fsspec.filesystem("granulo", store="s") is fs


def test_a_file_system_is_pickled_by_the_path_that_it_opened(home, tmp_path, monkeypatch):
    monkeypatch.chdir(home.parent)
    opened = [
        fsspec.filesystem("granulo", store=home.name, threads=1, skip_instance_cache=True),
        GranuloFileSystem(home.name, "r", skip_instance_cache=True),
        GranuloFileSystem(granulo.Store(home.name)),
    ]
    monkeypatch.chdir(tmp_path)
    for fs in opened:
        again = pickle.loads(pickle.dumps(fs))
        assert again.cat(KEYS[0]) == content_of(KEYS[0]) and again.threads == fs.threads


def test_a_key_may_have_what_ends_the_path_of_the_store_in_a_url(tmp_path):
    path = os.fspath(tmp_path / "s")
    fs = fsspec.filesystem("granulo", store=path, mode="x", skip_instance_cache=True)
    fs.pipe({"Wham!/song.mp3": b"theirs", "song.mp3": b"ours"})
    assert fs.find("") == ["Wham!/song.mp3", "song.mp3"] and fs.ls("Wham!", detail=False) == ["Wham!/song.mp3"]
    assert fs.cat("*", recursive=True) == {"Wham!/song.mp3": b"theirs", "song.mp3": b"ours"}
    with fs.open("Wham!/song.mp3") as file:
        assert file.read() == b"theirs"
    fs.get("", os.fspath(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out" / "Wham!" / "song.mp3").read_bytes() == b"theirs"
    fs.cp("song.mp3", "Wham!/other.mp3")
    fs.rm("Wham!/song.mp3")
    assert fs.find("") == ["Wham!/other.mp3", "song.mp3"]
    url = f"granulo://{path}!/Wham!/other.mp3"
    assert fs.unstrip_protocol("Wham!/other.mp3") == url and fsspec.url_to_fs(url)[1] == "Wham!/other.mp3"
    with fsspec.open(url) as file, fsspec.open("Wham!/other.mp3", protocol="granulo", store=path) as same:
        assert file.read() == same.read() == b"ours"
    fs.store.close()


def test_pyarrow_reads_and_writes_data_sets_through_it(tmp_path):
    fs = fsspec.filesystem("granulo", store=os.fspath(tmp_path / "s"), mode="x", skip_instance_cache=True)
    through = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(fs))
    table = pa.table({"group": ["a", "b"] * 500, "value": range(1000)})
    pa.dataset.write_dataset(table, "set", filesystem=through, format="parquet", partitioning=["group"])
    assert len(fs.glob("set/*/*.parquet")) == 2
    back = pa.dataset.dataset("set", filesystem=through, partitioning=["group"]).to_table()
    assert sorted(back["value"].to_pylist()) == list(range(1000))
    fs.store.close()


def test_a_move_onto_or_below_itself_is_refused(tmp_path):
    fs = GranuloFileSystem(tmp_path / "s", mode="x", skip_instance_cache=True)
    fs.pipe({"a": b"1", "d/a": b"2"})
    for source, target, recursive in [("a", "/a", False), ("d/a", "d", False), ("d", "d/", True), ("d", "d/sub", True)]:
        with pytest.raises(granulo.UsageError):
            fs.mv(source, target, recursive=recursive)
        assert (fs.cat_file("a"), fs.cat_file("d/a")) == (b"1", b"2")
    with pytest.raises(granulo.UsageError):
        fs.mv("", "sub", recursive=True)
    fs.mv("*", "sub", recursive=True)
    assert (fs.cat_file("sub/a"), fs.cat_file("sub/d/a"), fs.exists("a")) == (b"1", b"2", False)
    fs.mv("sub/a", "a")
    with pytest.raises(NotADirectoryError):
        fs.rmdir("a")
    fs.store.put("tool", b"#!", mode=0o755)
    fs.mv("tool", "moved")
    assert fs.info("moved")["mode"] == 0o100755
    fs.store.close()


def test_a_file_system_is_kept_by_its_path_until_its_store_is_closed(tmp_path):
    path = tmp_path / "s"
    with granulo.Store(path, "x") as store:
        store["a"] = b"1"
        of_store = fsspec.filesystem("granulo", store=store)
        assert of_store.cat_file("a") == b"1"
    with granulo.Store(path) as store:
        assert fsspec.filesystem("granulo", store=store).cat_file("a") == b"1"
    kept = fsspec.filesystem("granulo", store=os.fspath(path))
    assert fsspec.filesystem("granulo", store=os.fspath(path)) is kept
    kept.store.close()
    with pytest.raises(ValueError):
        kept.exists("a")
    assert fsspec.filesystem("granulo", store=os.fspath(path)).cat_file("a") == b"1"


@pytest.mark.parametrize("mode", ["r", "a", "r+"])
def test_a_file_system_pickles_for_reading(tmp_path, mode):
    path = tmp_path / "s"
    with granulo.Store(path, "x") as store:
        store["a"] = b"1"
    fs = GranuloFileSystem(path, mode=mode, skip_instance_cache=True)
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file("a") == b"1" and not again.store.writable
    again.store.close()
    fs.store.close()


def test_a_move_removes_what_it_copied_and_nothing_else(tmp_path):
    fs = GranuloFileSystem(tmp_path / "store", mode="x")
    fs.pipe({"p/a[1]": b"1", "p/a1": b"2"})
    fs.mv("p/a[[]*", "q/")
    assert fs.find("") == ["p/a1", "q/a[1]"]
    with pytest.raises(FileNotFoundError):
        fs.rm("none", recursive=True)
    for directory in ("p", ["p", "q/a[1]"]):
        with pytest.raises(IsADirectoryError):
            fs.mv(directory, "r/")
    assert fs.find("") == ["p/a1", "q/a[1]"]


def test_names_in_detail_are_urls_that_open_by_themselves(fs, home):
    ((name, about),) = fs.glob("cats/0000.*", detail=True).items()
    assert name == about["name"] == "cats/0000.bin"
    with fsspec.open("granulo://" + name) as file:
        assert file.read() == content_of("cats/0000.bin")
    (copied,) = pickle.loads(pickle.dumps([name]))
    assert "granulo://" + copied == f"granulo://{home}!/cats/0000.bin" and "x/" + name == "x/cats/0000.bin"
    below = fsspec.filesystem("dir", path="cats", fs=fs)
    assert len(below.glob("*", detail=True)) == 200
    assert "" not in fs.find("", withdirs=True) and "" not in fs.glob("**")


def test_threads_write_one_store(tmp_path):
    path = tmp_path / "store"
    granulo.Store(path, "x").close()

    def write(number):
        fsspec.filesystem("granulo", store=path, mode="a").pipe(f"{number}", b"x")
        together.wait()

    together = threading.Barrier(2, timeout=60)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    assert fsspec.filesystem("granulo", store=path, mode="a").find("") == ["0", "1"]


def test_a_file_that_is_written_again_keeps_its_permissions(tmp_path):
    fs = GranuloFileSystem(tmp_path / "store", mode="x")
    fs.store.put("key", b"secret", mode=0o600)
    for mode in ("ab", "wb"):
        with fs.open("key", mode) as file:
            file.write(b"!")
    fs.pipe_file("key", b"more")
    assert fs.info("key")["mode"] == stat.S_IFREG | 0o600
    fs.pipe_file("new", b"")
    assert fs.info("new")["mode"] == stat.S_IFREG | 0o644


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path):
    with granulo.Store(tmp_path / "s", "x") as store:
        store.put("key", b"1" * 100, mtime_ns=1)
        with GranuloFileSystem(store).open("key", block_size=10, cache_type="none") as file:
            assert file.read(10) == b"1" * 10
            store.put("key", b"2" * 100, mtime_ns=2)
            with pytest.raises(granulo.BusyError):
                file.read(10)


def test_what_is_created_replaces_nothing(tmp_path):
    fs = GranuloFileSystem(tmp_path / "s", mode="x", skip_instance_cache=True)
    first, second = fs.open("key", "xb"), fs.open("key", "xb")
    first.write(b"1")
    second.write(b"2")
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    assert fs.cat_file("key") == b"1"
    fs.store.close()


def test_a_transaction_is_stored_at_its_end(tmp_path):
    fs = GranuloFileSystem(tmp_path / "s", mode="x", skip_instance_cache=True)
    with pytest.raises(RuntimeError), fs.transaction:
        fs.pipe_file("a", b"1")
        with fs.open("b", "wb") as file:
            file.write(b"2")
        raise RuntimeError
    assert fs.find("") == []
    with fs.transaction:
        fs.pipe({"a": b"1", "b": b""})
        assert fs.find("") == []
    assert fs.cat(["a", "b"]) == {"a": b"1", "b": b""}
    fs.store.close()


def test_cat_leaves_out_no_file_that_was_named(fs):
    wanted = ["cats", *KEYS[:2]]
    with pytest.raises(IsADirectoryError):
        fs.cat(wanted)
    found = fs.cat(wanted, on_error="return")
    assert isinstance(found["cats"], IsADirectoryError) and found[KEYS[0]] == content_of(KEYS[0])
    # Those that a pattern finds are.
    assert fs.cat("*") == {}
    assert fs.cat(KEYS[:2], start=1, end=5) == {key: content_of(key)[1:5] for key in KEYS[:2]}
