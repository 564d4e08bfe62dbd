#!/usr/bin/env bash
# Runs commands side by side: what needs the processors beside what mostly waits. Each line that they say begins with the name of its
# lane. Every lane goes to its own end; then it is said once more what was skipped, what went well only at its second try and how
# each lane went, and the exit is that of the first that failed.
# usage: lanes.sh NAME COMMAND [NAME COMMAND]...
set -euo pipefail
# Each lane is a group of processes of its own, so that an interrupt reaches all of it.
set -m
declare -A lanes
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# What a test was left out for: nextest shows nothing that a test printed which went well (tests/skip).
export RAMEN_SKIPPED=$scratch/skipped
: >"$RAMEN_SKIPPED"
stop() {
  trap - INT TERM
  for pid in "${!lanes[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  wait
  exit 130
}
trap stop INT TERM

while [ $# -ge 2 ]; do
  # What is told after an interrupt is still shown: that a cluster is down, for example. FLAKY is nextest's word, RERUN pytest's.
  {
    trap : INT TERM
    bash -c "$2" </dev/null 2>&1 |
      (trap '' INT TERM && exec sed -u -e "/SKIPPED\|FLAKY\|RERUN/w $scratch/said.$1" -e "s/^/$1 | /")
  } &
  lanes[$!]=$1
  shift 2
done
first=0 told=
while [ "${#lanes[@]}" -gt 0 ]; do
  code=0
  wait -n -p pid "${!lanes[@]}" || code=$?
  name=${lanes[$pid]}
  unset "lanes[$pid]"
  if [ "$code" = 0 ]; then
    told+="lane $name passed after $SECONDS s"$'\n'
  else
    told+="lane $name FAILED with exit $code after $SECONDS s; its lines begin with '$name |'"$'\n'
    [ "$first" != 0 ] || first=$code
    printf 'lane %s FAILED; the others go on\n' "$name" >&2
  fi
done
# Each once, whoever said it and how often.
sed 's/^ *//' "$scratch"/said.* "$RAMEN_SKIPPED" | awk '!said[$0]++'
printf '%s' "$told"
exit "$first"
