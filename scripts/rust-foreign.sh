#!/usr/bin/env bash
# Builds the client and the server made with the official Rust SDK (e2e/foreign/rust, a workspace of its own) into the cache; cargo itself
# sees when there is nothing to do. Prints the folder. Exit 3, with the reason on stderr, where it cannot be made here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
toolchain=$(scripts/toolchain.sh)
[ -z "$toolchain" ] || export RUSTUP_TOOLCHAIN=$toolchain
export CARGO_TARGET_DIR=$cache/rust-foreign
if ! (cd e2e/foreign/rust && cargo build --quiet --locked) </dev/null >&2; then
  echo 'e2e/foreign/rust could not be built: see above, or crates are out of reach' >&2
  exit 3
fi
echo "$CARGO_TARGET_DIR/debug"
