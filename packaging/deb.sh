#!/usr/bin/env bash
# A Debian package of an unpacked archive of packaging/dist.sh.
#
#   packaging/deb.sh DIRECTORY OUT
#
# The binary is static, so the package depends on nothing. It has man pages, completions, mount.granulo for mount(8) and
# /etc/fstab, and a timer for a nightly survey, which is off until `systemctl enable --now granulo-survey.timer`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
from=$(realpath "$1")
out=$(realpath "$2")
read -r version target <<< "$(basename "$from" | sed 's/^granulo-\([^-]*\)-/\1 /')"
case $target in
  x86_64-*) architecture=amd64 ;;
  aarch64-*) architecture=arm64 ;;
  *)
    echo "no Debian architecture for $target" >&2
    exit 1
    ;;
esac
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
documents=$root/usr/share/doc/granulo
install -D -m 755 "$from/granulo" "$root/usr/bin/granulo"
install -d "$root/usr/sbin" "$root/usr/share/man/man1" "$documents"
ln -s ../bin/granulo "$root/usr/sbin/mount.granulo"
for page in "$from"/man/*.1; do gzip -9nc "$page" > "$root/usr/share/man/man1/$(basename "$page").gz"; done
install -D -m 644 "$from/completions/granulo.bash" "$root/usr/share/bash-completion/completions/granulo"
install -D -m 644 "$from/completions/granulo.zsh" "$root/usr/share/zsh/vendor-completions/_granulo"
install -D -m 644 "$from/completions/granulo.fish" "$root/usr/share/fish/vendor_completions.d/granulo.fish"
install -D -m 644 "$here/systemd/granulo-survey.service" "$root/lib/systemd/system/granulo-survey.service"
install -D -m 644 "$here/systemd/granulo-survey.timer" "$root/lib/systemd/system/granulo-survey.timer"
install -D -m 644 "$here/systemd/granulo-survey.default" "$root/etc/default/granulo-survey"
install -m 644 "$from/README.md" "$from/THIRD-PARTY.md" "$documents"
cp -r --no-preserve=mode,ownership "$from/docs" "$documents"
install -m 644 "$from/LICENSE" "$documents/copyright"
gzip -9nc "$from/CHANGELOG.md" > "$documents/changelog.gz"
mkdir "$root/DEBIAN"
echo /etc/default/granulo-survey > "$root/DEBIAN/conffiles"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" \
  -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f 1)/" "$here/debian/control" > "$root/DEBIAN/control"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/granulo_${version}_$architecture.deb"
