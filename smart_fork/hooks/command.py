"""One event of a hook, from its bytes to the registry."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from indexer.paths import state_home
from indexer.transcripts.model import Agent
from smart_fork.hooks.ancestry import ancestors
from smart_fork.hooks.receive import receive
from smart_fork.registry import Registry

_AGENTS: Mapping[str, Agent] = {"claude": "claude", "codex": "codex"}


def hear(agent: str, body: bytes, patience: int) -> None:
    """Receive the event in `body` as the process that the agent has started for it.

    Raises:
        Exception: of many kinds; nobody is there to tell.
    """
    event: Any = json.loads(body)
    database = state_home() / "workers.db"
    if agent not in _AGENTS or not isinstance(event, dict) or not database.is_file():
        return
    with Registry(database, patience=patience) as registry:
        receive(registry, _AGENTS[agent], event, os.environ, ancestors())
