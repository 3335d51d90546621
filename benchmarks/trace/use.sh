#!/usr/bin/env bash
# What a compile and a data-loading job read and write, and which caches they want: what docs/FINDINGS.md answers from.
#
#   benchmarks/trace/use.sh [OUT]     OUT: benchmarks/runs/DATE-use
#
# Compile: the C sources of zstd that cargo has fetched for granulo, one compiler a file, as make does. Load: 5,000
# files with the sizes of vu-2005, read whole by four Python processes, in another order in each of three epochs. Only
# files of the job itself are counted; the sizes do not depend on the machine. Needs strace, cc and python3, no root.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-benchmarks/runs/$(date +%F)-use}
granulo=$(realpath "${GRANULO:-target/release/granulo}")
mkdir -p "$out"
out=$(realpath "$out")
zstd=$(cargo metadata --locked --format-version 1 | python3 -c '
import json, sys
print(next(package["manifest_path"] for package in json.load(sys.stdin)["packages"] if package["name"] == "zstd-sys").removesuffix("Cargo.toml") + "zstd/lib")')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

cp -r "$zstd" lib
"$granulo" trace record -o compile.gtrace -- sh -c '
  for file in $(find lib -name "*.c"); do cc -O1 -DZSTD_DISABLE_ASM -Ilib -Ilib/common -c "$file" -o "${file%.c}.o"; done
  ar rcs lib/libzstd.a $(find lib -name "*.o")' > compile.log 2>&1

"$granulo" generate vu-2005 samples --files 5000 --bytes 200MB --content random --quiet > generate.txt || [ $? -eq 1 ]
cat > load.py <<'PYTHON'
import os, random
from concurrent.futures import ProcessPoolExecutor

files = sorted(os.path.join(place, name) for place, _, names in os.walk("samples") for name in names)

def load(path):
    with open(path, "rb") as file:
        return len(file.read())

for epoch in range(3):
    random.Random(epoch).shuffle(files)
    with ProcessPoolExecutor(4) as pool:
        print(sum(pool.map(load, files, chunksize=32)))
PYTHON
"$granulo" trace record -o load.gtrace -- python3 load.py > load.log 2>&1

for job in "compile lib" "load samples"; do
  read -r name place <<< "$job"
  "$granulo" trace read "$name.gtrace" --below "$place" > "$out/$name.txt"
  "$granulo" trace read "$name.gtrace" --below "$place" --json > "$out/$name.json"
  "$granulo" cache "$name.gtrace" --below "$place" --mapped ignore --block-size 1K,4K,8K,16K,64K --cache-size 0.5M..256M --policy fifo,s3-fifo,arc --quiet > "$out/$name-cache.txt"
done
