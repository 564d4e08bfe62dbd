#!/usr/bin/env bash
# The demo on what is built already; `make demo` installs and builds first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${RAMEN_TEST_PYTHON:-${RAMEN_CACHE:-$HOME/.cache/ramen}/venv/bin/python}
if [ ! -x "$python" ]; then
  printf 'demo: no Python with the mcp client at %s: run "make demo"\n' "$python" >&2
  exit 1
fi
exec "$python" demo/demo.py
