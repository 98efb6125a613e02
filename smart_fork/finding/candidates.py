"""The sessions that a search found (candidates for results), before they are shown as results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from indexer.lazy_compilation import dataclass
from indexer.session_export import PieceRole
from indexer.store.base import Placement, SessionRow
from smart_fork.finding.answer import Mode
from smart_fork.finding.hit import WroteLines
from smart_fork.finding.ranking import Score


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session that a search found, with its score, the passage that answers best (`text`), and the asked words in it.

    `why` explains the score before reranking; only the built-in engine gives it. `lines` are the passage's first and
    last line in the session's Markdown export. `asked` are all words of the `phrasings`. `voices` has the positions in
    the text at which the speaker changes. `wrote` is the session's share of the code in the question.
    """

    session: SessionRow
    score: float
    place: Placement | None
    text: str
    words: tuple[str, ...]
    near: float | None
    family: tuple[SessionRow, ...]
    why: Score | None
    lines: tuple[int, int] | None = None
    asked: tuple[str, ...] = ()
    voices: Sequence[tuple[int, PieceRole | None]] | None = None
    phrasings: tuple[str, ...] = ()
    wrote: WroteLines | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The sessions that a search found (`hits`, best first), the way they were found, and failures.

    `dropped` counts sessions without an id or directory. `said` are an external engine's fields for the answer.
    `rivals` maps the families (a session and its forks) that lower each other's chance to their points. `weighed` has
    the search terms of each phrasing, with their weights.
    """

    hits: tuple[Candidate, ...]
    mode: Mode
    error: str = ""
    dropped: int = 0
    rerank_error: str = ""
    engine: str = "builtin"
    said: Mapping[str, Any] = field(default_factory=dict)
    rivals: Mapping[str, float] = field(default_factory=dict)
    weighed: Sequence[Mapping[str, float]] = ()
