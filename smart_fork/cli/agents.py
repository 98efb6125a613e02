"""The options that say which agent is meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from smart_fork.agents import AGENTS
from smart_fork.snippets import one_of

Names = Callable[[], Sequence[str]]
_NAMES = ("--agent", "--adapter")


def option(purpose: str, words: Names, check: Callable[[str], str], *names: str) -> Any:
    """An option that takes one of these words, which it names, is completed with, and refuses others with."""

    def checked(value: str | None) -> str | None:
        return value if value is None else check(value)

    def completed(beginning: str) -> list[str]:
        return [word for word in words() if word.startswith(beginning)]

    said = f"{purpose}: {one_of(words(), '')}."
    return typer.Option(*names, metavar="NAME", help=said, callback=checked, autocompletion=completed)


def among(words: Names) -> Callable[[str], str]:
    """The check that a word is one of these."""

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
