"""How a worker is to run, whatever it works on: said once here, for everybody who may say it.

An option that is added here can be given to every command that starts workers, in a JSON list of workers and to the
tool that starts them; the agents that know it put it into their commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any

from indexer.shapes import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """How an option is said: its `key` in JSON, in words for a model and for a person, and by which types.

    What has no `key` cannot be said in JSON, what has no `help` not on the command line. `flags` are not made of the
    option's name; `choices` are all values that there are.
    """

    key: str = ""
    described: str = ""
    help: str = ""
    types: tuple[type, ...] = (str,)
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its values."""
        if self.choices:
            return {"enum": [*self.choices], "description": self.described}
        names = [_JSON[one] for one in self.types]
        return {"type": names[0] if len(names) == 1 else names, "description": self.described}


_JSON: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer"}
#: Where a worker can run that somebody else than a person at a terminal starts.
PLACES = ("tmux", "process", "iterm2")


def _said(*, default: Any = None, **how: Any) -> Any:
    return field(default=default, metadata={"said": Said(**how)})


@dataclass(frozen=True, slots=True)
class Options:
    """What may be said of any worker. `worktree` is one's name, or true; `None` is what nobody has said.

    With `with_changes` it has a worktree with the uncommitted changes of the directory. With `brief` the prompt of a
    fork follows a note of what has changed.
    """

    prompt: str | None = _said(
        key="prompt",
        described="Its prompt. It knows nothing else, unless it forks or resumes.",
    )
    worktree: bool | str | None = _said(
        key="worktree",
        described="A new git worktree, or its name. Default: one if possible.",
        help="Run in a new git worktree.",
        types=(bool, str),
        flags=("--worktree", "-w"),
    )
    with_changes: bool = _said(default=False, help="Copy uncommitted changes too. Implies --worktree.", types=(bool,))
    place: str | None = _said(
        key="run_in",
        described="Default: tmux if installed.",
        help="Place to run. Default: tmux if installed.",
        flags=("--in",),
        choices=PLACES,
    )
    name: str | None = _said(
        key="name",
        described="Name of the worker, its window and its worktree.",
        help="Name of the worker and its window.",
    )
    skip_permissions: bool = _said(
        default=False,
        key="skip_permissions",
        described="Act without asking for permission. Only if the user wants that.",
        help="Let the agent act without asking for permission.",
        types=(bool,),
    )

    brief: bool = _said(
        default=True,
        key="brief",
        described="False: no change summary.",
        help="Add a summary of changes since the session.",
        types=(bool,),
        flags=("--brief/--no-brief",),
    )

    @property
    def in_worktree(self) -> bool:
        """Whether it works in a worktree of its own."""
        return bool(self.worktree or self.with_changes)

    @property
    def worktree_name(self) -> str | None:
        """What a worktree would be named after."""
        return self.worktree if isinstance(self.worktree, str) else self.name


def said_of(option: Field[Any]) -> Said:
    """How an option is said."""
    said: Said = option.metadata["said"]
    return said


#: What a worker works on, as it is said in JSON.
_SUBJECT: dict[str, Said] = {
    "project_path": Said(described="The directory it works in."),
    "agent_type": Said(
        described="Default: the session's or the caller's. Another agent receives fork_from as a hand-over."
    ),
    "fork_from": Said(described="Fork this session. The original stays as it is."),
    "at": Said(described="With fork_from: fork after this message number.", types=(int,)),
    "budget": Said(described="With fork_from: keep only what answers prompt, up to '30k' tokens. 'match': the least."),
    "keep": Said(described="Exchanges to keep within budget: '3,5-7'."),
    "drop": Said(described="Exchanges to drop."),
    "resume_session_id": Said(described="Resume this session itself, in its directory. Refused while it runs."),
    "continue_session": Said(described="Resume the newest session of project_path.", types=(bool,)),
    "fork_session": Said(described="Fork the session of resume_session_id or continue_session.", types=(bool,)),
}
_OPTIONS = {said.key: said for one in fields(Options) if (said := said_of(one)).key}
#: All that may be said of a worker in JSON; what matters most first.
KEYS: Mapping[str, Said] = {
    **{key: (_SUBJECT | _OPTIONS)[key] for key in ("project_path", "prompt", "agent_type", "name")},
    **_SUBJECT,
    **_OPTIONS,
}


def options_from(given: Mapping[str, Any]) -> Options:
    """The options among what was said in JSON."""
    named = {one.name: said_of(one).key for one in fields(Options)}
    return Options(**{name: given[key] for name, key in named.items() if key in given})


def as_said(options: Options) -> dict[str, Any]:
    """These options as they are said in JSON, without what nobody has said."""
    given = ((said_of(one).key, getattr(options, one.name), one.default) for one in fields(options))
    return {key: value for key, value, default in given if key and value != default}
