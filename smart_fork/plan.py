"""Which command forks a session, where, and with which id: the plan of a fork. Pure.

What the real programs do (Claude Code 2.1, Codex 0.169) decides the form of the commands:

* both end their options at ``--``;
* ``claude -- doctor`` runs the command ``doctor``, ``/clear`` runs a slash command, and Codex's ``!touch x`` runs a
  shell command; one blank before them makes each an ordinary prompt;
* ``codex fork`` asks which directory is meant unless ``-C`` says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from indexer.transcripts.model import Agent
from smart_fork.errors import ForkRefused, Usage

DEPTH = "SMART_FORK_DEPTH"
WORKER_ID = "SMART_FORK_WORKER_ID"
#: A fork may fork, and that one again; then it ends.
MAX_DEPTH = 3
#: Linux takes 128 KiB in one argument.
MAX_PROMPT_BYTES = 100_000
MAX_NAME_CHARACTERS = 200
#: What an agent tells the programs that it starts about itself. A fork is not inside its caller, and one of these can
#: keep Claude Code from saving the session.
CALLERS_OWN = (
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_PROJECT_DIR",
    "CODEX_SESSION_ID",
    "CODEX_THREAD_ID",
)

_ID = re.compile(r"[0-9a-fA-F-]{32,36}")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]+")

#: What must be on disk before the command works: nothing, the transcript in the target's folder, or a shortened copy.
Staging = Literal["nothing", "transcript", "branch"]


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What is to be forked, and how. `at` is the id of the last message to keep; `with_agent` what to run it with."""

    agent: Agent
    session_id: str
    source_path: Path
    source_cwd: str
    target_cwd: Path
    program: str
    new_session_id: str | None = None
    prompt: str | None = None
    headless: bool = False
    name: str | None = None
    at: str | None = None
    with_agent: Agent | None = None
    depth: int = 0
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """A command to run. `new_session_id` is `None` where only the agent knows it; `env` is added to its environment."""

    agent: Agent
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    source_session_id: str
    new_session_id: str | None
    staging: Staging
    at: str | None
    name: str
    prompt: str
    headless: bool


def plan_fork(request: ForkRequest) -> ForkPlan:
    """The plan of one fork.

    Raises:
        Usage: an id, the prompt or the depth is not acceptable.
        ForkRefused: another agent's session (F-096), or forks of forks of forks.
    """
    source = check_id(request.session_id, "source")
    new = check_id(request.new_session_id, "new") if request.new_session_id else None
    if request.with_agent not in (None, request.agent):
        raise ForkRefused(
            f"A {request.agent} session cannot be forked with {request.with_agent}",
            f"Fork it with {request.agent}, or search for sessions of {request.with_agent}.",
        )
    if request.depth >= MAX_DEPTH:
        raise ForkRefused(f"This is already a fork of a fork, {MAX_DEPTH} deep", f"Unset {DEPTH} to go on on purpose.")
    if request.at and not new:
        raise Usage("A fork at an earlier message needs a new session id")
    prompt = plain_prompt(request.prompt)
    if request.headless and not prompt:
        raise Usage("A fork without a terminal needs a prompt", 'Say what it is to do: smart-fork fork ID "…"')
    name = plain_name(request.name)
    argv = _claude(request, source, new, name) if request.agent == "claude" else _codex(request, source, new)
    words = ("--", prompt) if prompt else ()
    known = request.agent == "claude" or request.at is not None
    return ForkPlan(
        agent=request.agent,
        argv=(*argv, *words),
        cwd=request.target_cwd,
        env={DEPTH: str(request.depth + 1), **({WORKER_ID: request.worker_id} if request.worker_id else {})},
        source_session_id=source,
        new_session_id=new if known else None,
        staging="branch" if request.at else "transcript" if request.agent == "claude" else "nothing",
        at=request.at,
        name=name,
        prompt=request.prompt or "",
        headless=request.headless,
    )


def _claude(request: ForkRequest, source: str, new: str | None, name: str) -> tuple[str, ...]:
    if request.at and new:  # already a copy of its own
        argv = ["--resume", new]
    else:
        argv = ["--resume", source, "--fork-session", *(("--session-id", new) if new else ())]
    argv += [f"--name={name}"] if name else []
    argv += ["-p", "--output-format", "json"] if request.headless else []
    return (request.program, *argv)


def _codex(request: ForkRequest, source: str, new: str | None) -> tuple[str, ...]:
    words = ("resume", new) if request.at and new else ("fork", source)
    place = ("-C", str(request.target_cwd))
    return (request.program, "exec", *place, *words) if request.headless else (request.program, *words, *place)


def check_id(session_id: str, which: str = "source") -> str:
    """`session_id`, if it can be one (F-104, B-020).

    Raises:
        Usage: it cannot.
    """
    if not _ID.fullmatch(session_id) or not session_id.strip("-"):
        raise Usage(f"Invalid {which} sessionId: {plain_name(session_id)}")
    return session_id


def plain_prompt(prompt: str | None) -> str:
    """`prompt` as an argument that no agent takes for an option, a command of its own or a shell command (F-104).

    Raises:
        Usage: it is too long.
    """
    text = (prompt or "").replace("\0", "").encode("utf-8", "replace").decode().strip()
    if not text:
        return ""
    if len(text.encode()) > MAX_PROMPT_BYTES:
        raise Usage(
            f"The prompt is longer than {MAX_PROMPT_BYTES:,} bytes",
            "Write it to a file, and ask the fork to read that file.",
        )
    ordinary = text[0].isalnum() and len(text.split(maxsplit=1)) > 1
    return text if ordinary else f" {text}"


def plain_name(name: str | None) -> str:
    """`name` on one line, without control characters or terminal sequences, at most 200 characters (B-027)."""
    text = _CONTROL.sub(" ", (name or "").encode("utf-8", "replace").decode())
    return " ".join(text.split())[:MAX_NAME_CHARACTERS]


def environment(plan: ForkPlan, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for the worker: `base` without the caller's own marks, with the plan's additions."""
    return {key: value for key, value in base.items() if key not in CALLERS_OWN} | dict(plan.env)


def shell_command(plan: ForkPlan) -> str:
    """The plan as one line that a person can paste into a shell. For display; we never run it."""
    return f"cd {shlex.quote(str(plan.cwd))} && {shlex.join(plan.argv)}"
