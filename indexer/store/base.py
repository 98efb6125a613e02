"""Interface of an index: the values it stores and returns, for any engine."""

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

#: A run of Chinese, Japanese or Korean characters: nothing stands between its words.
_RUN = re.compile(
    r"[\u3005\u3041-\u3096\u30a1-\u30fa\u30fc-\u30fe\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f]{2,}"
)


def bigrams(text: str) -> str:
    """`text` as its words are indexed and searched: runs of CJK characters as overlapping pairs, all else as it is."""
    return text if text.isascii() else _RUN.sub(lambda run: f" {' '.join(map(''.join, pairwise(run[0])))} ", text)


@dataclass(frozen=True, slots=True)
class Words:
    """A session's text by role, for ranking whole sessions by their words. `also_called` counts like the title.

    `work` is which files it edited, and the names of code in what it wrote. `headline` is not searched.
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
    """A session ready to be stored.

    `until` is the time of the last that it can be found by, `acted` its last exchange in which something was done,
    `export` the digest of the export that its chunks' lines count in, `answered` as in `last_answered`. `guests` are
    what it did in repositories that it was not begun in, a document each.
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
    """A log as it was read, by which version of the readers, and with what outcome. The rest is as in `ReadResult`."""

    file: LogFile
    version: str
    checkpoint: Checkpoint
    skipped: str = ""
    broken: tuple[BrokenLine, ...] = ()
    resumed: bool = False
    records: int = 0
    unknown: int = 0


class SeenFile(NamedTuple):
    """Facts about a log, enough to decide by one `stat` if it must be read again."""

    size: int
    mtime_ns: int
    inode: int
    version: str


class SessionRow(NamedTuple):
    """A stored session. `path` is empty when the agent has deleted the log. `also_called` is never shown.

    The last fields are as in `Document`, `Cache` and `Resumed`. Its last compaction has `forgotten` so many turns; of a
    fork the first `own` ones are its parent's.
    `home` is the row of the session itself, if this one is what it did in `repo_root`, where it was not begun.
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
        """The number of turns before its gap, or before this end of it."""
        return self.resumed if self.resumed_reason in ("gap", "elsewhere") else 0

    @property
    def only_asked(self) -> bool:
        """Return True if none of its prompts had any result."""
        return self.answered == -1


class Placement(NamedTuple):
    """A chunk in a session: where it stands there.

    `ends` is the turn after which its exchange can be forked, `None` for the session's end; `tokens` what that loads.
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
    """The first and the last line on which a passage stands, from 1, in the export that has this digest."""

    first: int
    last: int
    export: bytes


@dataclass(frozen=True, slots=True)
class Scope:
    """Limits of a search: parts of the index and, if given, places at or below `within`, these `sessions`, or one
    `session`.

    `project` is the one that is asked about.
    """

    parts: tuple[int, ...] = ()
    within: str = ""
    session: int | None = None
    project: Project | None = None
    sessions: tuple[int, ...] | None = None


class Scored(NamedTuple):
    """A row and its score; higher is better."""

    row: int
    score: float


class Near(NamedTuple):
    """A chunk, and its cosine (-1…1) to each question that was asked at once."""

    row: int
    cosines: tuple[float, ...]

    @property
    def score(self) -> float:
        """To the question that it is nearest to."""
        return max(self.cosines)


@value
class Counts(Value):
    """Size of the index, and the share with vectors."""

    sessions: int
    chunks: int
    embedded: int
    files: int
    skipped: Mapping[str, int]
    broken_lines: int
    updated_at: str


#: Why the log of a forgotten session is not read.
FORGOTTEN = "forgotten"


class Understood(NamedTuple):
    """Counts of an agent's records, of those of unknown type, and the versions that wrote them."""

    records: int
    unknown: int
    versions: tuple[str, ...]


class Holding(NamedTuple):
    """Count of sessions of a project, agent and outcome last used on a `day`, and the latest of these moments."""

    root: str
    agent: AgentName
    day: str
    outcome: Outcome
    sessions: int
    last_activity: str


WordTable = Literal["chunks", "sessions", "commits"]
HavingTable = Literal["chunks", "sessions", "titles", "work", "commits"]


class Similarities(Protocol):
    """The cosines (-1…1) of the chunks in scope to questions that are asked at once."""

    def best(self, limit: int) -> list[Near]:
        """So many of the nearest chunks to each question, the best to any first."""

    def of(self, chunks: Collection[int]) -> dict[int, tuple[float, ...]]:
        """Those of these chunks that are in scope and have a vector, with the cosine to each question."""


class Searchable(Protocol):
    """An index as questions use it, wherever it is kept: `smart_fork.finding.evidence` needs no more.

    A term is a word or a phrase between double quotes; one with a ``*`` behind it is the beginning of a word.
    """

    def match_words(self, table: WordTable, terms: Sequence[str], scope: Scope, limit: int) -> list[Scored]:
        """Return the best rows that have any of these terms, by BM25: chunk ids, or rows of sessions."""

    def similarities(self, questions: Sequence[bytes], scope: Scope) -> Similarities:
        """Compute every chunk's similarity to each of these float32 vectors, in one pass over the chunks in scope."""

    def word_scores(
        self, table: WordTable, terms: Sequence[str], scope: Scope, rows: Collection[int]
    ) -> dict[str, dict[int, float]]:
        """Compute the BM25 contribution of each quoted word or phrase to these rows in scope, by term. Rows without it
        are left out.
        """

    def sessions_with(self, terms: Sequence[str]) -> dict[str, int]:
        """Count the sessions with each of these quoted words and phrases."""

    def having(self, table: HavingTable, terms: Sequence[str], rows: Iterable[int]) -> dict[str, set[int]]:
        """Find the rows (chunk ids, or sessions by their text, title or work) with each of these quoted words and
        phrases.
        """

    def vector_counts(self, sessions: Iterable[int]) -> dict[int, int]:
        """Count each session's chunks with a vector."""

    def placements(self, chunks: Iterable[int]) -> list[Placement]:
        """Every place of these chunks."""

    def placements_of(self, session: int) -> list[Placement]:
        """The chunks of a session in order."""

    def positions(self, sessions: Iterable[int]) -> list[tuple[int, int, int]]:
        """Session, position and chunk of every place in these sessions."""

    def own_passages(self, session: int, other: int) -> list[Placement]:
        """The chunks of a session in order that another one does not have."""

    def texts(self, chunks: Iterable[int]) -> dict[int, str]:
        """The text of each chunk."""

    def sessions(self, rows: Iterable[int]) -> dict[int, SessionRow]:
        """Sessions by row."""

    def session_count(self) -> int:
        """Count the sessions. Asked with every question, where the rest of `counts` takes too long."""


class Store(Searchable, Protocol):
    """Writes are one transaction a session; reads see only whole sessions."""

    def seen(self, paths: Collection[str] | None = None) -> dict[str, SeenFile]:
        """Every log that was read before, by path; of these `paths` alone, where given."""

    def checkpoint(self, path: str, version: str, inode: int | None = None) -> Checkpoint | None:
        """Return the position at which readers of that version stopped in the log; `None` if another file has taken its
        place since.
        """

    def save(self, reading: Reading, document: Document | None, publish: Callable[[], None] | None = None) -> bool:
        """Store what reading a log gave; `publish` is called in the same transaction, before it becomes visible.

        False, and nothing published, where another log holds a newer copy of the same session.
        """

    def sources(self) -> list[tuple[AgentName, str, str]]:
        """Every session that is read from a log, the newest first: agent, session id and the log's path."""

    def read_again(self, directory: str) -> int:
        """Find the projects of sessions again that worked in this directory or below it; return how many they are."""

    def forget_files(self, paths: Iterable[str]) -> None:
        """These logs are gone. Their sessions stay findable, without a log or with another one."""

    def forget_session(self, agent: AgentName, session_id: str) -> bool:
        """Remove a session with its vectors and what no other session has, and let its logs be passed over.

        Nothing of it is left in the database's file once that is erased. False where there was none.
        """

    def without_log(self) -> list[SessionRow]:
        """The sessions whose logs the agents have deleted."""

    def replace_texts(self, session: int, chunks: Sequence[tuple[bytes, str]], words: Words) -> None:
        """Give a session other texts in the place of those of its chunks, with their hashes, and other words and title.

        What was there is to be erased.
        """

    def owe_erasing(self) -> None:
        """Something is about to be taken out: what goes is to be erased. Noted before, a kill changes nothing."""

    def understood(self) -> dict[AgentName, Understood]:
        """Return how much of each agent's logs was understood."""

    def odd_logs(self) -> list[tuple[str, str]]:
        """Files among the logs that hold no record: path and why."""

    def owes_erasing(self) -> bool:
        """Return True if removed text may still be in the database's files."""

    def erase(self, seconds: float | None = None) -> bool:
        """Have nothing of what was taken out in the files. For whoever holds the index's lock.

        False where somebody still reads what was there before, or it would take longer than `seconds`: it is owed, and
        done at the next occasion.
        """

    def read_forgotten(self) -> None:
        """Let the logs that were passed over because their sessions are forgotten look changed."""

    def forked(self) -> set[tuple[AgentName, str]]:
        """Sessions that share a beginning with others."""

    def add_commits(self, commits: Sequence[tuple[int, str, str]]) -> None:
        """Note commits that came of sessions: the session's row, the commit's name, and its masked message."""

    def began(self, scope: Scope, row: int) -> tuple[int, str]:
        """Return the last row of sessions in scope behind `row`, and when the first of these began; 0 without any."""

    def use_model(self, model: str, dimensions: int) -> bool:
        """Make room for vectors of this model. True where vectors of another model had to go."""

    def waiting(
        self, first_parts: Sequence[int], limit: int, wanted: Collection[int] = ()
    ) -> list[tuple[int, str]]:  # fmt: skip
        """Chunks without a vector as (id, text), one of those that share a text: first those that are `wanted`, then
        what exchanges begin with, what they end with, and the rest; among these, those of `first_parts` and the newest
        first.
        """

    def vectors(self, chunks: Iterable[int]) -> dict[int, bytes]:
        """The vectors of those of these chunks that have one, as float32."""

    def add_vectors(self, given: Sequence[tuple[int, bytes]]) -> int:
        """Store float32 vectors by chunk id, for the same chunk in other projects as well; how many chunks that were.

        Chunks that are gone meanwhile are passed over.
        """

    def scope(self, project: Project | None, agents: Sequence[AgentName], *, automated: bool) -> Scope:
        """The parts of a project with all its worktrees, or of all projects."""

    def voices(self, place: Placement) -> Voices | None:
        """Return the positions at which other speakers than the passage's role begin; `None` if unknown."""

    def lines(self, place: Placement) -> Lines | None:
        """Return the lines of a passage in its session's export; `None` if it no longer exists, or was never known."""

    def log_rows(self, paths: Iterable[str]) -> dict[str, int | None]:
        """Each log with its session's row; `None` for a log that has no session. Without those that hold no record."""

    def session(self, agent: AgentName, session_id: str) -> SessionRow | None:
        """The session of exactly this id."""

    def find_sessions(self, prefix: str) -> list[SessionRow]:
        """Sessions whose id is or starts with `prefix`, newest first."""

    def family(self, root_id: str) -> list[SessionRow]:
        """All sessions that share a beginning, oldest first."""

    def guests(self, homes: Iterable[int], scope: Scope) -> dict[int, SessionRow]:
        """Return the rows of what these sessions did in scope where they were not begun, by the row of the session."""

    def edits(self, sessions: Iterable[int]) -> dict[int, Edits]:
        """Return the files that these sessions edited. Sessions without edits are missing."""

    def most_edited(self, session: int) -> list[str]:
        """The files that a session has edited, those first to which it has most often added lines."""

    def authored(self, names: Collection[str], scope: Scope) -> dict[int, list[Authored]]:
        """The lines that sessions in scope have added to files with these names, whatever their folders are."""

    def errors(self, lines: Sequence[bytes], scope: Scope) -> dict[int, list[MetError]]:
        """The errors with these lines that sessions in scope have met."""

    def directories(self) -> list[str]:
        """Return the resolved directories that sessions worked in, and the main directories of their repositories."""

    def projects(self) -> list[str]:
        """The directories of all projects in which a person has worked, the latest first."""

    def holdings(self, scope: Scope | None = None) -> list[Holding]:
        """Count each project's sessions by agent."""

    def families(self, limit: int) -> list[str]:
        """The roots of families that have several sessions, the one used last first."""

    def counts(self, scope: Scope | None = None) -> Counts:
        """Count the content of the index, or of a part of it."""

    def first_passages(self, scope: Scope | None = None) -> tuple[int, int]:
        """Of the chunks that exchanges begin with, how many there are in scope, and how many have their vector."""

    def meta(self, key: str) -> str:
        """A fact about the index; empty where unknown."""

    def set_meta(self, key: str, value: str) -> None:
        """Keep a fact about the index."""

    def close(self) -> None:
        """Close the database."""
