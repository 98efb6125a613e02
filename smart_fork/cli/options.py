"""Options and arguments of commands. Many are made from the fields of request classes, such as `FindRequest`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, replace
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from smart_fork.agents import AGENTS
from smart_fork.agents.request_fields import FieldInput, Options, inputs
from smart_fork.cli.output import answer_in_json
from smart_fork.display_text import one_of
from smart_fork.errors import Usage

_NAMED = "worktree_name"
_WORKTREE_NAME = Annotated[
    str | None, typer.Option("--worktree-name", help="Name of the worktree. Implies --worktree.")
]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="Directory of the project. All its worktrees count.")
]
EverywhereOption = Annotated[bool, typer.Option("--all-projects", "-A", help="Search the sessions of all projects.")]
SessionArgument = Annotated[str, typer.Argument(help="Session id, 8 characters or more.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
#: Stands where a command takes options of a worker.
NOTHING_SAID = Options()
_AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=_AS_JSON)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return `command` as typer can read it: a parameter of a request class becomes an option for each field."""
    parameters, requests = inputs(command, _options_of)
    shown = [*map(_for_typer, parameters)]
    either = any(one.name == "worktree" and one.default is None for one in shown)

    @functools.wraps(command)
    def run(*, as_json: bool, **given: Any) -> Any:
        answer_in_json(as_json)
        if isinstance(project := given.get("project"), Path):
            given["project"] = str(project)
        if either and given["worktree"] is False and (given.get(_NAMED) or given.get("with_changes")):
            raise Usage("--no-worktree goes with neither --worktree-name nor --with-changes")
        for name, (request, named) in requests.items():
            given[name] = request(**_values({one: given.pop(one) for one in named}, named))
        return command(**given)

    with_signature(run, [*shown, _JSON])
    return run


def with_signature(run: Callable[..., Any], shown: list[Parameter]) -> None:
    """Replace the parameters of `run` by `shown`, from which typer makes options and arguments."""
    shown = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in shown]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}


def _for_typer(one: Parameter) -> Parameter:
    """Return a command's parameter `one` in typer's form: a text in its annotation becomes the help of an option.

    A `ProjectOption` becomes a path, so that shells complete it.
    """
    if one.annotation == ProjectOption:
        return one.replace(annotation=Annotated[Path | None, get_args(ProjectOption)[1]])
    kind, described = getattr(one.annotation, "__origin__", None), getattr(one.annotation, "__metadata__", ("",))[0]
    if kind is None or not isinstance(described, str):
        return one
    return one.replace(annotation=Annotated[kind, _option(one.name, FieldInput(help=described))])


def _options_of(one: Field[Any], said: FieldInput, other: Mapping[str, Any]) -> Iterator[Parameter]:
    """Yield the command-line option for a request's field `one`; for the field `worktree` also the option for its name.

    `said` describes the option, unless `other`, from the command's decorator, has another description.
    """
    described = other.get(one.name)
    if not (said.help or described):
        return
    if described is None or isinstance(described, str):
        described = _annotation(one, said, described or said.help)
    name, default = one.name, one.default
    if _is_negated(said):
        name, default = said.flags[0][2:].replace("-", "_"), False
    elif default is MISSING:
        default = Parameter.empty
    elif default == () or said.read == list[str]:
        default = None
    elif default is None and described.__origin__ is bool:
        default = False
    yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=described)
    if name == "worktree":
        yield Parameter(_NAMED, Parameter.KEYWORD_ONLY, default=None, annotation=other.get(_NAMED, _WORKTREE_NAME))


def _is_negated(said: FieldInput) -> bool:
    """Return True if the only flag of a field, described by `said`, is ``--no-…``, which makes the field false."""
    return len(said.flags) == 1 and said.flags[0].startswith("--no-")


def _annotation(one: Field[Any], said: FieldInput, described: str) -> Any:
    shown = _option(one.name, replace(said, help=described))
    if bool in said.types:
        either = one.default is None and any("/" in flag for flag in said.flags)
        return Annotated[bool | None if either else bool, shown]
    return Annotated[(said.read or said.types[0]) | None, shown]


def _option(name: str, said: FieldInput) -> Any:
    how: dict[str, Any] = {"help": said.help, "metavar": said.metavar, "min": said.min, "max": said.max}
    flags = said.flags or (f"--{name.replace('_', '-')}",)
    return typer.Argument(**how) if said.argument else typer.Option(*flags, hidden=said.hidden, **how)


def _values(given: Mapping[str, Any], named: Mapping[str, Field[Any]]) -> dict[str, Any]:
    """Return a request's values by field name. `given` has the values of the command line by option name."""
    values = {}
    for name, value in given.items():
        said = FieldInput.of(named[name])
        if name == _NAMED and value is not None:
            values["worktree"] = value
        elif name != _NAMED and said is not None and value is not None:
            values[named[name].name] = not value if _is_negated(said) else _converted(value, said)
    return values


def _converted(value: Any, said: FieldInput) -> Any:
    """Convert an option's `value` to the type that `said` describes, such as a number or a tuple."""
    if isinstance(value, str) and int in said.types and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, Path) and Path not in said.types:
        return str(value)
    if isinstance(value, list):
        return " ".join(value) if said.types == (str,) else tuple(value)
    return value


Names = Callable[[], Sequence[str]]
_NAMES = ("--agent", "--adapter")


def option(purpose: str, words: Names, check: Callable[[str], str], *names: str) -> Any:
    """Return a typer option with the flags `names` that accepts one of `words`, which help and completion list."""

    def checked(value: str | None) -> str | None:
        return value if value is None else check(value)

    def completed(beginning: str) -> list[str]:
        return [word for word in words() if word.startswith(beginning)]

    said = f"{purpose}: {one_of(words(), '')}."
    return typer.Option(*names, metavar="NAME", help=said, callback=checked, autocompletion=completed)


def among(words: Names) -> Callable[[str], str]:
    """Return a function that returns a value which is among `words`, and refuses any other value."""

    def check(value: str) -> str:
        if value not in words():
            raise typer.BadParameter(f"{value!r} is not {one_of(words())}.")
        return value

    return check


#: Whose sessions, or workers; all agents' by default.
WhoseOption = Annotated[str, option("Agent", AGENTS.choices, among(AGENTS.choices), "--agent")]
WorkersOption = Annotated[str, option("Agent", AGENTS.choices, among(AGENTS.choices), *_NAMES)]
EVERYBODY = AGENTS.ALL
#: The agent that is started; the first by default.
StartedOption = Annotated[str, option("Agent", AGENTS.startable, AGENTS.to_start, *_NAMES)]
FIRST = AGENTS.first()
#: The same, where it may go without saying.
AnyStartedOption = Annotated[str | None, option("Agent", AGENTS.startable, AGENTS.to_start, *_NAMES)]
HandedOption = Annotated[str | None, option("Hand over to another agent", AGENTS.handed_to, AGENTS.to_start, "--as")]
CwdOption = Annotated[Path | None, typer.Option("--cwd", help="Working directory. Default: the session's own.")]
GivenOption = Annotated[str | None, option("Agent that knows this id", AGENTS.startable, AGENTS.to_start, *_NAMES)]
