#!/usr/bin/env bash
# The cluster tests: a cluster of the highest tier that this machine can run, the images of what `make build` has built, and
# every test of the crate `ramen-e2e` in it. A cluster that runs already under the name is used and left running.
# usage: run.sh [nextest arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
cluster=e2e/cluster/cluster
export RAMEN_CLUSTER=${RAMEN_CLUSTER:-e2e}

tier=2
while read -r number can reason; do
  if [ "$can" = yes ]; then
    tier=$number
  else
    echo "SKIPPED cluster tests of tier $number: $reason" >&2
  fi
done < <($cluster tiers)

(cd e2e/cluster && GOWORK=off go vet ./... && GOWORK=off go test ./...)

nextest=("$cache/tools/bin/cargo-nextest" nextest run --package ramen-e2e --profile ci
  --tool-config-file "ramen:$PWD/e2e/nextest.toml")
"${nextest[@]}" --no-run

if ! $cluster status >/dev/null 2>&1; then
  trap '$cluster down' EXIT
  # An interrupt ends the script, and the trap above must still run.
  trap 'exit 130' INT TERM
fi
$cluster up --tier "$tier" >/dev/null
if [ "$tier" -ge 3 ]; then
  $cluster images >/dev/null
fi
filter='test(/^t2::/)'
[ "$tier" -ge 3 ] && filter="$filter + test(/^t3::/)"
[ "$tier" -ge 4 ] && filter="$filter + test(/^t4::/)"
# Inside the namespaces a test reaches pods by their address, and pods reach what a test serves. No network but the
# cluster's is there, so cargo must not look for one.
$cluster exec -- env CARGO_NET_OFFLINE=true "${nextest[@]}" --run-ignored only -E "$filter" "$@"
