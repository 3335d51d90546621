#!/bin/sh
# Runs the cases of pjdfstest (https://crates.io/crates/pjdfstest, version 0.2.2) on ext4 and on a mounted store: every
# case that passes on ext4 must pass on the mount. One is skipped there: pathconf(3) knows the largest link count of ext4,
# and of no FUSE file system.
#
# tests/pjdfs.sh GRANULO [PJDFSTEST]
#
# Needs root, /dev/fuse, mkfs.ext4 and loop devices. PJDFS_RESULTS=DIR keeps the output there.
set -eu
granulo=$(realpath "$1")
pjdfstest=${2:-pjdfstest}
command -v "$pjdfstest" > /dev/null || {
    echo "there is no $pjdfstest: cargo install --locked pjdfstest --version 0.2.2" >&2
    exit 2
}

work=$(mktemp -d)
chmod 755 "$work"
cleanup() {
    cd /
    umount -l "$work/mnt" 2> /dev/null || true
    umount -l "$work/ext4" 2> /dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

mkdir "$work/mnt" "$work/ext4"
truncate -s 256M "$work/ext4.img"
mkfs.ext4 -q "$work/ext4.img"
mount -o loop "$work/ext4.img" "$work/ext4"
"$granulo" store init "$work/store" > /dev/null
"$granulo" mount --background --log "$work/log" -o allow_other,suid,dev "$work/store" "$work/mnt"

cat > "$work/config.toml" << 'EOF'
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}

[settings]
naptime = 0.01

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
EOF

for place in ext4 mnt; do
    # It ends with 1 if a case failed: the lists say which.
    "$pjdfstest" -c "$work/config.toml" -p "$work/$place" > "$work/$place.txt" 2>&1 || true
    sed 's/\x1b\[[0-9;]*m//g' "$work/$place.txt" | sed -n 's/^\([a-z0-9_:]*\) *ok$/\1/p' | sort > "$work/$place.ok"
    printf '%s: ' "$place"
    grep -a Summary "$work/$place.txt" | sed 's/\x1b\[[0-9;]*m//g'
    [ -z "${PJDFS_RESULTS:-}" ] || cp "$work/$place.txt" "$PJDFS_RESULTS/"
done
if [ ! -s "$work/ext4.ok" ]; then
    echo "no case passed on ext4" >&2
    exit 2
fi
comm -23 "$work/ext4.ok" "$work/mnt.ok" | grep -v '^link::link_count_max$' > "$work/worse" || true
if [ -s "$work/worse" ]; then
    echo "these pass on ext4, and not on the mount:"
    cat "$work/worse"
    echo "the log of the mount:"
    cat "$work/log"
    exit 1
fi
