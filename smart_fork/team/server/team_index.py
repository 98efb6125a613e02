"""The index of a project's shared sessions in PostgreSQL, with the methods that `smart_fork.finding` needs.

Each answer uses only data that the user may read, also for counts and weights of words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from pgvector import HalfVector
from psycopg.rows import DictRow

from indexer.default_embedder import LightEmbedder
from indexer.one_thread_numpy import np
from indexer.session_work import Outcome
from indexer.store.base import HavingTable, Near, Placement, Scope, Scored, SessionRow, Similarities, WordTable, bigrams
from smart_fork.team.server.database import Connection

#: The least and most candidates kept while a vector graph is searched. With the usual 40, a quarter of the nearest
#: vectors is missed.
MIN_CANDIDATES, MAX_CANDIDATES = 200, 1_000


#: Rows to score are found by a question's rarest words: as many words as occur in so many rows together, but at least
#: so many words.
MAX_ROWS, MIN_TERMS = 8_000, 2
#: The number of scored rows for each wanted result.
RANKED_FACTOR = 2
#: The parameters k1 and b of BM25: how soon repeated words add nothing, and how much words count less in a longer
#: session.
_TERM_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
#: Selects the nearest vectors. The conditions are written as in the graph index of a large project, so that PostgreSQL
#: uses it.
_LEG = f"""(SELECT chunk_id, e FROM vectors WHERE project_id = %s AND space = %s AND reach = {{}}
    ORDER BY e::halfvec({LightEmbedder.dimensions}) <=> %s::halfvec LIMIT %s)"""  # noqa: S608 - constants
_NEAREST = f"""(SELECT * FROM ({_LEG.format("0")} UNION ALL {_LEG.format("%s")}) AS both_reaches
    ORDER BY e <=> %s::halfvec LIMIT %s)"""  # noqa: S608 - constants
#: All sessions of a project are one part.
WHOLE_PROJECT = Scope((1,))


class _Term(NamedTuple):
    """A term (word or phrase) as a PostgreSQL query, with the numbers of passages and of sessions that contain it."""

    query: str
    chunks: int
    sessions: int
    phrase: bool


class _SearchedRows(NamedTuple):
    """The rows of a table that a search has scored, and for each term the scores of the rows that contain it."""

    rows: frozenset[int]
    scores: dict[str, dict[int, float]]


class _Table(NamedTuple):
    """A database table in which words are searched: one for passages, one for whole sessions.

    `function` is the SQL function that finds rows by their rarest words, and `words` the searched column. `weights` are
    the weights of a session's parts, such as its title. `rank_factor` converts PostgreSQL's rank of a word that occurs
    once to 1.
    """

    function: str
    rows: str
    key: str
    kind: str
    weights: str
    rank_factor: float
    words: str


_TABLES: Mapping[WordTable, _Table] = {
    "chunks": _Table("rarest_chunks", "chunks", "id", "bigint", "{1,1,1,1}", 1.0, "words"),
    # A word counts twice in the title, then in what was asked, answered and done: as in the local index.
    "sessions": _Table(
        "rarest_sessions", "session_words", "session_id", "uuid", "{0.3,0.5,0.75,1}", 2.0, "words || ''::tsvector"
    ),
}

#: The column to search for each kind of rows.
_COLUMNS: Mapping[HavingTable, str] = {"chunks": "words", "sessions": "words", "titles": "titles", "work": "work"}


@dataclass(slots=True)
class TeamIndex:
    """The search index of one project, for one user and one transaction; see `indexer.store.base.Searchable`.

    `space` is the number of the embedding model of the stored vectors, or `None` for a search without vectors.
    Sessions get row numbers in the order in which they are first used.
    """

    db: Connection
    project_id: int
    person_id: int
    space: int | None
    _numbers: dict[str, int] = field(default_factory=dict)
    _ids: list[str] = field(default_factory=list)
    _terms: dict[str, _Term] = field(default_factory=dict)
    _searched: dict[HavingTable, _SearchedRows] = field(default_factory=dict)
    _all: tuple[int, int] | None = None

    def number(self, session_id: UUID | str) -> int:
        """Return the row number of a session. It is valid only for this `TeamIndex`."""
        known = self._numbers.get(name := str(session_id))
        if known is None:
            known = self._numbers[name] = len(self._ids)
            self._ids.append(name)
        return known

    def session_count(self) -> int:
        return self._totals()[1]

    def without_vectors(self) -> int:
        """Return how many sessions have passages without a vector, so that only words can be searched."""
        row = self.db.execute(
            "SELECT count(*) AS number FROM session_words WHERE project_id = %s AND reach IN (0, %s)"
            " AND passages > 0 AND (space < %s OR space > %s)",
            (self.project_id, self.person_id, *[self.space or -1] * 2),
        ).fetchone()
        return int(row["number"]) if row else 0

    def match_words(self, table: WordTable, terms: Sequence[str], scope: Scope, limit: int) -> list[Scored]:
        if table not in _TABLES or not scope.parts or not (weights := self._weights(table, terms)):
            return []
        by_term: dict[str, dict[int, float]] = {term: {} for term in terms}
        known = sorted(weights, key=lambda term: -weights[term])
        found = self._ranked(table, known, weights, limit)
        average = sum(length for _, length, _ in found) / len(found) if found else 1.0
        for row, length, ranks in found:
            for term, rank in zip(known, ranks, strict=True):
                if rank:
                    often = 1.0 if self._terms[term].phrase else _TABLES[table].rank_factor * rank
                    # A passage is as long as any other, and the local index does not look at it either.
                    relative = 0.0 if table == "chunks" else length / (average or 1.0)
                    rests = _TERM_SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * relative)
                    by_term[term][row] = weights[term] * often * (_TERM_SATURATION + 1) / (often + rests)
        self._searched[table] = _SearchedRows(frozenset(row for row, _, _ in found), by_term)
        total: dict[int, float] = {}
        for scores in by_term.values():
            for row, score in scores.items():
                total[row] = total.get(row, 0.0) + score
        best = sorted(total, key=lambda row: (-total[row], row))[:limit]
        return [Scored(row, total[row]) for row in best]

    def word_scores(
        self, table: WordTable, terms: Sequence[str], scope: Scope, rows: Collection[int]
    ) -> dict[str, dict[int, float]]:
        if not self._has_scored(table, terms, ()):
            self.match_words(table, terms, scope, len(rows))
        known = self._searched[table].scores if table in self._searched else {}
        return {term: {row: score for row, score in known.get(term, {}).items() if row in rows} for term in terms}

    def sessions_with(self, terms: Sequence[str]) -> dict[str, int]:
        self._learn(terms)
        return {term: self._terms[term].sessions for term in terms}

    def having(self, table: HavingTable, terms: Sequence[str], rows: Iterable[int]) -> dict[str, set[int]]:
        rows = set(rows)
        if self._has_scored(table, terms, rows):
            return {term: rows & self._searched[table].scores[term].keys() for term in terms}
        self._learn(terms)
        looked_for = [term for term in terms if self._terms[term].query]
        having: dict[str, set[int]] = {term: set() for term in terms}
        queries = [self._terms[term].query for term in looked_for]
        here = _TABLES["chunks" if table == "chunks" else "sessions"]
        found = self.db.execute(
            f"SELECT u.n, r.{here.key} AS row FROM unnest(%s::tsquery[]) WITH ORDINALITY AS u(q, n), {here.rows} r"  # noqa: S608 - constants
            f" WHERE r.project_id = %s AND r.{here.key} = ANY(%s::{here.kind}[]) AND r.reach IN (0, %s)"
            f" AND r.{_COLUMNS[table]} @@ u.q",
            (queries, self.project_id, [self._key(table, row) for row in rows], self.person_id),
        )
        for one in found:
            having[looked_for[one["n"] - 1]].add(self._row(table, one["row"]))
        return having

    def _key(self, table: HavingTable, row: int) -> int | str:
        """Return the database key of a row: the row number itself for a passage, else the id of the session."""
        return row if table == "chunks" else self._ids[row]

    def _row(self, table: HavingTable, key: Any) -> int:
        return int(key) if table == "chunks" else self.number(key)

    def similarities(self, questions: Sequence[bytes], scope: Scope) -> Similarities:
        if not questions or not scope.parts or self.space is None:
            return _Cosines(self, ())
        return _Cosines(self, tuple(HalfVector(np.frombuffer(one, np.float32)) for one in questions))

    def vector_counts(self, sessions: Iterable[int]) -> dict[int, int]:
        rows = self.db.execute(
            "SELECT session_id, embedded FROM session_words WHERE project_id = %s AND session_id = ANY(%s::uuid[])"
            " AND reach IN (0, %s) AND space = %s AND embedded > 0",
            (self.project_id, [self._ids[row] for row in sessions], self.person_id, self.space),
        )
        return {self.number(row["session_id"]): int(row["embedded"]) for row in rows}

    def placements(self, chunks: Iterable[int]) -> list[Placement]:
        return self._placements("chunk_id = ANY(%s)", list(chunks))

    def placements_of(self, session: int) -> list[Placement]:
        return self._placements("session_id = %s", self._ids[session])

    def positions(self, sessions: Iterable[int]) -> list[tuple[int, int, int]]:
        rows = self.db.execute(
            "SELECT session_id::text AS session, position, chunk_id FROM placements"
            " WHERE project_id = %s AND session_id = ANY(%s::uuid[]) AND reach IN (0, %s)",
            (self.project_id, [self._ids[row] for row in sessions], self.person_id),
        )
        return [(self.number(row["session"]), row["position"], row["chunk_id"]) for row in rows]

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
            "SELECT s.id::text AS session_id, s.agent, s.root_id::text, s.parent_id::text, w.title, w.started,"
            " w.last_activity, w.until, w.acted, w.turns, w.prompts, w.tokens, w.compactions, w.outcome"
            " FROM session_words w JOIN sessions s ON s.project_id = w.project_id AND s.id = w.session_id"
            " WHERE w.project_id = %s AND w.session_id = ANY(%s::uuid[]) AND w.reach IN (0, %s) AND may_read(s, %s)",
            (self.project_id, [self._ids[row] for row in rows], self.person_id, self.person_id),
        )
        return {(row := self.number(one["session_id"])): _session(row, one) for one in found}

    def _learn(self, terms: Iterable[str]) -> None:
        """Read for each term that was not read before how often it occurs, and its form as a database query."""
        new = [term for term in dict.fromkeys(terms) if term not in self._terms]
        if not new:
            return
        texts = [f"{search_words(term)}:*" if term.endswith("*") else search_words(term) for term in new]
        rows = self.db.execute(
            "SELECT t.*, l.chunks, l.sessions FROM (SELECT u.n, q::text AS query, numnode(q) AS nodes,"
            " CASE WHEN numnode(q) = 1 AND NOT u.begins"
            " THEN (tsvector_to_array(to_tsvector('english', u.term)))[1] END AS lexeme"
            " FROM unnest(%s::text[], %s::bool[]) WITH ORDINALITY AS u(term, begins, n), LATERAL (SELECT CASE"
            " WHEN u.begins THEN to_tsquery('english', u.term) ELSE phraseto_tsquery('english', u.term) END) AS p(q)"
            " OFFSET 0) t, LATERAL (SELECT coalesce(sum(chunks), 0)::bigint AS chunks,"
            " coalesce(sum(sessions), 0)::bigint AS sessions FROM lexemes"
            " WHERE project_id = %s AND reach IN (0, %s) AND lexeme = t.lexeme) l ORDER BY t.n",
            (texts, [text.endswith(":*") and " " not in text for text in texts], self.project_id, self.person_id),
        ).fetchall()
        phrases = [row["query"] for row in rows if row["nodes"] and not row["lexeme"]]
        having = self._session_counts(phrases)
        for term, row in zip(new, rows, strict=True):
            if not row["nodes"]:
                self._terms[term] = _Term("", 0, 0, phrase=False)
            elif row["lexeme"]:
                self._terms[term] = _Term(row["query"], row["chunks"], row["sessions"], phrase=False)
            else:
                number = having[row["query"]]
                self._terms[term] = _Term(row["query"], number, number, phrase=True)

    def _session_counts(self, queries: Sequence[str]) -> dict[str, int]:
        """Return for each of the PostgreSQL text queries the number of sessions that match it."""
        if not queries:
            return {}
        rows = self.db.execute(
            "SELECT n, sessions FROM sessions_having_each(%s, %s::tsquery[])", (self.project_id, list(queries))
        )
        return {queries[row["n"] - 1]: int(row["sessions"]) for row in rows}

    def _totals(self) -> tuple[int, int]:
        if self._all is None:
            row = self.db.execute(
                "SELECT coalesce(sum(chunks), 0) AS chunks, coalesce(sum(sessions), 0) AS sessions FROM lexemes"
                " WHERE project_id = %s AND reach IN (0, %s) AND lexeme = ''",
                (self.project_id, self.person_id),
            ).fetchone()
            self._all = (int(row["chunks"]), int(row["sessions"])) if row else (0, 0)
        return self._all

    def _has_scored(self, table: HavingTable, terms: Sequence[str], rows: Collection[int]) -> bool:
        """Return True if an earlier search has already scored all these rows for all these terms."""
        known = self._searched.get(table)
        return known is not None and known.scores.keys() >= set(terms) and known.rows.issuperset(rows)

    def _weights(self, table: WordTable, terms: Sequence[str]) -> dict[str, float]:
        """Return a weight for each term in the table: the rarer, the higher (inverse document frequency)."""
        self._learn(terms)
        chunks, sessions = self._totals()
        number = chunks if table == "chunks" else sessions
        having = {
            term: one.chunks if table == "chunks" else one.sessions
            for term in dict.fromkeys(terms)
            if (one := self._terms[term]).query and one.sessions
        }
        return {term: max(math.log((number - n + 0.5) / (n + 0.5)), 1e-6) for term, n in having.items() if n <= number}

    def _ranked(
        self, table: WordTable, known: Sequence[str], weights: Mapping[str, float], limit: int
    ) -> list[tuple[int, int, Sequence[float]]]:
        """Find the rows with the most of the rarest terms, among all rows that the user may read.

        Return a tuple for each row: its number, its length, and a rank for each term.
        """
        function, rows, key, kind, parts, _, words = _TABLES[table]
        rarest = self._rarest(table, known)
        there = self.db.execute(
            f"SELECT {function}(%s, %s::tsquery[], %s, %s) AS id",
            (
                self.project_id, [self._terms[term].query for term in rarest],
                [weights[term] for term in rarest], max(limit, 1) * RANKED_FACTOR,
            ),
        ).fetchall()  # fmt: skip
        # Of a single word that is the sum of what its places count; a phrase is there or not.
        each = ", ".join(
            "(words @@ %s::tsquery)::int::real"
            if self._terms[term].phrase
            else f"ts_rank_cd('{parts}', words, %s::tsquery)"
            for term in known
        )
        found = self.db.execute(
            f"SELECT id, length, ARRAY[{each}] AS ranks FROM (SELECT {key} AS id, length, {words} AS words FROM {rows}"  # noqa: S608 - constants
            f" WHERE project_id = %s AND reach IN (0, %s) AND {key} = ANY(%s::{kind}[]) OFFSET 0) AS there",
            (
                *(self._terms[term].query for term in known), self.project_id, self.person_id,
                [row["id"] for row in there],
            ),
        )  # fmt: skip
        return [(self._row(table, row["id"]), row["length"], row["ranks"]) for row in found]

    def _rarest(self, table: WordTable, known: Sequence[str]) -> list[str]:
        """Return the rarest of the `known` terms, as many as can be searched in time.

        Phrases are skipped if there are single words, since the words of a phrase are terms as well.
        """
        rarest: list[str] = []
        rows = 0
        for term in [term for term in known if not self._terms[term].phrase] or known:
            rows += self._terms[term].chunks if table == "chunks" else self._terms[term].sessions
            if rows > MAX_ROWS and len(rarest) >= MIN_TERMS:
                break
            rarest.append(term)
        return rarest

    def _placements(self, condition: str, value: object) -> list[Placement]:
        rows = self.db.execute(
            "SELECT session_id AS session, position, chunk_id AS chunk, turn, message_id, role, exchange, ends, tokens"  # noqa: S608 - constants
            " FROM placements"
            f" WHERE project_id = %s AND reach IN (0, %s) AND {condition} ORDER BY session_id, position",
            (self.project_id, self.person_id, value),
        )
        return [Placement(**row | {"session": self.number(row["session"])}) for row in rows]

    def _digests(self, chunks: Collection[int]) -> dict[int, bytes]:
        rows = self.db.execute(
            "SELECT id, hash FROM chunks WHERE project_id = %s AND id = ANY(%s) AND reach IN (0, %s)",
            (self.project_id, list(chunks), self.person_id),
        )
        return {row["id"]: bytes(row["hash"]) for row in rows}


@dataclass(frozen=True, slots=True)
class _Cosines:
    """The similarities (cosines) of passages to a question; `questions` are the vectors of the question's phrasings.

    All vectors are compared, except in a large project. There, a graph (an index of near vectors) finds the nearest of
    those that all members may read.
    """

    index: TeamIndex
    questions: tuple[HalfVector, ...]

    def best(self, limit: int) -> list[Near]:
        if not self.questions:
            return []
        where = (self.index.project_id, self.index.space)
        legs = [
            value
            for one in self.questions
            for value in (*where, one, limit, *where, self.index.person_id, one, limit, one, limit)
        ]
        cosines = ", ".join("1 - (e <=> %s::halfvec)" for _ in self.questions)
        self.index.db.execute(
            "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'relaxed_order', true)",
            (str(min(max(MIN_CANDIDATES, limit), MAX_CANDIDATES)),),
        )
        rows = self.index.db.execute(
            f"SELECT DISTINCT ON (chunk_id) chunk_id, ARRAY[{cosines}] AS cosines"  # noqa: S608 - constants
            f" FROM ({' UNION ALL '.join([_NEAREST] * len(self.questions))}) AS near",
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


#: Values for the fields that describe a log: the server has no logs.
_NO_LOG: Mapping[str, Any] = {
    "part": 1, "path": "", "cwd": "", "resolved_cwd": "", "repo_root": "", "git_branch": "", "also_called": "",
    "version": "", "origin": "person", "inferred_from": "", "head": "",
}  # fmt: skip


def _session(row: int, one: DictRow) -> SessionRow:
    return SessionRow(**{**_NO_LOG, **one, "row": row, "outcome": Outcome(one["outcome"])})


_APART = re.compile(r"[\W_]+")


def search_words(text: str) -> str:
    """Return a text in the form in which its words are indexed: lower case, no accents, only letters and digits."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", bigrams(text)) if not unicodedata.combining(char))
    return _APART.sub(" ", plain.lower()).strip()
