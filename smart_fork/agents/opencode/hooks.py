"""OpenCode's hooks: a plugin of ours, which it loads without asking. It says its events in the words of Claude Code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from smart_fork.agents.agent import CallerIdentity, ClientCall
from smart_fork.agents.hooks import Hooks
from smart_fork.agents.opencode import settings_folder
from smart_fork.agents.registration import NAME

#: No tool of ours has a parameter of this name.
ARGUMENT = "calling_session"


class OpenCodeCalls(CallerIdentity):
    """See `CallerIdentity`."""

    argument = ARGUMENT

    def session_id(self, call: ClientCall) -> str | None:
        named = call.arguments.get(ARGUMENT)
        return named if isinstance(named, str) else None


class OpenCodeHooks(Hooks):
    """See `Hooks`."""

    #: What our command prints goes nowhere.
    recalls = False

    def path(self) -> Path:
        return settings_folder() / "plugins" / f"{NAME}.js"

    def content(self, command: Sequence[str]) -> str:
        text = files("smart_fork.agents.opencode").joinpath("plugin.js").read_text(encoding="utf-8")
        values = {"COMMAND": list(command), "TOOLS": f"{NAME}_", "ARGUMENT": ARGUMENT}
        for name, value in values.items():
            text = text.replace(f'"@{name}@"', json.dumps(value))
        return text
