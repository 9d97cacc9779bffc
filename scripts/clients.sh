#!/bin/sh
# Debian's kcat and Java, for the tests that use them; without them those are skipped. Never fails.
set -u

say() { printf 'clients: %s\n' "$*" >&2; }

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >/dev/null 2>&1; }

# need COMMAND PACKAGE
need() {
    command -v "$1" >/dev/null && return
    if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; }; then
        say "$1 is not here, and cannot be installed: its tests are skipped (as root: apt-get install $2)"
        return
    fi
    say "installing Debian's $2"
    apt install "$2" || { apt update && apt install "$2"; } || say "$2 cannot be installed: its tests are skipped"
}

need kcat kcat
need java default-jre-headless
exit 0
