#!/usr/bin/env bash
# The files of a release, under target/dist: for each TARGET an archive and a Debian package, and their checksums.
#
#   packaging/dist.sh [TARGET...]
#
# Every binary is static and runs on any Linux of its processor. The default is x86_64-unknown-linux-musl, or
# x86_64-unknown-linux-gnu where Rust has no standard library for musl, and aarch64-unknown-linux-musl where a linker for
# it is found. Linked with glibc, names of users and groups come from /etc/passwd and /etc/group only, unless the machine
# has the same glibc. GRANULO=FILE packs that binary, and builds nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=target/dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
elsewhere='benchmarks|crates|data|examples|packaging|web|CONTRIBUTING\.md|SECURITY\.md'
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  targets=(x86_64-unknown-linux-musl)
  [ -d "$(rustc --print target-libdir --target "${targets[0]}")" ] || targets=(x86_64-unknown-linux-gnu)
  if command -v aarch64-linux-musl-gcc > /dev/null; then targets+=(aarch64-unknown-linux-musl); fi
fi
rm -rf "$dist"
mkdir -p "$dist"
for target in "${targets[@]}"; do
  binary=${GRANULO:-target/$target/release/granulo}
  if [ -z "${GRANULO:-}" ]; then
    case $target in
      aarch64-*)
        export CC_aarch64_unknown_linux_musl=aarch64-linux-musl-gcc
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-musl-gcc
        ;;
      *-gnu) export RUSTFLAGS="-C target-feature=+crt-static" ;;
    esac
    cargo build --release --locked --target "$target" --bin granulo
    if ldd "$binary" 2> /dev/null | grep -q '=>'; then
      echo "$binary needs shared libraries" >&2
      exit 1
    fi
  fi
  name=granulo-$version-$target
  rm -rf "${dist:?}/$name"
  mkdir -p "$dist/$name/man" "$dist/$name/completions"
  install -m 755 "$binary" "$dist/$name/granulo"
  cp README.md LICENSE CHANGELOG.md packaging/THIRD-PARTY.md "$dist/$name"
  # What the README links to; what else it and the guides link to is in the repository.
  cp -r docs "$dist/$name"
  find "$dist/$name" -name '*.md' -exec sed -Ei "s#\]\((\.\./)*($elsewhere)#](${repository}/blob/v$version/\2#g" {} +
  # A binary for another processor cannot write its own pages: those of an earlier target are the same.
  if "$dist/$name/granulo" --version > /dev/null 2>&1; then
    "$dist/$name/granulo" man --directory "$dist/$name/man"
    for shell in bash zsh fish; do
      "$dist/$name/granulo" completions "$shell" > "$dist/$name/completions/granulo.$shell"
    done
  else
    made=$(find "$dist" -maxdepth 1 -type d -name "granulo-$version-*" ! -name "$name" | head -n 1)
    cp -r "${made:?no binary that runs here was built before}"/{man,completions} "$dist/$name"
  fi
  # The same binary gives the same archive.
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" \
    -C "$dist" -cf - "$name" | gzip -9n > "$dist/$name.tar.gz"
  packaging/deb.sh "$dist/$name" "$dist"
done
(cd "$dist" && sha256sum -- *.tar.gz *.deb > SHA256SUMS && cat SHA256SUMS)
