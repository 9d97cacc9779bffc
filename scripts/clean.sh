#!/bin/sh
# Removes what the kit built and cached. .venv stays: `rm -r .venv` starts from nothing.
set -eu
cd "$(dirname "$0")/.."

rm -rf build dist ./*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .setup.log
rm -f .venv/packages.stamp .venv/kernels.stamp samelog/format/_kernels.c samelog/format/_kernels.*.so samelog/runtime/disk/_disk_threads.c samelog/runtime/disk/_disk_threads.*.so samelog/runtime/network/_tls.c samelog/runtime/network/_tls.*.so samelog/kafka/codec/primitives.c samelog/kafka/codec/primitives.*.so samelog/store/keys/_key_pages.c samelog/store/keys/_key_pages.*.so
find samelog tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
