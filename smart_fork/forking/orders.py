"""What is asked for of one worker, in the words of `spawn`: checked, and turned into what is to be started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.project import project_of
from indexer.transcripts.model import Agent
from smart_fork import sessions
from smart_fork.copies.copying import branch_point, message_at
from smart_fork.errors import ForkRefused, Usage
from smart_fork.forking.confirmation import World
from smart_fork.forking.launch import check_forkable
from smart_fork.forking.resuming import check_free, newest_session, source_of
from smart_fork.forking.starting import ForkSource, Wanted, agent_named, directory
from smart_fork.places import choose_place
from smart_fork.registry import Kind
from smart_fork.snippets import quoted, shown

#: What may be said of a worker, and of which type it is.
KEYS: Mapping[str, tuple[type, ...]] = {
    "project_path": (str,),
    "agent_type": (str,),
    "prompt": (str,),
    "name": (str,),
    "resume_session_id": (str,),
    "fork_from": (str,),
    "continue_session": (bool,),
    "fork_session": (bool,),
    "at": (int,),
    "worktree": (bool, str),
    "run_in": (str,),
    "skip_permissions": (bool,),
}
_WORDS: Mapping[type, str] = {str: "a string", bool: "true or false", int: "a number"}
_EXCLUSIVE = (
    ("resume_session_id", "continue_session"),
    ("fork_from", "resume_session_id"),
    ("fork_from", "continue_session"),
)


def checked(said: Any) -> dict[str, Any]:
    """What is said of a worker, with nothing unknown, of another type or contradictory in it (F-114, F-115, F-118).

    Raises:
        Usage: something is.
    """
    if not isinstance(said, Mapping):
        raise Usage(f"must be an object, not {shown(said)}", f"Its keys: {', '.join(KEYS)}.")
    if unknown := [repr(quoted(str(key))) for key in said if key not in KEYS]:
        raise Usage(f"unknown key {', '.join(unknown)}", f"Known: {', '.join(KEYS)}.")
    given = {key: value for key, value in said.items() if value is not None}
    for key, value in given.items():
        if type(value) not in KEYS[key]:  # exactly: true is a number to Python
            raise Usage(f"'{key}' must be {' or '.join(_WORDS[kind] for kind in KEYS[key])}, not {shown(value)}")
    if not given.get("project_path"):
        raise Usage("missing required 'project_path'", "The directory that it is to work in.")
    for one, other in _EXCLUSIVE:
        if given.get(one) and given.get(other):
            raise Usage(f"{one} and {other} are mutually exclusive")
    return given


class Order:
    """One worker that was asked for. `notes` are what whoever asked should know.

    Raises:
        SmartForkError: it cannot be had.
    """

    def __init__(self, said: Any, default_agent: Agent, caller_session_id: str | None) -> None:
        self.said = checked(said)
        self.caller = caller_session_id
        self.notes: list[str] = []
        self.target = directory(self.said["project_path"])
        told = agent_named(self.said["agent_type"]) if "agent_type" in self.said else None
        reference = self.said.get("fork_from") or self.said.get("resume_session_id")
        self.session = sessions.read(sessions.locate(reference)) if reference else None
        self.agent: Agent = told or (self.session.agent if self.session else default_agent)
        self.kind = self._kind()

    def wanted(self, world: World) -> Wanted:
        """What is to be started for it.

        Raises:
            SmartForkError: it cannot be had.
        """
        source = source_of(self.session) if self.session else self._newest(world)
        goes_on = self.kind in ("resume", "continue")
        if self.session and self.kind == "fork":
            check_forkable(self.session, str(self.target))
        if source and goes_on:
            self._check_going_on(source, world)
        worktree = self.said.get("worktree")
        return Wanted(
            self.kind,
            source.agent if source else self.agent,
            source,
            prompt=self.said.get("prompt"),
            at=self._message(),
            # Where nothing is said, what begins anew has one if that is possible (F-120).
            worktree=project_of(self.target).git and not goes_on if worktree is None else worktree,
            or_without=worktree is None,
            place=self._place(),
            cwd=None if goes_on else self.target,
            name=self.said.get("name"),
            skip_permissions=self.said.get("skip_permissions", False),
            caller_session_id=self.caller,
            with_agent=self.agent,
        )

    def _kind(self) -> Kind:
        fork = self.said.get("fork_session", False)
        if self.said.get("fork_from"):
            return "fork"
        if self.said.get("resume_session_id"):
            return "fork" if fork else "resume"
        if self.said.get("continue_session"):
            return "fork" if fork else "continue"
        if fork and self.agent == "codex":  # F-113: its own answer would be the newest session of any project
            raise Usage("fork_session needs fork_from, resume_session_id or continue_session", "Say what to fork.")
        if fork:
            self.notes.append("fork_session says nothing where no session is named")
        return "new"

    def _place(self) -> str | None:
        place: str | None = self.said.get("run_in")
        if place == "here":
            raise Usage("run_in cannot be 'here'", "Places for workers are tmux and process.")
        return place

    def _newest(self, world: World) -> ForkSource | None:
        if not self.said.get("continue_session"):
            return None
        headless = choose_place(self._place(), world.processes, world.env).headless
        return newest_session(self.target, self.agent, automated=headless, apart_from=self.caller)

    def _message(self) -> str | None:
        """The id of the last message that the fork knows: the end of what the given one is part of."""
        at = self.said.get("at")
        if at is None:
            return None
        if self.session is None or self.kind != "fork":
            raise Usage("'at' needs a session to fork", "Say which: fork_from.")
        end = branch_point(self.session, message_at(self.session, at))
        if end != at:
            self.notes.append(f"Forked after message {end}, where the agent had finished what message {at} is part of")
        return self.session.turns[end].id

    def _check_going_on(self, source: ForkSource, world: World) -> None:
        if source.agent != self.agent:
            raise ForkRefused(f"A {source.agent} session cannot go on with {self.agent}", "Leave agent_type out.")
        if source.session_id == self.caller:
            raise ForkRefused("This is the calling session itself", "Fork it: fork_from.")
        if source.cwd and project_of(source.cwd).key != project_of(self.target).key:
            raise ForkRefused(
                f"{source.session_id} worked in {source.cwd}, which is of another project",
                "A session goes on where it worked; fork it to have it here: fork_from.",
            )
        check_free(source, world=world)
