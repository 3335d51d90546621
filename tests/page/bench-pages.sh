#!/usr/bin/env bash
# Pages of the committed results of benches, for bench.test.mjs: one of each bench, and one of several runs together.
#
#   tests/page/bench-pages.sh GRANULO DIR
set -euo pipefail
granulo=$(realpath "$1")
to=$(realpath "$2")
cd "$(dirname "$0")/../.."
newest=$(ls -d benchmarks/runs/*-bench | tail -n 1)
for result in "$newest"/*.json; do
  "$granulo" report "$result" -o "$to/bench-$(basename "$result" .json).html"
done
"$granulo" report "$newest"/*.json "$newest/create.json" -o "$to/bench-all.html"
