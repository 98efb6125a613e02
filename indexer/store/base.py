"""The interface of the search index: the values that it stores and returns, whatever the database."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

from indexer.export import Chunk, Voices
from indexer.lazy import dataclass
from indexer.outcome import Authored, Edits, MetError, Outcome
from indexer.project import Project
from indexer.transcripts.base import Checkpoint, LogFile
from indexer.transcripts.model import AgentName, BrokenLine, Inferred, ResumedReason, Session
from indexer.values import Value, value

#: A run of Chinese, Japanese or Korean characters, in which no spaces separate the words.
_RUN = re.compile(
    r"[\u3005\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f]{2,}"
)


def bigrams(text: str) -> str:
    """Return `text` as the index stores and searches it: Chinese, Japanese and Korean text as overlapping pairs."""
    return text if text.isascii() else _RUN.sub(lambda run: f" {' '.join(map(''.join, pairwise(run[0])))} ", text)


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of a session by role, for ranking whole sessions: title, prompts (`asked`), answers and more.

    `also_called` (other names) counts like the title. `work` has the edited files, and the names of code that the
    session wrote. `headline` is not searched.
    """

    title: str
    asked: str
    answered: str
    actions: str
    symbols: str
    also_called: str = ""
    work: str = ""
    headline: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A session as it is stored in the index, with everything that is derived from it.

    `until` is the time of the session's last searchable text, and `acted` the last exchange (a prompt with its answer)
    in which it did something. `export` is the digest of the export to which the chunks' lines refer. `answered` is as
    in `last_answered`. `guests` are documents for further repositories in which the session worked.
    """

    session: Session
    project: Project
    resolved_cwd: str
    chunks: tuple[Chunk, ...]
    words: Words
    until: str = ""
    acted: int = -1
    export: bytes = b""
    outcome: Outcome = Outcome.UNKNOWN
    edits: Edits = Edits()
    answered: int | None = None
    authored: tuple[Authored, ...] = ()
    errors: tuple[MetError, ...] = ()
    guests: tuple[Document, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a log. `version` is the version of the readers. The other fields are as in `ReadResult`."""

    file: LogFile
    version: str
    checkpoint: Checkpoint
    skipped: str = ""
    broken: tuple[BrokenLine, ...] = ()
    resumed: bool = False
    records: int = 0
    unknown: int = 0


class SeenFile(NamedTuple):
    """The size, time, inode and reader version with which a log was read. They show if the log has changed since."""

    size: int
    mtime_ns: int
    inode: int
    version: str


class SessionRow(NamedTuple):
    """A stored session, without its turns.

    `path` is empty if the agent has deleted the log. `part` is its part of the index (see `Scope`). `until`, `acted`
    and `answered` are as in `Document`, `cache_*` as in `Cache`, `resumed*` as in `Resumed`. `forgotten` counts the
    turns that the last compaction dropped, and `own` the turns that a fork has from its parent. If this row is a
    session's work in another repository (`repo_root`), `home` is the row of that session.
    """

    row: int
    agent: AgentName
    session_id: str
    part: int
    path: str
    cwd: str
    resolved_cwd: str
    repo_root: str
    git_branch: str
    title: str
    also_called: str
    version: str
    started: str
    last_activity: str
    origin: str
    parent_id: str | None
    root_id: str
    turns: int
    prompts: int
    tokens: int
    compactions: int
    until: str
    acted: int
    inferred_from: Inferred
    head: str
    outcome: Outcome
    answered: int | None = None
    cache_seconds: int = 0
    cache_used: str = ""
    resumed: int = 0
    resumed_reason: ResumedReason = ""
    forgotten: int = 0
    instructions: int = 0
    own: int = 0
    headline: str = ""
    home: int | None = None

    @property
    def gap(self) -> int:
        """Return how many turns precede a gap in the log (a record that was never written); 0 without a gap.

        If the session continued in two logs, return how many turns precede the end that only this log has.
        """
        return self.resumed if self.resumed_reason in ("gap", "elsewhere") else 0

    @property
    def only_asked(self) -> bool:
        """Return True if no prompt of the session was answered or had an effect."""
        return self.answered == -1


class Placement(NamedTuple):
    """The position of a chunk (a span of the export) in a session.

    Its exchange (a prompt with its answer) can be forked after the turn `ends`, or at the session's end for `None`.
    Such a fork loads `tokens` tokens.
    """

    session: int
    position: int
    chunk: int
    turn: int
    message_id: str
    role: str
    exchange: int
    ends: int | None
    tokens: int


class Lines(NamedTuple):
    """The first and last line of a chunk, from 1, in the export with the digest `export`."""

    first: int
    last: int
    export: bytes


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of a search: `parts` of the index, and optionally a directory (`within`) or some sessions.

    A part is the sessions of one project and one agent, started by a person or by a program. `project` is the project
    of the search.
    """

    parts: tuple[int, ...] = ()
    within: str = ""
    session: int | None = None
    project: Project | None = None
    sessions: tuple[int, ...] | None = None


class Scored(NamedTuple):
    """A chunk or session (its row) in a search result. A higher score is better."""

    row: int
    score: float


class Near(NamedTuple):
    """A chunk with its cosine (-1 to 1) to each text of a question. Its score is the largest."""

    row: int
    cosines: tuple[float, ...]

    @property
    def score(self) -> float:
        """Return the largest cosine."""
        return max(self.cosines)


@value
class Counts(Value):
    """Counts of sessions, chunks, chunks with vectors, logs, and lines of logs that cannot be decoded."""

    sessions: int
    chunks: int
    embedded: int
    files: int
    skipped: Mapping[str, int]
    broken_lines: int
    updated_at: str


#: The reason why the log of a forgotten session is skipped.
FORGOTTEN = "forgotten"


class Understood(NamedTuple):
    """An agent's number of records, of records of unknown type, and the agent versions that wrote the unknown ones."""

    records: int
    unknown: int
    versions: tuple[str, ...]


class Holding(NamedTuple):
    """Number of sessions of one project, agent and outcome that were last used on one `day`, and the latest time."""

    root: str
    agent: AgentName
    day: str
    outcome: Outcome
    sessions: int
    last_activity: str


WordTable = Literal["chunks", "sessions", "commits"]
HavingTable = Literal["chunks", "sessions", "titles", "work", "commits"]


class Similarities(Protocol):
    """The cosines (-1 to 1) of all chunks in a scope to the texts of a question."""

    def best(self, limit: int) -> list[Near]:
        """Return the `limit` nearest chunks to each of the texts, best first."""

    def of(self, chunks: Collection[int]) -> dict[int, tuple[float, ...]]:
        """Return the cosines of these chunks to each of the texts, for chunks that are in scope and have a vector."""


class Searchable(Protocol):
    """The part of an index's interface that a search uses, wherever the index is kept.

    A term is a word, or a phrase in double quotes. A word with a ``*`` behind it matches all words that begin with it.
    """

    def match_words(self, table: WordTable, terms: Sequence[str], scope: Scope, limit: int) -> list[Scored]:
        """Return the best rows with any of these terms, by BM25: ids of chunks, or rows of sessions."""

    def similarities(self, questions: Sequence[bytes], scope: Scope) -> Similarities:
        """Return the cosines of all chunks in scope to the texts of a question, which are given as float32 vectors."""

    def word_scores(
        self, table: WordTable, terms: Sequence[str], scope: Scope, rows: Collection[int]
    ) -> dict[str, dict[int, float]]:
        """Return the BM25 score that each quoted term contributes to each of the `rows` that contain it, by term."""

    def sessions_with(self, terms: Sequence[str]) -> dict[str, int]:
        """Return how many sessions have each of these quoted terms."""

    def having(self, table: HavingTable, terms: Sequence[str], rows: Iterable[int]) -> dict[str, set[int]]:
        """Return which of `rows` have each quoted term: chunks, or sessions by text, title, work or commit messages."""

    def vector_counts(self, sessions: Iterable[int]) -> dict[int, int]:
        """Return the number of chunks with a vector for each of these sessions."""

    def placements(self, chunks: Iterable[int]) -> list[Placement]:
        """Return all positions in sessions at which these chunks are."""

    def placements_of(self, session: int) -> list[Placement]:
        """Return the positions of the chunks of a session, in order."""

    def positions(self, sessions: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return all positions in these sessions as (session, position, chunk)."""

    def own_passages(self, session: int, other: int) -> list[Placement]:
        """Return the positions of the chunks of `session` that `other` does not have, in order."""

    def texts(self, chunks: Iterable[int]) -> dict[int, str]:
        """Return the texts of these chunks, by chunk id."""

    def sessions(self, rows: Iterable[int]) -> dict[int, SessionRow]:
        """Return the stored sessions with these row numbers, by number."""

    def session_count(self) -> int:
        """Return the number of sessions. Each search needs it, and `counts` would be too slow."""


class Store(Searchable, Protocol):
    """The whole interface of an index. A session is written in one transaction, so readers see only whole sessions."""

    def seen(self, paths: Collection[str] | None = None) -> dict[str, SeenFile]:
        """Return the size, time, inode and reader version with which logs were read, by path. `paths` limits them."""

    def checkpoint(self, path: str, version: str, inode: int | None = None) -> Checkpoint | None:
        """Return the position at which readers of `version` stopped in a log; `None` if the log was replaced."""

    def save(self, reading: Reading, document: Document | None, publish: Callable[[], None] | None = None) -> bool:
        """Store the result of reading a log, and the `document` of its session, after a call of `publish`.

        Return False, without this call, if another log has a newer copy of the session.
        """

    def sources(self) -> list[tuple[AgentName, str, str]]:
        """Return agent, session id and log path of each session with a log, newest first."""

    def read_again(self, directory: str) -> int:
        """Mark the logs of sessions in or below `directory` to be read again. Return the number of these sessions."""

    def forget_files(self, paths: Iterable[str]) -> None:
        """Remove deleted logs from the index. Their sessions stay, with another log or without one."""

    def forget_session(self, agent: AgentName, session_id: str) -> bool:
        """Remove a session, and skip its logs from now on. Return False if it is unknown. `erase` removes its text."""

    def without_log(self) -> list[SessionRow]:
        """Return the sessions whose agents have deleted the logs."""

    def replace_texts(self, session: int, chunks: Sequence[tuple[bytes, str]], words: Words) -> None:
        """Replace the texts and hashes of a session's chunks, its words and its title. `erase` removes old texts."""

    def owe_erasing(self) -> None:
        """Record that text is about to be deleted and must be erased, even after a kill of the process."""

    def understood(self) -> dict[AgentName, Understood]:
        """Return for each agent how many of its records the readers know."""

    def odd_logs(self) -> list[tuple[str, str]]:
        """Return the path of each file that has no record although it is named like a log, with the reason."""

    def owes_erasing(self) -> bool:
        """Return True if deleted text may still be in the database files."""

    def erase(self, seconds: float | None = None) -> bool:
        """Erase deleted text from the database files, with the index's lock held. Return True if none is left.

        Return False if a reader still uses the old content, or if erasing would take longer than `seconds`.
        """

    def read_forgotten(self) -> None:
        """Mark the logs of forgotten sessions to be read again, because a person has undone the forgetting."""

    def forked(self) -> set[tuple[AgentName, str]]:
        """Return agent and id of each session that shares its beginning with another one."""

    def add_commits(self, commits: Sequence[tuple[int, str, str]]) -> None:
        """Store commits of sessions: for each the session's row, the commit's name and its masked message."""

    def began(self, scope: Scope, row: int) -> tuple[int, str]:
        """Return the highest row in scope above `row` (0 without one), and when the first of these sessions began."""

    def use_model(self, model: str, dimensions: int) -> bool:
        """Prepare the index for vectors of `model`. Return True if vectors of another model were deleted."""

    def waiting(
        self, first_parts: Sequence[int], limit: int, wanted: Collection[int] = ()
    ) -> list[tuple[int, str]]:  # fmt: skip
        """Return at most `limit` chunks without a vector as (id, text), one of those with equal text.

        First come the `wanted` ones, then the first chunks of exchanges (prompts with answers), then the last ones,
        then others. Among equals, chunks in the index's parts `first_parts` come first, then the newest.
        """

    def vectors(self, chunks: Iterable[int]) -> dict[int, bytes]:
        """Return the float32 vectors of these chunks, for those that have one."""

    def add_vectors(self, given: Sequence[tuple[int, bytes]]) -> int:
        """Store float32 vectors by chunk id, also for chunks with an equal text. Return the number of chunks."""

    def scope(self, project: Project | None, agents: Sequence[AgentName], *, automated: bool) -> Scope:
        """Return the scope of a search in `project` (`None`: all), and in sessions of programs if `automated`."""

    def voices(self, place: Placement) -> Voices | None:
        """Return at which positions of a chunk's text another role begins, and which; `None` if unknown."""

    def lines(self, place: Placement) -> Lines | None:
        """Return the lines of a chunk in its session's export; `None` if unknown."""

    def log_rows(self, paths: Iterable[str]) -> dict[str, int | None]:
        """Return the session's row for each log with a record, by path; `None` for a log without a session."""

    def session(self, agent: AgentName, session_id: str) -> SessionRow | None:
        """Return the session with exactly this id, or `None`."""

    def find_sessions(self, prefix: str) -> list[SessionRow]:
        """Return the sessions with an id that begins with `prefix`, newest first."""

    def family(self, root_id: str) -> list[SessionRow]:
        """Return all sessions of a family (a session and its forks, which share a beginning), oldest first."""

    def guests(self, homes: Iterable[int], scope: Scope) -> dict[int, SessionRow]:
        """Return the rows in `scope` for work outside a session's own repository, by the session's row (in `homes`)."""

    def edits(self, sessions: Iterable[int]) -> dict[int, Edits]:
        """Return the files that these sessions edited, by session. Sessions without edits are missing."""

    def most_edited(self, session: int) -> list[str]:
        """Return the files that a session edited. Files with the most edits that added lines come first."""

    def authored(self, names: Collection[str], scope: Scope) -> dict[int, list[Authored]]:
        """Return the lines that sessions in scope added to files with these base names, in any folder, by session."""

    def errors(self, lines: Sequence[bytes], scope: Scope) -> dict[int, list[MetError]]:
        """Return the errors that sessions in scope met, if their lines have one of these hashes, by session."""

    def directories(self) -> list[str]:
        """Return all directories of sessions, without links, and the main directories of their repositories."""

    def projects(self) -> list[str]:
        """Return the main directories of all projects in which a person has started a session, last used first."""

    def holdings(self, scope: Scope | None = None) -> list[Holding]:
        """Count sessions by project, agent, day and outcome."""

    def families(self, limit: int) -> list[str]:
        """Return the root ids of at most `limit` families (sessions with their forks), last used first."""

    def counts(self, scope: Scope | None = None) -> Counts:
        """Count the content of the whole index. `scope` limits the counts of sessions and chunks."""

    def first_passages(self, scope: Scope | None = None) -> tuple[int, int]:
        """Return how many first chunks of exchanges (prompts with answers) are in scope, and how many have a vector."""

    def meta(self, key: str) -> str:
        """Return the value that `set_meta` stored under `key`, or ""."""

    def set_meta(self, key: str, value: str) -> None:
        """Store a fact about the index under `key`, such as the name of its embedding model."""

    def close(self) -> None:
        """Close the index's database."""
