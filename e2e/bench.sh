#!/usr/bin/env bash
# The benchmark on a real cluster: real pods on one of tier 3 or 4, then a thousand groups on one of tier 2. The programs are
# release builds. Clusters that run already under the names are used and left running.
# usage: bench.sh [--only ID,…] [--quick] [--out FOLDER]     (bench_cluster --help has more)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
cluster=e2e/cluster/cluster
export RAMEN_BIN_DIR=${RAMEN_BIN_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/release}
program=$RAMEN_BIN_DIR/bench_cluster
case " $* " in
  *' --help '* | *' -h '*) exec "$program" "$@" ;;
esac

skip() { printf 'SKIPPED %s\n' "$*" >&2; }
tier=0
while read -r number can reason; do
  if [ "$can" = yes ] && e2e/cluster/setup.sh "$number"; then
    tier=$number
  else
    skip "the benchmark's part on a cluster of tier $number: ${reason:-system packages are missing}"
  fi
done < <($cluster tiers)

started=()
# shellcheck disable=SC2317 # called by the trap
end() { for name in "${started[@]}"; do $cluster down --name "$name"; done; }
trap end EXIT
trap 'exit 130' INT TERM
# usage: part NAME TIER PART [flags]
part() {
  local name=$1 tier=$2
  shift 2
  if ! $cluster status --name "$name" >/dev/null 2>&1; then
    started+=("$name")
    $cluster up --name "$name" --tier "$tier" >/dev/null
  fi
  if [ "$tier" -ge 3 ]; then
    $cluster images --name "$name" >/dev/null
    $cluster build helm >/dev/null
  fi
  $cluster exec --name "$name" -- "$program" "$@" || failed=yes
  if [ "${#started[@]}" -gt 0 ] && [ "${started[-1]}" = "$name" ]; then
    $cluster down --name "$name"
    unset 'started[-1]'
  fi
}

failed=no
[ "$tier" -lt 3 ] || part "${RAMEN_CLUSTER:-bench}-live" "$tier" live "$@"
[ "$tier" -lt 2 ] || part "${RAMEN_CLUSTER:-bench}-scale" 2 scale "$@"
"$program" report "$@"
[ "$failed" = no ]
