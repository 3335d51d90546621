#!/bin/sh
# What other people's programs find on a mounted store: fsx (https://crates.io/crates/fsx, version 0.3.2) with shared
# mappings, fio with verification, stress-ng's file system classes; git, sqlite with a write-ahead log, rsync there and
# back, tar, a build with make, an editor's save. Whatever succeeds on the file system beside it must succeed there.
#
# tests/mount-proof.sh GRANULO [FSX]
#
# FSX_OPERATIONS (1,000,000), STRESS_SECONDS (10 for each class). Needs root, /dev/fuse, fio, stress-ng, git, sqlite3,
# rsync, make and gcc.
set -eu
granulo=$(realpath "$1")
fsx=${2:-fsx}
operations=${FSX_OPERATIONS:-1000000}
seconds=${STRESS_SECONDS:-10}
for program in "$fsx" fio stress-ng git sqlite3 rsync make gcc; do
    command -v "$program" > /dev/null || {
        echo "there is no $program (fsx: cargo install --locked fsx --version 0.3.2)" >&2
        exit 2
    }
done

work=$(mktemp -d)
cleanup() {
    cd /
    umount -l "$work/mnt" 2> /dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
mkdir "$work/mnt" "$work/beside"
"$granulo" store init "$work/store" > /dev/null
"$granulo" mount --background --log "$work/log" -o allow_other,suid,dev "$work/store" "$work/mnt"

failed=0
# Runs a command in both directories; it must succeed on the mount if it does beside it.
both() {
    name=$1
    shift
    began=$(date +%s)
    if ! (cd "$work/beside" && timeout 600 "$@") > "$work/beside.txt" 2>&1; then
        echo "$name: fails beside the mount, too"
        tail -n 3 "$work/beside.txt"
        return
    fi
    if (cd "$work/mnt" && timeout 900 "$@") > "$work/mnt.txt" 2>&1; then
        echo "$name: well, $(($(date +%s) - began)) s"
    else
        echo "$name: FAILED on the mount"
        tail -n 20 "$work/mnt.txt"
        failed=1
    fi
}

cat > "$work/fsx.toml" << 'EOF'
[weights]
truncate = 1.0
mapread = 1.0
mapwrite = 1.0
punch_hole = 1.0
copy_file_range = 1.0
invalidate = 0.1
fsync = 0.01
EOF
both "fsx, $operations operations" "$fsx" -f "$work/fsx.toml" -N "$operations" -S 7 fsx-file
for kind in randwrite randrw write; do
    both "fio --verify, $kind" fio --name=v --filename=fio-file --size=64m --bs=4k-64k --rw=$kind --verify=crc32c \
        --ioengine=mmap --verify_fatal=1 --output=/dev/null
    both "fio --verify, $kind, many files" fio --name=v --directory=. --nrfiles=500 --size=40m --bs=1k-16k --rw=$kind \
        --verify=xxhash --ioengine=psync --fsync=50 --verify_fatal=1 --output=/dev/null
done
for class in access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap \
    file-ioctl filename flock getdent hdd inode-flags io iomix link locka lockf mknod open readahead rename seek \
    sendfile splice symlink sync-file touch utime verity xattr; do
    stress-ng --stressors 2> /dev/null | tr ' ' '\n' | grep -qx "$class" || continue
    both "stress-ng $class" stress-ng --$class 2 --timeout "$seconds" --temp-path . --verify --quiet
done

cat > "$work/programs.sh" << 'EOF'
set -eu
export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null
git init -q r && cd r
git config user.email a@b && git config user.name a
for n in $(seq 200); do echo "int f$n(int x) { return x + $n; }" > "f$n.c"; done
printf 'all: lib.a\n%%.o: %%.c\n\tgcc -c -o $@ $<\nlib.a: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\tar rc $@ $^\n' > Makefile
git add . && git commit -qm one && make -s -j2 && test "$(ar t lib.a | wc -l)" = 200
git checkout -q -b other && sed -i s/x/y/g f1.c && git commit -qam two && git gc -q && git fsck --strict
cd .. && git clone -q r clone && git -C clone checkout -q other && diff -r -x .git -x '*.o' -x lib.a r clone
sqlite3 db 'pragma journal_mode=wal; create table t(a integer primary key, b);' > /dev/null
for n in $(seq 100); do sqlite3 db "insert into t(b) values (randomblob(5000));"; done
test "$(sqlite3 db 'pragma integrity_check; select count(*) from t;' | tr '\n' ' ')" = "ok 100 "
cp -a /usr/include/linux source
rsync -aHAX source/ there/ && rsync -aHAX there/ back/
test -z "$(rsync -aHAXn --checksum --itemize-changes --delete source/ back/)"
tar cf t.tar source && mkdir untarred && tar xf t.tar -C untarred && diff -r source untarred/source
echo old > text && cp text text~ && echo new > .text.swp && sync .text.swp && mv .text.swp text
test "$(cat text text~)" = "new
old"
rm -rf r clone there back untarred source
EOF
both "git, make, sqlite, rsync, tar, an editor's save" sh "$work/programs.sh"

"$granulo" unmount "$work/mnt"
"$granulo" store check --deep "$work/store" || failed=1
[ "$failed" = 0 ] || cat "$work/log"
exit $failed
