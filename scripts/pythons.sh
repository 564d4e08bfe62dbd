#!/usr/bin/env bash
# Lists the CPythons that a ramen-host can be built for, one a line: VERSION EXECUTABLE. Newest patch of each minor.
# Looked for on PATH and in the usual folders of version managers; it needs a shared libpython and its headers.
set -euo pipefail
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
probe='import os, sys, sysconfig as s
ok = sys.implementation.name == "cpython" and s.get_config_var("Py_ENABLE_SHARED") and not s.get_config_var("Py_GIL_DISABLED")
ok = ok and os.path.exists(os.path.join(s.get_path("include"), "Python.h"))
if ok: print("%d.%d" % sys.version_info[:2], "%03d" % sys.version_info[2], os.path.realpath(sys.executable))'
shopt -s nullglob
for minor in 3.11 3.12 3.13 3.14; do
  candidates=()
  IFS=: read -ra path <<<"$PATH"
  for folder in "${path[@]}"; do
    case $folder in */shims) ;; *) [ -x "$folder/python$minor" ] && candidates+=("$folder/python$minor") ;; esac
  done
  candidates+=("${PYENV_ROOT:-$HOME/.pyenv}"/versions/$minor*/bin/python$minor "$HOME"/.local/share/uv/python/cpython-$minor*/bin/python$minor)
  for candidate in "${candidates[@]}"; do
    "$candidate" -c "$probe" 2>/dev/null || true
  done | awk -v minor="$minor" '$1 == minor' | sort -k2,2r -s | awk 'NR == 1 {print $1, $3}'
done
