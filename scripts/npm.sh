#!/usr/bin/env bash
# Installs the programs from npm that tests use, pinned, into the cache: a published MCP server, the conformance suite of the
# protocol, and the Node that the suite needs. Prints the folder. A second run does nothing.
set -euo pipefail
folder="${RAMEN_CACHE:-$HOME/.cache/ramen}/npm"
packages=(
  "@modelcontextprotocol/server-everything@2026.8.31"
  "@modelcontextprotocol/conformance@0.2.0-alpha.12"
  "node@22.23.3"
)
mark="$folder/installed"
if [ "$(cat "$mark" 2>/dev/null)" != "${packages[*]}" ]; then
  command -v npm >/dev/null || { echo "npm is missing" >&2; exit 3; }
  mkdir -p "$folder"
  [ -e "$folder/package.json" ] || echo '{"private": true}' >"$folder/package.json"
  npm install --prefix "$folder" --no-audit --no-fund --save-exact "${packages[@]}" >&2
  # A script of the package `node` links the program; newer versions of npm want that allowed.
  if [ ! -x "$folder/node_modules/node/bin/node" ]; then
    (cd "$folder" && { npm install-scripts approve node || true; } && npm rebuild node) >&2
  fi
  "$folder/node_modules/node/bin/node" --version >&2
  echo "${packages[*]}" >"$mark"
fi
echo "$folder"
