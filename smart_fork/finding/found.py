"""What is asked of the index and what was found in it: values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.pieces import PieceRole
from indexer.shapes import dataclass
from indexer.store.base import Placement, Scope, SessionRow
from indexer.transcripts.model import AgentName

if TYPE_CHECKING:
    from smart_fork.finding.answer import Mode, WroteLines
    from smart_fork.finding.ranking import Score

#: A text of fewer words is no sentence.
SENTENCE_WORDS = 3


@dataclass(frozen=True, slots=True)
class Query:
    """A valid question, `also` saying it in other words; all its phrasings are answered together.

    `everywhere` means all projects, `caller` is the session that asks, `relatives` are those of other families that
    know what it knows, `hidden` is never found, `doubt` counts against all: what is not known yet may speak for others.
    `read` is the share of sessions that were read: the one that is meant may be among the rest.
    `branch` is what is checked out where it is asked, `in_play` the files that are worked on there, `given`
    by the caller or found changed. `agents` are those whose sessions are searched, and `directory` is
    where it is asked.
    """

    intent: str
    scope: Scope
    limit: int
    everywhere: bool = False
    min_score: float | None = None
    caller: SessionRow | None = None
    hidden: frozenset[str] = frozenset()
    also: tuple[str, ...] = ()
    relatives: tuple[SessionRow, ...] = ()
    doubt: float = 0.0
    read: float = 1.0
    branch: str = ""
    in_play: tuple[str, ...] = ()
    given: bool = False
    agents: tuple[AgentName, ...] = ()
    directory: Path = Path()

    @property
    def known_families(self) -> frozenset[str]:
        """The families of the caller, and of those that know what it knows."""
        return frozenset(one.root_id for one in (self.caller, *self.relatives) if one and one.root_id)

    def is_kin(self, session: SessionRow) -> bool:
        """Whether it says what the caller knows already: they have one origin, or one was told of the other."""
        known = (one for one in (self.caller, *self.relatives) if one)
        return bool(session.root_id) and any(session.root_id == one.root_id for one in known)

    @property
    def phrasings(self) -> tuple[str, ...]:
        """The question in each of its wordings, the person's own first."""
        return (self.intent, *self.also)

    @property
    def embedded(self) -> tuple[int, ...]:
        """Which of the phrasings are compared by meaning, too: the person's own and the shortest sentence.

        One embedding is most of a question's time, and what the others add to find a session is in their words. Two are
        needed where the person asks in a language that the model does not know. All are where one session is asked:
        there they tell its exchanges apart.
        """
        others = range(1, len(self.phrasings))
        if self.scope.session is not None:
            return (0, *others)
        return (0, *sorted(others, key=self._meaning_and_size)[:1])

    @property
    def meanings(self) -> tuple[str, ...]:
        """The texts of those phrasings."""
        return tuple(self.phrasings[number] for number in self.embedded)

    def _meaning_and_size(self, number: int) -> tuple[bool, int]:
        """One or two words are names, and mean little."""
        text = self.phrasings[number]
        return len(text.split()) < SENTENCE_WORDS, len(text)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session, its score, and the chunk that answers best with the words of the intent that it has.

    `why` is how the score came about, before any reranker, from each of the question's `phrasings`, and `None` where
    another engine has given it; `lines` are the chunk's first and last in the export; `asked` are all words of the
    phrasings; `voices` says where in the text others begin to speak than its first role, `None` where nobody knows;
    `wrote` is its part of the code that was asked about.
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
    """Candidates, best first; how they were found; and what failed on the way. `dropped` had no id or directory.

    `rerank_error` says why a reranker that is configured had no say. `engine` has found them, `said` is what an answer
    repeats of one that is not our own; `rivals` are the families that share the chance, with their leads. `weighed`
    are the terms that were looked for, by phrasing, with their weights.
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

    @property
    def fallback_used(self) -> bool:
        """Whether the first way of searching failed."""
        return bool(self.error)
