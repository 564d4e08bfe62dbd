# Sourced by the scripts beside it: where the caches are, and how to speak.
# shellcheck shell=bash
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
cache=${RAMEN_CACHE:-$HOME/.cache/ramen}
# What Go downloads and compiles for the test cluster lies there, too, and can be removed like any other folder.
export GOCACHE=${GOCACHE:-$cache/go/build} GOMODCACHE=${GOMODCACHE:-$cache/go/modules} GOFLAGS=${GOFLAGS:--modcacherw}

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
  printf 'setup: %s\n' "$1" >&2
  exit "${2:-1}"
}

# The Python of the venv: RAMEN_PYTHON, else python3 when it is new enough, else any that a host can be built for.
host_python() {
  local candidate
  for candidate in ${RAMEN_PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  scripts/pythons.sh | awk 'NR == 1 {print $2}'
}
