"""What is known of an agent before anything of it is imported: its names, and its own folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from indexer.transcripts.model import AgentName

#: The folder of data that ``XDG_DATA_HOME`` names, which is the same for all programs.
DATA = ".local/share"


#: The folders of the session that is being started, by the variables that name them.
_USED: ContextVar[Mapping[str, Path]] = ContextVar("used homes", default={})  # noqa: B039 - never changed


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
        below = f"{self.parent or ''}/{self.default}".lstrip("/")
        return tuple(f"{below}/{one}".rstrip("/") for one in self.logs)

    def folder(self) -> Path:
        """Return the folder, which need not exist: that of the session being started, else the first one."""
        return _USED.get().get(self.variable) or self._first()

    def folders(self) -> tuple[Path, ...]:
        """Return the folder and further ones: a variable may list several, and a person names those of other accounts
        in config.toml.
        """
        more = (Path(one).expanduser() for one in (*self._named()[1:], *_further(self.variable)))
        return tuple(dict.fromkeys((self._first(), *more)))

    def of(self, log: Path | str) -> Path:
        """Return the folder that a log is in; the first one if it is in none."""
        return next((one for one in self.folders() if str(log).startswith(f"{one}/")), self._first())

    def is_further(self, *logs: Path | str) -> bool:
        """Return whether these logs are in a folder that their agent finds only if its variable names it."""
        return len(self.folders()) > 1 and any(self.of(log) != self._first() for log in logs)

    @contextmanager
    def used(self, log: Path | None) -> Iterator[None]:
        """Take the folder that a log is in for the agent's own, while its session is started."""
        several = len(self.folders()) > 1
        own = {self.variable: self.of(log) if log else self._first()} if several else {}
        token = _USED.set({**_USED.get(), **own})
        try:
            yield
        finally:
            _USED.reset(token)

    def environment(self) -> dict[str, str]:
        """Return the variable with which a program uses the folder of the session being started."""
        used = _USED.get().get(self.variable)
        return {self.variable: str(used)} if used and (used != self._first() or len(self._named()) > 1) else {}

    def _named(self) -> list[str]:
        """Return the folders that the variable names. It is no list if such a folder exists."""
        named = os.environ.get(self.variable, "")
        parts = [part for one in named.split(",") if (part := one.strip())]
        return [named] if self.parent is not None or len(parts) < 2 or Path(named).is_dir() else parts

    def _first(self) -> Path:
        named = next(iter(self._named()), "")
        if self.parent is None:
            return Path(named or Path.home() / self.default).expanduser()
        if self.parent and not named.startswith("/"):  # a path that is not absolute does not count, as XDG wants it
            named = ""
        return (Path(named).expanduser() if named else Path.home() / self.parent) / self.default

    def usual(self) -> str:
        """Return the folder used without the variable."""
        return f"~/{self.default if self.parent is None else self.parent}".rstrip("/")


def _further(variable: str) -> tuple[str, ...]:
    """The further folders in config.toml of the agent whose folder this variable names."""
    from smart_fork import config

    file = str(config.file())
    if not os.path.exists(file):  # noqa: PTH110 - as text
        return ()
    info = os.stat(file)  # noqa: PTH116 - as text
    return _in_config(info.st_mtime_ns, info.st_size, info.st_ino, file).get(variable, ())


@lru_cache(maxsize=1)
def _in_config(*_state: object) -> dict[str, tuple[str, ...]]:
    from smart_fork import config

    pairs = [(name.strip(), folder.strip()) for name, _, folder in (one.partition("=") for one in config.homes())]
    return {variable: tuple(folder for name, folder in pairs if name == variable) for variable, _ in pairs}


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
