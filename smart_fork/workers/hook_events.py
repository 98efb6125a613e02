"""Stores a worker's state (working, waiting, ended) from the events of hooks.

Evidence decides which worker an event belongs to. The worker's environment variable is not enough:

* Any process that a worker starts inherits the variable, another agent too. So the agent that runs the hook must be the
  process that smart-fork started.
* An agent may run the hooks of all its terminals in one background server, with the environment of the first terminal.
  Then only the session counts: its id is a known worker's, or its log begins with the worker's prompt.

An event without such evidence is from a person's session and is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import psutil

from indexer.environment import WORKER_ID
from indexer.lazy_compilation import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.hooks import Hooks
from smart_fork.display_text import plain_name, time_of
from smart_fork.errors import Usage
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import registry_file

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName
    from smart_fork.workers.registry import Status

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "busybox"})
#: The number of ancestors that are examined: a hook's shell, the agent, and the process that started the agent.
_FAR_ENOUGH = 6


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A process above this one (parent, grandparent …). `words` is its command line, empty if unknown."""

    pid: int
    words: tuple[str, ...]

    @property
    def is_shell(self) -> bool:
        return bool(self.words) and self.words[0].rpartition("/")[2].lstrip("-") in SHELLS


def ancestors() -> tuple[Ancestor, ...] | None:
    """Return this process's nearest ancestors, the parent first; `None` if the system does not show them.

    They prove which agent ran a hook. Environment variables do not: a process inherits them from its parent.
    """
    found: list[Ancestor] = []
    with suppress(psutil.Error, OSError):  # it has ended meanwhile, or is nobody's business
        above = (one for one in psutil.Process().parents()[:_FAR_ENOUGH] if one.pid > 1)
        found.extend(Ancestor(one.pid, tuple(filter(None, one.cmdline()))) for one in above)
    return tuple(found) or None


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """An event that an agent reports to a hook, in Claude Code's field names. A missing field is empty.

    `asks` is the action that needs a permission. The event is parsed without pydantic, which takes longer to import
    than the rest of a hook. No event is rejected, because an agent stops or complains if a hook fails: unknown keys are
    ignored, and values of another type count as missing.
    """

    session_id: str = ""
    hook_event_name: str = ""
    prompt: str = ""
    source: str = ""
    reason: str = ""
    tool_name: str = ""
    notification_type: str = ""
    message: str = ""
    asks: str = ""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> WorkerEvent:
        """Return the event in the JSON object `said`, which an agent or another client of the service wrote."""
        told = {one.name: _text(said.get(one.name)) for one in fields(cls)}
        call = said.get("tool_input")
        asks = (_text(call.get("description")) or _command(call.get("command"))) if isinstance(call, Mapping) else ""
        return cls(**told | {"asks": asks})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _command(value: object) -> str:
    """Return the command of a tool call as one text; agents give it as a text or as a list of words."""
    return " ".join(map(_text, value)) if isinstance(value, list) else _text(value)


#: Claude Code's notifications that wait for an answer.
_QUESTIONS = ("permission_prompt", "elicitation_dialog")
#: Reasons of a session's end after which the process continues with another session.
_GOES_ON = ("clear", "resume")
#: The environment variables of a hook's process, if known.
Environment = Mapping[str, str] | None
#: The agent's process that ran the hook, followed by the processes above it; `None` if unknown.
Runner = Sequence[Ancestor] | None


def receive(
    registry: Registry,
    agent: AgentName,
    body: Mapping[str, Any],
    environment: Environment = None,
    ancestry: Sequence[Ancestor] | None = None,
    *,
    began: float | None = None,
) -> WorkerRecord | None:
    """Store the event in `body` and return its worker; `None` if no worker reported it. Repeated events change nothing.

    `environment`, `ancestry` and `began` (seconds since 1970) are the environment variables, ancestors and start of
    the hook's process; `None` if unknown.
    """
    hooks = AGENTS.hooks_of(agent)
    event = WorkerEvent.of(hooks.event(body))
    session_id, name = event.session_id, event.hook_event_name
    try:
        AGENTS.check_id(agent, session_id)
    except Usage:
        return None
    runner = _runner(hooks, ancestry)
    worker, proven = _worker_of(registry, hooks, event, environment, runner)
    if worker is None:
        return None
    if proven and name != "SessionEnd":
        worker = _note_process(registry, worker, environment, runner)
    if session_id != worker.session_id:
        if name == "SessionEnd" or _names_source(worker, event):
            return worker
        worker = registry.set_session_id(worker.id, session_id)
    return _note(registry, worker, event, began)


def _note_process(registry: Registry, worker: WorkerRecord, environment: Environment, runner: Runner) -> WorkerRecord:
    """Store that the worker's process runs, and its process id and terminal if they are not known yet."""
    if worker.state != "running":
        worker = registry.set_state(worker.id, "running")
    if worker.pid is None and worker.terminal_id is None and runner:
        pane = (environment or {}).get("TMUX_PANE") if worker.place == "tmux" else None
        worker = registry.set_found(worker.id, pid=runner[0].pid, terminal_id=pane)
    return worker


def _worker_of(
    registry: Registry, hooks: Hooks, event: WorkerEvent, environment: Environment, runner: Runner
) -> tuple[WorkerRecord | None, bool]:
    """Return (the worker that the event belongs to or `None`, True if the worker's own process ran the hook)."""
    agent = hooks.agent
    if environment is not None and not hooks.in_background(runner[0].words if runner else None):
        claimed = registry.find(environment.get(WORKER_ID, ""))
        ours = claimed is not None and claimed.agent == agent and _runs_hook(claimed, event.session_id, runner)
        return (claimed, True) if ours else (None, False)
    session_id = event.session_id
    from smart_fork.workers.session_matching import worker_of  # which reads logs

    known = worker_of(registry, agent, session_id, event.prompt)
    if known is None or known.agent != agent or known.is_over or known.session_id not in (None, session_id):
        return None, False
    return known, False


def _runs_hook(worker: WorkerRecord, session_id: str, runner: Runner) -> bool:
    """Return True if the worker's process, or one that it started, ran the hook that reported the event.

    If process ids are unknown, compare sessions: return True if the worker has the event's `session_id`, or none yet.
    """
    if runner is None or worker.pid is None:  # the system does not tell; or its start was not, or not yet, written down
        return worker.session_id in (None, session_id)
    return worker.pid in [process.pid for process in runner]


def _runner(hooks: Hooks, ancestry: Sequence[Ancestor] | None) -> Runner:
    """Return the agent's process that ran the hook, then its ancestors; `None` if the hook's `ancestry` is unknown.

    Shells between agent and hook are left out. At most the processes of one agent are returned: npm's Codex has two.
    """
    above = list(ancestry or ())
    while above and above[0].is_shell:
        above.pop(0)
    return above[: hooks.processes] or None


def _names_source(worker: WorkerRecord, event: WorkerEvent) -> bool:
    """Return True if a fork's start event has the forked session's id: Claude Code reports the fork's own id later."""
    starts = event.hook_event_name == "SessionStart"
    return starts and worker.is_fork and event.session_id == worker.source_session_id


def _note(registry: Registry, worker: WorkerRecord, event: WorkerEvent, began: float | None) -> WorkerRecord:
    if event.hook_event_name == "SessionEnd":
        return worker if event.reason in _GOES_ON else registry.set_state(worker.id, "ended")
    says = _status(event)
    # On a busy machine the hook of a prompt may come to itself after that of the question which the prompt led to.
    asked = time_of(worker.status_at) if worker.status == "waiting" and says == _WORKING else None
    is_late = asked is not None and began is not None and asked.timestamp() > began
    return registry.set_status(worker.id, *says) if says and not is_late else worker


_WORKING: tuple[Status, str] = ("working", "")


def _status(event: WorkerEvent) -> tuple[Status, str] | None:
    """Return the worker's new status, and the question that it waits for; `None` if the event changes neither."""
    name = event.hook_event_name
    if name == "UserPromptSubmit":
        return _WORKING
    if name in ("Stop", "Interrupt") or (name == "SessionStart" and event.source == "clear"):
        return "idle", ""
    if name == "PermissionRequest":
        return "waiting", plain_name(": ".join(part for part in (event.tool_name, event.asks) if part))
    if name == "Notification":
        kind, message = event.notification_type, plain_name(event.message)
        if kind == "idle_prompt":
            return "idle", ""
        if kind in _QUESTIONS or (not kind and "permission" in message):
            return "waiting", message
    return None


def hear(agent: str, body: bytes, patience: int) -> None:
    """Store the event in `body` in the registry of workers, in the process that the agent started for its hook.

    `patience` is how many milliseconds to wait while another process writes the registry.

    Raises:
        Exception: of many kinds; the caller ignores them.
    """
    event: Any = json.loads(body)
    database = registry_file()
    if AGENTS[agent].hooks is None or not isinstance(event, dict) or not database.is_file():
        return
    with Registry(database, patience=patience) as registry:
        receive(registry, agent, event, os.environ, ancestors(), began=psutil.Process().create_time())
