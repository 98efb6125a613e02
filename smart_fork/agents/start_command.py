"""The request to start a worker (an agent), and the command that starts it. Nothing is run here."""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import orjson

from indexer.json_values import dict_in, dicts_in, json_at, json_in, text_in
from indexer.lazy_compilation import dataclass, late
from indexer.transcripts.model import AgentName
from smart_fork.agents.description import AgentFacet
from smart_fork.agents.request_fields import Options

#: The agent's command: fork a session, start a new one, or resume one.
LaunchKind = Literal["fork", "new", "resume"]


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The request for a worker (an agent that smart-fork starts).

    * `session_id`: the session to fork or resume; empty for a new session.
    * `source_agent`: the agent of that session; `None` if the session was not read, and the id is passed on unchanged.
    * `at`: the id of the last message to keep.
    * `new_session_id`: an id that the new session may use.
    * `options`, `prompt` and `name`: as the caller gave them.
    * `of_others`: the session has another person's text, which may be hostile: the agent must ask before it acts.
    * `has_tools`: the agent starts smart-fork's server, and its first request should wait for the server.
    * `background`: the worker is one of the agent's own background sessions (see `Background`).
    """

    agent: AgentName
    session_id: str
    target_cwd: Path
    program: str
    new_session_id: str | None = None
    prompt: str | None = None
    headless: bool = False
    background: bool = False
    name: str | None = None
    at: str | None = None
    source_agent: AgentName | None = None
    depth: int = 0
    worker_id: str = ""
    form: LaunchKind = "fork"
    of_others: bool = False
    has_tools: bool = False
    options: Options = field(default_factory=Options)

    @property
    def skip_permissions(self) -> bool:
        """True if the agent never asks before it acts."""
        return self.options.skip_permissions


#: The files that the command needs: none; the transcript in the target's folder; a copy under the new id, written by
#: the agent's copier; or the log under a second name that remains when the agent resumes the session (see
#: `Storage.resumed`).
Staging = Literal["nothing", "transcript", "branch", "name"]
#: How the agent gets the prompt: as an argument, on standard input, or typed when its input line appears.
Delivery = Literal["argument", "input", "typed"]


def ordinary(prompt: str, commands: tuple[str, ...]) -> str:
    """Return a prompt that the agent does not take for one of its own `commands`, even if it begins like one."""
    return f"Prompt: {prompt}" if prompt.lstrip().startswith(commands) else prompt


class CommandLine(NamedTuple):
    """The command of one worker (an agent that smart-fork starts), with the prompt if that is an argument.

    `session_id` is `None` if the session is found later (see `WorkerSessions`). With `writes`, the agent writes the
    log before the first prompt. With `named`, the command names the session. `env` is for variables that are not set.
    """

    argv: tuple[str, ...]
    session_id: str | None = None
    staging: Staging = "nothing"
    delivery: Delivery = "argument"
    writes: bool = False
    named: bool = False
    env: Mapping[str, str] = MappingProxyType({})


class Starter(ABC):
    """Makes the commands that start one agent."""

    #: The form of its session ids, and of their beginnings.
    ids: re.Pattern[str] = re.compile(r"(?=.*[^-])[0-9a-fA-F-]{32,36}")
    beginnings: re.Pattern[str] = re.compile(r"[0-9a-fA-F-]{8,36}")
    #: The words with which a person forks the session ``ID``: the agent's own command, unless it loses something.
    forks: tuple[str, ...] = ("smart-fork", "fork", "ID")
    #: `True` if the agent starts a new session for a fork without a session.
    forks_nothing: bool = False
    #: The options with which it asks before it acts, whatever its settings and the session's records allow. None if
    #: records cannot allow anything, and only the settings of the person do.
    asking: tuple[str, ...] = ()
    #: `True` if `LaunchRequest.has_tools` changes the command.
    waits: bool = False

    @abstractmethod
    def line(self, request: LaunchRequest) -> CommandLine:
        """Return the command for a request. Its ids, prompt and name are checked; prompt and name may be empty."""

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """Return the words of the command with which a person forks the session, for display."""
        return tuple(session_id if word == "ID" else word for word in self.forks)

    def new_id(self) -> str:
        """Return an id for a new session."""
        return str(uuid.uuid4())


class OptionStarter(Starter):
    """The start commands of agents with options for ids and prompts. A fork resumes a copy made by smart-fork."""

    #: The options with which it never asks, and the one with the prompt of a worker with a screen.
    asking: tuple[str, ...] = ("--approval-mode", "default")
    unasked: tuple[str, ...] = ("--yolo",)
    interactive: str = "--prompt-interactive"
    #: The beginnings of prompts that are commands of its own, and whether they are commands without a screen too.
    commands: tuple[str, ...] = ("/", "?")
    always: bool = True
    #: `True` if it takes a session's id only after ``=``.
    joined: bool = False
    resumed: Staging = "nothing"

    def line(self, request: LaunchRequest) -> CommandLine:
        session_id = request.session_id if request.form == "resume" else request.new_session_id
        option = "--session-id" if request.form == "new" else "--resume"
        session = (f"{option}={session_id}",) if self.joined else (option, session_id or "")
        unasked = self.unasked if request.skip_permissions else ()
        asking = self.asking if request.of_others else ()
        argv = (request.program, *(session if session_id else ()), *unasked, *asking, *self._asked(request))
        staging: Staging = "branch" if request.form == "fork" else "nothing" if request.form == "new" else self.resumed
        return CommandLine(argv, session_id, staging)

    def _asked(self, request: LaunchRequest) -> tuple[str, ...]:
        prompt = request.prompt or ""
        said = ordinary(prompt, self.commands) if self.always or not request.headless else prompt
        if request.headless:
            return ("--output-format", "json", f"--prompt={said}")
        return (f"{self.interactive}={said}",) if said else ()


_BEGUN = late(r"(?m)^backgrounded · (\w+)")


class BackgroundSession(NamedTuple):
    """A background session as its agent lists it.

    `runs` is True while it has a process, which it lacks for a moment after the start. `over` is True if it has ended.
    `asks` is the thing that it waits for, such as a permission; empty if it waits for none.
    """

    session_id: str
    runs: bool
    over: bool
    asks: str


class Background(AgentFacet):
    """The commands for background sessions that an agent keeps itself. Claude Code shows them in its list and app.

    Seen with 2.1.332:

    * ``--bg`` prints ``backgrounded · ID`` and returns; a supervisor process runs the session;
    * the supervisor ends 5 seconds after its last session;
    * ``--bg`` ignores ``--session-id``, and takes ``/clear`` or ``doctor`` for a command even with a blank before it;
    * a session gets the environment of the supervisor, thus of its starter. ``--settings`` reaches its hooks;
    * ``--resume`` continues a stopped session under its id, with its options; with other options, or if it runs, a copy
      starts;
    * ``stop`` ends a session and keeps its conversation. There is no command that sends a message to one.

    2.1.197 has these commands hidden: its sessions lose ``ANTHROPIC_BASE_URL``, and it resumes a session only as a
    copy.
    """

    #: The pattern that matches the help of a version with these commands.
    sign = r"(?m)^  stop\b.* <id>"
    listing = ("agents", "--json", "--all")

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command that starts `argv` as a background session, with `env` for its hooks and servers."""
        settings = ("--settings", orjson.dumps({"env": dict(env)}).decode()) if env else ()
        return (argv[0], "--bg", *settings, *argv[1:])

    def begun(self, said: str) -> str:
        """Return the id of the background session in the output of a start command; empty if none began."""
        found = _BEGUN.search(said)
        return found[1] if found else ""

    def sessions(self, said: bytes) -> Mapping[str, BackgroundSession]:
        """Return all background sessions by id, from the output of the command `listing`."""
        return {
            text_in(row.get("id")): BackgroundSession(
                text_in(row.get("sessionId")), "pid" in row, row.get("state") in ("done", "failed", "stopped"),
                text_in(row.get("waitingFor")) if row.get("status") == "waiting" else "",
            )
            for row in dicts_in(json_in(said))
        }  # fmt: skip

    def last_words(self, one: str) -> str:
        """Return the reason why the background session with this id ended; empty if it is unknown."""
        return text_in(dict_in(json_at(self.of.home.folder() / "jobs" / one / "state.json")).get("detail"))
