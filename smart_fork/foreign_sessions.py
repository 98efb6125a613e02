"""Which sessions of this machine hold what somebody else's has said: ``<home>/team/others/<session id>``.

Whoever could share a session could have put words there. So an agent that goes on from it asks before it acts, whatever
settings and records say. A file has the messages that are theirs, each on a line; forks have these, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from indexer.files import replace_file
from indexer.paths import private_dir, state_home


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


def is_known(session_id: str | None, messages: Collection[str] = ()) -> bool:
    """Whether a session is such a one, or has a message of one."""
    if not there_are():
        return False
    if session_id and session_id in {file.name for file in _folder().iterdir()}:
        return True
    wanted = {one.encode() for one in messages}
    return bool(wanted) and any(not wanted.isdisjoint(_lines(file)) for file in _folder().iterdir())


def _lines(file: Path) -> list[bytes]:
    with suppress(FileNotFoundError):  # taken away just now
        return file.read_bytes().splitlines()
    return []


def _folder() -> Path:
    return state_home() / "team" / "others"
