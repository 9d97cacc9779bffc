#!/bin/sh
# Debian's kcat and Java, or only those named: kcat, java, mvn, nats; helm and kustomize, built by
# Go. For the tests, pipelines and comparisons that use them; without them tests are skipped, and the
# others say so. Never fails.
set -u
. "$(dirname "$0")/debian.sh"

say() { printf 'clients: %s\n' "$*" >&2; }

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends "$@" >/dev/null 2>&1; }

# need COMMAND PACKAGE
need() {
    PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null && return
    if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; }; then
        say "$1 is not here, and cannot be installed: what needs it is left out (as root: apt-get install $2)"
        return
    fi
    say "installing Debian's $2"
    without_services apt install "$2" || { apt update && without_services apt install "$2"; } || say "$2 cannot be installed: what needs it is left out"
}

# need_go COMMAND PACKAGE: Debian has none.
need_go() {
    tools=$(dirname "$0")/../build/tools
    PATH="$PATH:$tools" command -v "$1" >/dev/null && return
    if command -v go >/dev/null; then
        say "building $1, once"
        mkdir -p "$tools"
        GOBIN=$(cd "$tools" && pwd) GOFLAGS=-mod=mod go install "$2" 2>/dev/null && return
    fi
    say "$1 is not here, and Go cannot build it: tests of deploy/ that need it are left out"
}

for name in ${*:-kcat java}; do
    case $name in
    kcat) need kcat kcat ;;
    java) need java default-jre-headless ;;
    mvn) need mvn maven ;;
    nats) need nats-server nats-server ;;
    helm) need_go helm helm.sh/helm/v3/cmd/helm@v3.22.0 ;;
    kustomize) command -v kubectl >/dev/null || need_go kustomize sigs.k8s.io/kustomize/kustomize/v5@v5.8.1 ;;
    esac
done
exit 0
