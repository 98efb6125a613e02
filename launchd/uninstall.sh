#!/bin/sh
# Stops the service and removes its launchd agent. smart-fork itself, its index and the logs stay.
set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
# shellcheck source=launchd/program.sh
. "$checkout/launchd/program.sh"

if program=$(find_program); then
    exec "$program" service uninstall "$@"
fi

# smart-fork is gone already: its agent can go without it.
label=org.smart-fork.serve
agent=$HOME/Library/LaunchAgents/$label.plist
if [ -e "$agent" ]; then
    launchctl bootout "gui/$(id -u)/$label" 2>/dev/null || true
    rm -f -- "$agent"
    echo "The service was removed."
else
    echo "No service is installed."
fi
