#!/bin/sh
# Runs a command on a busy machine: `sh scripts/loaded.sh make test`. Starts 20 processes that only compute, at
# nice 10 or as the option says, and ends them with the command. Exits as the command does.
#
#   sh scripts/loaded.sh [--nice N] [--burners N] COMMAND…
set -u

nice=10
burners=20
while :; do
    case "${1:-}" in
        --nice) nice=$2; shift 2 ;;
        --burners) burners=$2; shift 2 ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || { echo "usage: sh scripts/loaded.sh [--nice N] [--burners N] COMMAND…" >&2; exit 2; }

# A burner ends by itself when this script is gone, however that ended.
burn="import os
parent = int('$$')
while os.getppid() == parent:
    for _ in range(10**6):
        pass"
pids=""
end_burners() {
    # shellcheck disable=SC2086  # a list of numbers
    [ -z "$pids" ] || { kill -KILL $pids && wait $pids; } 2>/dev/null
    pids=""
}
trap end_burners EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
while [ "$burners" -gt 0 ]; do
    nice -n "$nice" python3 -c "$burn" &
    pids="$pids $!"
    burners=$((burners - 1))
done
"$@"
