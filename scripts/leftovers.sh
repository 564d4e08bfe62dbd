#!/usr/bin/env bash
# After the tests: no program of ours, built below the given folder, may still run. Only told outside CI, since a person
# may have a worker of their own running.
set -euo pipefail
target=$(realpath -m "$1")
# A program that was told to end a moment ago may take that moment.
found=
for _ in 1 2 3 4 5 6 7 8 9 10; do
  found=
  for exe in /proc/[0-9]*/exe; do
    path=$(readlink "$exe" 2>/dev/null) || continue
    case $path in
      "$target"/*/ramen*) found+="  ${exe//[!0-9]/}  $path"$'\n' ;;
    esac
  done
  [ -n "$found" ] || exit 0
  sleep 0.5
done
echo 'leftovers: these are still running after the tests:' >&2
printf '%s' "$found" >&2
[ -z "${CI:-}" ]
