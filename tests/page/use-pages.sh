#!/usr/bin/env bash
# Pages of a small trace, for the page tests: one trace, two together, and caches.
#
#   tests/page/use-pages.sh GRANULO DIR
set -euo pipefail
granulo=$1
out=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
"$granulo" trace record -o "$out/all.gtrace" -- sh -c 'cat "$1"/docs/*.md | sort > "$2/sorted" && cp -r "$1/docs" "$2/copy"' sh "$source" "$out" > /dev/null
"$granulo" trace read "$out/all.gtrace" --below "$source/docs" -o "$out/docs.gtrace" > /dev/null
"$granulo" report "$out/all.gtrace" -o "$out/trace-one.html"
"$granulo" report "$out/all.gtrace" "$out/docs.gtrace" -o "$out/trace-two.html"
"$granulo" cache "$out/all.gtrace" --policy all --cache-size 64K..4M --quiet --report "$out/cache.html" > /dev/null
