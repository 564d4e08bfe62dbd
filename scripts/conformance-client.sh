#!/usr/bin/env bash
# The conformance suite of the protocol against our client, both revisions. client/conformance.yml names what is known to
# fail, with reasons; the suite fails when one of them passes.
set -euo pipefail
cd "$(dirname "$0")/.."
npm="$(scripts/npm.sh)"
cargo build --quiet -p ramen-client --example conformance
program="${CARGO_TARGET_DIR:-$PWD/target}/debug/examples/conformance"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
for revision in 2025-11-25 2026-07-28; do
  echo "== $revision"
  "$npm/node_modules/node/bin/node" "$npm/node_modules/@modelcontextprotocol/conformance/dist/index.js" client \
    --command "$program" --requirements "$revision" --expected-failures client/conformance.yml -o "$out/$revision"
done
