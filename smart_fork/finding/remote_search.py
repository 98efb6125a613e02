"""Searches another place, such as a team's server, beside the local index, and merges the results.

The server computes the points of its sessions. This machine then computes the chances of all sessions together: a
strong local session lowers the chance of a weak remote one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, Protocol

from indexer.lazy_compilation import dataclass
from indexer.masking import mask
from indexer.store.base import Placement, SessionRow
from indexer.store.sqlite import Store
from smart_fork.display_text import printable
from smart_fork.finding.answer import TeamFound, TeamState
from smart_fork.finding.candidates import Candidate, Candidates
from smart_fork.finding.evidence import family_of
from smart_fork.finding.hit import Hit, Lineage, Match, Origin, Price
from smart_fork.finding.query import Query, words_of
from smart_fork.finding.ranking import Parts, Score, share, shares_of_phrasings, strongest, weigh_one, with_rivals
from smart_fork.finding.result_snippets import matched_words, snippet
from smart_fork.finding.results import match_of, notice_of, title
from smart_fork.finding.search import QuestionEmbeddings


@dataclass(frozen=True, slots=True)
class RemotePassage:
    """A passage of a session on a team's server, its position, and the tokens that a fork there loads.

    The fork ends with the passage's `exchange` (a prompt with its answer).
    """

    text: str
    turn: int
    role: Literal["user", "assistant", "action"]
    exchange: int
    ends: int | None
    tokens: int
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class RemoteSession:
    """A session that a team's server found.

    `local_id` is the id of its copy on this machine, if any. `family` is its family (a session and its forks) on the
    server. `weighed` is its score before rivals lower it.
    """

    origin: Origin
    agent: str
    title: str
    family: str
    weighed: Score
    branch: str = ""
    turns: int = 0
    tokens: int = 0
    started: str = ""
    last_activity: str = ""
    outcome: str = "unknown"
    passage: RemotePassage | None = None
    local_id: str = ""

    @classmethod
    def received(
        cls, origin: tuple[str, str, str], speaking: Iterable[Mapping[str, float]], passage: Mapping[str, Any] | None,
        *, similar: bool, embedded: bool, **facts: Any,
    ) -> RemoteSession:  # fmt: skip
        """Return a session from the server's answer. `origin` has the server, the owner, and the session's id there.

        `speaking` is the evidence in each phrasing of the question. `similar` says whether the session has a known
        embedding, `embedded` whether the question has.
        """
        parts = [Parts(**one) for one in speaking]
        shares = shares_of_phrasings(len(parts), min(len(parts), 2) if embedded else 0)
        weighed = weigh_one(parts, shares, similar=similar, words=True)
        return cls(Origin(*origin), weighed=weighed, passage=RemotePassage(**passage) if passage else None, **facts)


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """The sessions that a team's server found, or `error`: the reason why there is no answer."""

    hits: tuple[RemoteSession, ...] = ()
    state: TeamState | None = None
    error: str = ""

    @classmethod
    def of(cls, hits: Iterable[RemoteSession], *state: Any) -> RemoteAnswer:
        """Return the answer with these sessions and the values of a `TeamState`."""
        return cls(tuple(hits), TeamState(*state))

    def answer_alone(self, query: Query, *, snippets: bool) -> TeamFound:
        """Return the server's sessions as a whole answer, without local ones. Call it only if the server answered."""
        assert self.state is not None  # noqa: S101 - it has
        hits = alone(self, query, snippets=snippets)
        return TeamFound(
            query=title(query.intent), also=tuple(map(title, query.also)), notice=notice_of(hits),
            count=len(hits), results=hits, team=self.state,
        )  # fmt: skip


class RemoteSearch(Protocol):
    """The search of another place beside the index, such as a team's server: begun first, answered later."""

    def begin(self, query: Query, embeddings: QuestionEmbeddings) -> None:
        """Send the question to the server without waiting, for the project of the query's directory.

        `embeddings` are the question's, which the local search uses too.
        """

    def answer(self) -> RemoteAnswer:
        """Return the server's answer; if it did not arrive in time, the reason."""

    def withheld(self) -> frozenset[str]:
        """Return the ids of local sessions to hide: the owner of their content withdrew it (took it back)."""

    def taken_out(self) -> bool:
        """Remove withdrawn (taken back) content from local sessions. Return True if there was any."""

    @property
    def auto_fork(self) -> bool:
        """Return True if a session of the server may be forked without asking a person."""


@dataclass(frozen=True, slots=True)
class MergedCandidates:
    """Local and remote sessions that a search found, with their final scores.

    `also` maps local sessions (ids) that the team shares too to the shared sessions.
    """

    here: Candidates
    there: tuple[tuple[RemoteSession, float], ...] = ()
    also: Mapping[str, Origin] = field(default_factory=dict)


def merge(store: Store | None, found: Candidates, distant: Sequence[RemoteSession], query: Query) -> MergedCandidates:
    """Compute final scores for local and remote sessions together, and keep one of each family (session and forks).

    A local session is kept before a remote one, unless the remote one has more turns and a higher score.
    """
    kept: dict[str, RemoteSession] = {}
    also: dict[str, Origin] = {}
    replaced: set[str] = set()
    for one in distant:
        here = _local_family(store, one)
        family = here[0].root_id if here else f"there {one.family}"
        if query.known_families.intersection((one.family, family)):
            continue
        most = max((row.turns for row in here), default=-1)
        if here and (one.turns <= most or one.weighed.lead <= found.rivals.get(family, math.inf)):
            also |= {row.session_id: one.origin for row in here}
        elif family not in kept:
            kept[family] = replace(one, origin=replace(one.origin, also_local=here[0].session_id if here else None))
            replaced.add(family)
    if not kept:
        return MergedCandidates(found, also=also)
    among = strongest({**found.rivals, **{family: one.weighed.lead for family, one in kept.items()}})
    own = [hit for hit in found.hits if family_of(hit.session) not in replaced]
    hits = tuple(_shared(hit, found.rivals, among) for hit in own)
    scores = share(dict(enumerate(one.weighed for one in kept.values())), dict(enumerate(kept)), among)
    there = sorted(
        zip(kept.values(), (scores[n].chance for n in range(len(kept))), strict=True), key=lambda one: -one[1]
    )
    least = query.min_score or 0.0
    hits = tuple(sorted((hit for hit in hits if hit.score >= least), key=lambda hit: -hit.score))
    return MergedCandidates(replace(found, hits=hits), tuple(one for one in there if one[1] >= least), also)


def together(own: Sequence[Hit], merged: MergedCandidates, query: Query, *, snippets: bool) -> tuple[Hit, ...]:
    """Return at most `query.limit` local and remote results, ordered by score and ranked from 1."""
    shown = list(_ordered(own, merged, query, snippets=snippets))[: query.limit]
    return tuple(
        replace(hit, rank=rank, also_remote=merged.also.get(hit.session_id) if hit.origin is None else None)
        for rank, hit in enumerate(shown, start=1)
    )


def alone(said: RemoteAnswer, query: Query, *, snippets: bool) -> tuple[Hit, ...]:
    """Return the results of the server without local ones. Their chances are computed among themselves."""
    return together((), merge(None, Candidates((), "hybrid"), said.hits, query), query, snippets=snippets)


def _ordered(own: Sequence[Hit], merged: MergedCandidates, query: Query, *, snippets: bool) -> Iterator[Hit]:
    there = [_hit(one, chance, query, snippets=snippets) for one, chance in merged.there]
    for hit in own:
        while there and there[0].score > hit.score:
            yield there.pop(0)
        yield hit
    yield from there


def _local_family(store: Store | None, one: RemoteSession) -> list[SessionRow]:
    if store is None:
        return []
    if found := store.family(one.family) if one.family else []:
        return found
    return [row for row in store.find_sessions(one.local_id) if row.session_id == one.local_id] if one.local_id else []


def _shared(hit: Candidate, before: Mapping[str, float], rivals: Mapping[str, float]) -> Candidate:
    if hit.why is None:
        return hit
    why = with_rivals(hit.why, family_of(hit.session), before, rivals)
    # What a reranker has made of the chance it makes of this one.
    return replace(hit, why=why, score=hit.score * why.chance / hit.why.chance if hit.why.chance else why.chance)


def _hit(one: RemoteSession, chance: float, query: Query, *, snippets: bool) -> Hit:
    place, words = one.passage, tuple(dict.fromkeys(word for text in query.phrasings for word in words_of(text)))
    text = mask(printable(place.text)) if place else mask("")
    match = Match()
    if place:  # other ids of messages are in the copy that is made here
        at = Placement(0, 0, 0, place.turn, "", place.role, place.exchange, place.ends, place.tokens)
        # Where going on after the answer loads more than all of it, the session was compacted between.
        forgotten = one.turns if one.tokens < place.tokens else 0
        match = match_of(at, matched_words(text, words), place.similarity, forgotten)
    hit = Hit(
        rank=0, score=round(chance, 4), session_id=one.origin.session_id, agent_type=one.agent,
        title=(named := printable(mask(one.title))), headline=named, working_directory="",
        git_branch=printable(mask(one.branch)) or None, date=printable(one.started),
        last_activity=printable(one.last_activity), snippet=snippet(text, words) if snippets else None,
        said_by=place.role if place and snippets and place.role != "action" else None, match=match, turns=one.turns,
        token_estimate=one.tokens, outcome=one.outcome, price=Price(one.tokens, place.tokens if place else None),
        lineage=Lineage(), origin=one.origin,
    )  # fmt: skip
    return replace(hit, fork_command=hit.suggested_fork(), fork_note=hit.why_less)
