"""Processes: forked and spawned workers read the same bytes, and a killed one hurts nobody."""

import hashlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys

import granulo
import numpy as np
import pytest
from conftest import KEYS, content_of, write_files


def test_a_child_does_not_keep_the_lock_of_a_parent_that_is_killed(tmp_path):
    path = tmp_path / "s"
    told, gone = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        store = granulo.Store(path, "x")
        store["a"] = b"1"
        if os.fork() == 0:
            # The child of the writer outlives it, until this test closes its end.
            os.close(gone[1])
            os.write(told[1], b"x")
            os.read(gone[0], 1)
            os._exit(0)
        os.read(told[0], 1)
        os.write(told[1], b"y")
        os._exit(0)
    os.waitpid(parent, 0)
    assert os.read(told[0], 1) == b"y"
    with granulo.Store(path, "r+") as store:
        store["b"] = b"2"
        assert list(store) == ["a", "b"]
    os.close(gone[1])


def digest_of(shuffle, worker, workers):
    """Digest of each batch that is this worker's: of rows and contents."""
    return [
        hashlib.sha256(batch.indices.tobytes() + batch.buffer + batch.offsets.tobytes()).hexdigest()
        for batch in shuffle.batches(worker, workers)
    ]


def work(shuffle, worker, workers, results):
    results.put((worker, digest_of(shuffle, worker, workers)))


def run(context, shuffle, workers):
    results = context.Queue()
    processes = [context.Process(target=work, args=(shuffle, at, workers, results)) for at in range(workers)]
    for process in processes:
        process.start()
    parts = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    count = sum(map(len, parts.values()))
    return [parts[batch % workers][batch // workers] for batch in range(count)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("workers", [1, 4, 8])
def test_any_number_of_workers_reads_the_same_bits(store, method, workers, tmp_path):
    options = {"seed": 5, "memory_bytes": 100_000, "batch_files": 25}
    shuffle = granulo.Shuffle(store.listing(), **options)
    expected = digest_of(shuffle, 0, 1)
    assert run(multiprocessing.get_context(method), shuffle, workers) == expected
    through_scratch = granulo.Shuffle(shuffle.listing, scratch=tmp_path, **options)
    with through_scratch.spread():
        assert run(multiprocessing.get_context(method), through_scratch, workers) == expected
    assert os.listdir(tmp_path) == []


def read_and_report(store, listing, results):
    buffer, _ = store.read_many(KEYS[:50])
    rows, _ = listing.read_many(range(50))
    results.put((store["cats/0000.bin"], bytes(buffer) == bytes(rows), store.writable, len(store)))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_handle_is_opened_again_in_another_process(tmp_path, method):
    write_files(tmp_path / "s", KEYS)
    context = multiprocessing.get_context(method)
    with granulo.Store(tmp_path / "s", "r+") as store:
        store["new"] = b"1"
        listing, results = store.listing(), context.Queue()
        process = context.Process(target=read_and_report, args=(store, listing, results))
        process.start()
        assert results.get(timeout=60) == (content_of("cats/0000.bin"), True, False, 601)
        process.join()
        # The child has neither closed nor unlocked what is open here.
        assert store.writable
        store["newer"] = b"2"
        with pytest.raises(BlockingIOError):
            subprocess_open(tmp_path / "s")
        assert bytes(listing.read_many([listing.index("new")])[0]) == b"1"
    assert granulo.Store(tmp_path / "s")["newer"] == b"2"


def read_own(store, results):
    results.put(store.get("here"))


def test_a_store_of_a_relative_path_stays_the_one_it_is(tmp_path, monkeypatch):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        write_files(tmp_path / place / "s", [place])
    monkeypatch.chdir(tmp_path / "here")
    with granulo.Store("s", "r+") as store:
        monkeypatch.chdir(tmp_path / "there")
        assert store.path == tmp_path / "here" / "s"
        assert list(pickle.loads(pickle.dumps(store))) == ["here"]
        # The listing of a writer, and another process, open the store again.
        assert store.listing()[0] == "here"
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        process = context.Process(target=read_own, args=(store, results))
        process.start()
        assert results.get(timeout=60) == content_of("here")
        process.join()


def subprocess_open(path):
    """Opens a store for writing in another process; raises what it raises."""
    program = "import granulo, sys; granulo.Store(sys.argv[1], 'r+')"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    if "BusyError" in done.stderr:
        raise BlockingIOError
    assert done.returncode == 0, done.stderr


def put_in_child(store, results):
    try:
        store["from/child"] = b"1"
    except granulo.ReadOnlyError:
        results.put("read-only")


def test_a_forked_child_of_a_writer_does_not_write(tmp_path):
    context = multiprocessing.get_context("fork")
    with granulo.Store(tmp_path / "s", "x") as store:
        results = context.Queue()
        process = context.Process(target=put_in_child, args=(store, results))
        process.start()
        assert results.get(timeout=60) == "read-only"
        process.join()
        store["a"] = b"1"


def read_for_ever(shuffle, started):
    while True:
        for _ in shuffle:
            started.set()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_killed_worker_hurts_nobody(tmp_path, method):
    write_files(tmp_path / "s", KEYS)
    store = granulo.Store(tmp_path / "s")
    shuffle = granulo.Shuffle(store.listing(), 25, memory_bytes=100_000)
    expected = digest_of(shuffle, 0, 1)
    context = multiprocessing.get_context(method)
    processes = []
    for _ in range(3):
        started = context.Event()
        processes.append(context.Process(target=read_for_ever, args=(shuffle, started)))
        processes[-1].start()
        assert started.wait(60)
    for process in processes[:2]:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert processes[2].is_alive()
    assert digest_of(shuffle, 0, 1) == expected
    with granulo.Store(tmp_path / "s", "r+") as writer:
        writer["new"] = b"1"
        writer.compact()
    assert digest_of(shuffle, 0, 1) == expected
    os.kill(processes[2].pid, signal.SIGKILL)
    processes[2].join()


def test_a_writer_appends_while_workers_read(tmp_path):
    path = tmp_path / "s"
    write_files(path, KEYS)
    program = """
import sys, granulo
with granulo.Store(sys.argv[1], "r+") as store:
    number = 0
    while True:
        with store.batch() as batch:
            for _ in range(20):
                number += 1
                batch[f"new/{number}"] = b"x" * (number % 3000)
                batch["cats/0000.bin"] = str(number).encode()
        if number == 20:
            print("ready", flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    try:
        reader = granulo.Store(path)
        shuffle = granulo.Shuffle(reader.listing("dogs"), 20, memory_bytes=50_000)
        assert writer.stdout.readline() == b"ready\n"
        expected = digest_of(shuffle, 0, 1)
        for _ in range(50):
            assert digest_of(shuffle, 0, 1) == expected
        assert run(multiprocessing.get_context("fork"), shuffle, 4) == expected
        newer = len(reader.listing())
        assert newer > 600
        buffer, offsets = reader.read_many(KEYS)
        assert bytes(buffer[offsets[1] :]) == b"".join(map(content_of, KEYS[1:]))
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


def test_threads_share_a_store(store):
    from concurrent.futures import ThreadPoolExecutor

    listing = store.listing()

    def read(seed):
        rows = np.random.default_rng(seed).permutation(600)
        buffer, offsets = listing.read_many(rows)
        return all(bytes(buffer[offsets[at] : offsets[at + 1]]) == content_of(KEYS[row]) for at, row in enumerate(rows))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(32)))
