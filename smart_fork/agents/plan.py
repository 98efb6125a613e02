"""Which command starts a worker, where, and with which session id: a new session, one gone on with, or a fork. Pure.

What is asked of every agent is checked here; the command itself is the agent's own (see `Starter`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from indexer.masking import Masked, mask, shorten
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.facets import starter_of
from smart_fork.agents.fork_request import ForkRequest, Form
from smart_fork.agents.starter import Delivery, Staging
from smart_fork.errors import ForkRefused, Usage

DEPTH = "SMART_FORK_DEPTH"
WORKER_ID = "SMART_FORK_WORKER_ID"
#: A fork may fork, and that one again; then it ends.
MAX_DEPTH = 3
#: Linux takes 128 KiB in one argument.
MAX_PROMPT_BYTES = 100_000
MAX_NAME_CHARACTERS = 200
#: What agents tell the programs that they start about themselves. A fork is not inside its caller, and one of these can
#: keep Claude Code from saving the session.
CALLERS_OWN = tuple(name for agent in AGENTS for name in agent.tells)

#: An id or a name that an agent is given as it is: no option, no path.
_GIVEN = re.compile(r"\w[\w.:-]{0,199}")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """A command to run. `env` is added to its environment, `staging` what is made first. See `Line`.

    `new_session_id` is that of the worker's session, `None` where only the agent knows it. `title` is the
    name of the worker, where its session gets it from what is made first, and not from the command.
    """

    agent: AgentName
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
    delivery: Delivery = "argument"
    writes: bool = False
    title: str = ""

    @property
    def said(self) -> str:
        """The prompt where it is not among the arguments: what is given on standard input, or typed."""
        return "" if self.delivery == "argument" else plain_prompt(self.prompt)


def plan_fork(request: ForkRequest) -> ForkPlan:
    """The plan of one worker.

    Raises:
        Usage: an id, the prompt or the depth is not acceptable.
        ForkRefused: another agent's session, or workers of workers of workers.
    """
    agent = request.agent
    starter = starter_of(agent)
    source = "" if request.form == "new" else _source_of(request)
    new = check_id(agent, request.new_session_id, "new") if request.new_session_id else None
    if request.depth >= MAX_DEPTH:
        raise ForkRefused(
            f"This is already a worker of a worker, {MAX_DEPTH} deep", f"Unset {DEPTH} to start one anyway."
        )
    if request.at and not new:
        raise Usage("A fork at an earlier message needs a new session id")
    prompt = plain_prompt(request.prompt)
    if request.headless and not prompt:
        raise Usage("A worker without a terminal needs a prompt", "Give it a prompt, or run it in tmux.")
    name = plain_name(request.name)
    line = starter.line(replace(request, session_id=source, new_session_id=new, prompt=prompt, name=name))
    return ForkPlan(
        agent=agent,
        argv=line.argv,
        cwd=request.target_cwd,
        env={DEPTH: str(request.depth + 1), **({WORKER_ID: request.worker_id} if request.worker_id else {})},
        source_session_id=source,
        new_session_id=line.session_id if starter.ids.fullmatch(line.session_id or "") else None,
        staging=line.staging,
        at=request.at,
        name=name,
        prompt=passable(request.prompt or ""),
        headless=request.headless,
        form=request.form,
        delivery=line.delivery,
        writes=line.writes,
        title="" if line.named else name,
    )


def check_id(agent: AgentName, session_id: str, which: str = "source") -> str:
    """`session_id`, if it can be one of that agent's.

    Raises:
        Usage: it cannot.
    """
    if not starter_of(agent).ids.fullmatch(session_id):
        raise Usage(f"Invalid {which} sessionId: {plain_name(session_id)}")
    return session_id


def check_given(session_id: str) -> str:
    """`session_id`, if it can be an argument: an agent that is given it as it is may know it by a name.

    Raises:
        Usage: it cannot.
    """
    if not _GIVEN.fullmatch(session_id):
        raise Usage(f"Invalid source sessionId: {plain_name(session_id)}")
    return session_id


def _source_of(request: ForkRequest) -> str:
    if request.form == "resume" and request.source_path is None:
        return check_given(request.session_id)
    return check_id(request.source_agent or request.agent, request.session_id, "source")


def plain_prompt(prompt: str | None) -> str:
    """`prompt` as an argument that no agent takes for an option, a command of its own or a shell command.

    Raises:
        Usage: it is too long.
    """
    text = passable(prompt or "").strip()
    if not text:
        return ""
    if len(text.encode()) > MAX_PROMPT_BYTES:
        raise Usage(
            f"The prompt is longer than {MAX_PROMPT_BYTES:,} bytes",
            "Write it to a file, and let the prompt name the file.",
        )
    ordinary = text[0].isalnum() and len(text.split(maxsplit=1)) > 1
    return text if ordinary else f" {text}"


def passable(text: str) -> str:
    """`text` as far as it can be an argument of a program: without NUL and half characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def plain_name(name: str | None) -> Masked:
    """`name` on one line, without secrets and what steers a terminal, at most 200 characters."""
    text = _CONTROL.sub(" ", (name or "").encode("utf-8", "replace").decode())
    return shorten(mask(text), MAX_NAME_CHARACTERS)


def environment(plan: ForkPlan, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for the worker: `base` without the caller's own marks, with the plan's additions.

    A program may believe ``PWD`` more than where it is started.
    """
    here = {"PWD": str(plan.cwd)} if "PWD" in base else {}
    return {key: value for key, value in base.items() if key not in CALLERS_OWN} | here | dict(plan.env)


def shell_command(plan: ForkPlan) -> str:
    """The plan as one line that a person can paste into a shell. For display; we never run it."""
    given = f"printf %s {shlex.quote(plan.said)} | " if plan.delivery == "input" and plan.said else ""
    return f"cd {shlex.quote(str(plan.cwd))} && {given}{shlex.join(plan.argv)}"
