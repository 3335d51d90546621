"""What cannot be read is an error, in every way of reading, and an epoch never ends early without one."""

import granulo
import numpy as np
import pytest
from conftest import KEYS
from granulo import _granulo

FILES = 100
HIT = "part/00057"


def content_of(number):
    """2,000 bytes that do not compress, so that they are found as they are in the segment."""
    return np.random.default_rng(number).bytes(2000)


def damage(path, content):
    """Changes a byte of a content on the disk."""
    hits = 0
    for file in path.rglob("*"):
        if file.is_file():
            whole = bytearray(file.read_bytes())
            at = whole.find(content)
            if at >= 0:
                whole[at + 1000] ^= 1
                file.write_bytes(whole)
                hits += 1
    assert hits == 1


@pytest.fixture
def damaged(tmp_path):
    """A store of 100 files, in one of which a byte has changed on the disk."""
    path = tmp_path / "s"
    with granulo.Store(path, "x") as store, store.batch() as batch:
        for number in range(FILES):
            batch[f"part/{number:05d}"] = content_of(number)
    damage(path, content_of(57))
    return granulo.Store(path)


def test_a_damaged_file_is_an_error_and_the_others_are_read(damaged):
    listing = damaged.listing()
    hit = listing.index(HIT)
    for read in (
        lambda: damaged[HIT],
        lambda: damaged.read_range(HIT, 0, 10),
        lambda: damaged.read_many([HIT]),
        lambda: listing.read_many(range(FILES)),
        lambda: listing.read_many([hit]),
    ):
        with pytest.raises(granulo.CorruptError):
            read()
    others = [row for row in range(FILES) if row != hit]
    buffer, _ = listing.read_many(others)
    assert bytes(buffer) == b"".join(content_of(row) for row in others)


@pytest.mark.parametrize("order", ["exact", "disk", "window"])
@pytest.mark.parametrize("memory_bytes", [1, 50_000, 1 << 30])
def test_an_epoch_with_a_damaged_file_raises(damaged, order, memory_bytes):
    window = 10 if order == "window" else 0
    shuffle = granulo.Shuffle(damaged.listing(), 8, seed=2, order=order, window=window, memory_bytes=memory_bytes)
    with pytest.raises(granulo.CorruptError):
        list(shuffle)


def test_a_batch_that_no_longer_fits_in_half_of_the_memory_is_read_by_itself(tmp_path):
    # What is read together with a damaged file is not handed out.
    large = np.random.default_rng(0).bytes(40_000)
    with granulo.Store(tmp_path / "s", "x") as store, store.batch() as batch:
        batch["a"] = content_of(1)
        batch["b"] = large
    damage(tmp_path / "s", large)
    listing = granulo.Store(tmp_path / "s").listing()
    for memory_bytes, files_before in ((2 * 41_000, 1), (2 * 43_000, 0)):
        batches = listing.batches("disk", 1, memory_bytes=memory_bytes)
        for _ in range(files_before):
            assert bytes(next(batches)[0]) == content_of(1)
        with pytest.raises(granulo.CorruptError):
            next(batches)


def test_a_damaged_file_is_found_on_the_way_to_scratch_space(damaged, tmp_path):
    with pytest.raises(granulo.CorruptError):
        list(granulo.Shuffle(damaged.listing(), 8, scratch=tmp_path))
    assert not list(tmp_path.glob("granulo-*"))


def reader(store, table, scratch=None):
    return _granulo.Reader(
        store, table, "exact", 0, 0, 0, None, 0, 1, 0, 1, 8, False, 0, 50_000, 2, scratch
    )  # fmt: skip


def test_a_panic_of_the_thread_that_reads_is_an_error(store, tmp_path, capfd):
    # Places of fewer files than the table has: the thread that reads looks for one that is not there, and panics.
    places = _granulo.Scratch(store, store.table("cats"), 0, 0, str(tmp_path), 1 << 20, 2, True)
    batches = reader(store, store.table(""), places)
    with pytest.raises(granulo.StoreError, match="ended unexpectedly"):
        list(batches)
    assert "panicked" in capfd.readouterr().err
    # An error ends the sequence.
    assert list(batches) == []
    assert sum(len(indices) // 4 for indices, _, _ in reader(store, store.table(""))) == len(KEYS)


def test_an_error_of_a_worker_keeps_its_message():
    # torch makes the exception again, of the text of the traceback.
    assert str(granulo.CorruptError("in worker 0")) == "in worker 0"


def test_an_iterator_does_not_keep_a_store_open_for_writing(tmp_path):
    with granulo.Store(tmp_path / "s", "x") as store:
        store["a"] = b"1"
        batches = iter(granulo.Shuffle(store.listing()))
        next(batches)
    with granulo.Store(tmp_path / "s", "r+") as store:
        store["b"] = b"2"
    del batches
