#!/bin/sh
# Removes what the kit built and cached. .venv stays: `rm -r .venv` starts from nothing.
set -eu
cd "$(dirname "$0")/.."

rm -rf build dist ./*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .setup.log
rm -f .venv/packages.stamp .venv/kernels.stamp shiplog/logformat/_kernels.c shiplog/logformat/_kernels.*.so shiplog/runtime/_disk_threads.c shiplog/runtime/_disk_threads.*.so
find shiplog tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
