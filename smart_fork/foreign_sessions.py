"""Which sessions of this machine hold what somebody else's has said: ``<home>/team/others/<session id>``.

Whoever could share a session could have put words there. So an agent that goes on from it asks before it acts, whatever
settings and records say. A file has the messages that are theirs, each on a line; forks have these, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexer.files import replace_file
from indexer.paths import private_dir, state_home
from smart_fork.errors import Conflict
from smart_fork.text.advice import advice


def remember(session_id: str, messages: Iterable[str]) -> None:
    """Keep of a session of this machine which of its messages are somebody else's."""
    file = private_dir(state_home() / "team" / "others") / session_id
    replace_file(file, [f"{one}\n".encode() for one in messages])


def forget(session_id: str) -> None:
    """Keep nothing of a session that is gone."""
    (_folder() / session_id).unlink(missing_ok=True)


def there_are() -> bool:
    """Whether there is any; nearly nobody has one."""
    return _folder().is_dir()


def is_taken(session_id: str) -> bool:
    """Whether the log of a session was written here from what a teammate, or another machine, has shared."""
    return (state_home() / "team" / "pulled" / f"{session_id}.idx").is_file()


#: Copies that are here while somebody looks at them, and the shared sessions that they were written from.
_LOOKED_AT: dict[str, str] = {}


@contextmanager
def looked_at(session_id: str, shared_id: str) -> Iterator[None]:
    """The time in which a copy is here that is taken away again: nothing names it that is read later."""
    _LOOKED_AT[session_id] = shared_id
    try:
        yield
    finally:
        del _LOOKED_AT[session_id]


def shared_as(session_id: str) -> str | None:
    """Return the shared session that such a copy was written from."""
    return _LOOKED_AT.get(session_id)


def is_known(session_id: str | None, messages: Collection[str] = ()) -> bool:
    """Whether a session is such a one, or has a message of one."""
    if not there_are():
        return False
    if session_id and session_id in {file.name for file in _folder().iterdir()}:
        return True
    wanted = {one.encode() for one in messages}
    return bool(wanted) and any(not wanted.isdisjoint(_lines(file)) for file in _folder().iterdir())


def refuse_owing(session_id: str) -> None:
    """Refuse a session of which something was withdrawn that is still in it: ``<home>/team/pulled/<id>.owed``.

    Raises:
        Conflict: there is something.
    """
    if session_id in owing():
        raise Conflict(
            "Withdrawn text is still in your copy of this session, which an agent has open.",
            advice(
                "End that agent, then run: smart-fork team sync.", tool="The user must end that agent. Then ask again."
            ),
        )


def owing() -> frozenset[str]:
    """The ids of the sessions here of which something was withdrawn that is still in them."""
    return frozenset(file.stem for file in (state_home() / "team" / "pulled").glob("*.owed"))


def _lines(file: Path) -> list[bytes]:
    with suppress(FileNotFoundError):  # taken away just now
        return file.read_bytes().splitlines()
    return []


def _folder() -> Path:
    return state_home() / "team" / "others"
