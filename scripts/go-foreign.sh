#!/usr/bin/env bash
# Builds the client and the server made with the official Go SDK (e2e/foreign/go, pinned in go.sum) into the cache; Go itself sees when
# there is nothing to do. Prints the folder. Exit 3, with the reason on stderr, where it cannot be made here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
command -v go >/dev/null || { echo 'no Go to build the clients and servers in Go with (1.25 or newer, https://go.dev/dl)' >&2; exit 3; }
folder=$cache/go-foreign
mkdir -p "$folder"
if ! (cd e2e/foreign/go && GOWORK=off GOTOOLCHAIN=local go build -o "$folder/" ./...) </dev/null >&2; then
  echo 'e2e/foreign/go could not be built: see above, or the module proxy is out of reach' >&2
  exit 3
fi
echo "$folder"
