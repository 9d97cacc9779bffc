#!/bin/sh
# Everything that is checked without running the product; with --tests also the tests of the parts that decide
# (`make check`). All checks run, side by side; the last line names the failed ones.
set -u
cd "$(dirname "$0")/.." || exit 1

# Parts without sockets, processes or many files: their tests take seconds.
decide="tests/format tests/wire tests/consensus tests/archiver/test_plan.py tests/archiver/test_policy.py
    tests/archiver/test_archive_state.py tests/kafka/groups tests/kafka/test_codecs.py
    tests/kafka/test_schemas.py tests/kafka/test_fetch_sessions.py tests/sequencer/test_dedup.py
    tests/sequencer/test_expiry.py tests/sequencer/test_group_state.py tests/sequencer/test_merger.py
    tests/sequencer/test_planner.py tests/sequencer/test_reset_state.py tests/sequencer/test_schema_state.py
    tests/sequencer/test_setting_state.py tests/sequencer/test_stage_state.py tests/sequencer/test_state.py"

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
    [ "${1:-}" != --tests ] || check tests .venv/bin/python -m pytest -q -x --hypothesis-profile=quick $decide
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
