"""Requests to search past sessions, checked before anything is read, and the interface of external search programs."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple, Protocol

from indexer.environment import Setting
from indexer.lazy_compilation import dataclass
from indexer.project import Project, project_of
from indexer.store.base import Scope
from indexer.transcripts.model import AgentName
from smart_fork import config
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import said
from smart_fork.display_text import one_of, printable, quoted, shown
from smart_fork.errors import SmartForkError, Usage, advice, is_empty
from smart_fork.finding.code_lines import names_lines
from smart_fork.finding.project_places import recognized
from smart_fork.finding.query import Code, Query, plain
from smart_fork.finding.ranking import HINT_CHANCE
from smart_fork.finding.session_notes import tag
from smart_fork.system import call_context

_COLLECTION = "{}-sessions"


def collection_of(agent: AgentName) -> str:
    """Return the name of the collection with an agent's exports (sessions as Markdown files) in a search program."""
    return _COLLECTION.format(agent)


def collections() -> dict[AgentName, str]:
    """Map each agent to the name of the collection with its exports (sessions as Markdown) in a search program."""
    return {agent: collection_of(agent) for agent in AGENTS.readable()}


#: The characters of an invalid path that an error repeats.
MAX_SHOWN = 500
DEFAULT_LIMIT, MAX_LIMIT = 5, 50
#: The name that the calling session gives itself.
SELF = "self"
#: The number of further phrasings of a question, and the characters of each.
MAX_PHRASINGS, MAX_PHRASING_CHARACTERS = 8, 300


@dataclass(frozen=True, slots=True)
class FindRequest:
    """A question about past sessions. `intent` is its text, `also` are other phrasings of it. `None` means a default.

    `works_in` is the directory for a fork of a result; `None` means the result's own. `as_agent` is the agent that gets
    a result handed over, if any. The fields `lines` to `pull` ask who wrote code, as in `Code`. With code, an error or
    a tag, the intent may be empty.
    """

    intent: str = said(
        default="", required=True, described="The task, in the user's words. May be empty with lines etc.",
        help="What you want to do next, in a sentence. Optional beside --line and the like.", argument=True,
        read=list[str],
    )  # fmt: skip
    agent_type: str | None = said(
        default=AGENTS.first(), described=f"{one_of(AGENTS.choices())}. Default: yours, else all."
    )
    limit: int | None = said(
        int, default=DEFAULT_LIMIT, described="At most 50.", help="Number of results, at most 50.",
        flags=("--limit", "-n"),
    )  # fmt: skip
    collection: str | None = said(described=f"Such as '{_COLLECTION.format(AGENTS.first())}'.")
    min_score: float | None = said(
        float, described="Lowest score, 0 to 1.", help="Lowest score of a result, from 0 to 1."
    )
    include_snippets: bool | None = said(
        bool, default=True, described="Quote what matched.", help="Print no quotations.", flags=("--no-snippets",)
    )
    explain: bool = said(bool, default=False, described="Explain scores.", help="Explain each score.")
    also: Sequence[str] | None = said(
        list[str],
        described="The same intent in other words.",
        help="The same intent in other words. Repeatable, up to 8.",
        metavar="TEXT",
    )
    include_automated: bool = said(bool, default=False, help="Include sessions that a program started.")
    works_in: str | None = None
    as_agent: AgentName | None = None
    lines: Sequence[str] | None = said(
        list[str], described="Who wrote 'src/a.py:42-60'?",
        help="Sessions that wrote this line, or PATH:N-M. Repeatable.", flags=("--line",), metavar="PATH:N",
    )  # fmt: skip
    files: Sequence[str] | None = said(
        list[str], described="Who wrote them?", help="Sessions that wrote this file. Repeatable.", flags=("--file",),
        metavar="PATH",
    )  # fmt: skip
    commit: str | None = said(described="Who wrote it?", help="Sessions that wrote this commit.")
    changes: bool | str | None = said(
        bool,
        str,
        described="A patch; true: my changes. Who wrote what they touch?",
        help="Sessions that wrote the lines which uncommitted changes, or a patch, touch.",
    )
    pull: int | None = said(
        int, help="Sessions that wrote this pull request. Uses gh, or its fetched ref.", flags=("--pr",), min=1
    )
    session: str | None = said(
        described="Its exchanges alone: 'self' or an id.",
        help="Exchanges of this session. self: the calling one.",
        metavar="ID",
    )
    error: str | None = said(described="An error: what ended it?")
    tag: str | None = said(described="A tag.", help="Only sessions with this tag.")

    @classmethod
    def recall(cls, intent: str, *, here: bool = False) -> FindRequest:
        """Return the request for the session that probably knows about `intent`; with `here`, the calling one."""
        return cls(intent, session=SELF) if here else cls(intent, limit=1, min_score=HINT_CHANCE)

    def about(self, where: str) -> FindRequest:
        """Return the request about the code at `where`: PATH:LINE, PATH:FIRST-LAST or PATH; unchanged if empty."""
        if not where:
            return self
        return replace(self, lines=(where,)) if names_lines(where) else replace(self, files=(where,))

    @property
    def agents(self) -> tuple[AgentName, ...]:
        """Return the agents whose sessions are searched; raise `Usage` for an unknown agent."""
        if self.collection is None:
            return AGENTS.selected(self.agent_type or AGENTS.first())
        return tuple(agent for agent, name in collections().items() if name == self.collection)

    @property
    def collections(self) -> tuple[str, ...]:
        """Return the names of the agents' collections in a search program."""
        return tuple(map(collection_of, self.agents))

    @property
    def code(self) -> Code:
        """Return the code that the question is about."""
        lines, files = (tuple(one for one in given or () if not is_empty(one)) for given in (self.lines, self.files))
        return Code(lines, files, self.commit, self.changes, self.pull)

    def query(self, scope: Scope, **known: Any) -> Query:
        """Build the query for the sessions in `scope`. `known` are further fields, such as the session that asks."""
        return Query(
            self.intent, scope, int(self.limit or DEFAULT_LIMIT), min_score=self.min_score, also=tuple(self.also or ()),
            agents=self.agents, **known,
        )  # fmt: skip

    @staticmethod
    def check_score(min_score: float | None) -> None:
        """Raise `Usage` unless a minimum score is `None` or a number between 0 and 1."""
        if min_score is not None and not _is_number(min_score):
            raise Usage(f"min_score must be a finite number, not {shown(min_score)}", "Scores are between 0 and 1.")
        if min_score is not None and not 0 <= min_score <= 1:
            raise Usage(f"min_score must be between 0 and 1, not {shown(min_score)}", "0 leaves nothing out.")

    def checked(self) -> FindRequest:
        """Return the request with normalized texts and limit; raise `Usage` for an invalid field. No file is read."""
        otherwise = self.code or self.error is not None or self.tag is not None
        intent: Any = self.intent
        if not (isinstance(intent, str) and plain(intent)) and not (otherwise and is_empty(intent)):
            raise Usage("intent is required", "Write what you want to do next, in a sentence.")
        check_also(self.also)
        AGENTS.selected(self.agent_type or AGENTS.first())
        limit = self.limit
        if limit is not None and not (_is_number(limit) and 1 <= limit == int(limit)):
            raise Usage(
                f"limit must be at least 1, not {shown(limit)}",
                f"The default is {DEFAULT_LIMIT}, the maximum {MAX_LIMIT}.",
            )
        if limit is not None and limit > MAX_LIMIT:
            raise Usage(f"limit must be at most {MAX_LIMIT}, not {shown(limit)}", f"The default is {DEFAULT_LIMIT}.")
        self.check_score(self.min_score)
        if self.tag is not None:
            tag(self.tag)
        if not self.agents:
            unknown = shown(self.collection).strip('"')
            raise Usage(f"unknown collection: {unknown}", f"Known: {', '.join(collections().values())}.")
        intent = plain(self.intent)
        return replace(self, intent=intent, also=further(intent, self.also), limit=int(limit or DEFAULT_LIMIT))


@dataclass(frozen=True, slots=True)
class RecentRequest:
    """The filters of a request for the list of recent sessions."""

    agent_type: str = said(default=AGENTS.ALL, described="As for find_sessions.")
    limit: int = said(
        int, default=20, described="At most 100.", help="Number of sessions.", flags=("--limit", "-n"), min=1,
        max=500,
    )  # fmt: skip
    include_automated: bool = said(
        bool,
        default=False,
        described="Include automated sessions.",
        help="Include sessions that a program started.",
    )
    tag: str | None = said(help="Only sessions with this tag.")
    archived: bool = said(bool, default=False, help="Only archived sessions.")


def current_project(path: str | None) -> Project:
    """Return the project of the directory `path` (default: the working directory); raise `Usage` if it is missing."""
    named, problem = quoted(path or ".", MAX_SHOWN), "does not exist"
    call_context.require(path or str(Path.cwd()), named, below=True)
    try:
        directory = Path(path).expanduser() if path else Path.cwd()
        there = directory.is_dir()
        if directory.exists():
            problem = "is no directory"
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        there = False
    if not there:
        raise Usage(f"project_path {problem}: {named}", "Give the path of a directory.")
    project = project_of(directory)
    READERS.note(Path(project.root))
    return recognized(project)


def project_notice(project: Project | None, *, found: bool = True) -> str:
    """Return a notice that says why a project may have more sessions than were found; empty without a reason.

    If nothing was `found`, the notice also mentions checkpoints (sessions kept in a git branch) that are not fetched. A
    client that is limited to projects is not told about other directories.
    """
    if project is None:
        return ""
    if not found and (fetch := repository_sessions.unfetched(Path(project.root))):
        there = "The repository may keep sessions that this clone has not fetched"
        return advice(f"{there}: {fetch}", tool=f"{there}. Ask the user to fetch them: {fetch}")
    if project.maybe and not call_context.limited():
        directory = printable(project.maybe[0])
        there = f"Sessions of {directory}, which is gone, may belong here"
        return advice(
            f"{there}: smart-fork project adopt {shlex.quote(directory)}",
            tool=f"{there}. Ask the user to adopt that directory.",
        )
    if not project.doubt:
        return ""
    why = "" if call_context.limited() else f": {printable(project.doubt)}"
    return f"The .git of this directory is not trusted, so only its own sessions are found{why}"


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


# The further phrasings of a question.


def check_also(also: object) -> None:
    """Raise `Usage` unless a question's further phrasings are `None` or a list of few, short texts."""
    if also is None:
        return
    if isinstance(also, str | bytes) or not isinstance(also, Sequence):
        raise Usage(f"also must be a list of texts, not {shown(also)}", "Each text is the same intent in other words.")
    if len(also) > MAX_PHRASINGS:
        raise Usage(
            f"also takes at most {MAX_PHRASINGS} texts, not {len(also)}", "Four different phrasings are enough."
        )
    for number, text in enumerate(also, start=1):
        if not isinstance(text, str):
            raise Usage(f"also must be a list of texts; number {number} is {shown(text)}")
        if len(text) > MAX_PHRASING_CHARACTERS:
            raise Usage(
                f"also takes texts of at most {MAX_PHRASING_CHARACTERS} characters; number {number} has {len(text)}",
                "Give a sentence, a title, or a few names.",
            )


def further(intent: str, also: Sequence[str] | None) -> tuple[str, ...]:
    """Return a question's other phrasings: the texts in `also` that are not blank and do not repeat another one."""
    given = (plain(text) for text in also or ())
    different = {_essence(text): text for text in reversed([*given]) if text}
    return tuple(text for essence, text in reversed(different.items()) if essence and essence != _essence(intent))


def _essence(text: str) -> str:
    return " ".join(text.casefold().split())


# The interface of external search programs, and the choice of the one that answers.

EngineMode = Literal["hybrid", "vector", "lexical"]


class EngineUnavailable(SmartForkError):
    """An error: the configured search program is missing, or does not know the exports (sessions as Markdown files)."""

    code = "engine_unavailable"


class RankedDocument(NamedTuple):
    """An export (a session's Markdown file) that a search program found, with its score (0…1) and a quoted text."""

    agent: AgentName
    session_id: str
    score: float | None
    snippet: str


@dataclass(frozen=True, slots=True)
class EngineQuestion:
    """A question to an external search program: the intent, its key words, and the agents to search.

    `enough` says whether the found documents suffice. If they do not, the program is asked for more.
    """

    intent: str
    words: tuple[str, ...]
    agents: tuple[AgentName, ...]
    enough: Callable[[Sequence[RankedDocument]], bool] = bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """An external search program's answer: the documents, best first.

    `way` is how the program searched; `None` if it could not. `error` says which ways failed before. `dropped` counts
    the results that are not exports (Markdown files of sessions). `said` are further fields for the answer's JSON.
    """

    documents: tuple[RankedDocument, ...]
    way: EngineMode | None
    error: str = ""
    dropped: int = 0
    said: Mapping[str, Any] = field(default_factory=dict)


class SearchEngine(Protocol):
    """An external search program, such as qmd, that searches the exports (sessions as Markdown files)."""

    name: str

    def refresh(self, stamp: str) -> None:
        """Have the program read the exports, unless it did so since the index's last change, at the time `stamp`.

        Raises:
            EngineUnavailable: the program is missing, or cannot be made to know the exports.
        """

    def renew(self, stamp: str, patience: float) -> None:
        """Have the program read the exports and embed their new texts, which takes long.

        Raises:
            EngineUnavailable: as `refresh`.
            IndexBusyError: another process has been updating the program's index for `patience` seconds.
            ProgramFailed: the texts cannot be embedded, so that only words can be searched.
        """

    def erase(self) -> bool:
        """Have the program erase content that was removed from the exports. Return True if none of it is left."""

    def ask(self, question: EngineQuestion) -> Ranking:
        """Return the exports that answer a question best. If the program fails, the result says why."""

    def what_to_do(self) -> tuple[str, tuple[str, ...]]:
        """Return the error code and the next steps for an answer if the program cannot be used."""


# The engine that answers: ``SMART_FORK_ENGINE``, else ``engine`` in ``config.toml``, else the built-in index.

OWN = Setting.ENGINE.default
#: The class of the search program qmd. It is only imported if qmd is configured.
_QMD = "smart_fork.finding.qmd:Qmd"


def configured_engine(environment: Mapping[str, str] | None = None) -> SearchEngine | None:
    """Return the search program that replaces the built-in index; `None` if none is configured.

    Raises:
        Usage: there is no such engine, or ``config.toml`` cannot be read.
    """
    environment = os.environ if environment is None else environment
    name = Setting.ENGINE.text(environment).lower() or config.engine()
    if name in ("", OWN):
        return None
    if name == "qmd":
        found: SearchEngine = resolve_name(_QMD)(environment=environment)
        return found
    raise Usage(
        f"engine must be '{OWN}' or 'qmd', not {shown(name)}", f"Set {Setting.ENGINE}, or `engine` in config.toml."
    )
