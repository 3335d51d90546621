#!/usr/bin/env bash
# Pages of a small trace, of a store, of a tree that grows and of a layout, for the page tests: one trace, two together,
# caches, the store, what is in it, a history, and allocations.
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
devices=()
for disk in fast/0 fast/1 slow/2 slow/3 slow/4; do devices+=("--${disk%/*}" "$out/disks/$disk"); done
"$granulo" store init "$out/store" "${devices[@]}" > /dev/null
"$granulo" store import "$out/store" "$source/docs" --quiet > /dev/null
"$granulo" store snapshot create "$out/store" before > /dev/null
"$granulo" store rm "$out/store" METHOD.md > /dev/null
"$granulo" store status "$out/store" --count --report "$out/store.html" > /dev/null
"$granulo" store ls "$out/store" -R -l -o "$out/list.json" > /dev/null
"$granulo" report "$out/list.json" -o "$out/result.html"
"$granulo" allocate zfs:vdev=raidz2,disks=9,recordsize=8K --up-to 128KiB --step 1KiB --report "$out/allocate.html" > /dev/null
mkdir "$out/tree" "$out/surveys"
for month in 07 08 09 10 11; do
  cp -r "$source/docs" "$out/tree/$month"
  "$granulo" survey "$out/tree" --name tree --quiet -o "$out/surveys/$month.json" > /dev/null
  sed -i -E "s/(\"taken_at\": *)\"[^\"]*\"/\1\"2026-$month-01T03:00:00Z\"/" "$out/surveys/$month.json"
done
"$granulo" history "$out/surveys" --report "$out/history.html" > /dev/null
