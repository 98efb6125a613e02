"""Read queries on the index: for searching, listing and the status."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from indexer.project import Project, is_within
from indexer.repositories import known_objects
from indexer.session_work import Authored, Edits, Fate, MetError, Outcome
from indexer.store import vectors
from indexer.store.base import (
    Counts,
    HavingTable,
    Holding,
    Lines,
    Near,
    Placement,
    Scope,
    Scored,
    SessionRow,
    Similarities,
    Understood,
    WordTable,
)
from indexer.store.schema import with_vectors
from indexer.store.vectors import numbers
from indexer.transcripts.lines import NO_LOG
from indexer.transcripts.model import AgentName

if TYPE_CHECKING:
    from indexer.session_export import Voices

_SESSION = ", ".join(("id", *SessionRow._fields[1:]))
#: Condition for rows of sessions, as opposed to rows of their work in other repositories.
_ITSELF = "home IS NULL"
_PLACEMENT = ", ".join(Placement._fields)
#: Condition for sessions in or below a directory without links. `0` is the character after `/`.
_BELOW = (
    "resolved_cwd <> '' AND (resolved_cwd = :below OR (resolved_cwd >= :below || '/' AND resolved_cwd < :below || '0'))"
)
_SESSIONS_BELOW = f"SELECT id FROM sessions WHERE {_BELOW}"  # noqa: S608 - constant
#: BM25 weights of the columns. The first column is the part of the index, which only limits.
_TABLES = {
    "chunks": ("chunk_words", "0.0, 1.0"),
    "sessions": ("session_words", "0.0, 2.0, 1.5, 1.0, 0.8, 0.3"),
    "commits": ("commit_words", "0.0, 1.0"),
}
_NO_PART = "-part: "
#: The word table in which a term is looked for, and the column filter for it.
_COLUMNS = {
    "chunks": ("chunk_words", ""), "sessions": ("session_words", ""), "titles": ("session_words", "title: "),
    "work": ("session_work", "names: "), "commits": ("commit_words", ""),
}  # fmt: skip

#: Condition for a *first passage*: the chunk with which an exchange begins, that is, the prompt and the beginning of
#: the answer. First passages are a fifth of all vectors, and find nearly as much as all; with the last passages of
#: exchanges, as much. Therefore those of all sessions are embedded before all other chunks.
_BEGINS = (
    "NOT EXISTS (SELECT 1 FROM placements AS before WHERE before.session = place.session "
    "AND before.position = place.position - 1 AND before.exchange = place.exchange)"
)
#: Condition for the last passage of an exchange.
_ENDS = _BEGINS.replace("before", "after").replace("position - 1", "position + 1")


class StoreReading:
    """All methods that read the index, on one connection. Only integers and constants become part of a query's text."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def _all(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        return self.db.execute(sql, values).fetchall()

    def meta(self, key: str) -> str:
        """Return the value that `set_meta` stored under `key`, or ""."""
        return str(self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).get or "")

    def scope(self, project: Project | None, agents: Sequence[AgentName], *, automated: bool) -> Scope:
        """Return the scope of a search in `project` (`None`: all), with sessions begun by programs if `automated`."""
        rows = self._all(
            "SELECT parts.id, agent, automated, project, key, root FROM parts JOIN projects ON projects.id = project"
        )
        rows = [row for row in rows if row[1] in agents and (automated or not row[2])]
        if project is None or not project.git:  # what was done as a guest is found where the session was begun
            rows = [row for row in rows if not Project.host_of(row[4])]
        if project is None:
            return Scope(tuple(row[0] for row in rows))
        if project.git:
            places = project.all_places
            heads = {row[4]: head for row in rows if (head := Project.head_of(row[4]))}
            there = known_objects(Path(project.key), heads.values())
            inside = {
                row[3]
                for row in rows
                if project.key in (row[4], Project.host_of(row[4]))
                or heads.get(row[4]) in there
                or any(is_within(row[5], one) for one in places)
            }
            return Scope(tuple(row[0] for row in rows if row[3] in inside), project=project)
        below = self._all(
            f"SELECT DISTINCT project FROM sessions JOIN parts ON parts.id = part WHERE {_BELOW}",  # noqa: S608
            {"below": project.root.rstrip("/")},
        )
        inside = {row[0] for row in below}
        return Scope(tuple(row[0] for row in rows if row[3] in inside), within=project.root, project=project)

    def match_words(self, table: WordTable, terms: Sequence[str], scope: Scope, limit: int) -> list[Scored]:
        if not scope.parts or not terms:
            return []
        name, weights = _TABLES[table]
        query = " OR ".join(terms)
        rows = self._all(
            f"SELECT rowid, -bm25({name}, {weights}) AS score FROM {name} "  # noqa: S608
            f"WHERE {name} MATCH :words {_only(table, scope)} ORDER BY score DESC, rowid LIMIT :limit",
            {"words": self._restricted(query, scope.parts), "limit": limit, **_named(scope)},
        )
        if any(score is None for _, score in rows):
            return self._match_rare_words(table, terms, scope, limit)
        return [Scored(row, score) for row, score in rows]

    def word_scores(
        self, table: WordTable, terms: Sequence[str], scope: Scope, rows: Collection[int]
    ) -> dict[str, dict[int, float]]:
        name, weights = _TABLES[table]
        scores: dict[str, dict[int, float]] = {term: {} for term in terms}
        # As in `_only`: one walk through the rows of each term. The rows are listed once for all of them, and in scope.
        found = self._all(
            f"SELECT terms.key, {name}.rowid, -bm25({name}, {weights}) FROM json_each(?) AS terms CROSS JOIN {name} "  # noqa: S608
            f"WHERE {name} MATCH terms.value AND +{name}.rowid IN (SELECT value FROM json_each(?))",
            (json.dumps([f"{_NO_PART}{term}" for term in terms]), json.dumps(list(rows))),
        )
        for number, row, score in found:
            scores[terms[number]][row] = score
        for term, of_term in scores.items():
            if None in of_term.values():
                rare = self._match_rare_words(table, (term,), scope, -1)
                scores[term] = {row: score for row, score in rare if row in rows}
        return scores

    def _match_rare_words(self, table: WordTable, terms: Sequence[str], scope: Scope, limit: int) -> list[Scored]:
        """Score rows by the rarity of their words, where BM25 gives no number.

        Without the lengths of rows, FTS5 assumes -1 words for each column. If rows have six words on average, as in
        small indexes, it then divides zero by zero.
        """
        name, _ = _TABLES[table]
        rows = int(self._all(f"SELECT count(*) FROM {'chunks' if table == 'chunks' else 'sessions'}")[0][0])  # noqa: S608
        sql = f"SELECT rowid FROM {name} WHERE {name} MATCH :words {_only(table, scope)}"  # noqa: S608
        scores: defaultdict[int, float] = defaultdict(float)
        for term in terms:
            having = self._all(sql, {"words": self._restricted(term, scope.parts), **_named(scope)})
            for (row,) in having:
                scores[row] += math.log1p((rows + 0.5) / (len(having) + 0.5))
        best = sorted(scores, key=lambda row: (-scores[row], row))[: limit if limit >= 0 else None]
        return [Scored(row, scores[row]) for row in best]

    def _restricted(self, query: str, parts: Sequence[int]) -> str:
        """Limit a word query to parts of the index: name `parts`, or exclude the other parts if these are fewer.

        A search for the name of a part is slow, because each row of the part has the name as a word.
        """
        others = {part for (part,) in self._all("SELECT id FROM parts")}.difference(parts)
        if len(others) >= len(parts):
            return f"part: ({_tokens(parts)}) AND -part: ({query})"
        return f"(-part: ({query}))" + (f" NOT part: ({_tokens(others)})" if others else "")

    def similarities(self, questions: Sequence[bytes], scope: Scope) -> Similarities:
        if not (questions and self.meta("model")):
            return _NoSimilarities()
        size = vectors.length(self.db)
        if wrong := next((len(one) for one in questions if len(one) != 4 * size), None):
            raise ValueError(f"the index has vectors of {size} dimensions, not of {wrong // 4}")
        with_vectors(self.db)
        among = None
        if within := _only("chunks", scope):
            rows = self._all(f"SELECT rowid FROM chunks WHERE 1 {within}", _named(scope))  # noqa: S608
            among = [chunk for (chunk,) in rows]
        from indexer.store import nearest

        return nearest.similarities(self.db, questions, scope.parts, among)

    def sessions_with(self, terms: Sequence[str]) -> dict[str, int]:
        number = "SELECT count(*) FROM session_words WHERE session_words MATCH value"
        return dict(self._all(f"SELECT value, ({number}) FROM json_each(?)", (json.dumps(terms),)))  # noqa: S608

    def having(self, table: HavingTable, terms: Sequence[str], rows: Iterable[int]) -> dict[str, set[int]]:
        name, column = _COLUMNS[table]
        # As in `word_scores`.
        found = self._all(
            f"SELECT terms.key, {name}.rowid FROM json_each(?) AS terms CROSS JOIN {name} "  # noqa: S608
            f"WHERE {name} MATCH terms.value AND +{name}.rowid IN (SELECT value FROM json_each(?))",
            (json.dumps([column + term for term in terms]), json.dumps(list(rows))),
        )
        having: dict[str, set[int]] = {term: set() for term in terms}
        for number, row in found:
            having[terms[number]].add(row)
        return having

    def vectors(self, chunks: Iterable[int]) -> dict[int, bytes]:
        """Return the float32 vectors of these chunks, for those that have one."""
        from indexer.store import nearest

        if not self.meta("model"):
            return {}
        return {chunk: nearest.decoded(code) for chunk, code in vectors.read(self.db, chunks)}

    def vector_counts(self, sessions: Iterable[int]) -> dict[int, int]:
        rows = numbers(sessions)
        last = "SELECT max(position) FROM placements WHERE session = id"  # positions are counted from 0 without gaps
        counts = dict(self._all(f"SELECT id, 1 + ifnull(({last}), -1) FROM sessions WHERE id IN ({rows})"))  # noqa: S608
        if self._all("SELECT 1 FROM chunks INDEXED BY chunks_waiting WHERE block = 0 LIMIT 1"):
            waiting = "SELECT session, count(*) FROM placements JOIN chunks ON chunks.id = chunk"
            for session, number in self._all(f"{waiting} WHERE session IN ({rows}) AND block = 0 GROUP BY session"):
                counts[session] -= number
        return {session: number for session, number in counts.items() if number}

    def placements(self, chunks: Iterable[int]) -> list[Placement]:
        return self._placements(f"WHERE chunk IN ({numbers(chunks)}) ORDER BY session, position")

    def placements_of(self, session: int) -> list[Placement]:
        return self._placements("WHERE session = ? ORDER BY position", (session,))

    def positions(self, sessions: Iterable[int]) -> list[tuple[int, int, int]]:
        return self._all(f"SELECT session, position, chunk FROM placements WHERE session IN ({numbers(sessions)})")  # noqa: S608

    def own_passages(self, session: int, other: int) -> list[Placement]:
        of_one = "JOIN chunks ON chunks.id = chunk WHERE session = ?"
        others = f"SELECT hash FROM placements {of_one}"  # noqa: S608 - constant
        return self._placements(f"{of_one} AND hash NOT IN ({others}) ORDER BY position", (session, other))

    def _placements(self, condition: str, values: Sequence[Any] = ()) -> list[Placement]:
        return [Placement._make(row) for row in self._all(f"SELECT {_PLACEMENT} FROM placements {condition}", values)]  # noqa: S608

    def lines(self, place: Placement) -> Lines | None:
        """Return the lines of a chunk in its session's export; `None` if unknown."""
        # One statement: the lines and the export in which they count are of the same moment.
        rows = self._all(
            "SELECT first_line, last_line, export FROM placements JOIN sessions ON sessions.id = session "
            "WHERE session = ? AND position = ? AND chunk = ? AND first_line > 0",
            (place.session, place.position, place.chunk),
        )
        return Lines._make(rows[0]) if rows else None

    def voices(self, place: Placement) -> Voices | None:
        """Return (position, role) wherever another role begins in a chunk's text; `None` if unknown."""
        rows = self._all(
            "SELECT voices FROM placements WHERE session = ? AND position = ? AND chunk = ? AND voices NOT NULL",
            (place.session, place.position, place.chunk),
        )
        return tuple((start, role) for start, role in json.loads(rows[0][0])) if rows else None

    def texts(self, chunks: Iterable[int]) -> dict[int, str]:
        return dict(self._all(f"SELECT id, text FROM chunks WHERE id IN ({numbers(chunks)})"))  # noqa: S608

    def sessions(self, rows: Iterable[int]) -> dict[int, SessionRow]:
        return {row.row: row for row in self._sessions(f"id IN ({numbers(rows)})", ())}

    def began(self, scope: Scope, row: int) -> tuple[int, str]:
        """Return (highest row or 0, earliest start or "") of the sessions in scope that were stored after row `row`."""
        sql = f"SELECT ifnull(max(id), 0), ifnull(min(started), '') FROM sessions WHERE {_within(scope)} AND id > ?"  # noqa: S608
        ((last, started),) = self._all(sql, (row,))
        return last, started

    def log_rows(self, paths: Iterable[str]) -> dict[str, int | None]:
        """Return the row of each log's session, or `None`, by the log's path. Files without any record are missing."""
        named = "SELECT path, session FROM files WHERE path = ? AND skipped NOT LIKE ? || '%'"
        return dict(self.db.executemany(named, [(path, NO_LOG) for path in paths]))

    def session(self, agent: AgentName, session_id: str) -> SessionRow | None:
        """Return the session with exactly this id, or `None`."""
        return next(iter(self._sessions("agent = ? AND session_id = ?", (agent, session_id))), None)

    def without_log(self) -> list[SessionRow]:
        """Return the sessions whose agents have deleted the logs."""
        return self._sessions(f"path = '' AND {_ITSELF}", ())

    def find_sessions(self, prefix: str) -> list[SessionRow]:
        """Return the sessions with an id that begins with `prefix`, newest first."""
        condition = f"substr(lower(session_id), 1, length(?1)) = ?1 AND {_ITSELF} ORDER BY last_activity DESC, id"
        return self._sessions(condition, (prefix.lower(),))

    def forked(self) -> set[tuple[AgentName, str]]:
        """Return agent and id of each session that shares its beginning with another one."""
        several = f"SELECT root_id FROM sessions WHERE {_ITSELF} GROUP BY root_id HAVING count(*) > 1"  # noqa: S608
        parents = "SELECT parent_id FROM sessions"
        condition = f"session_id IN ({parents}) OR root_id IN ({several})"
        return set(self._all(f"SELECT agent, session_id FROM sessions WHERE {_ITSELF} AND ({condition})"))  # noqa: S608

    def family(self, root_id: str) -> list[SessionRow]:
        """Return all sessions of a family (a session and its forks, which share a beginning), oldest first."""
        return self._sessions(f"root_id = ? AND {_ITSELF} ORDER BY started, session_id", (root_id,))

    def directories(self) -> list[str]:
        """Return all directories of sessions, without links, and the main directories of their repositories."""
        both = "SELECT resolved_cwd AS one FROM sessions UNION SELECT repo_root FROM sessions"
        return [one for (one,) in self._all(f"SELECT one FROM ({both}) WHERE one <> ''")]  # noqa: S608 - constant

    def projects(self) -> list[str]:
        """Return the main directories of all projects in which a person has started a session, last used first."""
        sql = """SELECT coalesce(nullif(repo_root, ''), resolved_cwd) AS root FROM sessions
            WHERE origin = 'person' AND root <> '' GROUP BY root ORDER BY max(last_activity) DESC, root"""
        return [root for (root,) in self._all(sql)]

    def holdings(self, scope: Scope | None = None) -> list[Holding]:
        """Count sessions by project, agent, day and outcome."""
        sql = f"""SELECT coalesce(nullif(repo_root, ''), resolved_cwd), agent, substr(last_activity, 1, 10), outcome,
            count(*), max(last_activity) FROM sessions WHERE {_within(scope)} GROUP BY 1, 2, 3, 4"""  # noqa: S608
        return [Holding._make(row) for row in self._all(sql)]

    def families(self, limit: int) -> list[str]:
        """Return the root ids of at most `limit` families (sessions with their forks), last used first."""
        sql = """SELECT root_id FROM sessions WHERE root_id <> '' AND home IS NULL GROUP BY root_id HAVING count(*) > 1
            ORDER BY max(last_activity) DESC, root_id LIMIT ?"""
        return [root for (root,) in self._all(sql, (limit,))]

    def _sessions(self, condition: str, values: Sequence[Any]) -> list[SessionRow]:
        rows = map(SessionRow._make, self._all(f"SELECT {_SESSION} FROM sessions WHERE {condition}", values))  # noqa: S608
        return [
            row._replace(outcome=Outcome(row.outcome), session_id=row.session_id.partition("\n")[0]) for row in rows
        ]

    def guests(self, homes: Iterable[int], scope: Scope) -> dict[int, SessionRow]:
        """Return the rows in `scope` for work outside a session's own repository, by the session's row (in `homes`)."""
        found = self._sessions(f"home IN ({numbers(homes)}) AND part IN ({numbers(scope.parts)})", ())
        return {row.home: row for row in found if row.home}

    def edits(self, sessions: Iterable[int]) -> dict[int, Edits]:
        """Return the files that these sessions edited, by session. Sessions without edits are missing."""
        rows = self._all(f"SELECT session, files, until FROM edits WHERE session IN ({numbers(sessions)})")  # noqa: S608
        return {session: Edits(tuple(json.loads(files)), until) for session, files, until in rows}

    def most_edited(self, session: int) -> list[str]:
        """Return the files that a session edited. Files with the most edits that added lines come first."""
        sql = """SELECT edited.value FROM edits, json_each(files) AS edited LEFT JOIN authored
            ON authored.session = edits.session AND file = edited.value WHERE edits.session = ?
            GROUP BY edited.key ORDER BY count(file) DESC, edited.key DESC"""
        return [file for (file,) in self._all(sql, (session,))]

    def authored(self, names: Collection[str], scope: Scope) -> dict[int, list[Authored]]:
        """Return the lines that sessions in scope added to files with these base names, in any folder, by session."""
        rows = self._all(
            "SELECT session, exchange, turn, moment, file, lines FROM authored JOIN sessions ON id = session "  # noqa: S608
            f"WHERE name IN (SELECT value FROM json_each(?)) AND part IN ({numbers(scope.parts)})",
            (json.dumps(list(names)),),
        )
        found: defaultdict[int, list[Authored]] = defaultdict(list)
        for session, *rest in rows:
            found[session].append(Authored(*rest))
        return dict(found)

    def errors(self, lines: Sequence[bytes], scope: Scope) -> dict[int, list[MetError]]:
        """Return the errors that sessions in scope met, if their lines have one of these hashes, by session."""
        rows = self._all(
            "SELECT session, line, exchange, turn, fate, by FROM errors JOIN sessions ON id = session "  # noqa: S608
            f"WHERE line IN ({', '.join('?' * len(lines))}) AND part IN ({numbers(scope.parts)})",
            lines,
        )
        found: defaultdict[int, list[MetError]] = defaultdict(list)
        for session, line, exchange, turn, fate, by in rows:
            found[session].append(MetError(line, exchange, turn, Fate(fate), by))
        return dict(found)

    def session_count(self) -> int:
        return int(self._all("SELECT count(*) FROM sessions")[0][0])

    def counts(self, scope: Scope | None = None) -> Counts:
        """Count the content of the whole index. `scope` limits the counts of sessions and chunks."""
        where = _within(scope)
        only = "1" if scope is not None else _ITSELF
        sessions = self._all(f"SELECT count(*) FROM sessions WHERE {where} AND {only}")[0][0]  # noqa: S608
        of_part = f"SELECT count(*) FROM chunks WHERE {where} AND block"  # noqa: S608 - both are indexed
        embedded, waiting = (int(self._all(f"{of_part} {which} 0")[0][0]) for which in ("<>", "="))
        files, broken = self._all("SELECT count(*), coalesce(sum(broken), 0) FROM files")[0]
        skipped = self._all("SELECT skipped, count(*) FROM files WHERE skipped <> '' GROUP BY skipped ORDER BY 2 DESC")
        return Counts(sessions, embedded + waiting, embedded, files, dict(skipped), broken, self.meta("updated_at"))

    def first_passages(self, scope: Scope | None = None) -> tuple[int, int]:
        """Return how many first chunks of exchanges (prompts with answers) are in scope, and how many have a vector."""
        ((number, embedded),) = self._all(
            f"SELECT count(*), coalesce(sum(block <> 0), 0) FROM chunks WHERE {_within(scope)} "  # noqa: S608 - constants and integers
            f"AND id IN (SELECT chunk FROM placements AS place WHERE {_BEGINS})"
        )
        return int(number), int(embedded)

    def waiting(self, first_parts: Sequence[int], limit: int, wanted: Collection[int] = ()) -> list[tuple[int, str]]:
        """Return at most `limit` chunks without a vector as (id, text), of chunks with equal text only one.

        First come the `wanted` ones, then the first chunks of exchanges (prompts with answers), then the last ones,
        then others. Among equals, chunks in the index's parts `first_parts` come first, then the newest.
        """
        # One for all that share a text and so a vector. Among equals, people's sessions and the newest come first.
        return self._all(
            f"""
            WITH waiting AS MATERIALIZED (
                SELECT chunks.id, hash, part IN ({numbers(first_parts)}) AS here, automated,
                    chunks.id IN ({numbers(wanted)}) AS wanted
                FROM chunks INDEXED BY chunks_waiting JOIN parts ON parts.id = part WHERE block = 0
            ), next AS MATERIALIZED (
                SELECT min(waiting.id) AS id,
                    max(CASE WHEN session IS NULL THEN 0 WHEN {_BEGINS} THEN 2 ELSE {_ENDS} END) AS rank,
                    max(wanted) AS wanted, max(here) AS here, min(waiting.automated) AS automated,
                    max(last_activity) AS newest, max(session) AS session, min(position) AS position
                FROM waiting LEFT JOIN placements AS place ON chunk = waiting.id
                LEFT JOIN sessions ON sessions.id = session
                GROUP BY hash ORDER BY 3 DESC, 2 DESC, 4 DESC, 5, 6 DESC, 7 DESC, 8 LIMIT ?  -- as below
            )
            SELECT id, text FROM next JOIN chunks USING (id)
            ORDER BY wanted DESC, rank DESC, here DESC, next.automated, newest DESC, session DESC, position
            """,  # noqa: S608 - constants and integers
            (limit,),
        )

    def broken_logs(self) -> list[tuple[str, int, str]]:
        """Return each log with broken lines as (path, their number, some of them as JSON [[line, reason], …])."""
        return self._all("SELECT path, broken, broken_lines FROM files WHERE broken > 0 ORDER BY broken DESC, path")

    def understood(self) -> dict[AgentName, Understood]:
        """Return for each agent how many records its logs have, and how many of these have an unknown type."""
        versions: dict[AgentName, list[str]] = {}
        for agent, version in self._all("SELECT DISTINCT agent, version FROM sessions WHERE version <> ''"):
            versions.setdefault(agent, []).append(version)
        rows = self._all("SELECT agent, sum(records), sum(unknown) FROM files GROUP BY agent")
        return {agent: Understood(records, unknown, tuple(versions.get(agent, ()))) for agent, records, unknown in rows}

    def odd_logs(self) -> list[tuple[str, str]]:
        """Return the path of each file that has no record although it is named like a log, with the reason."""
        return self._all("SELECT path, skipped FROM files WHERE skipped LIKE ? || '%' ORDER BY path", (NO_LOG,))


class _NoSimilarities:
    """The empty result of a vector search in an index without vectors. NumPy is not imported for it."""

    def best(self, limit: int) -> list[Near]:
        return []

    def of(self, chunks: Collection[int]) -> dict[int, tuple[float, ...]]:
        return {}


def _only(table: WordTable, scope: Scope) -> str:
    """Return the SQL condition that limits rows of a word table to the scope's directory or sessions; empty for all."""
    if scope.session is not None:
        sessions = "SELECT :session"
    elif scope.sessions is not None:
        sessions = "SELECT value FROM json_each(:sessions)"
    elif scope.within:
        sessions = _SESSIONS_BELOW
    else:
        return ""
    rows = sessions if table != "chunks" else f"SELECT chunk FROM placements WHERE session IN ({sessions})"  # noqa: S608
    # With its sign the number is no key: the words are matched and weighed once, and not once for each row.
    return f"AND +rowid IN ({rows})"


def _within(scope: Scope | None) -> str:
    """Return the SQL condition that limits sessions to the scope's parts of the index; to all without a scope."""
    return "1" if scope is None else f"part IN ({numbers(scope.parts)})"


def _named(scope: Scope) -> dict[str, Any]:
    return {"below": scope.within.rstrip("/"), "session": scope.session, "sessions": json.dumps(scope.sessions)}


def _tokens(parts: Iterable[int]) -> str:
    return " OR ".join(f"p{int(part)}" for part in sorted(parts))
