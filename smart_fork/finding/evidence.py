"""Collects from the index the evidence that a session answers a question: matching words, cosines, edited files."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from indexer.lazy_compilation import dataclass
from indexer.masking import mask
from indexer.project import is_within
from indexer.store.base import Placement, Searchable, SessionRow, Similarities
from smart_fork import provenance
from smart_fork.display_text import quoted
from smart_fork.finding.query import Matches, Query, QueryWords, is_of_this_branch, names_of, words_of
from smart_fork.finding.ranking import Coverage, Evidence, Phrased, PointParts, Score, exchange_parts, fork_point, weigh
from smart_fork.finding.session_place import belongs, is_in_doubt, placed, placed_here

if TYPE_CHECKING:
    from indexer.store.sqlite import Store

NEAREST_CHUNKS = 400
WORD_CHUNKS = 400
WORD_SESSIONS = 200
#: The number of best sessions and passages by words for which the share of the question's words is computed.
MAX_COVERED = 20
#: The number of sessions with all passages compared with the question.
FULLY_COMPARED = 60
#: If families have this many sessions on average, the limits of a search grow by that factor: they are meant for
#: distinct sessions.
CROWDED_FAMILIES = 1.2
#: The weight of a session's work on the current branch, relative to work on everything that the question names.
THIS_BRANCH_WEIGHT = 1.5
#: The weight of a changed file relative to a file that the caller names: unfinished work is often unrelated.
CHANGED_FILE_WEIGHT = 0.5


#: The beginning of a line about an action that changes files.
_EDITS = re.compile(r"^edit \S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Passage:
    """The passage of a session that answers a question best. `similarity` is its cosine to the nearest phrasing."""

    strength: float
    place: Placement
    similarity: float | None


@dataclass(slots=True)
class Gathered:
    """The evidence that sessions answer a question. Mappings have row numbers of sessions as keys.

    `dropped` counts sessions without an id or directory. For a question about one session, `exchanges` has the evidence
    for each exchange (a prompt with its answer), and `point` is the exchange to fork after. `weighed` has the search
    terms of each phrasing with their weights. `strange` (0…1) is high if few sessions know the question's file and code
    names.
    """

    sessions: dict[int, SessionRow] = field(default_factory=dict)
    families: dict[int, str] = field(default_factory=dict)
    phrasings: list[Phrased] = field(default_factory=list)
    passages: dict[int, Passage] = field(default_factory=dict)
    dropped: int = 0
    exchanges: dict[int, PointParts] = field(default_factory=dict)
    point: int | None = None
    weighed: Sequence[Mapping[str, float]] = ()
    strange: float = 0.0

    def scores(self, *, words: bool = True) -> dict[int, Score]:
        """Return the points of each session, before rivals lower its chance. `words` is true if words were searched."""
        return weigh(self.phrasings, words=words)


def gather(store: Searchable, query: Query, vectors: Sequence[bytes] | None, *, words: bool) -> Gathered:
    """Gather all evidence for ranking sessions: by the question's words if `words`, by its `vectors` unless `None`."""
    return gather_more(store, query, vectors, QueryWords(store, query) if words else None)


def gather_more(
    store: Searchable, query: Query, vectors: Sequence[bytes] | None, wording: QueryWords | None
) -> Gathered:
    """Gather all evidence for ranking sessions: by the prepared words `wording` and by `vectors`, if given."""
    similarities = store.similarities(vectors, query.scope) if vectors is not None else None
    own = known_to(store, query)
    reached = _first_candidates(store, query, similarities, wording, own)
    family = families(reached.rows.values())
    room = max(1.0, len(family) / max(1, len(set(family.values())))) if query.scope.session is None else 1.0
    if room >= CROWDED_FAMILIES:
        reached = _first_candidates(store, query, similarities, wording, own, room=room)
        family = families(reached.rows.values())
    found = Gathered(families=family, weighed=wording.phrasings if wording else ())
    allowed, found.dropped = admitted(reached.rows.values(), query)
    found.sessions = without_askers(store, allowed, query) if query.scope.session is None else allowed
    places = [
        one
        for one in reached.places
        if one.session in found.sessions and _is_evidence(found.sessions[one.session], one)
    ]
    # The words of a whole session include what the caller knows: what a fork shares with its parent, what was told.
    of_sessions = reached.sessions.rows | reached.commits.rows
    telling = {row for row in of_sessions & found.sessions.keys() if not query.is_kin(found.sessions[row])}
    there = {place.chunk for place in places}
    chunk_words = [_only(scores, there) for scores in reached.chunks.scores]
    session_words = [_only(scores, telling) for scores in reached.sessions.scores]
    found.passages = _strongest_passages(places, chunk_words, reached.near)
    evidence = _evidence_by_words(places, telling, session_words, chunk_words, reached.commits.scores)
    by_meaning = [evidence[number] for number in query.embedded]
    for place in places:
        for one, cosine in zip(by_meaning, reached.near.get(place.chunk, ()), strict=False):
            one[place.session].similar[place.position] = cosine
    compared = store.vector_counts(evidence[0])
    for one in evidence:
        for row, found_of in one.items():
            found_of.chunks = compared.get(row, 0)
            found_of.only_asked = found.sessions[row].only_asked
    if similarities:
        _store_all_cosines(store, similarities, found.sessions, evidence, by_meaning, own=own, room=room)
    if query.scope.session is not None:
        _store_fork_point(store, found, chunk_words, by_meaning)
    coverage = [Coverage()] * len(evidence)
    if wording:
        found.strange = _store_work(wording, query, found.sessions, evidence)
        coverage = _coverage(wording, session_words, chunk_words, reached.commits.scores, evidence, room=room)
    found.phrasings = [
        Phrased(
            one,
            covered,
            embedded=vectors is not None and number in query.embedded,
            named=len(words_of(text)) == 1 or bool(names_of(text)),
        )
        for number, (text, one, covered) in enumerate(zip(query.phrasings, evidence, coverage, strict=True))
    ]
    return found


class _FirstCandidates(NamedTuple):
    """The first candidates of a search: matches by words, nearest passages with cosines (`near`), sessions (`rows`)."""

    near: Mapping[int, Sequence[float]]
    chunks: Matches
    sessions: Matches
    commits: Matches
    places: Sequence[Placement]
    rows: Mapping[int, SessionRow]


def _first_candidates(
    store: Searchable, query: Query, similarities: Similarities | None, wording: QueryWords | None,
    own: Collection[int], *, room: float = 1.0,
) -> _FirstCandidates:  # fmt: skip
    """Find a search's first candidates, `room` times as many as usual, without the caller's passages `own`."""
    # The chunks of two phrasings are together not many more than those of one.
    nearest = similarities.best(round(NEAREST_CHUNKS * 2 // (1 + len(query.embedded)) * room)) if similarities else ()
    near = {hit.row: hit.cosines for hit in nearest}
    nothing = Matches(frozenset(), tuple({} for _ in query.phrasings))
    by_chunk = wording.matches("chunks", round(WORD_CHUNKS * room)) if wording else nothing
    by_session = wording.matches("sessions", round(WORD_SESSIONS * room)) if wording else nothing
    by_commit = wording.matches("commits", round(WORD_SESSIONS * room)) if wording else nothing
    places = store.placements((near.keys() | by_chunk.rows) - set(own))
    rows = store.sessions({place.session for place in places} | by_session.rows | by_commit.rows)
    return _FirstCandidates(near, by_chunk, by_session, by_commit, places, rows)


def _only(scores: Mapping[int, float], rows: Collection[int]) -> dict[int, float]:
    return {row: score for row, score in scores.items() if row in rows}


def admitted(rows: Iterable[SessionRow], query: Query) -> tuple[dict[int, SessionRow], int]:
    """Return the sessions that a question may show (never the asking one), and how many lack an id or directory."""
    allowed: dict[int, SessionRow] = {}
    dropped = 0
    project = query.scope.project
    for known in rows:
        row = placed(known, project) if project else placed_here(known)
        if query.scope.session not in (None, row.row):  # another one with the same beginning
            continue
        if query.scope.sessions is not None and row.row not in query.scope.sessions:
            continue
        if query.scope.within and not (row.resolved_cwd and is_within(row.resolved_cwd, query.scope.within)):
            continue
        if not row.session_id or not (row.cwd or query.everywhere):
            dropped += 1
            continue
        # What names a directory or commit is not thereby of it.
        if is_in_doubt(row) and query.scope.project and not belongs(row, query.scope.project):
            continue
        if row.session_id in query.hidden or (query.caller and row.row == query.caller.row):
            continue
        allowed[row.row] = row
    return allowed, dropped


def _is_evidence(session: SessionRow, place: Placement) -> bool:
    """Return False for a passage of a session's last prompt if nothing followed that prompt: it is no evidence."""
    return session.answered is None or session.only_asked or place.exchange <= max(session.answered, session.acted)


def _strongest_passages(
    places: Sequence[Placement], words: Sequence[Mapping[int, float]], near: Mapping[int, Sequence[float]]
) -> dict[int, Passage]:
    """Return each session's best passage, by the scores of `words` in each phrasing and the cosines in `near`."""
    by_words: defaultdict[int, float] = defaultdict(float)
    for scores in words:
        most = max(scores.values(), default=0.0) or 1.0
        for chunk, score in scores.items():
            by_words[chunk] += score / most
    strengths = {
        chunk: (by_words[chunk] + sum([cosine for cosine in near.get(chunk, ()) if cosine > 0])) / len(words)
        for chunk in {place.chunk for place in places}
    }
    best: dict[int, Placement] = {}
    for place in places:
        if place.session not in best or strengths[place.chunk] > strengths[best[place.session].chunk]:
            best[place.session] = place
    return {
        row: Passage(strengths[place.chunk], place, max(near.get(place.chunk, ()), default=None))
        for row, place in best.items()
    }


def _store_fork_point(
    store: Searchable, found: Gathered, words: Sequence[Mapping[int, float]],
    by_meaning: Sequence[Mapping[int, Evidence]],
) -> None:  # fmt: skip
    """Store in `found` the evidence for each exchange (prompt and answer) of the asked session, and where to fork."""
    for row in found.passages.keys() & found.sessions.keys():
        similar = [one[row].similar for one in by_meaning]
        places = store.placements_of(row)
        changing = edited(places, store.texts({place.chunk for place in places}))
        best = found.passages[row]
        if places:
            found.exchanges = exchange_parts(places, words, similar, changing)
        place = fork_point(places, words, similar, found.exchanges) or best.place
        found.point = place.exchange
        cosines = [one[place.position] for one in similar if place.position in one]
        found.passages = found.passages | {row: Passage(best.strength, place, max(cosines, default=None))}


def edited(places: Sequence[Placement], texts: Mapping[int, str]) -> set[int]:
    """Return the numbers of the exchanges (prompts with their answers) whose passages have lines about edits."""
    return {place.exchange for place in places if _EDITS.search(texts.get(place.chunk, ""))}


def _evidence_by_words(
    places: Sequence[Placement], telling: Collection[int], sessions: Sequence[Mapping[int, float]],
    chunks: Sequence[Mapping[int, float]], commits: Sequence[Mapping[int, float]],
) -> list[dict[int, Evidence]]:  # fmt: skip
    """Return, for each phrasing, the evidence by words for each session that any phrasing found.

    `telling` are the sessions for which the words of the whole session count.
    """
    evidence: defaultdict[int, list[Evidence]] = defaultdict(lambda: [Evidence() for _ in sessions])
    for place in places:
        chunk, own = place.chunk, evidence[place.session]
        for one, scores in zip(own, chunks, strict=True):
            if chunk in scores:
                one.passages.append(scores[chunk])
    for row in telling:
        for one, words, messages in zip(evidence[row], sessions, commits, strict=True):
            one.words, one.commits = words.get(row, 0.0), messages.get(row, 0.0)
    return [{row: own[number] for row, own in evidence.items()} for number in range(len(sessions))]


def _store_work(
    wording: QueryWords, query: Query, sessions: Mapping[int, SessionRow], evidence: Sequence[Mapping[int, Evidence]]
) -> float:
    """Store in `evidence` how much each session worked on the question's files and the current branch.

    A branch with few sessions counts more. Return how strange the question's names are: near 1 if few sessions know
    them.
    """
    here = {row for row in evidence[0] if query.branch and sessions[row].git_branch == query.branch}
    branch = THIS_BRANCH_WEIGHT * (1 - len(here) / max(1, len(evidence[0])))
    (*worked_on, in_play), strange = wording.worked_on(evidence[0].keys())
    for text, one, shares in zip(query.phrasings, evidence, worked_on, strict=True):
        asked = is_of_this_branch(text)
        for row, found in one.items():
            found.files = in_play[row] * (1.0 if query.given else CHANGED_FILE_WEIGHT)
            found.work = shares[row] + (branch if asked and row in here else 0.0)
    return strange


def _store_all_cosines(
    store: Searchable, similarities: Similarities, sessions: Mapping[int, SessionRow],
    evidence: Sequence[Mapping[int, Evidence]], by_meaning: Sequence[Mapping[int, Evidence]], *,
    own: Collection[int], room: float,
) -> None:  # fmt: skip
    """Store in `evidence` the cosines of all passages of the most promising sessions.

    The caller's passages `own` are left out. `room` multiplies the number of sessions.
    """

    def promising(most: int, speaks: Callable[[Evidence], float]) -> list[int]:
        if len(evidence[0]) <= most:
            return list(evidence[0])
        return heapq.nlargest(most, evidence[0], key=lambda row: sum([speaks(one[row]) for one in evidence]))

    nearest = promising(round(FULLY_COMPARED * room), lambda one: max(one.similar.values(), default=0.0))
    by_words = promising(round(MAX_COVERED * room), lambda one: one.words)
    by_passage = promising(round(MAX_COVERED * room), lambda one: max(one.passages, default=0.0))
    partly = [
        row for row in {*nearest, *by_words, *by_passage} if len(evidence[0][row].similar) < evidence[0][row].chunks
    ]
    similar = {row: [one[row].similar for one in by_meaning] for row in partly}
    ended = [row for row in partly if sessions[row].answered is not None]
    left_out = {
        (row, one.position) for row in ended for one in store.placements_of(row) if not _is_evidence(sessions[row], one)
    }
    missing = [
        (row, position, chunk)
        for row, position, chunk in store.positions(partly)
        if position not in similar[row][0] and chunk not in own and (row, position) not in left_out
    ]
    cosines = similarities.of({chunk for _, _, chunk in missing}) if missing else {}
    for row, position, chunk in missing:
        for known, cosine in zip(similar[row], cosines.get(chunk, ()), strict=False):
            known[position] = cosine


def _coverage(
    wording: QueryWords, sessions: Sequence[Mapping[int, float]], chunks: Sequence[Mapping[int, float]],
    commits: Sequence[Mapping[int, float]], evidence: Sequence[Mapping[int, Evidence]], *, room: float,
) -> list[Coverage]:  # fmt: skip
    """Return the share of each phrasing's words in its best session, passage and commit; store the shares in titles."""
    for one, titles in zip(evidence, wording.coverage("titles", sessions, round(WORD_SESSIONS * room)), strict=True):
        for row, share in titles.items():
            one[row].title = share
    most = round(MAX_COVERED * room)
    of_each = (
        wording.coverage("sessions", sessions, most),
        wording.coverage("chunks", chunks, most),
        wording.coverage("commits", commits, most) if any(commits) else commits,
    )
    return [Coverage(*(max(one.values(), default=0.0) for one in shares)) for shares in zip(*of_each, strict=True)]


#: The numbers of sessions and passages that are embedded first, and of exchanges of each session: about one batch.
FOUND_SESSIONS, FOUND_CHUNKS, BEGINNINGS = 10, 48, 8


def found_by_words(store: Searchable, query: Query) -> frozenset[int]:
    """Return the passages to embed first: a question's best matches by words, and the best sessions' beginnings."""
    words = QueryWords(store, query)
    begin: list[int] = []
    for row in words.matches("sessions", FOUND_SESSIONS).rows:
        exchanges = {place.exchange: place.chunk for place in reversed(store.placements_of(row))}
        begin += list(exchanges.values())[-BEGINNINGS:]
    return words.matches("chunks", FOUND_CHUNKS).rows.union(begin)


# The families of sessions. A session handed over to another agent belongs to its source's family. One session of a
# family is a result.


def family_of(session: SessionRow) -> str:
    """Return the id of a session's family (the session and its forks), as its log has it; else the session's own id."""
    return session.root_id or session.session_id


def families(sessions: Iterable[SessionRow]) -> dict[int, str]:
    """Return the family (a session and its forks) of each session, by the session's row number.

    A session handed over to another agent belongs to the family of its source.
    """
    sessions = list(sessions)
    own = {one.session_id: family_of(one) for one in sessions}
    told = (one for one in provenance.handovers() if not one.merged and not one.copied and one.session_id in own)
    above = {own[one.session_id]: own.get(one.source_session_id, one.source_session_id) for one in told}
    return {one.row: _first(own[one.session_id], above) for one in sessions}


def _first(family: str, above: dict[str, str]) -> str:
    seen = {family}
    while (before := above.get(family)) is not None and before not in seen:
        seen.add(before)
        family = before
    return family


def relatives(store: Store, session: SessionRow) -> tuple[SessionRow, ...]:
    """Return the sessions of other families that share content with `session`, through a hand-over or a merge."""
    ties = [{one.session_id, one.source_session_id} for one in provenance.handovers()]
    if not ties:
        return ()
    found: dict[str, SessionRow] = {}
    reached, waiting = set[str](), {session.session_id}
    while waiting:
        known = [row for name in waiting for row in store.find_sessions(name) if row.session_id == name]
        found |= {row.session_id: row for one in known for row in (one, *store.family(family_of(one)))}
        reached |= waiting | found.keys()
        waiting = {name for tie in ties if reached & tie for name in tie} - reached
    return tuple(row for row in found.values() if family_of(row) != family_of(session))


def known_to(store: Searchable, query: Query) -> set[int]:
    """Return the passages that the asking session knows: its own, and equal content of its relatives.

    All passages of an exchange (a prompt with its answer) that both contain count as known; of the last such exchange,
    only equal passages.
    """
    if query.caller is None:
        return set()
    own = {place.chunk for place in store.placements_of(query.caller.row)}
    said = set(store.texts(own).values()) if query.relatives else set[str]()
    for one in query.relatives:
        places = store.placements_of(one.row)
        texts = store.texts({place.chunk for place in places})
        begins = {place.exchange: texts[place.chunk] for place in reversed(places)}
        shared = {exchange for exchange, text in begins.items() if text in said}
        past = shared - {max(shared, default=-1)}
        own |= {place.chunk for place in places if place.exchange in past or texts[place.chunk] in said}
    return own


# Sessions that were only asked are left out if another session did the work. In a family that is the parent, if a fork
# was only asked something.


#: Members of a family that a session is compared with, those with the fewest turns first: the original is among them.
MAX_COMPARED = 8


def without_askers(store: Searchable, rows: Mapping[int, SessionRow], query: Query) -> dict[int, SessionRow]:
    """Return `rows` without sessions that add nothing to another session in `rows`.

    These are forks that only asked smart-fork something, or did nothing about their prompt. Sessions with one prompt
    and no action go too, if a session with the same title acted.
    """
    done = {row.title for row in rows.values() if row.acted >= 0 and row.title}
    rows = {number: row for number, row in rows.items() if row.acted >= 0 or row.prompts > 1 or row.title not in done}
    families: defaultdict[str, list[SessionRow]] = defaultdict(list)
    for row in rows.values():
        families[family_of(row)].append(row)
    left = dict(rows)
    for members in families.values():
        members.sort(key=lambda row: (row.turns, row.started, row.session_id))
        for one in members if len(members) > 1 else ():
            others = [other for other in members if other is not one][:MAX_COMPARED]
            if any(_gives_way(store, one, other, (query.intent, *query.also)) for other in others):
                del left[one.row]
    return left


def _gives_way(store: Searchable, one: SessionRow, other: SessionRow, asked: Sequence[str]) -> bool:
    if not _adds_nothing(store, one, other, asked):
        return False
    return other.turns < one.turns or not _adds_nothing(store, other, one, asked)


def _adds_nothing(store: Searchable, one: SessionRow, other: SessionRow, asked: Sequence[str]) -> bool:
    """Return True if session `one` has nothing that `other`, of its family (a session and its forks), lacks.

    Questions to smart-fork do not count, nor does a last prompt without consequences: one without an answer, or one
    that led to no action and repeats a phrasing of the current question (`asked`).
    """
    asked_last = one.until < one.last_activity
    if not asked_last and one.acted >= one.prompts - 1:
        return False
    own = store.own_passages(one.row, other.row)
    if not own:
        return asked_last
    if len({place.exchange for place in own}) > 1 or own[0].exchange <= one.acted:
        return False
    if own[-1].role == "user" and own[-1].turn == one.turns - 1:
        return True
    said = " ".join(store.texts([own[0].chunk])[own[0].chunk].split())
    return said.startswith(tuple(" ".join(f"User: {phrasing}".split()) for phrasing in asked))


#: The characters of a prompt that an answer repeats.
ASKED_CHARACTERS = 300


def beginning_of(store: Store, row: SessionRow, exchange: int) -> tuple[Placement | None, str, str]:
    """Return an exchange's first passage, its prompt, and the prompt masked and shortened."""
    place = next((one for one in store.placements_of(row.row) if one.exchange == exchange), None)
    if place is None:
        return None, "", ""
    text, voices = store.texts([place.chunk]).get(place.chunk, ""), store.voices(place)
    text = text[: voices[0][0] if voices else None]
    return place, text, quoted(mask(text.removeprefix("User: ")), ASKED_CHARACTERS)
