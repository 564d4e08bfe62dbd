#!/usr/bin/env bash
# Installs and builds all that tests run of others (e2e/foreign), so that no test waits for it. What cannot be had here is told in a line
# that begins with SKIPPED, and so are the tests that miss it. A second run does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
for what in npm.sh 'venv.sh sdk1' 'venv.sh sdk2' 'venv.sh traefik' go-foreign.sh rust-foreign.sh; do
  # The word is a script with its argument.
  # shellcheck disable=SC2086
  ./$what >/dev/null || echo "SKIPPED tests that need scripts/$what: see the reason above" >&2
done
