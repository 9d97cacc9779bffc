#!/bin/sh
# Everything that is checked without running the product; with `--tests MARKERS` also the tests that these
# select (`make check`). All checks run, side by side; the last line names the failed ones.
set -u
cd "$(dirname "$0")/.." || exit 1

output=$(mktemp -d) || exit 1
trap 'rm -rf "$output"' EXIT
checks=""

# check NAME COMMAND…: begins it.
check() {
    name=$1
    shift
    checks="$checks $name"
    { "$@" >"$output/$name" 2>&1 || touch "$output/$name.failed"; } &
}

# Only what git would keep: directories appear here as the project grows.
sources="samelog tests scripts setup.py pyspark_samelog.py"
[ -d bench ] && [ -n "$(find bench -name '*.py' -print -quit)" ] && sources="$sources bench"

# shellcheck disable=SC2086  # lists of names
{
    check mypy .venv/bin/python -m mypy --no-error-summary $sources
    [ "${1:-}" != --tests ] || check tests .venv/bin/python -m pytest -q -n 2 --hypothesis-profile=quick -m "$2" \
        --ignore tests/test_tidy.py --ignore tests/test_ratchet.py
    check ruff-check .venv/bin/python -m ruff check -q $sources
    check ruff-format .venv/bin/python -m ruff format -q --diff $sources
    check import-contracts .venv/bin/lint-imports
    check tidy .venv/bin/python -m pytest -q -p no:cacheprovider tests/test_tidy.py
    check ratchet .venv/bin/python -m tests.ratchet --check
}
wait

failed=""
for name in $checks; do
    [ -e "$output/$name.failed" ] && failed="$failed $name"
    if [ -e "$output/$name.failed" ] || [ "$name" = ratchet ]; then sed "s/^/$name: /" "$output/$name"; fi
done
if [ -n "$failed" ]; then
    printf 'lint: failed:%s\n' "$failed" >&2
    exit 1
fi
echo 'lint: clean'
