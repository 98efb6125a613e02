"""What is known of an agent before anything of it is imported: its names, and its own folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from indexer.transcripts.model import AgentName

#: The folder of data that ``XDG_DATA_HOME`` names, which is the same for all programs.
DATA = ".local/share"


class Home(NamedTuple):
    """An agent's own folder: the `variable` that names it, and the default below a person's home.

    `logs` are the folders of its logs in it, `beside` variables that name other places of its files. With a `parent`,
    the variable names the folder that it is in: an empty one is the home, the other is `DATA`.
    """

    variable: str
    default: str
    logs: tuple[str, ...] = ("projects",)
    beside: tuple[str, ...] = ()
    parent: str | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """The folders of its logs below a home where no variable says otherwise, such as ``.agent/sessions``."""
        return tuple(f"{self.below_home()}/{one}".rstrip("/") for one in self.logs)

    def folder(self) -> Path:
        """Return the folder, which need not exist."""
        named = os.environ.get(self.variable, "")
        if self.parent is None:
            return Path(named or Path.home() / self.default).expanduser()
        if self.parent and not named.startswith("/"):  # a path that is not absolute does not count, as XDG wants it
            named = ""
        return (Path(named).expanduser() if named else Path.home() / self.parent) / self.default

    def usual(self) -> str:
        """Return the folder used without the variable."""
        return f"~/{self.default if self.parent is None else self.parent}".rstrip("/")

    def below_home(self) -> str:
        """Return where the folder is below a home without the variable."""
        return f"{self.parent or ''}/{self.default}".lstrip("/")


class Description:
    """The names and the folder of an agent."""

    name: AgentName
    #: Its name for people.
    title: str
    home: Home = Home("", "")
    #: The variables that it sets for programs that it starts.
    tells: tuple[str, ...] = ()


class Facet:
    """A facet that is made with its agent."""

    def __init__(self, of: Description) -> None:
        self.of, self.agent, self.title = of, of.name, of.title
