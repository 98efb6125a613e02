"""Sessions that a person has had forgotten: a list that outlives the index, so that none of them comes back.

``<SMART_FORK_HOME>/forgotten.jsonl``, one a line. It holds ids and nothing of what was said.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import orjson

from indexer.files import replace_file
from indexer.paths import private_dir, state_home
from indexer.transcripts.model import AgentName

log = logging.getLogger(__name__)

Forgotten = dict[tuple[AgentName, str], str]


def forgotten() -> Forgotten:
    """The sessions by agent and id, with the time they were forgotten at.

    Raises:
        OSError: there is a list and it cannot be read; nothing must be indexed then.
    """
    if not _path().exists():
        return {}
    data = _path().read_bytes()
    found: Forgotten = {}
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            agent, session_id, at = orjson.loads(line)
            found[agent, session_id] = at
        except (ValueError, TypeError):
            log.warning("%s:%d is not a forgotten session", _path(), number)
    return found


def replace(sessions: Forgotten) -> None:
    """Make these the list, at once or not at all. For whoever holds the index's lock.

    Raises:
        OSError: it cannot be written; the list is what it was.
    """
    path = _path()
    private_dir(path.parent)
    replace_file(path, _lines(sessions))


def _lines(sessions: Forgotten) -> Iterable[bytes]:
    for (agent, session_id), at in sessions.items():
        yield orjson.dumps([agent, session_id, at], option=orjson.OPT_APPEND_NEWLINE)


def _path() -> Path:
    return state_home() / "forgotten.jsonl"
