"""The fields of requests, each described once for people and for models, and the options of a worker.

A worker is an agent that smart-fork starts. Commands and tools that take a request have an option or an argument for
each of its fields (see `inputs`). A new option here is available in all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, replace
from inspect import Parameter
from typing import Any, ClassVar, Literal, TypeVar

from indexer.lazy_compilation import dataclass


@dataclass(frozen=True, slots=True)
class FieldInput:
    """The texts and types of a request's field. `help` is for people, `described` for models, `types` are accepted.

    A field without `described` is not accepted in JSON, and one without `help` not on the command line. `key` (in JSON)
    and `flags` default to the field's name. If the only flag is ``--no-…``, it sets the field to False. `choices` are
    all accepted values. `read` is the type that the command line reads instead of `types`. An `argument` needs no flag.
    Callers of a tool must give a `required` field, even if it has a default.
    """

    key: str = ""
    described: str = ""
    help: str = ""
    types: tuple[Any, ...] = (str,)
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    argument: bool = False
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    read: Any = None
    required: bool = False
    hidden: bool = False

    @classmethod
    def of(cls, one: Field[Any]) -> FieldInput | None:
        """Return how commands and tools ask for a field of a request; `None` if they do not ask for it."""
        given: FieldInput | None = one.metadata.get("said")
        return given if given is None or given.key or not given.described else replace(given, key=one.name)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the values that a tool accepts for this field."""
        if self.choices:
            return {"enum": [*self.choices], "description": self.described}
        names = [_JSON[one] for one in self.types]
        return {"type": names[0] if len(names) == 1 else names, "description": self.described}


_JSON: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer"}
AnyPlace = Literal["tmux", "process", "iterm2", "claude", "here"]


def said(*types: Any, default: Any = None, **how: Any) -> Any:
    """Return a dataclass field with a `FieldInput` of `types` and `how`. It must be given if `default` is `MISSING`."""
    return field(default=default, metadata={"said": FieldInput(types=types or (str,), **how)})


@dataclass(frozen=True, slots=True)
class Options:
    """The options of any worker (an agent that smart-fork starts). `worktree` is a name, or True; `None` if not given.

    With `with_changes`, the worker's worktree contains the directory's uncommitted changes. With `brief`, a summary of
    changes comes before a fork's prompt. With `unmasked`, secrets in a handed-over session are not masked.
    """

    #: The places for workers that are not started from a person's terminal.
    PLACES: ClassVar = ("tmux", "process", "iterm2", "claude")

    prompt: str | None = said(described="Its prompt. It knows nothing else, unless it forks or resumes.")
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
        read=AnyPlace,
    )
    name: str | None = said(
        described="Name of the worker, its window and its worktree.", help="Name of the worker and its window."
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
        """True if the worker gets a git worktree of its own."""
        return bool(self.worktree or self.with_changes)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Options:
        """Return the options of a worker that a JSON object describes. Other keys are ignored."""
        return cls(**{name: given[one.key] for name, one in _OPTIONS.items() if one.key in given})


_Handler = TypeVar("_Handler", bound=Callable[..., Any])
#: The attribute of a handler that says how its requests are shown.
_TAKES = "takes"


def takes(
    *, without: Sequence[str] = (), only: Sequence[str] = (), order: str = "", **other: Any
) -> Callable[[_Handler], _Handler]:
    """Return a decorator that says which fields of its requests a command or tool shows, and in which `order`.

    `without` names fields to hide; `only` names the only fields to show. `other` has this command's own descriptions of
    fields, by name.
    """

    def decorate(handler: _Handler) -> _Handler:
        setattr(handler, _TAKES, (without, only, order, other))
        return handler

    return decorate


#: The class of a request, and its fields by the parameters that are shown for them.
Request = tuple[Any, Mapping[str, Field[Any]]]
Made = Callable[[Field[Any], FieldInput, Mapping[str, Any]], Iterable[Parameter]]


def inputs(handler: Callable[..., Any], made: Made) -> tuple[list[Parameter], dict[str, Request]]:
    """Return the parameters to show for a handler: instead of a request, one for each field; and its requests by name.

    `made` returns a field's parameters, given the handler's own descriptions. If two requests have the same field, the
    parameter fills the first request's field.
    """
    without, only, order, other = getattr(handler, _TAKES, ((), (), "", {}))
    shown: dict[str, Parameter] = {}
    requests: dict[str, Request] = {}
    for one in inspect.signature(handler, eval_str=True).parameters.values():
        kind: Any = one.annotation
        asked = [(of, said) for of in fields(kind) if (said := FieldInput.of(of))] if is_dataclass(kind) else []
        if not asked:
            shown[one.name] = one
            continue
        named = {
            parameter.name: (of, parameter)
            for of, said in asked
            for parameter in made(of, said, other)
            if parameter.name not in (*without, *shown) and (not only or parameter.name in only)
        }
        shown |= {name: parameter for name, (_, parameter) in named.items()}
        requests[one.name] = kind, {name: of for name, (of, _) in named.items()}
    those = iter([name for name in order.split() if name in shown])
    return [shown[next(those)] if name in order.split() else one for name, one in shown.items()], requests


@dataclass(frozen=True, slots=True)
class Subject:
    """The session that a worker started by `spawn` forks or resumes, and the directory in which it works."""

    project_path: str | None = said(described="The directory it works in.")
    agent_type: str | None = said(
        described="Default: the session's or the caller's. Another agent receives fork_from as a hand-over."
    )
    fork_from: str | None = said(described="Fork this session. The original stays as it is.", help="Session to fork.")
    at: int | None = said(
        int,
        described="With fork_from: fork after this message number.",
        help="With --fork-from: fork after this message.",
    )
    budget: str | None = said(
        described="With fork_from: keep only what answers prompt, up to '30k' tokens. 'match': the least."
    )
    keep: str | None = said(described="Exchanges to keep within budget: '3,5-7'.")
    drop: str | None = said(described="Exchanges to drop.")
    resume_session_id: str | None = said(
        described="Resume this session itself, in its directory. Refused while it runs.",
        help="Session to resume.",
        flags=("--resume",),
    )
    continue_session: bool = said(
        bool,
        default=False,
        described="Resume the newest session of project_path.",
        help="Resume the directory's newest session.",
        flags=("--continue",),
    )
    fork_session: bool = said(
        bool,
        default=False,
        described="Fork the session of resume_session_id or continue_session.",
        help="Fork the session of --resume or --continue.",
        flags=("--fork",),
    )

    def as_json(self, options: Options) -> dict[str, Any]:
        """Return this subject and `options` as one JSON object, with only the fields that are not defaults."""
        given = (
            (FieldInput.of(one), getattr(of, one.name), one.default) for of in (self, options) for one in fields(of)
        )
        return {said.key: value for said, value, default in given if said and said.key and value != default}


_SUBJECT, _OPTIONS = (
    {one.name: given for one in fields(kind) if (given := FieldInput.of(one)) and given.key}
    for kind in (Subject, Options)
)
_SAID = {given.key: given for given in (_SUBJECT | _OPTIONS).values()}
#: All fields of a worker in JSON, the most important first.
KEYS: Mapping[str, FieldInput] = {key: _SAID[key] for key in ("project_path", "prompt", "agent_type", "name")} | _SAID
