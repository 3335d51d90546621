#!/usr/bin/env python3
"""Reads a store of granulo by docs/FORMAT.md alone, format 2: from its segments, without the index and without granulo. The last resort.

    read_store.py DEVICE...             lists paths with sizes
    read_store.py DEVICE... --get PATH  writes the content of one file to standard output
    read_store.py DEVICE... --at NAME   the same of a snapshot
    read_store.py DEVICE... --side FILE the same of a side that was not taken: FILE is the name of its last segment

DEVICE is the directory of each device that there is; of two histories, those of one side. Needs xxhash (Debian: python3-xxhash). Every byte is verified;
what is damaged or missing is said on standard error, and the exit status is 1. Units of lost devices are not reconstructed here."""
import argparse, os, struct, sys
from xxhash import xxh3_64_intdigest as xxh3

FILE, LARGE, DIRECTORY, SYMLINK, SPECIAL, LINK, REMOVAL, TREE_REMOVAL, COMMIT, RELEASE, SNAPSHOT, ATTRIBUTES = range(1, 13)
problems = 0


def complain(*words):
    global problems
    problems += 1
    print("read_store.py:", *words, file=sys.stderr)


def unpack(form, data, at=0):
    return struct.unpack_from("<" + form, data, at)


def u48(data, at):
    return int.from_bytes(data[at:at + 6], "little")


def read(path, offset=0, length=-1):
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        complain(error)
        return b""


class Superblock:  # section 4
    def __init__(self, device):
        data, slots = read(os.path.join(device, "superblock")), []
        for slot in (data[:65536], data[65536:131072]):
            if slot[8:16] == b"granulo\0" and unpack("H", slot, 16) == (2,):
                checksum, length = unpack("Q", slot)[0], unpack("I", slot, 20)[0]
                if xxh3(slot[8:8 + length]) == checksum:
                    slots.append((unpack("Q", slot, 24)[0], slot))
        if not slots:
            raise ValueError("no valid superblock of format 2")
        slot = max(slots)[1]
        self.store, (self.number,) = slot[32:48], unpack("H", slot, 64)
        self.directory, self.has_both_slots = device, len(slots) == 2
        place, at = lambda at: at + 18 + unpack("H", slot, at + 16)[0], 112
        for _ in range(unpack("H", slot, 110)[0]):
            at = place(at + 20)
        at = place(at)
        # Each with the segments begun, and the last batch, before it.
        self.epochs, (count,), at = [], unpack("H", slot, at), at + 2
        for _ in range(count):
            epoch, _, begun, last, in_sync = unpack("QQQQH", slot, at)
            self.epochs.append((epoch, begun, last))
            at += 34 + 2 * in_sync
        has_mark, _, _, sequence = unpack("BQQQ", slot, at)
        self.mark = max(sequence if has_mark & 2 else 0, self.epochs[-1][2])

    @classmethod
    def missing(cls, device, number):
        """What stands for a superblock that is gone: segments name their store, and nothing names the epochs."""
        block, directory = cls.__new__(cls), os.path.join(device, "segments")
        heads = [read(os.path.join(directory, name), 0, 128) for name in sorted(os.listdir(directory))] if os.path.isdir(directory) else []
        stores = [head[24:40] for head in heads if len(head) == 128 and xxh3(head[8:]) == unpack("Q", head)[0]]
        block.store, block.number, block.directory = stores[0] if stores else None, number, device
        block.epochs, block.mark, block.has_both_slots = [], 0, True
        return block

    def continues(self, other):
        """Whether the history of another is a prefix of this one."""
        return other.epochs[-1][0] in [epoch for epoch, _, _ in self.epochs]

    def has_begun(self, segment):  # section 9
        """Whether a segment is of this history."""
        epochs = [epoch for epoch, _, _ in self.epochs]
        later = epochs.index(segment.epoch) + 1 if segment.epoch in epochs else 0
        return all(segment.number <= begun for _, begun, _ in self.epochs[later:])

    def has_written(self, epoch, batch):
        """Whether the writer of the next epoch found a batch of this one."""
        later = [last for (before, _, _), (_, _, last) in zip(self.epochs, self.epochs[1:]) if before == epoch]
        return all(batch <= last for last in later)


class Record:  # section 6; None of it is believed before its checksums hold
    def __init__(self, data, at, seed):
        head = data[at:at + 48]
        if len(head) < 48 or head[45] != 0xB7:
            raise ValueError("no record")
        self.checksum, self.kind, self.flags, name, content, content_checksum = unpack("QBBHIQ", head)
        self.sequence, attributes, more = u48(head, 36), int.from_bytes(head[42:45], "little"), unpack("H", head, 46)[0]
        end = at + 48 + more + name + attributes
        if len(data) < end or xxh3(data[at + 8:end], seed=(seed + at) % 2**64) != self.checksum:
            raise ValueError("the checksum of its head does not hold")
        name_at = at + 48 + more
        # A record that was moved says what took its place, if something had.
        self.until = u48(data, at + 48) if self.flags & 2 else 0
        self.name, self.attributes = data[name_at:name_at + name], data[name_at + name:end]
        # A file with several names has no name in its own record, and is known by its number.
        self.number, self.parent = u48(head, 24), u48(head, 30)
        self.key = (self.parent, self.name) if self.flags & 4 else self.number
        self.content = data[end:end + content]
        self.is_whole = len(self.content) == content and xxh3(self.content) == content_checksum
        unit = 512 if self.flags & 32 else 4096 if self.flags & 64 else 4
        self.at, self.length = at, -(-(end + content - at) // unit) * unit


class Segment:  # section 5: the copies of one, by number and epoch
    def __init__(self, store, paths):
        self.paths, self.copies = paths, []
        for path in paths:
            data = read(path)
            if data[8:16] == b"granseg\0" and xxh3(data[8:128]) == unpack("Q", data)[0] and data[24:40] == store:
                self.copies.append(data)
                self.epoch, self.number, _, *self.continues = unpack("QQQQQQQ", data, 40)
        if not self.copies:
            raise ValueError("no copy has a sound header")
        self.seed, self.is_written = xxh3(struct.pack("<16sQQ", store, self.epoch, self.number)), lambda epoch, batch: True
        self.end = max(map(len, self.copies))

    def record(self, at):
        """The record at a place, from the first copy that has it whole, or else its head alone; None if there is none."""
        found = None
        for data in self.copies:
            try:
                found = Record(data, at, self.seed)
            except (ValueError, struct.error):
                continue
            if found.is_whole:
                return found
        return found

    def intact_list(self, commit):
        """Places of the records of a commit's batch, if its list accounts for every byte (section 8); else None."""
        if not commit or commit.kind != COMMIT or not commit.is_whole:
            return None
        begin, count = unpack("Q", commit.content, 16)[0], unpack("I", commit.content, 64)[0]
        places = []
        for number in range(count):
            length, _ = unpack("II", commit.content, 72 + 8 * number)
            places.append(begin)
            begin += 4 * length
        return places if begin == commit.at else None

    def has_batch(self, end, sequence, chain):
        """Whether the batch ends there that a segment continues."""
        commits = (record for record in self.records() if record.kind == COMMIT and record.is_whole)
        return any((one.at + one.length, *unpack("Q", one.content), *unpack("Q", one.content, 32)) == (end, sequence, chain) for one in commits)

    def records(self):
        """All records of batches that have a commit, in order (section 9)."""
        at, batch = 128, []
        while at < self.end:
            record = self.record(at)
            if record is None:
                # Reading goes on at the next commit whose list is intact; content that looks like one fails the seed.
                resumed = next(((c, p) for c in map(self.record, range(at + 4, self.end, 4)) if (p := self.intact_list(c))), None)
                if resumed is None:
                    break  # an unacknowledged tail, or nothing more
                commit, places = resumed
                complain(f"{self.paths[0]}: damage from byte {at} on, before the commit at byte {commit.at}")
                yield from filter(None, map(self.record, places))
                at, batch = commit.at + commit.length, []
                continue
            batch.append(record)
            at += record.length
            if record.kind == COMMIT:
                if record.is_whole and not self.is_written(unpack("Q", record.content, 56)[0], unpack("Q", record.content)[0]):
                    break  # a later writer went on without it
                yield from batch
                batch = []


def way_back(found, released=lambda number: False):
    """Number, segment and end of each part of the log, from the last one back: each says what it continues. A part
    that is missing has no segment."""
    number, end = max(found, default=0), None
    while number > 0:
        segment = found.get(number)
        if segment and not released(number):
            yield number, segment, end
            number, end = segment.continues[:2]
            continue
        if not released(number):
            yield number, None, None
        number, end = max((one for one in found if one < number), default=0), None


class Store:
    def __init__(self, directories, snapshot=None, side=None):
        self.devices = {}
        for place, directory in enumerate(directories):
            try:
                block = Superblock(directory)
            except (ValueError, struct.error) as error:
                complain(f"{directory}: {error}")
                # The number of the only device; of others it is unknown, and so is which units they have.
                block = Superblock.missing(directory, 0 if len(directories) == 1 else -1 - place)
            self.devices[block.number] = block
        if len({block.store for block in self.devices.values() if block.store}) != 1:
            sys.exit("read_store.py: these are not devices of one store")
        blocks = [block for block in self.devices.values() if block.epochs] or [block for block in self.devices.values() if block.store][:1]
        newest = [block for block in blocks if all(block is other or block.continues(other) for other in blocks)]
        if not newest:
            sys.exit("read_store.py: these devices have two histories; name those of one side only")
        self.log(max(newest, key=lambda block: block.mark), side)
        snapshots = self.snapshots()
        if snapshot is not None and snapshot not in snapshots:
            sys.exit(f"read_store.py: there is no snapshot {ascii(snapshot)[1:-1]}")
        self.replay(2**48 if snapshot is None else snapshots[snapshot])

    def log(self, history, side):
        """The segments of the log, from the last one back (section 9)."""
        paths, alike, others = {}, {}, {}
        for block in self.devices.values():
            directory = os.path.join(block.directory, "segments")
            for name in os.listdir(directory) if os.path.isdir(directory) else []:
                paths.setdefault(name, []).append(os.path.join(directory, name))
        for name in sorted(paths):
            try:
                segment = Segment(history.store, paths[name])
            except ValueError as error:
                complain(f"{paths[name][0]}: {error}")
                continue
            if history.has_begun(segment):
                alike.setdefault(segment.number, {})[name] = segment
            else:
                others[name] = segment
        # Of several that are older than the history, the one that the next continues; the rest are of another side.
        found, following = {}, None
        for number in sorted(alike, reverse=True):
            several, on_way = alike[number], following is None or number <= following.continues[0]
            continued = len(several) > 1 and following is not None and number == following.continues[0]
            fitting = [one for one in several.values() if continued and one.has_batch(*following.continues[1:])]
            found[number] = (fitting or list(several.values()))[-1]
            following = found[number] if on_way else following
            others.update((name, one) for name, one in several.items() if one is not found[number])
        # So is what the log passes over, of an epoch that is not in the history.
        on_way, epochs = {number for number, segment, _ in way_back(found) if segment}, [epoch for epoch, _, _ in history.epochs]
        is_passed = lambda one: epochs and one.number not in on_way and one.epoch not in epochs and one.end > 128
        others.update((os.path.basename(one.paths[0]), one) for one in found.values() if is_passed(one))
        found = {number: one for number, one in found.items() if not is_passed(one)}
        if side is not None:
            # It is read in place of what this history has behind the place where they parted. Of several segments with
            # one number, its own is the one with the batch that the next continues; if it has released that, none is.
            one = last = others.get(side) or sys.exit("read_store.py: there is no such segment beside the log")
            everything, way, number = [*found.values(), *others.values()], {}, last.number
            while one is not None:
                way[number] = one
                number, *batch = one.continues
                fitting = (one for one in everything if one.number == number and number not in way)
                one = next((one for one in fitting if batch[0] <= 128 or one.has_batch(*batch)), None)
            found = {**{before: one for before, one in found.items() if before < number}, **way}
        elif others and not any(block.has_both_slots for block in self.devices.values()):
            complain("these may be of an epoch in the damaged slots of the superblocks:", *others)
        elif others:
            print("read_store.py: not of this history (see --side):", *others, file=sys.stderr)
        # Releases beside the way back are of another side, or never counted.
        self.segments = [segment for _, segment, _ in way_back(found) if segment][::-1]
        released, ends = self.released()
        self.segments = []
        for number, segment, end in way_back(found, released):
            if segment is None:
                complain(f"segment {number} is missing")
                continue
            # What lies behind the place that the next one continues is no part of the log; of one that was released,
            # the last release says where.
            segment.end = min(segment.end, ends.get(number, segment.end), segment.end if end is None else end)
            self.segments.insert(0, segment)
        if side is not None:
            return
        mark, last = history.mark, 0
        for segment in self.segments:
            segment.is_written = history.has_written
            for record in segment.records():
                if record.kind == COMMIT and record.is_whole:
                    last, durable = unpack("QQ", record.content)
                    mark = max(mark, durable)
        if last < mark:
            complain(f"the log ends after batch {last}, and {mark} were acknowledged")

    def released(self):
        """Whether a segment was released, and where segments end, by the last release (section 8)."""
        for segment in reversed(self.segments):
            releases = [record.content for record in segment.records() if record.kind == RELEASE and record.is_whole]
            if not releases:
                continue
            content, (count,) = releases[-1], unpack("I", releases[-1])
            ranges = [unpack("QQ", content, 4 + 16 * number) for number in range(count)]
            at = 4 + 16 * count
            at += 4 + 10 * unpack("I", content, at)[0]
            ends = dict(unpack("QQ", content, at + 4 + 16 * number) for number in range(unpack("I", content, at)[0]))
            return lambda number: any(first <= number < first + count for first, count in ranges), ends
        return lambda number: False, {}

    def snapshots(self):
        """Sequence numbers of snapshots, by name: releases repeat them at the beginning of segments."""
        found = {}
        for segment in self.segments:
            for record in segment.records():
                if record.kind == SNAPSHOT and record.flags & 4:
                    found[record.name] = record.sequence
                elif record.kind == SNAPSHOT:
                    found = {name: one for name, one in found.items() if one != unpack("Q", record.content)[0]}
                elif record.kind == RELEASE:
                    content, at, found = record.content, 0, {}
                    for size in (16, 10, 16):
                        at += 4 + size * unpack("I", content, at)[0]
                    count, at = unpack("I", content, at)[0], at + 4
                    for _ in range(count):
                        sequence, _, length = unpack("QQH", content, at)
                        found[content[at + 18:at + 18 + length]] = sequence
                        at += 18 + length
        return found

    def replay(self, last):
        """Up to a sequence number, the newest record of each name in a directory, and of each file with several names, that is not removed, by itself or with its
        directory. Something took the place of a record that was moved, if that says so, also where what did is gone."""
        newest, trees, superseded = {}, {}, {}
        for segment in self.segments:
            for record in segment.records():
                if record.kind in (COMMIT, RELEASE, SNAPSHOT, ATTRIBUTES) or record.sequence > last:
                    continue
                if record.kind == TREE_REMOVAL:
                    for at in range(0, len(record.content), 6):
                        directory = u48(record.content, at)
                        trees[directory] = max(record.sequence, trees.get(directory, 0))
                if record.until <= last:
                    superseded[record.key] = max(record.until, superseded.get(record.key, 0))
                if record.key not in newest or newest[record.key].sequence < record.sequence:
                    newest[record.key] = record

        def is_there(record):
            is_gone = superseded.get(record.key, 0) > record.sequence or record.flags & 4 and trees.get(record.parent, 0) > record.sequence
            return record.kind not in (REMOVAL, TREE_REMOVAL) and not is_gone

        self.records = {key: record for key, record in newest.items() if is_there(record)}
        in_order = sorted(self.records.values(), key=lambda record: record.sequence)
        self.directories = {record.number: record for record in in_order if record.kind == DIRECTORY}
        self.objects = {}
        for record in self.records.values():
            if record.flags & 4:
                self.objects[self.path(record)] = record

    def path(self, record):
        """The path of a name; what is in no directory is shown in lost+found."""
        way = [record]
        while record.parent > 1:
            above = self.directories.get(record.parent)
            if above is None or above in way:
                # Of directories that are in each other the one with the oldest name.
                circle = way[way.index(above):] if above else []
                top = min(circle, key=lambda one: one.sequence, default=None)
                below = way[:way.index(top)] if top else way
                number = top.number if top else record.parent
                return b"/".join([b"lost+found", b"#%d" % number] + [one.name for one in reversed(below)])
            record = above
            way.append(record)
        return b"/".join(one.name for one in reversed(way))

    def resolve(self, path):
        record = self.objects.get(path)
        if record is not None and record.kind == LINK:
            return self.records.get(record.number)
        return record

    def stored(self, record):
        """What is stored of a file, in pieces, verified: without the holes."""
        if not record.is_whole:
            raise ValueError("no copy of its content is whole")
        content = record.content
        if record.kind != LARGE:
            if record.flags & 1:
                try:
                    import zstandard
                except ImportError:
                    raise ValueError("it is compressed, and the Python module zstandard is not here") from None
                content = zstandard.ZstdDecompressor().decompress(content)
            yield content
            return
        size, packed, chunks = unpack("QIH", content)  # section 7
        yield content[16:16 + packed]
        at = 16 + packed
        for _ in range(chunks):
            length, unit, data, parity = unpack("QIBB", content, at)
            width, at = data + parity, at + 16
            places = [unpack("HII", content, at + 10 * number) for number in range(width)]
            at += 10 * width
            stripes = -(-length // (unit * data))
            for stripe in range(stripes):
                left = min(unit * data, length - stripe * unit * data)
                reached = -(-left // unit)
                checksums = unpack(f"{reached + parity}Q", content, at)
                at += 8 * (reached + parity)
                for number in range(reached):
                    wanted = min(unit, left - number * unit)
                    device, file, block = places[(stripe + number) % width]
                    if device not in self.devices:
                        raise ValueError(f"device {device} is not here, and units are not reconstructed")
                    offset, padded = 4096 * block + stripe * unit, wanted + -wanted % 4096
                    directory = os.path.join(self.devices[device].directory, "extents")
                    name = next((name for name in sorted(os.listdir(directory)) if name.startswith(f"{file:08}-")), "")
                    data_unit = read(os.path.join(directory, name), offset, padded)
                    if xxh3(data_unit) != checksums[number]:
                        raise ValueError(f"a unit on device {device} is damaged: {name}, byte {offset}")
                    yield data_unit[:wanted]

    def holes(self, record):
        """Size and runs of data of a file with holes; None of others (section 6, attributes)."""
        at = 28
        while at < len(record.attributes):
            tag, length = unpack("BI", record.attributes, at)
            if tag == 3:
                numbers = unpack(f"{length // 8}Q", record.attributes, at + 5)
                return numbers[0], list(zip(numbers[1::2], numbers[2::2]))
            at += 5 + length
        return None

    def size(self, record):
        holes = self.holes(record)
        if holes:
            return holes[0]
        if record.kind == LARGE:
            return unpack("Q", record.content)[0]
        # A frame of zstd begins with its magic number, a descriptor and its content size.
        if record.flags & 1:
            descriptor = record.content[4]
            single, form = descriptor >> 5 & 1, ("B", "H", "I", "Q")[descriptor >> 6]
            return unpack(form, record.content, 6 - single + (0, 1, 2, 4)[descriptor & 3])[0] + 256 * (form == "H")
        return len(record.content)

    def get(self, path, out):
        record = self.resolve(path.strip(b"/"))
        if record is None or record.kind not in (FILE, LARGE):
            raise ValueError("there is no such file")
        holes = self.holes(record)
        pieces = self.stored(record)
        if holes is None:
            for piece in pieces:
                out.write(piece)
            return
        data, at = b"".join(pieces), 0
        for offset, length in holes[1]:
            out.write(bytes(offset - at) + data[:length])
            data, at = data[length:], offset + length
        out.write(bytes(holes[0] - at))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", nargs="+", metavar="DEVICE")
    parser.add_argument("--get", metavar="PATH", type=os.fsencode)
    parser.add_argument("--at", metavar="NAME", type=os.fsencode)
    parser.add_argument("--side", metavar="FILE")
    arguments = parser.parse_args()
    store = Store(arguments.devices, arguments.at, arguments.side)
    if arguments.get is not None:
        try:
            store.get(arguments.get, sys.stdout.buffer)
        except ValueError as error:
            complain(f"{os.fsdecode(arguments.get)}: {error}")
    else:
        for path in sorted(filter(None, store.objects)):
            record = store.resolve(path)
            size = store.size(record) if record and record.kind in (FILE, LARGE) else "-"
            sys.stdout.buffer.write(f"{size:>12} ".encode() + path + b"\n")
    sys.exit(1 if problems else 0)


main()
