#!/bin/sh
# Installs what run.py compares a store in a bucket with and runs on (Debian, Ubuntu). Needs root for apt-get, and Go.
#
#   install-peers.sh      s5cmd goes to target/tools, where run.py looks
set -eu

repository=$(cd "$(dirname "$0")/../.." && pwd)
tools=$repository/target/tools
version=v2.3.0

apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 \
    ceph-common ceph-mgr ceph-mon ceph-osd curl openssl python3 python3-boto3 radosgw
mkdir -p "$tools"
# As a dependency of an empty module: `go install` of a version asks a proxy for lists that not every one has.
place=$(mktemp -d)
cd "$place"
printf 'module peers\n\ngo 1.22\n\nrequire github.com/peak/s5cmd/v2 %s\n' "$version" > go.mod
printf '//go:build peers\n\npackage peers\n\nimport _ "github.com/peak/s5cmd/v2"\n' > peers.go
CGO_ENABLED=0 GOFLAGS=-mod=mod go build -trimpath -ldflags "-s -w -X github.com/peak/s5cmd/v2/version.Version=$version" \
    -o "$tools/s5cmd" github.com/peak/s5cmd/v2
rm -r "$place"
echo "installed $("$tools/s5cmd" version)"
