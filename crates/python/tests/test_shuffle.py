"""The shuffle: uniform, the same whatever memory, workers and ranks, and resumed with the identical rest."""

import itertools
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import granulo
import numpy as np
import pytest
from conftest import KEYS, content_of, write_files
from granulo import _granulo

EPOCHS = 10_000
ORDER_OF_8 = [6, 3, 1, 7, 4, 0, 2, 5]
ORDER_OF_8_IN_4 = [5, 6, 2, 1, 4, 7, 0, 3]
WINDOW_OF_8 = [1, 2, 3, 4, 5, 0, 7, 6]
PERMUTATIONS = {order: number for number, order in enumerate(itertools.permutations(range(5)))}


def chi_square_p(statistic: float, degrees: int) -> float:
    """Probability that chi-square with so many degrees exceeds the statistic: the regularised upper gamma function."""
    a, x = degrees / 2, statistic / 2
    scale = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, 2000):
            term *= x / (a + n)
            total += term
        return 1 - total * scale
    # The continued fraction, from its end.
    fraction = 0.0
    for n in range(2000, 0, -1):
        fraction = n * (a - n) / (x + 2 * n + 1 - a + fraction)
    return scale / (x + 1 - a + fraction)


def p_of(orders) -> float:
    """The p-value of the orders of five files against all 120 permutations being equally likely."""
    counts = np.zeros(120)
    for order in orders:
        counts[PERMUTATIONS[tuple(order)]] += 1
    expected = counts.sum() / 120
    return chi_square_p(float(((counts - expected) ** 2 / expected).sum()), 119)


def orders(kind: str, seed: int, window: int = 0, buckets: int | None = None):
    for epoch in range(EPOCHS):
        yield np.frombuffer(_granulo.order_of(kind, 5, seed, epoch, window, buckets), "<u4").tolist()


def test_the_p_value_is_that_of_tables():
    # Quantiles of chi-square with 119 and 10 degrees.
    assert chi_square_p(145.461, 119) == pytest.approx(0.05, abs=1e-4)
    assert chi_square_p(23.209, 10) == pytest.approx(0.01, abs=1e-5)


@pytest.mark.parametrize("buckets", [1, 2, 8])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_exact_order_is_uniform_over_ten_thousand_epochs(seed, buckets):
    assert 0.01 < p_of(orders("exact", seed, buckets=buckets)) < 0.99


@pytest.mark.parametrize("window", [2, 3, 4])
def test_the_same_test_finds_the_window_order_out(window):
    assert p_of(orders("window", 1, window)) < 1e-9


def test_a_window_as_wide_as_the_data_is_uniform():
    assert 0.01 < p_of(orders("window", 1, 5)) < 0.99


def test_epochs_of_a_store_are_uniform(tmp_path):
    write_files(tmp_path / "s", "abcde")
    shuffle = granulo.Shuffle(granulo.Store(tmp_path / "s").listing(), batch_files=2, seed=11)

    def epochs():
        for epoch in range(EPOCHS):
            shuffle.set_epoch(epoch)
            yield shuffle.rows().tolist()

    assert 0.01 < p_of(epochs()) < 0.99
    read = [np.concatenate([batch.indices for batch in shuffle]).tolist() for _ in range(20)]
    shuffle.set_epoch(EPOCHS - 1)
    expected = []
    for _ in range(20):
        expected.append(shuffle.rows().tolist())
        shuffle.set_epoch(shuffle.epoch + 1)
    assert read == expected


def test_positions_of_a_file_are_uniform_in_many_buckets():
    # The position of one file over 10,000 epochs of 3,000 files in 16 buckets, in 20 classes.
    for seed in (5, 6):
        counts = np.zeros(20)
        for epoch in range(EPOCHS):
            order = np.frombuffer(_granulo.order_of("exact", 300, seed, epoch, 0, 16), "<u4")
            counts[int(np.flatnonzero(order == 7)[0]) // 15] += 1
        expected = EPOCHS / 20
        assert 0.01 < chi_square_p(float(((counts - expected) ** 2 / expected).sum()), 19) < 0.99


@pytest.mark.parametrize("buckets", [None, 1, 2, 64])
@pytest.mark.parametrize("files", [1, 2, 1000])
def test_every_order_is_a_permutation(files, buckets):
    whole = np.frombuffer(_granulo.order_of("exact", files, 3, 4, 0, buckets), "<u4")
    assert sorted(whole.tolist()) == list(range(files))
    middle = np.frombuffer(_granulo.order_of("exact", files, 3, 4, 0, buckets, files // 2, files), "<u4")
    assert middle.tolist() == whole[files // 2 :].tolist()
    window = np.frombuffer(_granulo.order_of("window", files, 3, 4, 10), "<u4")
    assert sorted(window.tolist()) == list(range(files))


def test_the_order_is_the_one_of_every_version():
    # Of which states of training that were saved depend.
    assert np.frombuffer(_granulo.order_of("exact", 8, 1, 2), "<u4").tolist() == ORDER_OF_8
    assert np.frombuffer(_granulo.order_of("exact", 8, 1, 2, 0, 4), "<u4").tolist() == ORDER_OF_8_IN_4
    assert np.frombuffer(_granulo.order_of("window", 8, 1, 2, 3), "<u4").tolist() == WINDOW_OF_8


def test_the_window_moves_files_forward_by_no_more_than_itself():
    order = np.frombuffer(_granulo.order_of("window", 100_000, 1, 1, 1000), "<u4").astype(np.int64)
    assert (order - np.arange(100_000)).max() < 1000
    distances = {
        window: granulo.distance_from_uniform(np.frombuffer(_granulo.order_of("window", 100_000, 1, 1, window), "<u4"))
        for window in (1, 1000, 10_000, 100_000)
    }
    exact = granulo.distance_from_uniform(np.frombuffer(_granulo.order_of("exact", 100_000, 1, 1), "<u4"))
    assert exact < 0.01 and distances[100_000] < 0.01
    assert distances[1] == pytest.approx(1, abs=1e-3) and distances[1000] > 0.9 and 0.5 < distances[10_000] < 0.9


def flat(batches):
    """Rows and contents one after the other."""
    return [(int(row), bytes(batch[at])) for batch in batches for at, row in enumerate(batch.indices)]


def shuffled(store, **options):
    return granulo.Shuffle(store.listing(), 16, seed=9, **options)


def test_contents_are_those_of_the_rows_whatever_the_memory(store, tmp_path):
    shuffle = shuffled(store)
    expected = [(int(row), content_of(KEYS[row])) for row in shuffle.rows()]
    assert sorted(row for row, _ in expected) == list(range(600))
    for options in (
        {},
        {"memory_bytes": 1},
        {"memory_bytes": 200_000, "threads": 1},
        {"memory_bytes": 200_000, "scratch": tmp_path},
        {"scratch": tmp_path},
    ):
        assert flat(shuffled(store, **options)) == expected, options
    assert os.listdir(tmp_path) == []


def test_another_epoch_and_another_seed_have_another_order(store):
    shuffle = shuffled(store)
    first, second = flat(shuffle), flat(shuffle)
    assert shuffle.epoch == 2 and first != second and sorted(first) == sorted(second)
    assert flat(granulo.Shuffle(store.listing(), 16, seed=10)) != first
    shuffle.set_epoch(1)
    assert flat(shuffle) == second


@pytest.mark.parametrize("order, window", [("exact", 0), ("window", 50), ("disk", 0)])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("workers", [1, 4])
def test_ranks_and_workers_share_one_order(store, ranks, workers, order, window):
    expected = shuffled(store, order=order, window=window).rows().tolist()
    by_rank = []
    for rank in range(ranks):
        shuffle = shuffled(store, rank=rank, ranks=ranks, order=order, window=window)
        parts = [list(shuffle.batches(worker, workers)) for worker in range(workers)]
        in_turn = [batch for turn in itertools.zip_longest(*parts) for batch in turn if batch is not None]
        assert len(in_turn) == len(shuffle)
        by_rank.append([int(row) for batch in in_turn for row in batch.indices])
    together = [row for turn in itertools.zip_longest(*by_rank) for row in turn if row is not None]
    assert together == expected


def test_with_drop_last_every_rank_has_as_many_full_batches(store):
    sizes = [
        [len(batch) for batch in granulo.Shuffle(store.listing(), 17, rank=rank, ranks=7, drop_last=True)]
        for rank in range(7)
    ]
    assert sizes == [[17] * (600 // (7 * 17))] * 7


@pytest.mark.parametrize("done", [0, 1, 20, 37, 38])
@pytest.mark.parametrize("scratch", [False, True])
def test_a_state_continues_with_the_identical_rest(store, tmp_path, done, scratch):
    options = {"scratch": tmp_path, "memory_bytes": 300_000} if scratch else {"memory_bytes": 300_000}
    shuffle = shuffled(store, **options)
    shuffle.set_epoch(3)
    whole = flat(shuffle) + flat(shuffle)
    shuffle.set_epoch(3)
    running = iter(shuffle)
    before = flat(itertools.islice(running, done))
    state = shuffle.state_dict()
    running.close()
    other = shuffled(store, **options)
    other.load_state_dict(state)
    rest = flat(other)
    if other.epoch == 4:
        rest += flat(other)
    assert before + rest == whole
    assert os.listdir(tmp_path) == []


def test_a_state_of_something_else_is_refused(store):
    state = shuffled(store).state_dict()
    with pytest.raises(granulo.UsageError, match="seed"):
        granulo.Shuffle(store.listing(), 16, seed=1).load_state_dict(state)
    with pytest.raises(granulo.UsageError, match="files"):
        granulo.Shuffle(store.listing("cats"), 16, seed=9).load_state_dict(state)
    with pytest.raises(granulo.UsageError):
        shuffled(store).load_state_dict({"epoch": 1})
    assert shuffled(store).state_dict(38)["epoch"] == 1


@pytest.mark.parametrize("order, window", [("exact", 0), ("window", 50), ("disk", 0)])
def test_a_state_is_refused_where_its_order_is_another_one(tmp_path, order, window):
    path = tmp_path / "s"
    write_files(path, KEYS[:300])

    def again():
        return shuffled(granulo.Store(path), order=order, window=window)

    shuffle = again()
    whole = flat(shuffle)
    shuffle.set_epoch(0)
    next(iter(shuffle))
    state = shuffle.state_dict()
    # As many files of the same names and contents, one of them in another place.
    with granulo.Store(path, "r+") as store:
        store[KEYS[0]] = content_of(KEYS[0])
    resumed = again()
    if order == "exact":
        resumed.load_state_dict(state)
        assert whole[:16] + flat(resumed) == whole
    else:
        with pytest.raises(granulo.UsageError, match="order on disk has changed"):
            resumed.load_state_dict(state)
        assert (resumed.epoch, resumed.batch) == (0, 0)
    # As many files, one of them with another name.
    with granulo.Store(path, "r+") as store:
        del store[KEYS[0]]
        store["cats/another"] = content_of(KEYS[0])
    with pytest.raises(granulo.UsageError, match="other files"):
        again().load_state_dict(state)
    # A listing that was pickled is the same one.
    assert pickle.loads(pickle.dumps(shuffle)).state_dict() == state


def test_impossible_requests_are_refused(store, tmp_path):
    for wrong in (
        {"order": "window"}, {"window": 5}, {"order": "random"}, {"rank": 1}, {"order": "disk", "scratch": tmp_path},
    ):
        with pytest.raises(ValueError):
            granulo.Shuffle(store.listing(), **wrong)
    with pytest.raises(granulo.UsageError, match="spread"):
        list(granulo.Shuffle(store.listing(), scratch=tmp_path).batches(0, 2))
    with pytest.raises(granulo.StoreError, match="stretches"):
        list(granulo.Shuffle(store.listing(), scratch=tmp_path, memory_bytes=2))


def test_damage_in_scratch_space_is_found(store, tmp_path):
    shuffle = shuffled(store, scratch=tmp_path)
    with shuffle.spread():
        (stretch,) = tmp_path.glob("granulo-*/stretch-000")
        content = bytearray(stretch.read_bytes())
        content[len(content) // 2] ^= 1
        stretch.write_bytes(content)
        with pytest.raises(granulo.CorruptError, match="scratch space"):
            list(shuffle.batches())
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_leaves_scratch_space_to_its_parent(store, tmp_path):
    shuffle = shuffled(store, scratch=tmp_path, memory_bytes=200_000)
    expected = [(int(row), content_of(KEYS[row])) for row in shuffle.rows()]
    batches = iter(shuffle)
    before = flat([next(batches)])
    child = os.fork()
    if child == 0:
        # As when an exception ends it.
        try:
            batches.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert before + flat(batches) == expected
    assert os.listdir(tmp_path) == []


def test_an_iterator_that_is_abandoned_stops_reading(store):
    for _ in range(20):
        next(iter(shuffled(store, memory_bytes=50_000)))


LETTING_GO = """
import os, pathlib, sys, threading
import granulo
from granulo import _granulo

store = granulo.Store(sys.argv[1])
table, place = store.table(""), sys.argv[2]
scratch = _granulo.Scratch(store, table, 0, 0, place, 1 << 30, 1, True)
stretch = f"{place}/stretch-000"
os.remove(stretch)
os.mkfifo(stretch)
reader = _granulo.Reader(store, table, "exact", 0, 0, 0, None, 0, 1, 0, 1, 8, False, 0, 1 << 30, 1, scratch)


def state():
    # Of the thread that reads: in /proc, behind the name in brackets.
    for task in pathlib.Path("/proc/self/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition(")")
        if name.endswith("(granulo read"):
            return rest.split()[0]


# It waits for somebody to open the other end of the pipe.
while state() != "S":
    pass
ready, go = threading.Event(), threading.Event()


def open_other_end():
    ready.set()
    go.wait()
    os.close(os.open(stretch, os.O_WRONLY))


other = threading.Thread(target=open_other_end)
other.start()
ready.wait()
# From here on a thread runs only when another lets go of the interpreter.
sys.setswitchinterval(1000)
go.set()
del reader
other.join()
print("ended")
"""


def test_other_threads_run_while_an_abandoned_reader_ends(home, tmp_path):
    command = [sys.executable, "-c", LETTING_GO, home, tmp_path / "scratch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ended\n", done.stderr


def test_an_epoch_that_was_counted_is_followed_by_the_next(store):
    shuffle = granulo.Shuffle(store.listing(), 16)
    assert [sum(1 for _ in zip(range(len(shuffle)), shuffle, strict=False)) for _ in range(2)] == [38, 38]
    assert (shuffle.epoch, shuffle.batch) == (1, 38)


def test_ctrl_c_ends_the_first_pass(tmp_path, monkeypatch):
    with granulo.Store(tmp_path / "store", "x") as writer, writer.batch() as batch:
        for number in range(2000):
            batch.put(f"{number:04d}", bytes(100_000))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # Pieces of a quarter of the memory, each followed by a look at signals: a thousand of them.
    shuffle = granulo.Shuffle(granulo.Store(tmp_path / "store").listing(), scratch=scratch, memory_bytes=1 << 20)
    ended = []
    places = shuffle._places

    def recorded(directory, fill):
        try:
            return places(directory, fill)
        except BaseException as error:
            ended.append(type(error))
            raise

    def interrupt():
        while not any(scratch.glob("*/stretch-*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(shuffle, "_places", recorded)
    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        # The signal may come when a pass has just ended.
        for _ in range(1000):
            with shuffle.spread():
                pass
    thread.join()
    assert ended in ([], [KeyboardInterrupt])
