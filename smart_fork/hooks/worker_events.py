"""Reads a worker's state from the event of a hook.

Whose event it is, is decided by evidence only. The mark in the environment is not enough:

* whatever a worker starts inherits it, another agent too: so the agent that runs the hook must be the process that we
  started;
* an agent may run the hooks of all its terminals in one server in the background, with the environment of whoever came
  first: there only the session itself counts, known or with the beginning that the worker's must have.

Anything else is a session of a person, and none of our business.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from indexer.lazy import dataclass
from indexer.settings import WORKER_ID
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.hooks import Hooks
from smart_fork.errors import Usage
from smart_fork.snippets import plain_name, time_of
from smart_fork.workers.registry import Registry, Status, WorkerRecord
from smart_fork.workers.registry_file import registry_file

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "busybox"})
#: A hook, a shell, the agent, and what started the agent.
_FAR_ENOUGH = 6


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A process further up, and the words of its command as far as the system tells them."""

    pid: int
    words: tuple[str, ...]

    @property
    def is_shell(self) -> bool:
        """Return True if it only passes a command on."""
        return bool(self.words) and self.words[0].rpartition("/")[2].lstrip("-") in SHELLS


def ancestors() -> tuple[Ancestor, ...] | None:
    """Those of this process, the nearest first; `None` where the system does not tell.

    They are the only thing about a process that it cannot have inherited from another one.
    """
    import psutil

    found: list[Ancestor] = []
    with suppress(psutil.Error, OSError):  # it has ended meanwhile, or is nobody's business
        above = (one for one in psutil.Process().parents()[:_FAR_ENOUGH] if one.pid > 1)
        found.extend(Ancestor(one.pid, tuple(filter(None, one.cmdline()))) for one in above)
    return tuple(found) or None


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """One event, with Claude Code's names. What was not said is empty; `asks` is what a permission is asked for.

    It is read by hand and not by pydantic, whose import takes longer than all else that a hook does while its agent
    waits. Nothing is refused, either: each version of an agent says more than the one before, and a hook that failed
    would stop the agent or have it complain. A key that is not known is passed over; a value of another type was not
    said.
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
        """The event in an object that an agent, or whoever has the service's token, has written."""
        told = {one.name: _text(said.get(one.name)) for one in fields(cls)}
        call = said.get("tool_input")
        asks = (_text(call.get("description")) or _command(call.get("command"))) if isinstance(call, Mapping) else ""
        return cls(**told | {"asks": asks})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _command(value: object) -> str:
    """A command, which may be said as the list of its words."""
    return " ".join(map(_text, value)) if isinstance(value, list) else _text(value)


#: Of Claude Code's notifications, those that stop it until somebody answers.
_QUESTIONS = ("permission_prompt", "elicitation_dialog")
#: Ends of a session after which the same process goes on with another one.
_GOES_ON = ("clear", "resume")


def receive(
    registry: Registry,
    agent: AgentName,
    body: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    ancestry: Sequence[Ancestor] | None = None,
    *,
    began: float | None = None,
) -> WorkerRecord | None:
    """Note what `body` says. The worker that it was about, `None` where it was none of ours. Twice is once.

    `environment` and `ancestry` are those of the process that the agent has run, and `began` is when it ran it, in
    seconds since 1970, as far as they are known.
    """
    hooks = AGENTS.hooks_of(agent)
    event = WorkerEvent.of(hooks.event(body))
    session_id, name = event.session_id, event.hook_event_name
    try:
        AGENTS.check_id(agent, session_id)
    except Usage:
        return None
    worker, proven = _whose(registry, hooks, event, environment, ancestry)
    if worker is None:
        return None
    if proven and name != "SessionEnd":
        worker = _seen(registry, worker, environment, _runner(hooks, ancestry))
    if session_id != worker.session_id:
        if name == "SessionEnd" or _is_the_sources_own(worker, event):
            return worker
        worker = registry.set_session_id(worker.id, session_id)
    return _note(registry, worker, event, began)


def _seen(
    registry: Registry, worker: WorkerRecord, environment: Mapping[str, str] | None, runner: Sequence[Ancestor] | None
) -> WorkerRecord:
    """Its process is there, whatever was thought of it, and where it is if nobody could write that down."""
    if worker.state != "running":
        worker = registry.set_state(worker.id, "running")
    if worker.pid is None and worker.terminal_id is None and runner:
        pane = (environment or {}).get("TMUX_PANE") if worker.place == "tmux" else None
        worker = registry.set_found(worker.id, pid=runner[0].pid, terminal_id=pane)
    return worker


def _whose(
    registry: Registry,
    hooks: Hooks,
    event: WorkerEvent,
    environment: Mapping[str, str] | None,
    ancestry: Sequence[Ancestor] | None,
) -> tuple[WorkerRecord | None, bool]:
    """The worker, and whether it was seen to be its own process that speaks."""
    agent, runner = hooks.agent, _runner(hooks, ancestry)
    if environment is not None and not hooks.in_background(runner[0].words if runner else None):
        claimed = registry.find(environment.get(WORKER_ID, ""))
        ours = claimed is not None and claimed.agent == agent and _speaks(claimed, event.session_id, runner)
        return (claimed, True) if ours else (None, False)
    session_id = event.session_id
    from smart_fork.workers.births import worker_of  # which reads logs

    known = worker_of(registry, agent, session_id, event.prompt)
    if known is None or known.agent != agent or known.is_over or known.session_id not in (None, session_id):
        return None, False
    return known, False


def _speaks(worker: WorkerRecord, session_id: str, runner: Sequence[Ancestor] | None) -> bool:
    """Return True if the hook's agent is the worker's own process or, like npm's Codex, was started by it."""
    if runner is None or worker.pid is None:  # the system does not tell; or its start was not, or not yet, written down
        return worker.session_id in (None, session_id)
    return worker.pid in [process.pid for process in runner]


def _runner(hooks: Hooks, ancestry: Sequence[Ancestor] | None) -> Sequence[Ancestor] | None:
    """The agent, and what had started it."""
    above = list(ancestry or ())
    while above and above[0].is_shell:
        above.pop(0)
    return above[: hooks.processes] or None


def _is_the_sources_own(worker: WorkerRecord, event: WorkerEvent) -> bool:
    """Claude Code begins a fork in the name of the session that it forks, and has its own id only from then on."""
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
    """Return the worker's status and what it waits for; `None` if the event does not say."""
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
    """Receive the event in `body` as the process that the agent has started for it.

    Raises:
        Exception: of many kinds; nobody is there to tell.
    """
    import psutil

    event: Any = json.loads(body)
    database = registry_file()
    if AGENTS[agent].hooks is None or not isinstance(event, dict) or not database.is_file():
        return
    with Registry(database, patience=patience) as registry:
        receive(registry, agent, event, os.environ, ancestors(), began=psutil.Process().create_time())
