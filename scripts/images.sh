#!/usr/bin/env bash
# Builds the image of each Containerfile of images/ with a real builder, holds it to the image that the cluster tests make of the same
# programs, and prints the folder with the archives. No registry is asked: below them is the Debian with Python of the cluster
# tests, under the names that the Containerfiles give, and the stages with compilers are left out for programs that `make build` or
# `make release` has built (RAMEN_BIN_DIR says where).
# usage: images.sh    then: RAMEN_IMAGES=<what it printed> make e2e
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

command -v buildah >/dev/null || die "no buildah: apt-get install buildah, then try again"
[ "$(id -u)" = 0 ] || die "the Debian below the images is made by debootstrap, which needs root"
bin=${RAMEN_BIN_DIR:-${CARGO_TARGET_DIR:-$PWD/target}/debug}
uv=${RAMEN_UV:-$cache/venv/bin/uv}
python=3.11
out=$cache/images
base=$(e2e/cluster/cluster base)

scratch=$(mktemp -d)
# What it stores is kept nowhere: builds of before decide nothing.
engine() { buildah --root "$scratch/root" --runroot "$scratch/run" --storage-driver vfs "$@"; }
trap 'engine rm --all >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT

say "images: the base, as debian:bookworm-slim and python:$python-slim-bookworm"
container=$(engine from scratch)
engine add --quiet "$container" "$(dirname "$base")/layer.tar.gz" / >/dev/null
# The base of the cluster tests has the user of our images already; the Containerfiles make it.
sed -i '/^ramen:/d' "$(engine mount "$container")"/etc/{passwd,group}
engine commit --quiet "$container" docker.io/library/debian:bookworm-slim >/dev/null
engine tag docker.io/library/debian:bookworm-slim "docker.io/library/python:$python-slim-bookworm"

mkdir -p "$scratch/programs" "$out"
for program in "$bin"/ramen-{operator,gateway,worker,"host-$python"} "$uv"; do
  install -m 755 "$program" "$scratch/programs/"
done
for file in images/*.Containerfile; do
  name=$(basename "$file" .Containerfile)
  say "$file"
  engine build --quiet --isolation chroot --pull=never --build-context "build=$scratch/programs" --build-arg "PYTHON=$python" \
    --file "$file" --tag "localhost/ramen-$name:dev" . >/dev/null
  rm -f "$out/$name.tar"
  engine push --quiet "localhost/ramen-$name:dev" "docker-archive:$out/$name.tar:localhost/ramen-$name:dev"
done
(cd e2e/cluster && GOWORK=off RAMEN_CACHE=$cache RAMEN_IMAGES=$out go test -count=1 -run TestBuiltImages ./internal/images >&2)
printf '%s\n' "$out"
