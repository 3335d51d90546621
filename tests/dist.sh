#!/usr/bin/env bash
# The archive and the Debian package of packaging/dist.sh do the main job where nothing else is installed: the binary
# alone in an empty root, the package in a fresh Debian. Needs root, debootstrap and a Debian mirror.
#
#   tests/dist.sh DIST [SUITE]
set -euo pipefail
dist=$(realpath "$1")
suite=${2:-bookworm}
case $(uname -m) in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
esac
archive=$(find "$dist" -name "granulo-*-$(uname -m)-unknown-linux-*.tar.gz")
package=$(ls "$dist"/granulo_*_"$architecture".deb)
(cd "$dist" && sha256sum --quiet --check SHA256SUMS)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# The main job, in the root $1 with granulo at $2: survey, page, plan, store.
main_job() {
  local root=$1 granulo=$2
  mkdir -p "$root/tree/small" "$root/out"
  for number in 1 2 3 4 5 6 7 8 9; do head -c $((number * 700)) /dev/zero > "$root/tree/small/$number"; done
  head -c 300000 /dev/zero > "$root/tree/large"
  chroot "$root" "$granulo" survey /tree -o /out/s.json --report /out/s.html > "$root/out/s.txt"
  grep -q '^10 files in' "$root/out/s.txt"
  grep -q '<html' "$root/out/s.html"
  chroot "$root" "$granulo" plan /out/s.json --model ext4 --model zfs | grep -q '^zfs '
  chroot "$root" "$granulo" store init /out/store > /dev/null
  chroot "$root" "$granulo" store import /out/store /tree > /dev/null
  chroot "$root" "$granulo" store get /out/store small/3 | cmp - "$root/tree/small/3"
  chroot "$root" "$granulo" store check /out/store --deep > /dev/null
}

echo "== the binary in an empty root"
mkdir -p "$root/empty"
tar -xzf "$archive" -C "$root/empty" --strip-components 1
main_job "$root/empty" /granulo
# Every link of a document that is ours leads to a file of the archive, or to another site.
find "$root/empty" -maxdepth 3 -name '*.md' ! -name THIRD-PARTY.md | while read -r document; do
  { grep -oE '\]\([^)#]+' "$document" | grep -v : || true; } | cut -c 3- | while read -r link; do
    test -e "$(dirname "$document")/$link" || { echo "$document: no $link" >&2; exit 1; }
  done
done

echo "== the package in a fresh $suite"
debootstrap --variant=minbase --include=systemd "$suite" "$root/debian" > "$root/debootstrap.log" 2>&1 || { tail -n 20 "$root/debootstrap.log"; exit 1; }
cp "$package" "$root/debian/tmp/granulo.deb"
chroot "$root/debian" dpkg -i /tmp/granulo.deb
main_job "$root/debian" granulo
test "$(readlink "$root/debian/usr/sbin/mount.granulo")" = ../bin/granulo
test -s "$root/debian/usr/share/man/man1/granulo-survey.1.gz"
chroot "$root/debian" bash -n /usr/share/bash-completion/completions/granulo
chroot "$root/debian" systemd-analyze verify --man=no /lib/systemd/system/granulo-survey.timer
# What the nightly service runs.
chroot "$root/debian" sh -c '. /etc/default/granulo-survey; granulo survey $GRANULO_SURVEY_OPTIONS -o /out/night.json -- /usr > /dev/null'
chroot "$root/debian" dpkg -r granulo > /dev/null
test ! -e "$root/debian/usr/bin/granulo"
echo "== passed"
