"""A project's shared sessions as they are searched: what `smart_fork.retrieval` asks of an index, from PostgreSQL.

Each question is answered from what its asker may read, and from nothing else: not a count, not the weight of a word.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

from indexer.outcome import Outcome
from indexer.store.base import HavingTable, Near, Placement, Scope, Scored, SessionRow, Similarities, WordTable
from smart_fork.teamserver.database import Connection
from smart_fork.teamserver.index import cut

#: A row has one of the rarest of these words; by so many it is weighed.
RAREST, WEIGHED = 8, 24
#: BM25: how soon a word says no more by being there again, and how much less it says in a longer session.
_SATURATION, _LENGTH = 1.2, 0.75
#: What `ts_rank` gives for a word that is there once, twice, …
_RANKS = [total / (math.pi**2 / 6) for total in accumulate(1 / n**2 for n in range(1, 65))]
_PLACEMENT = "session_id, position, chunk_id, turn, message_id, role, exchange, ends, tokens"
#: All sessions of a project are one part.
EVERYTHING = Scope((1,))


class _Term(NamedTuple):
    """A term as PostgreSQL looks for it, and in how many chunks and sessions it is."""

    query: str
    chunks: int
    sessions: int
    phrase: bool


@dataclass(slots=True)
class TeamIndex:
    """The `indexer.store.base.Searchable` of one project, for one person, in one transaction.

    `space` is the number of the vectors' space, `None` where there are none. Sessions are numbered as they are met.
    """

    db: Connection
    project_id: int
    person_id: int
    space: int | None
    _numbers: dict[UUID, int] = field(default_factory=dict)
    _ids: list[UUID] = field(default_factory=list)
    _terms: dict[str, _Term] = field(default_factory=dict)
    _scores: dict[WordTable, dict[str, dict[int, float]]] = field(default_factory=dict)

    def number(self, session_id: UUID) -> int:
        """The row of a session, for as long as this lives."""
        known = self._numbers.get(session_id)
        if known is None:
            known = self._numbers[session_id] = len(self._ids)
            self._ids.append(session_id)
        return known

    def id_of(self, row: int) -> UUID:
        """The session of a row."""
        return self._ids[row]

    def session_count(self) -> int:
        return self._counts([""])[""][1]

    def without_vectors(self) -> int:
        """How many sessions have passages and no vector at all."""
        row = self.db.execute(
            "SELECT count(*) AS number FROM session_words w WHERE w.project_id = %s AND w.reach IN (0, %s)"
            " AND EXISTS (SELECT FROM placements p WHERE p.project_id = w.project_id"
            " AND p.session_id = w.session_id) AND NOT EXISTS (SELECT FROM placements p JOIN vectors v"
            " ON v.project_id = p.project_id AND v.space = %s AND v.chunk_id = p.chunk_id"
            " WHERE p.project_id = w.project_id AND p.session_id = w.session_id)",
            (self.project_id, self.person_id, self.space),
        ).fetchone()
        return int(row["number"]) if row else 0

    def match_words(self, table: WordTable, terms: Sequence[str], scope: Scope, limit: int) -> list[Scored]:
        weights = self._weights(table, terms)
        if not scope.parts or not weights:
            return []
        by_term: dict[str, dict[int, float]] = {term: {} for term in terms}
        chosen = sorted(weights, key=lambda term: -weights[term])
        any_of = " | ".join(f"({self._terms[term].query})" for term in chosen[:RAREST])
        wanted = chosen[:WEIGHED]
        found = self._ranked(table, any_of, wanted, [weights[term] for term in wanted], limit)
        average = sum(length for _, length, _ in found) / len(found) if found else 1.0
        for row, length, ranks in found:
            for term, rank in zip(wanted, ranks, strict=True):
                if rank:
                    often = 1.0 if self._terms[term].phrase else _often(table, rank)
                    # A passage is as long as any other, and the local index does not look at it either.
                    relative = 0.0 if table == "chunks" else length / (average or 1.0)
                    rests = _SATURATION * (1 - _LENGTH + _LENGTH * relative)
                    by_term[term][row] = weights[term] * often * (_SATURATION + 1) / (often + rests)
        self._scores[table] = by_term
        total: dict[int, float] = {}
        for scores in by_term.values():
            for row, score in scores.items():
                total[row] = total.get(row, 0.0) + score
        return [Scored(row, total[row]) for row in sorted(total, key=lambda row: (-total[row], row))]

    def word_scores(
        self, table: WordTable, terms: Sequence[str], scope: Scope, rows: Collection[int]
    ) -> dict[str, dict[int, float]]:
        if not set(terms) <= self._scores.get(table, {}).keys():
            self.match_words(table, terms, scope, len(rows))
        known = self._scores.get(table, {})
        return {term: {row: score for row, score in known.get(term, {}).items() if row in rows} for term in terms}

    def sessions_with(self, terms: Sequence[str]) -> dict[str, int]:
        self._learn(terms)
        return {term: self._terms[term].sessions for term in terms}

    def having(self, table: HavingTable, terms: Sequence[str], rows: Iterable[int]) -> dict[str, set[int]]:
        self._learn(terms)
        looked_for = [term for term in terms if self._terms[term].query]
        having: dict[str, set[int]] = {term: set() for term in terms}
        queries = [self._terms[term].query for term in looked_for]
        if table == "chunks":
            found = self.db.execute(
                "SELECT u.n, c.id AS row FROM unnest(%s::tsquery[]) WITH ORDINALITY AS u(q, n), chunks c"
                " WHERE c.project_id = %s AND c.id = ANY(%s) AND c.reach IN (0, %s) AND c.words @@ u.q",
                (queries, self.project_id, list(rows), self.person_id),
            ).fetchall()
            for one in found:
                having[looked_for[one["n"] - 1]].add(one["row"])
            return having
        found = self.db.execute(
            "SELECT u.n, s.session_id AS row FROM unnest(%s::tsquery[]) WITH ORDINALITY AS u(q, n), session_words s"
            " WHERE s.project_id = %s AND s.session_id = ANY(%s) AND s.reach IN (0, %s)"
            " AND CASE WHEN %s THEN ts_filter(s.words, '{a}') ELSE s.words END @@ u.q",
            (queries, self.project_id, [self._ids[row] for row in rows], self.person_id, table == "titles"),
        ).fetchall()
        for one in found:
            having[looked_for[one["n"] - 1]].add(self.number(one["row"]))
        return having

    def similarities(self, questions: Sequence[bytes], scope: Scope) -> Similarities:
        from indexer.arrays import np

        if not questions or not scope.parts or self.space is None:
            return _Cosines(self, ())
        return _Cosines(self, tuple(_halves(np.frombuffer(one, np.float32)) for one in questions))

    def vector_counts(self, sessions: Iterable[int]) -> dict[int, int]:
        rows = self.db.execute(
            "SELECT p.session_id, count(*) AS number FROM placements p"
            " JOIN vectors v ON v.project_id = p.project_id AND v.space = %s AND v.chunk_id = p.chunk_id"
            " WHERE p.project_id = %s AND p.session_id = ANY(%s) AND p.reach IN (0, %s) GROUP BY 1",
            (self.space, self.project_id, [self._ids[row] for row in sessions], self.person_id),
        )
        return {self.number(row["session_id"]): int(row["number"]) for row in rows}

    def placements(self, chunks: Iterable[int]) -> list[Placement]:
        return self._placements("chunk_id = ANY(%s)", list(chunks))

    def placements_of(self, session: int) -> list[Placement]:
        return self._placements("session_id = %s", self._ids[session])

    def positions(self, sessions: Iterable[int]) -> list[tuple[int, int, int]]:
        found = self._placements("session_id = ANY(%s)", [self._ids[row] for row in sessions])
        return [(place.session, place.position, place.chunk) for place in found]

    def own_passages(self, session: int, other: int) -> list[Placement]:
        others = {place.chunk for place in self.placements_of(other)}
        mine = self.placements_of(session)
        # What a private session shares with a public one is stored for each of them.
        digests = self._digests(others | {place.chunk for place in mine})
        known = {digests[chunk] for chunk in others}
        return [place for place in mine if digests[place.chunk] not in known]

    def texts(self, chunks: Iterable[int]) -> dict[int, str]:
        rows = self.db.execute(
            "SELECT id, text FROM chunks WHERE project_id = %s AND id = ANY(%s) AND reach IN (0, %s)",
            (self.project_id, list(chunks), self.person_id),
        )
        return {row["id"]: row["text"] for row in rows}

    def sessions(self, rows: Iterable[int]) -> dict[int, SessionRow]:
        found = self.db.execute(
            "SELECT s.id, s.agent, s.root_id, s.parent_id, w.title, w.started, w.last_activity, w.until, w.acted,"
            " w.turns, w.prompts, w.tokens, w.compactions, w.outcome FROM session_words w"
            " JOIN sessions s ON s.project_id = w.project_id AND s.id = w.session_id"
            " WHERE w.project_id = %s AND w.session_id = ANY(%s) AND w.reach IN (0, %s) AND may_read(s, %s)",
            (self.project_id, [self._ids[row] for row in rows], self.person_id, self.person_id),
        )
        return {(row := self.number(one["id"])): _session(row, one) for one in found}

    def _learn(self, terms: Iterable[str]) -> None:
        """How terms are looked for, and how many have them, each asked once."""
        new = [term for term in dict.fromkeys(terms) if term not in self._terms]
        texts = [f"{cut(term)}:*" if term.endswith("*") else cut(term) for term in new]
        rows = self.db.execute(
            "SELECT u.n, q::text AS query, numnode(q) AS nodes, CASE WHEN numnode(q) = 1 AND NOT u.begins THEN"
            " (tsvector_to_array(to_tsvector('english', u.term)))[1] END AS lexeme"
            " FROM unnest(%s::text[], %s::bool[]) WITH ORDINALITY AS u(term, begins, n), LATERAL (SELECT CASE"
            " WHEN u.begins THEN to_tsquery('english', u.term) ELSE phraseto_tsquery('english', u.term) END) AS p(q)"
            " ORDER BY u.n",
            (texts, [text.endswith(":*") and " " not in text for text in texts]),
        ).fetchall()
        counts = self._counts([row["lexeme"] for row in rows if row["lexeme"]])
        for term, row in zip(new, rows, strict=True):
            if not row["nodes"]:
                self._terms[term] = _Term("", 0, 0, phrase=False)
            elif row["lexeme"]:
                self._terms[term] = _Term(row["query"], *counts[row["lexeme"]], phrase=False)
            else:
                number = self._having(row["query"])
                self._terms[term] = _Term(row["query"], number, number, phrase=True)

    def _counts(self, lexemes: Sequence[str]) -> dict[str, tuple[int, int]]:
        """In how many chunks and sessions each is."""
        rows = self.db.execute(
            "SELECT lexeme, sum(chunks) AS chunks, sum(sessions) AS sessions FROM lexemes"
            " WHERE project_id = %s AND reach IN (0, %s) AND lexeme = ANY(%s) GROUP BY 1",
            (self.project_id, self.person_id, list(lexemes)),
        )
        found = {row["lexeme"]: (int(row["chunks"]), int(row["sessions"])) for row in rows}
        return {lexeme: found.get(lexeme, (0, 0)) for lexeme in lexemes}

    def _having(self, query: str) -> int:
        row = self.db.execute("SELECT sessions_having(%s, %s::tsquery) AS number", (self.project_id, query)).fetchone()
        return int(row["number"]) if row else 0

    def _weights(self, table: WordTable, terms: Sequence[str]) -> dict[str, float]:
        """How rare each term is that is there at all."""
        self._learn(terms)
        chunks, sessions = self._counts([""])[""]
        number = chunks if table == "chunks" else sessions
        having = {
            term: one.chunks if table == "chunks" else one.sessions
            for term in dict.fromkeys(terms)
            if (one := self._terms[term]).query and one.sessions
        }
        return {term: max(math.log((number - n + 0.5) / (n + 0.5)), 1e-6) for term, n in having.items() if n <= number}

    def _ranked(
        self, table: WordTable, any_of: str, wanted: Sequence[str], weights: Sequence[float], limit: int
    ) -> list[tuple[int, int, Sequence[float]]]:
        function = "chunks_with" if table == "chunks" else "sessions_with"
        rows = self.db.execute(
            f"SELECT id, length, ranks FROM {function}(%s, %s::tsquery, %s::tsquery[], %s, %s)",  # noqa: S608 - constants
            (self.project_id, any_of, [self._terms[term].query for term in wanted], list(weights), limit),
        )
        return [
            (row["id"] if table == "chunks" else self.number(row["id"]), row["length"], row["ranks"]) for row in rows
        ]

    def _placements(self, condition: str, value: object) -> list[Placement]:
        rows = self.db.execute(
            f"SELECT {_PLACEMENT} FROM placements"  # noqa: S608 - constants
            f" WHERE project_id = %s AND reach IN (0, %s) AND {condition} ORDER BY session_id, position",
            (self.project_id, self.person_id, value),
        )
        return [
            Placement(
                self.number(row["session_id"]), row["position"], row["chunk_id"], row["turn"], row["message_id"],
                row["role"], row["exchange"], row["ends"], row["tokens"],
            )
            for row in rows
        ]  # fmt: skip

    def _digests(self, chunks: Collection[int]) -> dict[int, bytes]:
        rows = self.db.execute(
            "SELECT id, hash FROM chunks WHERE project_id = %s AND id = ANY(%s) AND reach IN (0, %s)",
            (self.project_id, list(chunks), self.person_id),
        )
        return {row["id"]: bytes(row["hash"]) for row in rows}


@dataclass(frozen=True, slots=True)
class _Cosines:
    """As `indexer.store.base.Similarities`; each vector is looked at."""

    index: TeamIndex
    questions: tuple[str, ...]

    def best(self, limit: int) -> list[Near]:
        if not self.questions:
            return []
        leg = (
            "(SELECT chunk_id, e FROM vectors WHERE project_id = %s AND space = %s AND reach IN (0, %s)"
            " ORDER BY e <=> %s::halfvec LIMIT %s)"
        )
        where = (self.index.project_id, self.index.space, self.index.person_id)
        legs = [value for one in self.questions for value in (*where, one, limit)]
        cosines = ", ".join("1 - (e <=> %s::halfvec)" for _ in self.questions)
        rows = self.index.db.execute(
            f"SELECT DISTINCT ON (chunk_id) chunk_id, ARRAY[{cosines}] AS cosines"  # noqa: S608 - constants
            f" FROM ({' UNION ALL '.join([leg] * len(self.questions))}) AS near",
            (*self.questions, *legs),
        )
        return sorted(
            (Near(row["chunk_id"], tuple(row["cosines"])) for row in rows), key=lambda one: (-one.score, one.row)
        )

    def of(self, chunks: Collection[int]) -> dict[int, tuple[float, ...]]:
        if not self.questions:
            return {}
        cosines = ", ".join("1 - (e <=> %s::halfvec)" for _ in self.questions)
        rows = self.index.db.execute(
            f"SELECT chunk_id, ARRAY[{cosines}] AS cosines FROM vectors"  # noqa: S608 - constants
            " WHERE project_id = %s AND space = %s AND chunk_id = ANY(%s) AND reach IN (0, %s)",
            (*self.questions, self.index.project_id, self.index.space, list(chunks), self.index.person_id),
        )
        return {row["chunk_id"]: tuple(row["cosines"]) for row in rows}


def _often(table: WordTable, rank: float) -> float:
    """How often a word is there that has this rank. In a session it counts by where it is: twice where it is asked."""
    if table == "sessions":
        return 2 * rank * math.pi**2 / 6
    return 1.0 + bisect_left(_RANKS, rank - 1e-4)


def _halves(vector: Any) -> str:
    return "[" + ",".join(f"{float(value):.6g}" for value in vector) + "]"


def _session(row: int, one: Mapping[str, Any]) -> SessionRow:
    return SessionRow(
        row=row, agent=one["agent"], session_id=str(one["id"]), part=1, path="", cwd="", resolved_cwd="", repo_root="",
        git_branch="", title=one["title"], also_called="", version="", started=one["started"],
        last_activity=one["last_activity"], origin="person",
        parent_id=str(one["parent_id"]) if one["parent_id"] else None, root_id=str(one["root_id"]), turns=one["turns"],
        prompts=one["prompts"], tokens=one["tokens"], compactions=one["compactions"], until=one["until"],
        acted=one["acted"], inferred_from="", head="", outcome=Outcome(one["outcome"]),
    )  # fmt: skip
