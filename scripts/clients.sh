#!/bin/sh
# Debian's kcat, for the tests that use it; without it they are skipped. Never fails.
set -u

say() { printf 'clients: %s\n' "$*" >&2; }

command -v kcat >/dev/null && exit 0
if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; }; then
    say "kcat is not here, and cannot be installed: its tests are skipped (as root: apt-get install kcat)"
    exit 0
fi
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >/dev/null 2>&1; }
say "installing Debian's kcat"
apt install kcat || { apt update && apt install kcat; } || say "kcat cannot be installed: its tests are skipped"
exit 0
