#!/usr/bin/env bash
# usage: venv.sh NAME — a venv of foreign Python programs that the tests run. Each NAME has one of its own, since their requirements
# do not fit each other: e2e/foreign/python/NAME.in, pinned in NAME.txt (`make lock`). It lies in the cache; a second run does nothing.
# Prints the folder. Exit 3, with the reason on stderr, where it cannot be made here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
name=$1
lock=e2e/foreign/python/$name.txt
folder=$cache/venvs/$name
uv=${RAMEN_UV:-$cache/venv/bin/uv}
python=$(host_python)
[ -x "$uv" ] || { echo "there is no uv at $uv: run make setup" >&2; exit 3; }
mkdir -p "$cache/venvs"
exec 8>"$folder.lock"
flock 8
wanted=$( { "$python" -c 'import sys; print(sys.executable, sys.version)'; cat "$lock"; } | sha256sum)
if [ ! -x "$folder/bin/python" ] || [ "$(cat "$folder/.ramen-stamp" 2>/dev/null)" != "$wanted" ]; then
  if ! { "$uv" venv --quiet --clear --python "$python" "$folder" &&
    "$uv" pip install --quiet --python "$folder/bin/python" -r "$lock"; } </dev/null >&2; then
    echo "$lock could not be installed from the package index" >&2
    exit 3
  fi
  printf '%s\n' "$wanted" >"$folder/.ramen-stamp"
fi
echo "$folder"
