"""The tools that are asked the same questions over the same sessions, and how another one is added."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from .labels import Question, telling
from .ours import DEPTH, Answer, SmartFork
from .play import Moment

Ask = Callable[[Moment], Sequence[str] | Answer]
PHRASED = "smart-fork, with further phrasings"
ORACLE = "oracle: the files that will be changed"


class Tool(NamedTuple):
    """A tool: its name, and how it is asked. It answers with session ids, best first.

    It may read `moment.home` and `moment.clone`, and writes in neither. Each moment is later than the one before.
    """

    name: str
    ask: Ask


class Said(NamedTuple):
    """What both sides of a session said until then, and the files that it edited, from the repository's root."""

    text: str
    edited: frozenset[str]


class Library:
    """The logs of a home, read by their agents' readers. What has not changed is read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, int], tuple[str, Said] | None] = {}

    def sessions(self, moment: Moment) -> dict[str, Said]:
        """Return what each session that is present said and edited."""
        from smart_fork.agents.log_readers import READERS

        found = {}
        for agent in READERS:
            for log in agent.discover():
                key = (log.location, log.size)
                if key not in self._read:
                    self._read[key] = _said(agent.read(log.path).session, moment.clone)
                if (one := self._read[key]) and one[0] in moment.present:
                    found[one[0]] = one[1]
        return found


def _said(session: Any, clone: Path) -> tuple[str, Said] | None:
    if session is None:
        return None
    text = "\n".join(turn.text for turn in session.turns if turn.role in ("user", "assistant"))
    edits = (path for turn in session.turns for call in turn.tool_calls for path in call.edits)
    return session.session_id, Said(text, frozenset(path.removeprefix(f"{clone}/") for path in edits))


def tools(ours: SmartFork, also: Mapping[str, Sequence[str]]) -> tuple[Tool, ...]:
    """Return all tools that need nothing but this package, and ripgrep if it is installed.

    `also` are further phrasings by the question's id: with any, smart-fork is asked again with these.
    """
    library = Library()
    found = [
        Tool("smart-fork", ours.ask),
        Tool("smart-fork, words alone", lambda moment: ours.ask_by("lexical", moment)),
        Tool("smart-fork, vectors alone", lambda moment: ours.ask_by("vector", moment)),
        Tool("BM25", lambda moment: by_bm25(moment, library.sessions(moment))),
        Tool("files named, then newest", lambda moment: by_files_named(moment, library.sessions(moment))),
        Tool("newest first", newest),
        Tool(ORACLE, lambda moment: by_files(moment, library.sessions(moment), frozenset(moment.question.files))),
    ]
    if also:
        found.append(Tool(PHRASED, lambda moment: ours.ask(moment, also.get(moment.question.id, ()))))
    if shutil.which("rg"):
        found.insert(4, Tool("ripgrep, most words", by_ripgrep))
    return tuple(found)


def newest(moment: Moment) -> list[str]:
    """Order sessions by their last change."""
    return sorted(moment.present, key=lambda one: (-moment.present[one], one))


def by_files_named(moment: Moment, sessions: dict[str, Said]) -> list[str]:
    """Order sessions by how many files they edited that the question names, by path or name."""
    edited = frozenset[str]().union(*(said.edited for said in sessions.values()))
    return by_files(moment, sessions, frozenset(path for path in edited if is_named(path, moment.question)))


def is_named(path: str, question: Question) -> bool:
    """Say whether a question names a file."""
    name = path.rpartition("/")[2]
    return bool(name) and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", question.text) is not None


def by_files(moment: Moment, sessions: dict[str, Said], files: frozenset[str]) -> list[str]:
    """Order sessions by how many of these files they edited, then by their last change."""
    edited = {session: len(said.edited & files) for session, said in sessions.items()}
    return sorted(newest(moment), key=lambda one: -edited.get(one, 0))


def by_bm25(moment: Moment, sessions: dict[str, Said]) -> list[str]:
    """Order sessions by BM25 of SQLite's FTS5, with Porter's stemmer, over what both sides said."""
    words = " OR ".join(f'"{word}"' for word in sorted(telling(moment.question.text)))
    with closing(sqlite3.connect(":memory:")) as table:
        table.execute("CREATE VIRTUAL TABLE said USING fts5(text, session UNINDEXED, tokenize='porter unicode61')")
        table.executemany("INSERT INTO said VALUES (?, ?)", [(said.text, one) for one, said in sessions.items()])
        rows = table.execute(
            "SELECT session FROM said WHERE said MATCH ? ORDER BY bm25(said), session LIMIT ?", (words, DEPTH)
        )
        return [session for (session,) in rows]


def by_ripgrep(moment: Moment) -> list[str]:
    """Order sessions by how many of the telling words their log has, then by how often."""
    words = [part for word in sorted(telling(moment.question.text)) for part in ("-e", word)]
    options = ("--ignore-case", "--word-regexp", "--fixed-strings", "--only-matching", "--no-line-number", "--hidden")
    command = ["rg", *options, "--with-filename", "--no-ignore", "--null", "--no-config", *words, str(moment.home)]
    done = subprocess.run(command, capture_output=True, check=False)
    found: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        path, _, word = line.partition("\0")
        found.setdefault(path, []).append(word.lower())
    ranked = sorted(found, key=lambda path: (-len(set(found[path])), -len(found[path]), path))
    named = (next((one for one in moment.present if one in path), "") for path in ranked)
    return list(dict.fromkeys(one for one in named if one))
