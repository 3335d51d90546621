"""What the benchmark of reading from Python reads: the same files in one place each.

A target writes the files when it is made and opens them with `open`. `read`, where there is random access, returns the
contents of some numbers; `epochs` are its ways through all of them, by name: functions of the number of the epoch, the
worker and the number of workers, each of which reads that worker's share.
"""

import contextlib
import io
import random
import subprocess
import sys
import tarfile
from importlib.util import find_spec

from harness import MIB

BATCH_FILES = 256
# Shards of the formats that have them: as many as workers can share evenly.
SHARDS = 8


def content_of(number, size_bytes):
    return random.Random(number).randbytes(size_bytes)


def key_of(number):
    return f"{number % 50:02d}/{number:07d}"


def batches(numbers):
    return (numbers[at : at + BATCH_FILES] for at in range(0, len(numbers), BATCH_FILES))


class Target:
    package = None
    epochs = {}

    def __init__(self, place, files, size_bytes):
        self.place, self.files, self.size_bytes = place, files, size_bytes
        self.write()

    def open(self):
        pass

    def unmap(self):
        """Lets go of what would keep its pages in memory when caches are dropped."""

    def contents(self):
        return ((key_of(number), content_of(number, self.size_bytes)) for number in range(self.files))

    def prepared(self, way, epoch, workers):
        """What has to be done before the workers of an epoch start, as a context; its time counts."""
        return contextlib.nullcontext()

    def share(self, epoch, worker, workers):
        """The numbers of a worker, in the random order of an epoch."""
        return random.Random(epoch).sample(range(self.files), self.files)[worker::workers]

    def in_random_order(self, epoch, worker, workers):
        for numbers in batches(self.share(epoch, worker, workers)):
            self.read(numbers)


class Files(Target):
    """Files by open() and read()."""

    def write(self):
        for key, content in self.contents():
            path = self.place / "files" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def read(self, numbers):
        contents = []
        for number in numbers:
            with open(f"{self.place}/files/{key_of(number)}", "rb", buffering=0) as file:
                contents.append(file.read())
        return contents

    epochs = {"files, random order": Target.in_random_order}


class Granulo(Target):
    """granulo by row numbers of a listing: `read_many`."""

    package = "granulo"

    def write(self):
        import granulo

        with granulo.Store(self.place / "granulo", "x") as store, store.batch() as batch:
            for key, content in self.contents():
                batch.put(key, content)

    def open(self):
        import granulo

        self.store = granulo.Store(self.place / "granulo")
        self.listing = self.store.listing()
        self.rows = [self.listing.index(key_of(number)) for number in range(self.files)]

    def read(self, numbers):
        # One buffer with offsets: what a caller of it has.
        return self.listing.read_many([self.rows[number] for number in numbers])

    def shuffle(self, epoch, workers, **options):
        """With memory for a quarter of the data, that of all workers together."""
        import granulo

        memory_bytes = self.files * self.size_bytes // 4 // workers
        shuffle = granulo.Shuffle(self.listing, BATCH_FILES, memory_bytes=memory_bytes, **options)
        shuffle.set_epoch(epoch)
        return shuffle

    def through(self, epoch, worker, workers, **options):
        for _ in self.shuffle(epoch, workers, **options).batches(worker, workers):
            pass

    def window(self, epoch, worker, workers):
        self.through(epoch, worker, workers, order="window", window=max(self.files // 10, 1))

    def disk(self, epoch, worker, workers):
        self.through(epoch, worker, workers, order="disk")

    @contextlib.contextmanager
    def prepared(self, way, epoch, workers):
        if way != "granulo, exact through scratch":
            yield
            return
        self.spread = self.shuffle(epoch, workers, scratch=self.place)
        with self.spread.spread():
            yield

    def through_scratch(self, epoch, worker, workers):
        for _ in self.spread.batches(worker, workers):
            pass

    def load(self, epoch, worker, workers):
        """The command, which has threads of its own: with one worker only."""
        program = "import sys; from granulo._command import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "store", "load", self.place / "granulo"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    epochs = {
        "granulo, exact": through,
        "granulo, exact through scratch": through_scratch,
        "granulo, window of a tenth": window,
        "granulo, disk order": disk,
        "granulo store load": load,
    }


class GranuloSingle(Granulo):
    """granulo by key, one at a time: `store[key]`."""

    epochs = {}

    def write(self):
        """The store is that of the other one."""

    def read(self, numbers):
        return [self.store[key_of(number)] for number in numbers]


class Lmdb(Target):
    """LMDB, one read transaction a batch, contents copied."""

    package = "lmdb"

    def write(self):
        import lmdb

        map_bytes = 4 * self.files * self.size_bytes + 64 * MIB
        with lmdb.open(f"{self.place}/lmdb", map_size=map_bytes) as environment, environment.begin(write=True) as writer:
            for key, content in self.contents():
                writer.put(key.encode(), content)

    def open(self):
        # Each process opens it itself: an environment must not cross a fork.
        self.environment = None

    def read(self, numbers):
        import lmdb

        if self.environment is None:
            # Reading ahead only costs, of records in random order.
            self.environment = lmdb.open(f"{self.place}/lmdb", readonly=True, lock=False, readahead=False)
        with self.environment.begin() as reader:
            return [reader.get(key_of(number).encode()) for number in numbers]

    def unmap(self):
        if self.environment is not None:
            self.environment.close()
        self.environment = None

    def in_workers(self, epoch, worker, workers):
        self.environment = None
        self.in_random_order(epoch, worker, workers)

    epochs = {"LMDB, random order": in_workers}


class Hdf5(Target):
    """HDF5 by h5py: one data set of rows, one chunk each."""

    package = "h5py"

    def write(self):
        import h5py
        import numpy as np

        with h5py.File(self.place / "data.h5", "w") as file:
            data = file.create_dataset("data", (self.files, self.size_bytes), "u1", chunks=(1, self.size_bytes))
            for number in range(self.files):
                data[number] = np.frombuffer(content_of(number, self.size_bytes), "u1")

    def open(self):
        import h5py

        self.data = h5py.File(self.place / "data.h5", "r")["data"]

    def read(self, numbers):
        return [self.data[number].tobytes() for number in numbers]

    def in_workers(self, epoch, worker, workers):
        self.open()
        self.in_random_order(epoch, worker, workers)

    epochs = {"HDF5, random order": in_workers}


class Tar(Target):
    """Tar shards as WebDataset has them: in sequence only, so a buffer is what shuffles them.

    Read by the package webdataset if it is installed, and by tarfile otherwise.
    """

    read = None

    def write(self):
        shards = [tarfile.open(self.place / f"shard-{shard}.tar", "w") for shard in range(SHARDS)]
        for number, (key, content) in enumerate(self.contents()):
            member = tarfile.TarInfo(f"{key.replace('/', '-')}.bin")
            member.size = len(content)
            shards[number % SHARDS].addfile(member, io.BytesIO(content))
        for shard in shards:
            shard.close()

    def open(self):
        # Imported before workers are forked: it imports torch, if that is installed.
        if find_spec("webdataset"):
            import webdataset  # noqa: F401

    def window(self, epoch, worker, workers):
        paths = random.Random(epoch).sample([f"{self.place}/shard-{shard}.tar" for shard in range(SHARDS)], SHARDS)
        read = self.by_webdataset if find_spec("webdataset") else self.by_tarfile
        count = sum(1 for _ in read(paths[worker::workers], epoch, max(self.files // 10 // workers, 1)))
        if not count:
            raise SystemExit("no file was read")

    @staticmethod
    def by_webdataset(paths, epoch, window):
        import webdataset

        samples = webdataset.WebDataset(paths, shardshuffle=False, empty_check=False)
        return (sample["bin"] for sample in samples.shuffle(window, rng=random.Random(epoch)))

    @staticmethod
    def by_tarfile(paths, epoch, window):
        chance, buffer = random.Random(epoch), []
        for path in paths:
            with tarfile.open(path) as shard:
                for member in shard:
                    buffer.append(shard.extractfile(member).read())
                    if len(buffer) >= window:
                        at = chance.randrange(len(buffer))
                        buffer[at], buffer[-1] = buffer[-1], buffer[at]
                        yield buffer.pop()
        chance.shuffle(buffer)
        yield from buffer

    epochs = {"WebDataset tar, window of a tenth": window}


# Ways that take no number of workers.
ALONE = {"granulo store load"}

TARGETS = {
    "files": Files,
    "granulo read_many": Granulo,
    "granulo store[key]": GranuloSingle,
    "LMDB": Lmdb,
    "HDF5": Hdf5,
    "WebDataset tar": Tar,
}
