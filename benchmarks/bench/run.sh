#!/usr/bin/env bash
# One full run of each bench, which docs/FINDINGS.md answers from: results, tables, and a page of each.
#
#   benchmarks/bench/run.sh [OUT] [RUN...]     OUT: benchmarks/runs/DATE-bench; RUN: create pack fill metadata cache, and
#                                              create-mounted pack-mounted metadata-mounted with the store mounted as well
#
# Needs root, 45 GiB of free disk where $TMPDIR is, and a quiet machine for about an hour (with those mounted, half an
# hour more; they are not in the default). Commands stand below; the seed is the default.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-benchmarks/runs/$(date +%F)-bench}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- create pack fill metadata cache
granulo=${GRANULO:-target/release/granulo}
mkdir -p "$out"

declare -A options=(
  [create]="--fs ext4,xfs,btrfs,ntfs --store --files 300000 --fs-size 5500MiB --rounds 2 --longest 90"
  [pack]="--fs ext4,xfs,btrfs,ntfs --rounds 2"
  [fill]="--fs ext4,xfs,btrfs --fs-size 8GiB --file-size 128MiB --levels 30%,50%,70%,80%,85%,90%,93%,95%,97%,98% --repeats 3"
  [metadata]="--fs ext4 --fs-options ext4=-i4096 --fs-devices slow,fast --store-layout slow,hybrid,fast --fs-size 5GiB --rounds 1"
  [create-mounted]="--fs ext4 --store --mount --files 300000 --fs-size 5500MiB --rounds 2 --longest 90"
  [pack-mounted]="--fs ext4 --mount --rounds 3"
  [metadata-mounted]="--fs ext4 --fs-options ext4=-i4096 --fs-devices fast --store-layout slow,hybrid,fast --mount --fs-size 5GiB --rounds 1 --longest 240"
  [cache]="--fs ext4,xfs --cache-sizes 40M,48M,64M,96M,128M --rounds 2"
)

for run in "$@"; do
  bench=${run%-mounted}
  echo "+ granulo bench $bench ${options[$run]}"
  # Status 1 is a result with limits, which the table names. Options are words on purpose.
  # shellcheck disable=SC2086
  "$granulo" bench "$bench" ${options[$run]} -o "$out/$run.json" > "$out/$run.txt" || [ $? -eq 1 ]
done
