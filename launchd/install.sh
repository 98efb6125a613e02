#!/bin/sh
# Installs smart-fork where it is missing, then its service as a launchd agent. Arguments go to
# `smart-fork service install`: --port 8766, --every 15m, --json; --print shows the agent and changes nothing.
set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
# shellcheck source=launchd/program.sh
. "$checkout/launchd/program.sh"

printing=
for argument in "$@"; do
    [ "$argument" != --print ] || printing=yes
done

if [ -z "$printing" ] && [ "$(uname -s)" != Darwin ]; then
    echo "launchd is only on macOS: nothing was installed. On Linux: smart-fork service install" >&2
    exit 1
fi

if ! program=$(find_program); then
    if [ -n "$printing" ]; then
        echo "smart-fork is not installed, so that its place is not known; run this without --print first." >&2
        exit 1
    fi
    echo "Installing smart-fork from $checkout ..." >&2
    if command -v uv >/dev/null 2>&1; then
        uv tool install -c "$checkout/constraints.txt" "$checkout" >&2
    elif command -v pipx >/dev/null 2>&1; then
        PIP_CONSTRAINT="$checkout/constraints.txt" pipx install "$checkout" >&2
    else
        echo "Neither uv nor pipx is installed: https://docs.astral.sh/uv/ says how, then run this again." >&2
        exit 1
    fi
    program=$(find_program) || {
        echo "smart-fork was installed, but not where it is looked for; put its folder on PATH and run this again." >&2
        exit 1
    }
fi

exec "$program" service install --kind launchd "$@"
