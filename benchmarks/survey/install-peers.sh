#!/bin/sh
# Installs the programs that run.py compares granulo with (Debian, Ubuntu). Needs root for apt-get.
#
#   install-peers.sh [DIR]      DIR receives bin/ with dust, dua and pdu (default: target/peers, where run.py looks)
set -eu

repository=$(cd "$(dirname "$0")/../.." && pwd)
directory=${1:-$repository/target/peers}

apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 \
    bfs duc e2fsprogs findutils gcc gdu libc6-dev ncdu perl strace
cargo install --locked --root "$directory" du-dust dua-cli parallel-disk-usage
echo "installed; now: run.py --peers $directory"
