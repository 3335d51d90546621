#!/usr/bin/env bash
# The tests twice at the same time on one machine: what they share by mistake (names of files, loop devices, mounts, the
# memory that a test expects to have) makes one of them fail.
#
#   tests/twice.sh [ARGUMENTS OF CARGO TEST...]     tests/twice.sh --test it -- bench
#
# Builds once, copies tree and build twice, and runs each copy in a mount namespace in which it lies where the original
# does: for cargo nothing has changed, so it builds nothing again. Needs root, and room for two copies in $TMPDIR.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=$(cargo metadata --format-version 1 --no-deps | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
build=()
for argument in "$@"; do
  [ "$argument" != -- ] || break
  build+=("$argument")
done
cargo test --locked --no-run "${build[@]}"

scratch=$(mktemp -d -t granulo-twice.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
for copy in one two; do
  mkdir -p "$scratch/$copy/tree" "$scratch/$copy/target/debug"
  git ls-files -z | xargs -0 cp --archive --parents --target-directory="$scratch/$copy/tree"
  # In the copy of the tree, for a build in its usual place.
  case $target in "$root"/*) mkdir -p "$scratch/$copy/tree${target#"$root"}" ;; esac
  find "$target/debug" -mindepth 1 -maxdepth 1 ! -name incremental -exec cp --archive --target-directory="$scratch/$copy/target/debug" {} +
done

run() {
  unshare --mount bash -euc '
    copy=$1 root=$2 target=$3
    shift 3
    mount --bind "$copy/tree" "$root"
    mount --bind "$copy/target" "$target"
    cd "$root"
    exec cargo test --locked "$@"' bash "$scratch/$1" "$root" "$target" "${@:2}" > "$scratch/$1/said.txt" 2>&1
}
declare -A process
for copy in one two; do
  run "$copy" "$@" &
  process[$copy]=$!
done
status=0
for copy in one two; do
  wait "${process[$copy]}" || { status=1; cat "$scratch/$copy/said.txt"; }
  grep -E '^(test result|error)|Compiling|panicked' "$scratch/$copy/said.txt" | sed "s/^/$copy: /"
done
exit "$status"
