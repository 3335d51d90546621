"""Listings: what they say, what they cost, and that they stay valid whatever a writer does."""

import copy
import itertools
import os
import pickle
import subprocess
import sys

import granulo
import numpy as np
import pyarrow as pa
import pytest
from conftest import KEYS, content_of, write_files
from granulo import _granulo


def test_columns_are_those_of_the_files(store):
    listing = store.listing()
    assert listing.names.to_pylist() == KEYS == [listing[row] for row in range(len(listing))]
    assert listing.names.type == pa.large_string()
    assert listing.sizes.tolist() == [len(content_of(key)) for key in KEYS]
    assert set(listing.modes.tolist()) == {0o100644}
    assert [listing.index(key) for key in KEYS] == list(range(len(KEYS)))
    assert "cats/none" not in listing and "a" not in listing and "zebras" not in listing
    with pytest.raises(KeyError):
        listing.index("cats")
    with pytest.raises(IndexError):
        listing[600]
    places = list(zip(listing.segments.tolist(), listing.segment_offsets.tolist()))
    assert [places[row] for row in listing.by_place] == sorted(places)
    assert sorted(listing.by_place.tolist()) == list(range(600))


def test_part_of_a_store_and_a_store_without_files(tmp_path, store):
    dogs = store.listing("dogs")
    assert dogs.names.to_pylist() == KEYS[200:400] and len(dogs) == 200
    with pytest.raises(KeyError):
        store.listing("lions")
    with granulo.Store(tmp_path / "s", "x") as empty:
        listing = empty.listing()
        assert len(listing) == 0 and listing.names.to_pylist() == [] and "a" not in listing
        assert list(granulo.Shuffle(listing)) == []


def test_names_that_are_no_text_are_binary(tmp_path):
    with granulo.Store(tmp_path / "s", "x") as store:
        store[b"\xff\xfe"] = b"1"
        store["a"] = b"2"
        listing = store.listing()
        assert listing.names.type == pa.large_binary() and listing.names.to_pylist() == [b"a", b"\xff\xfe"]
        assert listing.index(b"\xff\xfe") == listing.index(os.fsdecode(b"\xff\xfe")) == 1


def test_names_of_more_than_one_block(tmp_path):
    keys = sorted(f"{number % 7}/{number:05d}" for number in range(5000))
    with granulo.Store(tmp_path / "s", "x") as store:
        with store.batch() as batch:
            for key in reversed(keys):
                batch[key] = key.encode()
        listing = store.listing()
        assert listing.names.to_pylist() == keys
        assert listing.names_between(1000, 2050).to_pylist() == keys[1000:2050]
        assert [listing.index(key) for key in keys[::97]] == list(range(0, 5000, 97))
        assert listing.memory_bytes <= 32 * 5000 + 64 + 8 * 6
        # They were written in the other order.
        assert listing.by_place.tolist() == list(range(4999, -1, -1))
        buffer, offsets = listing.read_many(np.arange(0, 5000, 50))
        assert bytes(buffer).decode() == "".join(keys[::50])


def test_a_row_that_is_not_there_is_refused(store):
    listing = store.listing()
    for rows, row in (([600], "600"), ([3, -1], "-1"), (np.array([2**32 + 3]), "4294967299")):
        with pytest.raises(ValueError, match=f"there is no file {row}"):
            listing.read_many(rows)


def test_row_numbers_are_integers(store):
    listing = store.listing()
    for rows in (listing.sizes > 0, [1.5]):
        with pytest.raises(ValueError, match="row numbers are integers"):
            listing.read_many(rows)
    for rows in ([], np.array([], dtype=bool)):
        assert len(listing.read_many(rows)[0]) == 0


def test_an_old_listing_stays_valid_while_a_writer_changes_everything(tmp_path):
    path = tmp_path / "s"
    write_files(path, KEYS)
    reader = granulo.Store(path)
    listing = reader.listing()
    program = """
import sys, granulo
with granulo.Store(sys.argv[1], "r+") as store:
    with store.batch() as batch:
        for key in list(store)[::2]:
            batch[key] = b"overwritten"
        for number in range(1000):
            batch[f"new/{number}"] = b"new" * 100
    for key in list(store.keys("cats"))[1::2]:
        store.remove(key)
    store.compact()
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert reader["cats/0000.bin"] == b"overwritten" and "cats/0001.bin" not in reader
    rows = np.arange(600)
    buffer, offsets = listing.read_many(rows)
    assert [bytes(buffer[a:b]) for a, b in zip(offsets, offsets[1:])] == [content_of(key) for key in KEYS]
    assert listing.names.to_pylist() == KEYS
    assert len(reader.listing()) == 1500
    # Another process that has it is served as well, as long as this one keeps it.
    check = "import pickle, sys; print(sum(pickle.load(sys.stdin.buffer).read_many(range(600))[0]))"
    done = subprocess.run([sys.executable, "-c", check], input=pickle.dumps(listing), capture_output=True, check=True)
    assert int(done.stdout) == sum(buffer)


def test_a_snapshot_is_listed_as_it_was(tmp_path):
    with granulo.Store(tmp_path / "s", "x") as store:
        store["a"] = b"1"
        store.create_snapshot("then")
        store["b"] = b"2"
        del store["a"]
        then = store.listing(at="then")
        assert then.names.to_pylist() == ["a"] and bytes(then.read_many([0])[0]) == b"1"
        assert store.listing().names.to_pylist() == ["b"]
        with pytest.raises(KeyError):
            store.listing(at="never")


def test_a_pickled_listing_needs_the_process_that_has_it(home):
    program = "import granulo, pickle, sys; sys.stdout.buffer.write(pickle.dumps(granulo.Store(sys.argv[1]).listing()))"
    done = subprocess.run([sys.executable, "-c", program, str(home)], capture_output=True, check=True)
    with pytest.raises(FileNotFoundError, match="has ended"):
        pickle.loads(done.stdout)
    # It may end between two looks.
    with pytest.raises(FileNotFoundError):
        _granulo.Table.from_files("/proc/self/fd/none", "/proc/self/fd/none")


def test_nothing_is_left_behind(home, tmp_path):
    program = f"""
import os, granulo
listing = granulo.Store({str(home)!r}).listing()
assert os.listdir({str(tmp_path)!r}) == []
os.kill(os.getpid(), 9)
"""
    before = set(os.listdir("/dev/shm"))
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert os.listdir(tmp_path) == [] and set(os.listdir("/dev/shm")) <= before


def test_two_names_that_are_no_text_do_not_make_one(tmp_path):
    with granulo.Store(tmp_path / "store", "x") as store:
        store[b"a\xc3"] = store[b"\xa9"] = b""
        assert store.listing().names.to_pylist() == [b"a\xc3", b"\xa9"]


def test_a_listing_iterates_and_is_one_object(store):
    listing = store.listing()
    assert list(listing) == KEYS and copy.copy(listing) is copy.deepcopy(listing) is listing
    assert listing[np.uint8(5)] == KEYS[5]
    first, second = itertools.islice(listing.batches(batch_files=10), 2)
    assert len({first, second}) == 2 and first != second
    assert store.read_many(listing.names[:3])[0] == store.read_many(KEYS[:3])[0]
    with pytest.raises(TypeError):
        store.read_many(KEYS[0])
