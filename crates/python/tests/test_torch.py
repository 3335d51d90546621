"""The data sets for torch, in this process and in workers that are forked or spawned."""

import copy
import itertools
import os
import pickle
import warnings

import granulo
import pytest
from conftest import KEYS, content_of

with warnings.catch_warnings():
    # Debian's torch is older than numpy 2, which it does not need here.
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="torch is not installed: python3-torch")
    from granulo.torch import FileDataset, ShuffledDataset, samples, to_tensors
    from torch.utils.data import DataLoader

pytestmark = pytest.mark.filterwarnings("default")

#: How workers start, and how many. Those that are spawned import torch, each for itself, which takes seconds.
LOADERS = [(None, 0), ("fork", 1), ("fork", 4), ("spawn", 2)]


def test_the_package_does_not_import_torch():
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", "import granulo, sys; assert 'torch' not in sys.modules"], check=True)


def length(row, content):
    return row, len(content)


def test_map_style(store):
    data = FileDataset(store.listing())
    assert len(data) == 600 and bytes(data[3].tolist()) == content_of(KEYS[3])
    items = data.__getitems__([5, 0, 599])
    assert [bytes(item.tolist()) for item in items] == [content_of(KEYS[at]) for at in (5, 0, 599)]
    assert items[0].dtype == torch.uint8
    for row in (600, -601):
        with pytest.raises(IndexError):
            data[row]
    assert data[-1].tolist() == data[599].tolist() and len(list(data)) == 600
    again = pickle.loads(pickle.dumps(data))
    assert again[3].tolist() == data[3].tolist()


@pytest.mark.parametrize("method, workers", LOADERS)
def test_map_style_in_a_loader(store, method, workers):
    data = FileDataset(store.listing(), transform=length)
    loader = DataLoader(data, batch_size=50, num_workers=workers, multiprocessing_context=method)
    found = [(int(row), int(size)) for rows, sizes in loader for row, size in zip(rows, sizes)]
    assert found == [(row, len(content_of(key))) for row, key in enumerate(KEYS)]


def read(loader):
    found = []
    for batch in loader:
        offsets, content = batch["offsets"].tolist(), bytes(batch["content"].tolist())
        for at, row in enumerate(batch["indices"].tolist()):
            found.append((row, content[offsets[at] : offsets[at + 1]]))
    return found


def expected(store, epoch, rank=0, ranks=1):
    shuffle = granulo.Shuffle(store.listing(), 32, seed=4)
    shuffle.set_epoch(epoch)
    return [(int(row), content_of(KEYS[row])) for row in shuffle.rows()[rank::ranks]]


@pytest.mark.parametrize("method, workers", LOADERS)
def test_iterable_style_is_the_exact_order_for_any_number_of_workers(store, method, workers):
    data = ShuffledDataset(granulo.Shuffle(store.listing(), 32, seed=4, memory_bytes=200_000))
    loader = DataLoader(
        data, batch_size=None, num_workers=workers, multiprocessing_context=method, persistent_workers=workers > 1
    )
    assert len(loader) == 19
    for epoch in (0, 1, 5):
        data.set_epoch(epoch)
        assert read(loader) == expected(store, epoch)


@pytest.mark.parametrize("workers", [0, 3])
def test_ranks_and_resuming(store, workers):
    for rank in range(2):
        whole = expected(store, 2, rank, 2)
        data = ShuffledDataset(granulo.Shuffle(store.listing(), 32, seed=4, rank=rank, ranks=2))
        data.set_epoch(2)
        loader = iter(DataLoader(data, batch_size=None, num_workers=workers))
        before = read([next(loader) for _ in range(4)])
        state = data.state_dict(4)
        del loader
        other = ShuffledDataset(granulo.Shuffle(store.listing(), 32, seed=4, rank=rank, ranks=2))
        other.load_state_dict(state)
        assert before + read(DataLoader(other, batch_size=None, num_workers=workers)) == whole


def test_scratch_space_is_shared_by_workers(store, tmp_path):
    shuffle = granulo.Shuffle(store.listing(), 32, seed=4, memory_bytes=300_000, scratch=tmp_path)
    with shuffle.spread():
        loader = DataLoader(ShuffledDataset(shuffle), batch_size=None, num_workers=4)
        assert read(loader) == expected(store, 0)
    assert os.listdir(tmp_path) == []


def test_tensors_are_over_the_memory_that_was_read(store):
    (batch,) = store.listing("cats").batches("disk", 200)
    tensors = to_tensors(batch)
    tensors["content"][0] = 7
    assert batch.buffer[0] == 7
    assert [len(sample) for sample in samples(batch)] == (tensors["offsets"][1:] - tensors["offsets"][:-1]).tolist()


@pytest.mark.parametrize("copied", [lambda data: data, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_workers_that_persist_follow_the_shuffle(store, copied):
    data = copied(ShuffledDataset(granulo.Shuffle(store.listing(), 32, seed=4)))
    loader = DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    for epoch in (0, 1):
        data.shuffle.set_epoch(epoch)
        assert read(loader) == expected(store, epoch)


def test_two_data_sets_of_one_shuffle_have_epochs_of_their_own(store):
    shuffle = granulo.Shuffle(store.listing(), 32, seed=4)
    one, other = ShuffledDataset(shuffle), ShuffledDataset(shuffle)
    one.set_epoch(1)
    assert read(one) == expected(store, 1)
    assert read(other) == expected(store, 0)


def test_a_data_set_knows_where_it_is_by_itself(store, monkeypatch):
    data = ShuffledDataset(granulo.Shuffle(store.listing(), 32, seed=4))
    before = read(itertools.islice(data, 4))
    other = ShuffledDataset(granulo.Shuffle(store.listing(), 32, seed=4))
    other.load_state_dict(data.state_dict())
    assert before + read(other) == expected(store, 0)
    monkeypatch.setattr("granulo.torch.get_worker_info", lambda: object())
    assert data.state_dict() is None


def test_a_sampler_of_batches_needs_no_other_batches(store):
    data = FileDataset(store.listing())
    sampler = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(data), 100, drop_last=False)
    batches = list(DataLoader(data, batch_size=None, sampler=sampler))
    assert [len(batch) for batch in batches] == [100] * 6
    assert bytes(batches[5][99].tolist()) == content_of(KEYS[599])


def test_a_state_is_of_the_epoch_of_the_data_set(store):
    shuffle = granulo.Shuffle(store.listing(), 32, seed=4)
    data = ShuffledDataset(shuffle)
    # By itself, for example for statistics.
    assert len(list(shuffle)) == 19 and shuffle.epoch == 1
    state = data.state_dict(4)
    assert (state["epoch"], state["batch"]) == (0, 4)
