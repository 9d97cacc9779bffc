#!/bin/sh
# Debian's packages that `make chaos` can use. What cannot be installed is named; scenarios that need it are skipped.
set -u
cd "$(dirname "$0")/.." || exit 1

say() { printf 'chaos: %s\n' "$*" >&2; }

. scripts/debian.sh

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >.setup.log 2>&1; }

# need COMMAND PACKAGE WHAT-FOR
need() {
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null && return
    if command -v apt-get >/dev/null; then
        say "installing Debian's $2, for $3"
        if without_services apt install $2 || { apt update && without_services apt install $2; }; then
            rm -f .setup.log
            return
        fi
        rm -f .setup.log
    fi
    say "no $1, so no $3; as root, run: apt-get install $2"
}

need gcc "gcc libc6-dev" "failing and slow disks, crash points and clocks"
need ip iproute2 "network namespaces"
need iptables iptables "partitions"
need losetup mount "power loss"
need mkfs.ext4 e2fsprogs "power loss"
case " $* " in *" nats "*) need nats-server nats-server "the comparison with NATS JetStream" ;; esac
