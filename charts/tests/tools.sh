#!/usr/bin/env bash
# Brings what the chart tests ask: helm, built from its module, and below ~/.cache/ramen/tools, from Debian's packages and
# without installing them, promtool for the alert rules and lua for Argo CD's health check. Says what it could not bring;
# the tests skip that.
set -euo pipefail
tools=${RAMEN_CACHE:-$HOME/.cache/ramen}/tools

bring() { # bring NAME PACKAGE FILE
  local name=$1 package=$2 file=$3 folder
  if command -v "$name" >/dev/null || [ -x "$tools/$name/$file" ]; then
    return
  fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "charts: no $name, and no apt to get Debian's package $package with"
    return
  fi
  mkdir -p "$tools/$name"
  folder=$(mktemp -d)
  if (cd "$folder" && apt-get download -q "$package" >/dev/null 2>&1 &&
    dpkg-deb --fsys-tarfile ./*.deb | tar -x -C "$tools/$name" "./$file"); then
    echo "charts: $name from Debian's package $package"
  else
    echo "charts: Debian's package $package could not be downloaded (apt-get update?)"
  fi
  rm -rf "$folder"
}

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if command -v go >/dev/null; then
  "$top/e2e/cluster/cluster" build helm >/dev/null
else
  echo "charts: no Go to build helm with"
fi
bring promtool prometheus usr/bin/promtool
bring lua lua5.4 usr/bin/lua5.4
