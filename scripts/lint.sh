#!/bin/sh
# Everything that is checked without running the product. All checks run; the last line names the failed ones.
set -u
cd "$(dirname "$0")/.." || exit 1

failed=""

check() {
    name=$1
    shift
    printf 'lint: %s\n' "$name"
    "$@" || failed="$failed '$name'"
}

# Only what git would keep: directories appear here as the project grows.
set -- samelog tests setup.py pyspark_samelog.py
[ -d bench ] && [ -n "$(find bench -name '*.py' -print -quit)" ] && set -- "$@" bench

check "ruff check" .venv/bin/python -m ruff check -q "$@"
check "ruff format" .venv/bin/python -m ruff format -q --diff "$@"
check "mypy --strict" .venv/bin/python -m mypy --no-error-summary "$@"
check "import contracts" .venv/bin/lint-imports
check "tidy" .venv/bin/python -m pytest -q -p no:cacheprovider tests/test_tidy.py
.venv/bin/python -m tests.ratchet --stale

if [ -n "$failed" ]; then
    printf 'lint: failed:%s\n' "$failed" >&2
    exit 1
fi
echo 'lint: clean'
