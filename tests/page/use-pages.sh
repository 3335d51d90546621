#!/usr/bin/env bash
# Pages of a small trace, of a store, of a tree that grows and of a layout, for the page tests: one trace, two together,
# caches, the store, checks of it, what is in it, a history, comparisons, and allocations.
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
"$granulo" store check "$out/store" --deep --report "$out/check-well.html" > /dev/null
# A byte of a segment that is not as it was.
segment=$(find "$out/disks/fast/0/segments" -type f -size +8k | sort | head -n 1)
printf '\377\377\377' | dd of="$segment" bs=1 seek=6000 conv=notrunc status=none
"$granulo" store check "$out/store" --deep --report "$out/check-damaged.html" > /dev/null || [ $? -eq 1 ]
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
"$granulo" compare "$out/surveys/07.json" "$out/surveys/11.json" -o "$out/compare.json" > /dev/null
"$granulo" report "$out/compare.json" -o "$out/compare-tree.html"
"$granulo" compare vu-1984 vu-2005 "$out/surveys/11.json" --report "$out/compare-populations.html" > /dev/null
