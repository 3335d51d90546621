#!/usr/bin/env bash
# Misses and times of caches as `granulo cache` predicts them from a trace, beside those that `granulo bench cache`
# measures with the same job.
#
#   benchmarks/trace/beside.sh [OUT]     OUT: benchmarks/runs/DATE-beside
#
# The job reads 10,000 whole files, some of 3,000 much more often than others, with the sizes of web-2005 up to 1 MiB.
# It is measured on ext4 on a loop device that is limited as a disk is (120 operations a second, 160 MB/s), with limits
# of memory that hold from a tenth of the files to all; predicted with LRU and a device of the same limits. Files are
# read in one call each, so that read-ahead changes little. Needs root, strace and python3; half an hour.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-benchmarks/runs/$(date +%F)-beside}
granulo=$(realpath "${GRANULO:-target/release/granulo}")
mkdir -p "$out"
out=$(realpath "$out")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

"$granulo" generate web-2005 samples --files 3000 --bytes 150MB --content random --quiet > generate.txt || [ $? -eq 1 ]
cat > samples/load.py <<'PYTHON'
import os, random

chance = random.Random(1)
names = sorted(os.path.join(place, name) for place, _, names in os.walk(".") for name in names if name != "load.py")
files = [name for name in names if 0 < os.path.getsize(name) <= 1 << 20]
chance.shuffle(files)
for _ in range(10_000):
    with open(files[int(len(files) ** chance.random()) - 1], "rb", buffering=0) as file:
        file.read(1 << 20)
PYTHON
(cd samples && "$granulo" trace record -o ../load.gtrace -- python3 load.py > ../load.log 2>&1)
# What was measured already is only predicted anew.
test -s "$out/cache.json" || "$granulo" bench cache --scratch "$scratch" --emulate hdd --fs ext4 --block-sizes 1K,4K --cache-sizes 16M,24M,32M,48M,64M,96M \
  --rounds 2 --tree samples -o "$out/cache.json" -- python3 load.py > "$out/cache.txt"
cp "$out/cache.json" .
"$granulo" cache load.gtrace --below samples --block-size 4K --cache-size 4M..128M --latency 8.33ms --bandwidth 160MB/s --beside cache.json \
  -o "$out/predicted.json" > "$out/predicted.txt"
