"""What a branch is called: its base's name with ``(Branch)``, unlike any other in the project."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import chain, count
from pathlib import Path

from indexer.project import Project
from indexer.transcripts.base import AgentAdapter, Agents, LogFile
from indexer.transcripts.lines import decode_line, open_regular
from smart_fork.agents.plan import MAX_NAME_CHARACTERS, plain_name
from smart_fork.cuts.titles import key, without_suffix
from smart_fork.whereabouts import belongs

FALLBACK = "Branched conversation"
#: Further ones have the time in their name.
MAX_NUMBER = 99
#: How much of a log's beginning and end is looked at: titles are at either, and agents write theirs again at the end.
_ENDS = 64 << 10
_BRANCHED = re.compile(rb"\(branch", re.IGNORECASE)


def branch_title(name: str | None, parent_title: str, taken: Container[str], milliseconds: int) -> str:
    """The title of a branch that is called `name`, or like its parent. Pure.

    `taken` holds the titles of the project as `key` gives them, `milliseconds` is the time.
    """
    base = without_suffix(plain_name(name)) or without_suffix(plain_name(parent_title)) or FALLBACK
    numbers = chain(("",), (f" {number}" for number in range(2, MAX_NUMBER + 1)))
    later = (f" {milliseconds + more}" for more in count())
    titles = (_titled(base, number) for number in chain(numbers, later))
    return next(title for title in titles if key(title) not in taken)


def titles_like_ours(agents: Agents, project: Project) -> set[str]:
    """The `key` of each title in `project` that says "(Branch": no other can be in the way. One scan.

    Logs that cannot be read have no title.
    """
    found: set[str] = set()
    for adapter in agents:
        here = adapter.place_of(project.root)
        for file in adapter.discover():
            if here and not file.location.startswith(here):  # another project's
                continue
            found.update(key(title) for title in _titles(adapter, file, project))
    return found


def _titles(adapter: AgentAdapter, file: LogFile, project: Project) -> Iterator[str]:
    try:
        ends = _both_ends(file.path)
        if not _BRANCHED.search(ends):
            return
        session = adapter.glance(file.path)
    except OSError:
        return
    if session is not None and belongs(session, project):
        yield session.title
        yield from _given(ends)


def _both_ends(path: Path) -> bytes:
    with open_regular(path) as file:
        head = file.read(_ENDS)
        size = file.seek(0, 2)
        file.seek(max(len(head), size - _ENDS))
        return head + b"\n" + file.read(_ENDS)


def _given(ends: bytes) -> Iterator[str]:
    """The names that it was given: those that it had once are as good as taken."""
    for line in filter(_BRANCHED.search, ends.splitlines()):
        for _, record in decode_line(line)[0]:
            payload = record.get("payload")
            title = record.get("customTitle", payload.get("thread_name") if isinstance(payload, dict) else None)
            if isinstance(title, str):
                yield title


def _titled(base: str, number: str) -> str:
    suffix = f" (Branch{number})"
    return base[: MAX_NAME_CHARACTERS - len(suffix)].rstrip() + suffix
