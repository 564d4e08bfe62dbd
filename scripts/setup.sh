#!/usr/bin/env bash
# Installs what building and testing Ramen needs, and says what and why. A second run finds its stamp and does nothing.
# System packages come from apt when run as root on Debian; otherwise one line to run is printed and the exit is 1.
# Everything else (test tools, a Python venv) goes below $RAMEN_CACHE, by default ~/.cache/ramen.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

force=no bench=no contextforge=no
for arg in "$@"; do
  case "$arg" in
    --force) force=yes ;;
    --bench) bench=yes ;;
    --bench-gateway) bench=yes contextforge=yes ;;
    *) die "unknown argument '$arg' (known: --force, --bench, --bench-gateway)" 2 ;;
  esac
done

# ---- system packages: a probe, the Debian package, the reason ------------------------------------------------------
missing=()
need() { # need PACKAGE REASON PROBE...
  local package=$1 reason=$2
  shift 2
  if ! "$@" >/dev/null 2>&1; then
    missing+=("$package")
    say "missing: $package ($reason)"
  fi
}
has() { command -v "$1"; }
shared_python() { test -n "$(scripts/pythons.sh)"; }
venv_works() { "$(host_python)" -c 'import ensurepip, venv'; }

need build-essential "a C and C++ compiler and make: libgit2, zstd and the fuzzer's runtime are compiled" eval 'has cc && has g++ && has make'
need pkg-config "finds OpenSSL for libgit2" has pkg-config
need libssl-dev "https for git" pkg-config --exists openssl
need git "test repositories, and smart HTTP through git http-backend" eval 'has git && git http-backend --help'
need ca-certificates "TLS roots" test -s /etc/ssl/certs/ca-certificates.crt
need openssh-client "ssh-keygen for the ssh tests" has ssh-keygen
need openssh-server "sshd for the ssh tests" eval 'has sshd || test -x /usr/sbin/sshd'
need procps "ps and pgrep, for the check that nothing is left running" has pgrep
need python3-dev "a CPython 3.11-3.14 with a shared libpython and headers, which ramen-host links" shared_python
need python3-venv "the venv of the test clients" venv_works

if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing through apt: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q </dev/null
    apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
    shared_python || die "no CPython 3.11-3.14 with a shared libpython was found, also after installing python3-dev"
  else
    say "run this, then try again:"
    printf '  sudo apt-get install -y --no-install-recommends %s\n' "${missing[*]}" >&2
    exit 1
  fi
fi
# sshd refuses to start as root without its privilege separation folder; no service manager makes it in a container.
if [ "$(id -u)" = 0 ] && [ ! -d /run/sshd ]; then
  mkdir -p /run/sshd
fi

# ---- Rust ---------------------------------------------------------------------------------------------------------
command -v cargo >/dev/null || die "no Rust toolchain: install one with rustup, then run this again"
toolchain=$(scripts/toolchain.sh) || exit 1
if [ -n "$toolchain" ]; then
  export RUSTUP_TOOLCHAIN=$toolchain
fi
say "Rust: $(rustc --version)"
cargo clippy --version >/dev/null 2>&1 || die "the clippy component is missing: rustup component add clippy"
cargo fmt --version >/dev/null 2>&1 || die "the rustfmt component is missing: rustup component add rustfmt"
say "CPython with a shared library: $(scripts/pythons.sh | awk '{printf "%s%s", s, $1; s=", "}')"

# ---- venv of the clients that the tests use -------------------------------------------------------------------------
mkdir -p "$cache"
python=$(host_python)
venv() { # venv FOLDER STAMP WHAT REQUIREMENTS...
  local folder=$1 stamp=$1/$2 what=$3 wanted file args=()
  shift 3
  wanted=$( { "$python" -c 'import sys; print(sys.executable, sys.version)'; cat "$@"; } | sha256sum)
  if [ "$force" = no ] && [ -x "$folder/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    return
  fi
  say "Python venv of $what: $folder"
  if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$folder"
    "$python" -m venv "$folder"
  fi
  for file in "$@"; do args+=(-r "$file"); done
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "${args[@]}" </dev/null
  printf '%s\n' "$wanted" >"$stamp"
}
if [ "$bench" = yes ]; then
  venv "$cache/venv" .ramen-bench-stamp "the test clients and the benchmark's peers" e2e/requirements.txt bench/requirements.txt
else
  venv "$cache/venv" .ramen-stamp "the test clients" e2e/requirements.txt
fi
if [ "$contextforge" = yes ]; then
  # Needs an older mcp than the other peers.
  venv "$cache/contextforge" .ramen-stamp "the peer gateway" bench/contextforge/requirements.txt
fi

# ---- cargo tools ----------------------------------------------------------------------------------------------------
tool() { # tool NAME VERSION [cargo install arguments]
  local name=$1 version=$2
  shift 2
  if [ -x "$cache/tools/bin/$name" ] && grep -q "\"$name $version " "$cache/tools/.crates.toml" 2>/dev/null; then
    return
  fi
  say "building $name $version (once; some minutes)"
  # Its build must not land among the project's own artefacts.
  env -u CARGO_TARGET_DIR cargo install --quiet --locked --root "$cache/tools" "$name@$version" "$@" </dev/null
}
tool cargo-nextest 0.9.151 --no-default-features --features default-no-update
tool cargo-deny 0.20.2

say "ready"
