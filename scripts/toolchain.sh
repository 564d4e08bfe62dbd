#!/usr/bin/env bash
# Prints the name to put into RUSTUP_TOOLCHAIN, or nothing when the pinned toolchain of rust-toolchain.toml just works.
# Where the pin cannot be fetched, another installed toolchain of the same version does as well; else it says what to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -n "${RUSTUP_TOOLCHAIN:-}" ] || cargo --version >/dev/null 2>&1; then
  exit 0
fi
pin=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
if ! command -v rustup >/dev/null; then
  echo "setup: no usable cargo: install Rust $pin" >&2
  exit 1
fi
while read -r name _; do
  if [ -n "$name" ] && rustc "+$name" --version 2>/dev/null | grep -q "^rustc $pin "; then
    echo "$name"
    exit 0
  fi
done < <(rustup toolchain list)
echo "setup: fetching Rust $pin" >&2
if rustup toolchain install "$pin" --profile minimal --component rustfmt --component clippy >&2; then
  exit 0
fi
echo "setup: Rust $pin is not installed and could not be fetched; install it with: rustup toolchain install $pin" >&2
exit 1
