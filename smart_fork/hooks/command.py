"""One event of a hook, from its bytes to the registry."""

from __future__ import annotations

import json
import os
from typing import Any

from smart_fork.agents import AGENTS
from smart_fork.hooks.ancestry import ancestors
from smart_fork.hooks.receive import receive
from smart_fork.registry.file import registry_file
from smart_fork.registry.workers import Registry


def hear(agent: str, body: bytes, patience: int) -> None:
    """Receive the event in `body` as the process that the agent has started for it.

    Raises:
        Exception: of many kinds; nobody is there to tell.
    """
    event: Any = json.loads(body)
    database = registry_file()
    if AGENTS[agent].hooks is None or not isinstance(event, dict) or not database.is_file():
        return
    with Registry(database, patience=patience) as registry:
        receive(registry, agent, event, os.environ, ancestors())
