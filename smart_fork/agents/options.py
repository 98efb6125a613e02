"""The fields of requests, each described once for people and models, and the options of a worker.

A new option here is available in every command that starts workers, in a JSON list of workers, and in the tool. Agents
that know it use it in their commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields, replace
from inspect import Parameter
from typing import Any

from indexer.shapes import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """A field's input: `help` for people, `described` for models, `types` the accepted types.

    A field that is not `described` is not accepted in JSON, and one without `help` not on the command line. The field's
    name gives `key` and `flags`, unless they are set. `choices` are all accepted values.
    """

    key: str = ""
    described: str = ""
    help: str = ""
    types: tuple[Any, ...] = (str,)
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its values."""
        if self.choices:
            return {"enum": [*self.choices], "description": self.described}
        names = [_JSON[one] for one in self.types]
        return {"type": names[0] if len(names) == 1 else names, "description": self.described}


NOT_GIVEN = Said()
_JSON: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer"}
#: The places for workers that are not started from a person's terminal.
PLACES = ("tmux", "process", "iterm2")


def said(*types: Any, default: Any = None, **how: Any) -> Any:
    """Return a field with this input. It is required if its default is `MISSING`."""
    return field(default=default, metadata={"said": Said(types=types or (str,), **how)})


@dataclass(frozen=True, slots=True)
class Options:
    """The options of any worker. `worktree` is a name, or true; `None` means not given.

    With `with_changes` its worktree contains the directory's uncommitted changes. With `brief` a fork's prompt follows
    a note about changes. With `unmasked` a hand-over keeps its secrets.
    """

    prompt: str | None = said(
        described="Its prompt. It knows nothing else, unless it forks or resumes.",
    )
    worktree: bool | str | None = said(
        bool,
        str,
        described="A new git worktree, or its name. Default: one if possible.",
        help="Run in a new git worktree.",
        flags=("--worktree", "-w"),
    )
    with_changes: bool = said(bool, default=False, help="Copy uncommitted changes too. Implies --worktree.")
    place: str | None = said(
        key="run_in",
        described="Default: tmux if installed.",
        help="Place to run. Default: tmux if installed.",
        flags=("--in",),
        choices=PLACES,
    )
    name: str | None = said(
        described="Name of the worker, its window and its worktree.",
        help="Name of the worker and its window.",
    )
    skip_permissions: bool = said(
        bool,
        default=False,
        described="Act without asking for permission. Only if the user wants that.",
        help="Let the agent act without asking for permission.",
    )

    brief: bool = said(
        bool,
        default=True,
        described="False: no change summary.",
        help="Add a summary of changes since the session.",
        flags=("--brief/--no-brief",),
    )
    unmasked: bool = said(
        bool,
        default=False,
        described="Hand over secrets if the user wants it.",
        help="Hand over secrets too. Default: masked.",
    )

    @property
    def in_worktree(self) -> bool:
        """`True` if it works in a worktree of its own."""
        return bool(self.worktree or self.with_changes)

    @property
    def worktree_name(self) -> str | None:
        """The name for a worktree."""
        return self.worktree if isinstance(self.worktree, str) else self.name


def is_said(one: Field[Any]) -> bool:
    """Return whether a field has an input."""
    return "said" in one.metadata


def said_of(one: Field[Any]) -> Said:
    """Return a field's input; an empty one if it has none."""
    given: Said = one.metadata.get("said", NOT_GIVEN)
    return given if given.key or not given.described else replace(given, key=one.name)


def ordered(shown: Sequence[Parameter], order: str) -> list[Parameter]:
    """Return these parameters, with those named in `order` in that order."""
    named = {one.name: one for one in shown}
    those = iter(name for name in order.split() if name in named)
    return [named[next(those)] if one.name in order.split() else one for one in shown]


#: A worker's session and prompt in JSON.
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
_OPTIONS = {given.key: given for one in fields(Options) if (given := said_of(one)).key}
#: All fields of a worker in JSON, the most important first.
KEYS: Mapping[str, Said] = {
    **{key: (_SUBJECT | _OPTIONS)[key] for key in ("project_path", "prompt", "agent_type", "name")},
    **_SUBJECT,
    **_OPTIONS,
}


def options_from(given: Mapping[str, Any]) -> Options:
    """Return the options in a JSON object."""
    named = {one.name: said_of(one).key for one in fields(Options)}
    return Options(**{name: given[key] for name, key in named.items() if key in given})


def as_said(options: Options) -> dict[str, Any]:
    """Return these options as a JSON object, without those that are not given."""
    given = ((said_of(one).key, getattr(options, one.name), one.default) for one in fields(options))
    return {key: value for key, value, default in given if key and value != default}
