#!/usr/bin/env bash
# The conformance suite of the protocol against our client: every scenario that a revision requires, of both revisions. Nothing of
# them is known to fail, so there is no baseline. Scenarios of extensions are run and reported, and do not count.
set -euo pipefail
cd "$(dirname "$0")/.."
npm="$(scripts/npm.sh)"
cargo build --quiet -p ramen-client --example conformance
program="${CARGO_TARGET_DIR:-$PWD/target}/debug/examples/conformance"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
for revision in 2025-11-25 2026-07-28; do
  echo "== $revision"
  "$npm/bin/node" "$npm/node_modules/@modelcontextprotocol/conformance/dist/index.js" client \
    --command "$program" --requirements "$revision" -o "$out/$revision"
done
