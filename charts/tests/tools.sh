#!/usr/bin/env bash
# Brings what the chart tests ask: helm, built from its module, and below ~/.cache/ramen/tools, from Debian's packages and
# without installing them, prometheus and promtool for the alert rules and lua for Argo CD's health check. Says what it
# could not bring; the tests skip that.
# usage: tools.sh [helm|prometheus|lua ...]   (these alone)
set -euo pipefail
tools=${RAMEN_CACHE:-$HOME/.cache/ramen}/tools

bring() { # bring NAME PACKAGE FILE...: into $tools/NAME, unless all of them are there or on PATH
  local name=$1 package=$2 folder missing=() file
  shift 2
  for file; do
    command -v "${file##*/}" >/dev/null || [ -x "$tools/$name/$file" ] || missing+=("./$file")
  done
  if [ ${#missing[@]} = 0 ]; then
    return
  fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "charts: no $name, and no apt to get Debian's package $package with"
    return
  fi
  mkdir -p "$tools/$name"
  folder=$(mktemp -d)
  if (cd "$folder" && apt-get download -q "$package" >/dev/null 2>&1 &&
    dpkg-deb --fsys-tarfile ./*.deb | tar -x -C "$tools/$name" "${missing[@]}"); then
    echo "charts: $name from Debian's package $package"
  else
    echo "charts: Debian's package $package could not be downloaded (apt-get update?)"
  fi
  rm -rf "$folder"
}

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ $# -gt 0 ] || set -- helm prometheus lua
for name; do
  case $name in
    helm)
      if command -v go >/dev/null; then
        "$top/e2e/cluster/cluster" build helm >/dev/null
      else
        echo "charts: no Go to build helm with"
      fi
      ;;
    prometheus) bring prometheus prometheus usr/bin/promtool usr/bin/prometheus ;;
    lua) bring lua lua5.4 usr/bin/lua5.4 ;;
    *) echo "tools.sh: there is no $name" >&2 && exit 2 ;;
  esac
done
