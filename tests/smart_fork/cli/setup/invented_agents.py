"""Two made-up agents that only their own descriptions make known: one with a settings file, one with separate files."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

from smart_fork.agents.agent import Agent, ProgramSpec
from smart_fork.agents.hooks import Hooks
from smart_fork.agents.mcp_registration import NAME, JsonRegistration


class OneFileHooks(Hooks):
    events = ("SessionStart", "Stop")

    def path(self) -> Path:
        return Path.home() / ".onefile" / "settings.json"


class OneFileRegistration(JsonRegistration):
    client = (f"onefile-{NAME}", "2025-11-25")

    def path(self) -> Path:
        return self.home() / "settings.json"

    def home(self) -> Path:
        return Path.home() / ".onefile"

    def skills(self) -> Path:
        return Path.home() / ".agents" / "skills"

    def permission_rules(self, tools):
        return tuple(f"mcp__{NAME}__{tool}" for tool in tools)


class OneFile(Agent):
    name, title = "onefile", "One File"
    command = ProgramSpec("onefile", "onefile", ())
    facets = MappingProxyType({"hooks": f"{__name__}:OneFileHooks", "registration": f"{__name__}:OneFileRegistration"})


class PluggedHooks(Hooks):
    recalls = False

    def path(self) -> Path:
        return Path.home() / ".config" / "plugged" / "plugins" / "smart-fork.js"

    def content(self, command):
        return f"// smart-fork\nconst command = {json.dumps(list(command))}\n"


class PluggedRegistration(JsonRegistration):
    client = ("plugged", "2025-11-25")
    servers, variables = "mcp", "environment"

    def path(self) -> Path:
        return self.home() / "plugged.json"

    def home(self) -> Path:
        return Path.home() / ".config" / "plugged"

    def skills(self) -> None:
        return None

    def argv(self, entry):
        words = entry.get("command")
        return tuple(words) if isinstance(words, list) else ()

    def wanted(self, words, env, before):
        return {"enabled": True, **(before or {}), "type": "local", "command": [*words]}


class Plugged(Agent):
    name, title = "plugged", "Plugged"
    command = ProgramSpec("plugged", "plugged", ())
    facets = MappingProxyType({"hooks": f"{__name__}:PluggedHooks", "registration": f"{__name__}:PluggedRegistration"})


NEWCOMERS = (OneFile(), Plugged())
