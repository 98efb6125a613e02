"""What this machine knows of synchronization: the remote, the directories that take part, and what it saw last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from indexer import state
from smart_fork.errors import NotFound

_NAME, _COPY = "sync", "sync copy "


@dataclass(frozen=True, slots=True)
class Settled:
    """`number` and `blob` are those of the list that was seen last; `withdrawn` is what has ever been withdrawn.

    `stamps` say how the log of each session was that was sent last.
    """

    remote: str
    directories: tuple[str, ...] = ()
    number: int = 0
    blob: str = ""
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    stamps: Mapping[str, str] = field(default_factory=dict)

    def keep(self) -> None:
        """Keep it."""
        state.keep(_NAME, asdict(self))

    def with_directory(self, directory: str) -> Settled:
        """The same, where that directory takes part."""
        return replace(self, directories=tuple(dict.fromkeys((*self.directories, directory))))

    def without(self, directory: str) -> Settled:
        """The same, where it does not."""
        return replace(self, directories=tuple(one for one in self.directories if one != directory))


@dataclass(frozen=True, slots=True)
class Copy:
    """A session that was written here: which of the remote's it is, as it was there, and its log as it was then."""

    source: str
    agent: str
    shared: str
    count: int
    digest: str


def settled() -> Settled:
    """What is known.

    Raises:
        NotFound: this machine is not set up.
    """
    said: dict[str, Any] | None = state.fact(_NAME)
    if said is None:
        raise NotFound("This machine is not set up.", "Run: smart-fork sync setup REMOTE")
    return Settled(**(said | {"directories": tuple(said["directories"])}))


def is_settled() -> bool:
    """Whether this machine is set up."""
    return state.fact(_NAME) is not None


def forget() -> None:
    """Keep nothing of it, but which sessions are copies: those are not sent to another remote either."""
    state.keep(_NAME, None)


def copies() -> dict[str, Copy]:
    """The copies that are here, by the ids of their sessions."""
    import orjson

    found = state.rows("SELECT name, value FROM facts WHERE substr(name, 1, ?) = ?", len(_COPY), _COPY)
    return {name[len(_COPY) :]: Copy(**orjson.loads(value)) for name, value in found}


def keep_copy(session_id: str, copy: Copy | None) -> None:
    """Keep what a session is a copy of; with `None` nothing."""
    state.keep(_COPY + session_id, copy and asdict(copy))
