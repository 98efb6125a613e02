"""The plan of a worker (an agent that smart-fork starts): its command, directory and session id. Nothing is run here.

The checks here are those for all agents; the command comes from the agent's `Starter`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from indexer.environment import DEPTH, WORKER_ID
from indexer.lazy_compilation import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.start_command import Delivery, LaunchKind, LaunchRequest, Staging
from smart_fork.display_text import plain_name
from smart_fork.errors import ForkRefused, Usage

#: A fork may fork, and that fork once more.
MAX_DEPTH = 3


#: Linux accepts 128 KiB in one argument.
MAX_PROMPT_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """The plan of a worker (an agent that smart-fork starts): the command to run, its directory, environment and files.

    `env` is added to the environment; `defaults` are for variables that are not set. `staging` says which files must be
    made first. `new_session_id` is the worker's session, `None` if the agent itself chooses it. `title` is the worker's
    name if it must be written into the copied log, because the command cannot name the session.
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
    form: LaunchKind = "fork"
    delivery: Delivery = "argument"
    writes: bool = False
    title: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The prompt, if it is sent on standard input or typed; empty if it is an argument of the command."""
        return "" if self.delivery == "argument" else self.plain_prompt(self.prompt)

    @staticmethod
    def plain_prompt(prompt: str | None) -> str:
        """Return `prompt`, with a blank before it if an agent may take it for an option, a command or a shell command.

        Raises:
            Usage: The prompt is too long.
        """
        text = ForkPlan.passable(prompt or "").strip()
        if not text:
            return ""
        if len(text.encode()) > MAX_PROMPT_BYTES:
            raise Usage(
                f"The prompt is longer than {MAX_PROMPT_BYTES:,} bytes",
                "Write it to a file, and let the prompt name the file.",
            )
        ordinary = text[0].isalnum() and len(text.split(maxsplit=1)) > 1
        return text if ordinary else f" {text}"

    @staticmethod
    def passable(text: str) -> str:
        """Return `text` without characters that an argument cannot have: NUL and lone surrogates."""
        return text.replace("\0", "").encode("utf-8", "replace").decode()

    @classmethod
    def fits(cls, prompt: str) -> bool:
        """Return True if a prompt is short enough for an argument."""
        return len(cls.passable(prompt).encode()) < MAX_PROMPT_BYTES

    @classmethod
    def of(cls, request: LaunchRequest) -> ForkPlan:
        """Return the plan for a worker.

        Raises:
            Usage: An id, the prompt or the depth is not valid.
            ForkRefused: The session belongs to another agent, or workers are nested too deeply.
        """
        agent = request.agent
        starter = AGENTS.starter_of(agent)
        source = "" if request.form == "new" else _source_of(request)
        new = AGENTS.check_id(agent, request.new_session_id, "new") if request.new_session_id else None
        if request.depth >= MAX_DEPTH:
            raise ForkRefused(
                f"This is already a worker of a worker, {MAX_DEPTH} deep", f"Unset {DEPTH} to start one anyway."
            )
        if request.at and not new:
            raise Usage("A fork at an earlier message needs a new session id")
        prompt = cls.plain_prompt(request.prompt)
        if request.headless and not prompt:
            raise Usage("A worker without a terminal needs a prompt", "Give it a prompt, or run it in tmux.")
        name = plain_name(request.name)
        line = starter.line(replace(request, session_id=source, new_session_id=new, prompt=prompt, name=name))
        env = {
            DEPTH: str(request.depth + 1),
            **({WORKER_ID: request.worker_id} if request.worker_id else {}),
            **AGENTS[agent].home.environment(),
        }
        argv = line.argv
        if request.background:  # a session that is resumed keeps the options that it has
            argv = AGENTS.background_of(agent).command(argv, env if request.form != "resume" else {})
        return cls(
            agent=agent, argv=argv, cwd=request.target_cwd, env=env, source_session_id=source,
            new_session_id=line.session_id if starter.ids.fullmatch(line.session_id or "") else None,
            staging=line.staging, at=request.at, name=name, prompt=cls.passable(request.prompt or ""),
            headless=request.headless, form=request.form, delivery=line.delivery, writes=line.writes,
            title="" if line.named else name, defaults=line.env,
        )  # fmt: skip

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the worker's environment: `base` without the caller's variables, and with the plan's variables.

        ``PWD`` is changed too, since a program may trust it more than its working directory.
        """
        here = {"PWD": str(self.cwd)} if "PWD" in base else {}
        given = {key: value for key, value in base.items() if key not in AGENTS.callers_own}
        return {**self.defaults, **given, **here, **self.env}

    def shell_command(self) -> str:
        """Return the plan as one line that a person can paste into a shell. smart-fork itself never runs it."""
        given = f"printf %s {shlex.quote(self.said)} | " if self.delivery == "input" and self.said else ""
        home = AGENTS[self.agent].home.variable
        words = (*(("env", f"{home}={self.env[home]}") if home in self.env else ()), *self.argv)
        return f"cd {shlex.quote(str(self.cwd))} && {given}{shlex.join(words)}"


def _source_of(request: LaunchRequest) -> str:
    if request.form == "resume" and request.source_agent is None:
        return AGENTS.check_given(request.session_id)
    return AGENTS.check_id(request.source_agent or request.agent, request.session_id, "source")
