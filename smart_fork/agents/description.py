"""An agent's names and its own folder, and the base of facets (objects for one task with an agent) that use them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork import config

if TYPE_CHECKING:
    from indexer.transcripts.base import AgentAdapter

#: The default of ``XDG_DATA_HOME``, the folder with the data of all programs.
_DATA = ".local/share/"


class Home(NamedTuple):
    """An agent's own folder: the environment variable that names it, and its default path below a person's home.

    * `logs` are the folders of logs inside the agent's folder.
    * `beside` are variables that name other folders and files of the agent.
    * `runtime` is one of `beside`. If it is set, it names the folder that contains `logs`.
    * `inside` is the path from the folder that `variable` names to the agent's own folder.
    """

    variable: str
    default: str
    logs: tuple[str, ...] = ("projects",)
    beside: tuple[str, ...] = ()
    inside: str = ""
    runtime: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """The agent's log folders below a person's home if no variable is set, such as ``.agent/sessions``."""
        return tuple(f"{self.default}/{one}".rstrip("/") for one in self.logs)

    def folder(self) -> Path:
        """Return the agent's own folder, which may not exist: the one set by the context `used`, else the first."""
        return _USED.get().get(self) or self._first()

    def folders(self) -> tuple[Path, ...]:
        """Return all folders of the agent: its variable may list several, and smart-fork's config.toml more."""
        more = (self._named_so(one) for one in (*self._named()[1:], *_further(self.variable)))
        return tuple(dict.fromkeys((self.folder(), self._first(), *more)))

    def of_logs(self) -> tuple[Path, ...]:
        """Return the folders that contain `logs`: the one that the variable `runtime` names, else the agent's folders.

        A relative path in that variable is ignored, as it depends on the directory in which the agent starts.
        """
        named = os.environ.get(self.runtime, "")
        return (Path(named).expanduser(),) if named.startswith(("/", "~/")) else self.folders()

    def of(self, log: Path | str) -> Path:
        """Return the agent's folder that contains `log`; the first folder if none contains it."""
        around = (one for one in self.folders() if str(log).startswith(f"{one}/"))
        return max(around, key=lambda one: len(one.parts), default=self._first())

    def is_further(self, *logs: Path | str) -> bool:
        """Return True if the agent finds one of `logs` only if its variable names another folder than the first."""
        return len(self.folders()) > 1 and any(self.of(log) != self._first() for log in logs)

    @contextmanager
    def used(self, log: Path | None) -> Iterator[None]:
        """Within this context, make `folder` return the folder that contains `log`, to start the log's session."""
        several = len(self.folders()) > 1
        own = {self: self.of(log) if log else self._first()} if several else {}
        token = _USED.set({**_USED.get(), **own})
        try:
            yield
        finally:
            _USED.reset(token)

    def environment(self) -> dict[str, str]:
        """Return the variable and its value by which the agent finds the folder set by `used`; empty if not needed."""
        used = _USED.get().get(self)
        if used is None or (used == self._first() and len(self._named()) < 2):
            return {}
        return {self.variable: str(used).removesuffix(f"/{self.inside}")}

    def _named(self) -> list[str]:
        """Return the folders in the agent's variable. Commas separate them, unless the whole value is one folder."""
        named = os.environ.get(self.variable, "")
        if self.default.startswith(_DATA):  # a path that is not absolute does not count, as XDG wants it
            return [named] if named.startswith("/") else []
        parts = [part for one in named.split(",") if (part := one.strip())]
        return [named] if self.inside or len(parts) < 2 or Path(named).is_dir() else parts

    def _first(self) -> Path:
        if named := next(iter(self._named()), ""):
            return self._named_so(named)
        data = os.environ.get("XDG_DATA_HOME", "")
        if self.default.startswith(_DATA) and data.startswith("/"):
            return Path(data, self.default.removeprefix(_DATA))
        return Path.home() / self.default

    def _named_so(self, value: str) -> Path:
        return Path(value).expanduser() / self.inside

    def usual(self) -> str:
        """Return the value of the agent's variable that selects its default folder; empty if no value does."""
        outside = self.default.removesuffix(self.inside)
        return f"~/{outside}".rstrip("/") if self.default.endswith(self.inside) else ""


#: The folders of the session that is being started.
_USED: ContextVar[Mapping[Home, Path]] = ContextVar("used homes", default={})  # noqa: B039 - never changed


def _further(variable: str) -> tuple[str, ...]:
    """Return the further folders that smart-fork's config.toml lists for this environment variable."""
    file = str(config.file())
    if not os.path.exists(file):  # noqa: PTH110 - as text
        return ()
    info = os.stat(file)  # noqa: PTH116 - as text
    return _in_config(info.st_mtime_ns, info.st_size, info.st_ino, file).get(variable, ())


@lru_cache(maxsize=1)
def _in_config(*_state: object) -> dict[str, tuple[str, ...]]:
    pairs = [(name.strip(), folder.strip()) for name, _, folder in (one.partition("=") for one in config.homes())]
    return {variable: tuple(folder for name, folder in pairs if name == variable) for variable, _ in pairs}


class AgentDescription:
    """The names and the folder of an agent: the part of `Agent` that its facets know."""

    name: AgentName
    #: The name for people.
    title: str
    home: Home = Home("", "")
    #: The adapter that finds and reads the agent's logs.
    reader: AgentAdapter
    #: The variables that the agent sets for programs that it starts.
    tells: tuple[str, ...] = ()


class AgentFacet:
    """The base of facets (objects for one task with an agent) that need the agent's names and folder."""

    def __init__(self, of: AgentDescription) -> None:
        self.of, self.agent, self.title = of, of.name, of.title
