"""Which calls act. They go to a server that has the agent's own environment, in which workers are started.

A call of which this is not known for certain acts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from smart_fork.rpc import RpcMessage

#: The tool that finds, and acts if it is asked for a fork.
FINDS = "smart_fork"
#: What it may be told without acting; what a fork would be like, if there was one, does not matter.
FINDING = frozenset(
    {
        "intent",
        "also",
        "agent_type",
        "limit",
        "project_path",
        "collection",
        "min_score",
        "include_snippets",
        "explain",
        "team",
    }
    | {
        "prompt",
        "run_in",
        "at",
        "worktree",
        "with_changes",
        "budget",
        "keep",
        "drop",
        "brief",
        "as_agent",
        "dry_run",
        "merge",
    }
)
#: What asks for a fork, unless it is said to be nothing.
FORKING = frozenset({"auto_fork", "fork_index", "fork_session_id"})


def reading_tools(tools: Iterable[dict[str, Any]]) -> frozenset[str]:
    """The names of those `tools`, as ``tools/list`` has them, that say of themselves that they only read."""
    return frozenset(tool["name"] for tool in tools if tool.get("annotations", {}).get("readOnlyHint") is True)


def acts(message: RpcMessage, reading: Collection[str]) -> bool:
    """Whether `message` is a call that may start, change or end something."""
    if message.method != "tools/call":
        return False
    name, arguments = message.params.get("name"), message.params.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        return True
    return name not in reading and not (name == FINDS and _only_finds(arguments or {}))


def _only_finds(arguments: dict[str, Any]) -> bool:
    return all(name in FINDING or (name in FORKING and _is_nothing(name, arguments[name])) for name in arguments)


def _is_nothing(name: str, value: object) -> bool:
    return value is None or (name == "auto_fork" and value is False)
