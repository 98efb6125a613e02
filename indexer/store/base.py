"""The values that the search index stores and returns, and the interface that a search uses (`Searchable`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

from indexer.json_values import Value, value
from indexer.lazy_compilation import dataclass
from indexer.project import Project
from indexer.session_export import Chunk
from indexer.session_work import Authored, Edits, MetError, Outcome
from indexer.transcripts.base import Checkpoint, LogFile
from indexer.transcripts.model import AgentName, BrokenLine, Inferred, ResumedReason, Session

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
    in which it did something. `export` is the digest of the export to which the chunks' lines refer. `answered` is the
    result of `last_answered`. `guests` are documents for further repositories in which the session worked.
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
        """Return True if the agent answered no prompt of the session, and none had an effect."""
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
    """The limits of a search: `parts` of the index, and optionally a directory (`within`), one `session` or several.

    A part is the sessions of one project and one agent, started by a person or by a program. `project` is the one that
    a person searches; `None` for all projects.
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
    """A chunk with its cosine (-1 to 1) to each text of a question. Its `score` is the largest of these cosines."""

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
    """An agent's number of records, its number of records of unknown type, and the agent's versions in the index."""

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
        """Return the chunks nearest to the texts, at most `limit` for each text, best first."""

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
        """Return for each quoted term which of `rows` have it. `table` says in what: chunks, or a field of sessions."""

    def vector_counts(self, sessions: Iterable[int]) -> dict[int, int]:
        """Return the number of chunks with a vector for each of these sessions."""

    def placements(self, chunks: Iterable[int]) -> list[Placement]:
        """Return all positions in sessions at which these chunks are."""

    def placements_of(self, session: int) -> list[Placement]:
        """Return the positions of the chunks of a session, in order."""

    def positions(self, sessions: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return the chunks of these sessions as (session, position of the chunk in it, chunk)."""

    def own_passages(self, session: int, other: int) -> list[Placement]:
        """Return the positions of the chunks of `session` that `other` does not have, in order."""

    def texts(self, chunks: Iterable[int]) -> dict[int, str]:
        """Return the texts of these chunks, by chunk id."""

    def sessions(self, rows: Iterable[int]) -> dict[int, SessionRow]:
        """Return the stored sessions with these row numbers, by number."""

    def session_count(self) -> int:
        """Return the number of sessions. Each search needs it, and `counts` would be too slow."""
