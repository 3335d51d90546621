#!/usr/bin/env bash
# The Python package under target/wheels: a wheel for any Linux of this processor with glibc 2.17 or later
# (manylinux2014), and the source distribution. zig links with that glibc; it comes from PyPI, as maturin does.
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=target/wheels tools=target/wheel-tools
rm -rf "$wheels"
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet 'maturin[zig]>=1.9,<2'
export PATH="$PWD/$tools/bin:$PATH"
maturin build --release --locked --zig --compatibility manylinux2014 --manifest-path crates/python/Cargo.toml --out "$wheels"
maturin sdist --manifest-path crates/python/Cargo.toml --out "$wheels"
(cd "$wheels" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
