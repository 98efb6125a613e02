"""Which command starts a worker, where, and with which session id: a new session, one gone on with, or a fork. Pure.

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

from indexer.masking import Masked, mask, shorten
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
#: Which of an agent's own commands: a session of its own, one that goes on, or a fork of one.
Form = Literal["fork", "new", "resume"]


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What is to be started, and how. `at` is the id of the last message to keep; `with_agent` what to run it with.

    `session_id` is that of the session to fork or to go on with, empty for a new one.
    """

    agent: Agent
    session_id: str
    source_path: Path | None
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
    form: Form = "fork"
    skip_permissions: bool = False


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """A command to run. `env` is added to its environment.

    `new_session_id` is that of the worker's session, `None` where only the agent knows it.
    """

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
    form: Form = "fork"


def plan_fork(request: ForkRequest) -> ForkPlan:
    """The plan of one worker.

    Raises:
        Usage: an id, the prompt or the depth is not acceptable.
        ForkRefused: another agent's session (F-096), or workers of workers of workers.
    """
    source = "" if request.form == "new" else check_id(request.session_id, "source")
    new = check_id(request.new_session_id, "new") if request.new_session_id else None
    if request.with_agent not in (None, request.agent):
        raise ForkRefused(
            f"A {request.agent} session cannot be forked with {request.with_agent}",
            f"Fork it with {request.agent}, or search for sessions of {request.with_agent}.",
        )
    if request.depth >= MAX_DEPTH:
        raise ForkRefused(
            f"This is already a worker of a worker, {MAX_DEPTH} deep", f"Unset {DEPTH} to go on on purpose."
        )
    if request.at and not new:
        raise Usage("A fork at an earlier message needs a new session id")
    prompt = plain_prompt(request.prompt)
    if request.headless and not prompt:
        raise Usage("A worker without a terminal needs a prompt", "Say what it is to do, or run it in tmux.")
    name = plain_name(request.name)
    goes_on_in = source if request.form == "resume" else new if request.at else None
    if request.agent == "claude":
        argv = _claude(request, source, new, goes_on_in, name)
    else:
        argv = _codex(request, source, goes_on_in)
    return ForkPlan(
        agent=request.agent,
        argv=(*argv, *(("--", prompt) if prompt else ())),
        cwd=request.target_cwd,
        env={DEPTH: str(request.depth + 1), **({WORKER_ID: request.worker_id} if request.worker_id else {})},
        source_session_id=source,
        new_session_id=goes_on_in or (new if request.agent == "claude" else None),
        staging=_staging(request),
        at=request.at,
        name=name,
        prompt=passable(request.prompt or ""),
        headless=request.headless,
        form=request.form,
    )


def _staging(request: ForkRequest) -> Staging:
    if request.form != "fork":
        return "nothing"
    return "branch" if request.at else "transcript" if request.agent == "claude" else "nothing"


def _claude(request: ForkRequest, source: str, new: str | None, goes_on_in: str | None, name: str) -> tuple[str, ...]:
    chosen = ("--session-id", new) if new else ()
    if goes_on_in:  # a shortened copy is one of its own already
        session: tuple[str, ...] = ("--resume", goes_on_in)
    elif request.form == "new":
        session = chosen
    else:
        session = ("--resume", source, "--fork-session", *chosen)
    # The session that goes on keeps the name it has.
    named = (f"--name={name}",) if name and request.form != "resume" else ()
    unasked = ("--dangerously-skip-permissions",) if request.skip_permissions else ()
    printed = ("-p", "--output-format", "json") if request.headless else ()
    return (request.program, *session, *named, *unasked, *printed)


def _codex(request: ForkRequest, source: str, goes_on_in: str | None) -> tuple[str, ...]:
    if goes_on_in:
        words: tuple[str, ...] = ("resume", goes_on_in)
    else:
        words = () if request.form == "new" else ("fork", source)
    place = ("-C", str(request.target_cwd))
    unasked = ("--dangerously-bypass-approvals-and-sandbox",) if request.skip_permissions else ()
    if request.headless:  # only `exec` itself takes a directory
        return (request.program, "exec", *place, *words, *unasked)
    return (request.program, *words, *place, *unasked)


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
    text = passable(prompt or "").strip()
    if not text:
        return ""
    if len(text.encode()) > MAX_PROMPT_BYTES:
        raise Usage(
            f"The prompt is longer than {MAX_PROMPT_BYTES:,} bytes",
            "Write it to a file, and ask for that file to be read.",
        )
    ordinary = text[0].isalnum() and len(text.split(maxsplit=1)) > 1
    return text if ordinary else f" {text}"


def passable(text: str) -> str:
    """`text` as far as it can be an argument of a program: without NUL and half characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def plain_name(name: str | None) -> Masked:
    """`name` on one line, without secrets and what steers a terminal, at most 200 characters (B-027)."""
    text = _CONTROL.sub(" ", (name or "").encode("utf-8", "replace").decode())
    return shorten(mask(text), MAX_NAME_CHARACTERS)


def environment(plan: ForkPlan, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for the worker: `base` without the caller's own marks, with the plan's additions."""
    return {key: value for key, value in base.items() if key not in CALLERS_OWN} | dict(plan.env)


def shell_command(plan: ForkPlan) -> str:
    """The plan as one line that a person can paste into a shell. For display; we never run it."""
    return f"cd {shlex.quote(str(plan.cwd))} && {shlex.join(plan.argv)}"
