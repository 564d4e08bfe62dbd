#!/usr/bin/env bash
# setup.sh TIER: installs what the test cluster needs from the system, and says what and why. As root on Debian through
# apt; otherwise it prints the line to run and ends with 1. With everything there it is silent.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
tier=${1:?which tier}

missing=()
need() { # need PACKAGE PROGRAM REASON
  if ! PATH=$PATH:/usr/sbin:/sbin:/usr/lib/cni command -v "$2" >/dev/null; then
    missing+=("$1")
    say "missing: $1 ($3)"
  fi
}
need iproute2 ip "the network of the cluster's namespace"
need util-linux nsenter "entering the cluster's namespaces"
if [ "$tier" -ge 3 ]; then
  need containerd containerd "runs the containers"
  need runc runc "starts one container"
  need containernetworking-plugins host-local "addresses and bridges for pods"
  need iptables iptables "port mappings of pods, and network policies"
  need nftables nft "Services (kube-proxy)"
  need conntrack conntrack "kube-proxy forgets connections to pods that are gone"
  need ethtool ethtool "the kubelet and kube-router ask for it"
  need socat socat "kubectl port-forward"
  need debootstrap debootstrap "the base image, from Debian packages"
  need build-essential cc "compiles the program of the pause image, with a static C library"
fi
if [ "$tier" -ge 4 ]; then
  need ipset ipset "sets of addresses of network policies"
fi
if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing through apt: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q </dev/null >&2
    apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null >&2
  else
    say "run this, then try again:"
    printf '  sudo apt-get install -y --no-install-recommends %s\n' "${missing[*]}" >&2
    exit 1
  fi
fi
