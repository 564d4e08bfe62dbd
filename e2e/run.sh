#!/usr/bin/env bash
# The cluster tests: a cluster of tier 2 and one of the highest tier that this machine can run, the images of what
# `make build` has built, and every test of the crate `ramen-e2e` in the cluster that it is for.
# What cannot be run here is said in lines that begin with SKIPPED.
# usage: run.sh [nextest arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
cluster=e2e/cluster/cluster
export RAMEN_CLUSTER=${RAMEN_CLUSTER:-e2e}
export RAMEN_BIN_DIR=${RAMEN_BIN_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/debug}

skip() { printf 'SKIPPED %s\n' "$*" >&2; }
if ! command -v go >/dev/null; then
  skip "all cluster tests: no Go to build Kubernetes with (1.26 or newer, https://go.dev/dl)"
  exit 0
fi
tier=0
while read -r number can reason; do
  if [ "$can" != yes ]; then
    skip "cluster tests of tier $number: $reason"
  elif ! e2e/cluster/setup.sh "$number"; then
    skip "cluster tests of tier $number: system packages are missing, see above"
  else
    tier=$number
  fi
done < <($cluster tiers)
[ "$tier" -ge 2 ] || exit 0

# What the gateway's page puts before it: an Ingress controller from the Python index, and the kinds of the Gateway API.
fetch_ingress() {
  local controller kinds
  controller=$(scripts/venv.sh traefik) || return
  kinds=$(cd e2e/cluster/gateway-api && GOWORK=off go mod download -json sigs.k8s.io/gateway-api) || return
  kinds=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$kinds")
  export RAMEN_TRAEFIK=$controller/bin/traefik RAMEN_GATEWAY_API=$kinds
}
if [ "$tier" -ge 4 ] && ! fetch_ingress; then
  skip "an Ingress before the gateway: see the reason above"
fi

# Not from a cache: the tests read files of other folders, which Go does not look at.
(cd e2e/cluster && GOWORK=off go vet ./... && GOWORK=off go test -count=1 ./...)

# Built here and only run in there: cargo would look for a network, and wait for other builds while a cluster idles.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
nextest=$cache/tools/bin/cargo-nextest
cargo metadata --format-version 1 >"$scratch/cargo.json"
# The selection of `make test`: another would compile the dependencies anew, with other features.
"$nextest" nextest list --workspace --exclude ramen-host --list-type binaries-only --message-format json >"$scratch/binaries.json"

# The operator that was kept of an earlier commit, for the test of an upgrade: it need not be built again.
kept=$cache/earlier
earlier=
for folder in $(ls -dt "$kept"/*/ 2>/dev/null); do
  commit=$(basename "$folder")
  if [ "$commit" != "$(git rev-parse HEAD)" ] && git merge-base --is-ancestor "$commit" HEAD 2>/dev/null; then
    earlier=$commit
    break
  fi
done
# Keeps that of this commit, and those of the two before.
keep() {
  local commit
  commit=$(git rev-parse HEAD 2>/dev/null) && [ -z "$(git status --porcelain --untracked-files=no)" ] || return 0
  mkdir -p "$kept/$commit"
  strip -o "$kept/$commit/ramen-operator" "$RAMEN_BIN_DIR/ramen-operator"
  touch "$kept/$commit"
  ls -dt "$kept"/*/ | tail -n +4 | xargs -r rm -rf
}

# Runs the tests of the filter in a cluster of the tier; one that runs already under the name is used and left running.
tests_in() { # tests_in TIER NAME FILTER [nextest arguments]
  local tier=$1 filter=$3 running=yes
  export RAMEN_CLUSTER=$2
  shift 3
  if ! $cluster status >/dev/null 2>&1; then
    running=no
    trap 'rm -rf "$scratch"; $cluster down' EXIT
    # An interrupt ends the script, and the trap above must still run.
    trap 'exit 130' INT TERM
  fi
  $cluster up --tier "$tier" >/dev/null
  if [ "$tier" -ge 4 ] && [ -n "$earlier" ]; then
    RAMEN_IMAGES='' RAMEN_BIN_DIR=$kept/$earlier $cluster images operator >/dev/null
    # The name is another one's in a moment. The variable is one of the cluster.
    # shellcheck disable=SC2016
    $cluster exec -- sh -c 'ctr --address "$RAMEN_CLUSTER_DIR/containerd/containerd.sock" --namespace k8s.io \
      images tag --force localhost/ramen-operator:dev localhost/ramen-operator:earlier' >/dev/null
    export RAMEN_EARLIER=$earlier
  elif [ "$tier" -ge 4 ]; then
    skip "the operator of an earlier commit in the test of an upgrade: none was kept here yet, only the chart is of before"
  fi
  if [ "$tier" -ge 3 ]; then
    $cluster images >/dev/null
  fi
  if [ "$tier" -ge 4 ]; then
    # Once, for the tests that install charts: they run side by side and would all build it.
    $cluster build helm >/dev/null
    # In the cluster's namespaces there is no network to get it from.
    charts/tests/tools.sh prometheus
  fi
  # Inside the namespaces a test reaches pods by their address, and pods reach what a test serves. They wait most of the time:
  # more at once than a small machine has cores.
  $cluster exec -- "$nextest" nextest run --cargo-metadata "$scratch/cargo.json" --binaries-metadata "$scratch/binaries.json" \
    --profile ci --test-threads 3 --tool-config-file "ramen:$PWD/e2e/nextest.toml" --run-ignored only --no-tests warn \
    -E "package(ramen-e2e) & ($filter)" "$@" || failed=yes
  if [ "$running" = no ]; then
    $cluster down
    trap 'rm -rf "$scratch"' EXIT
  fi
}

failed=no
name=$RAMEN_CLUSTER
# Where a kubelet runs it would take the pods that these tests play themselves.
tests_in 2 "$name-2" 'test(/^t2::/)' "$@"
if [ "$tier" -ge 3 ]; then
  filter='test(/^t3::/)'
  [ "$tier" -ge 4 ] && filter="$filter + test(/^t4::/) + test(/^hooks::/)"
  tests_in "$tier" "$name" "$filter" "$@"
fi
[ "$failed" = no ]
keep
