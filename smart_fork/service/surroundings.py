"""What of a process's environment changes its answers: two for whom it is the same can answer for each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from indexer.paths import state_home
from indexer.switches import is_off
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.facets import overrides
from smart_fork.agents.programs import find_program
from smart_fork.errors import ProgramMissing

#: Each is another model, or another program.
_AS_THEY_ARE = (
    "SMART_FORK_MODEL",
    "SMART_FORK_RERANKER",
    "SMART_FORK_ENGINE",
    "SMART_FORK_QMD_COMMAND",
)


def surroundings() -> dict[str, object]:
    """Those of this process, as JSON values: nothing in them is a secret."""
    env = os.environ
    folders = {"home": Path.home(), "state": state_home()}
    folders |= {agent.name: agent.home.folder() for agent in AGENTS if agent.home}
    return {
        **{name: str(folder.resolve()) for name, folder in folders.items()},
        **{name: env.get(name, "") for name in (*_AS_THEY_ARE, *overrides())},
        "SMART_FORK_INDEXING": not is_off("SMART_FORK_INDEXING"),
        "programs": [agent.name for agent in AGENTS if agent.command and _has(env, agent.name)],
        "tmux": _tmux_server(env),
    }


def _has(env: Mapping[str, str], agent: AgentName) -> bool:
    """Whether a result could be forked at all: whoever starts agents has another PATH than a service."""
    try:
        find_program(agent, env)
    except ProgramMissing:
        return False
    return True


def _tmux_server(env: Mapping[str, str]) -> str:
    """Where the tmux server listens that is asked about workers."""
    own, _, _ = env.get("TMUX", "").partition(",")
    name = env.get("SMART_FORK_TMUX_SOCKET")
    if name or not own:
        own = f"{env.get('TMUX_TMPDIR') or '/tmp'}/tmux-{os.getuid()}/{name or 'default'}"  # noqa: S108 - tmux's own
    return str(Path(own).resolve())
