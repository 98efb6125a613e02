"""The index in SQLite: apsw, FTS5 for words, and sqlite-vec for vectors."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexer.session_work import Authored, Edits, MetError
from indexer.sqlite_tools import empty_write_ahead_log, vacuum, write_transaction
from indexer.store import vectors
from indexer.store.base import FORGOTTEN, Document, Reading, SeenFile, SessionRow, Words, bigrams
from indexer.store.queries import StoreReading
from indexer.store.schema import connect, with_vectors
from indexer.transcripts.base import Checkpoint, LogFile
from indexer.transcripts.model import AgentName, Session

#: Broken lines stored for a log, to be shown. Further ones are only counted.
BROKEN_LINES_KEPT = 20
#: The largest time of a file, in nanoseconds.
_LATEST = (1 << 63) - 1
_WORD = re.compile(r"\w+")
#: Bytes of an index that are rewritten in a second on a slow machine.
BYTES_PER_SECOND = 30_000_000
#: The fact that says where deleted text may still be: in the whole file, or only in the write-ahead log.
_ERASE, _ALL, _LOG = "erase", "all", "log"
_WORD_INDEXES = ("chunk_words", "session_words", "session_work", "commit_words")
#: Columns that are written for a session: all except its row number and its id.
_SESSION_COLUMNS = (*SessionRow._fields[SessionRow._fields.index("part") :], "export")


class Store(StoreReading):
    """The index in an SQLite file. `StoreReading` has the methods that only read. Use one object for each thread.

    A session is written in one transaction, so readers see only whole sessions.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(connect(path))
        self.path = path

    def close(self) -> None:
        """Close the index's database."""
        self.db.close()

    def set_meta(self, key: str, value: str) -> None:
        """Store a fact about the index under `key`, such as the name of its embedding model."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, value))

    # -- logs and sessions -----------------------------------------------------------------------------------------

    def seen(self, paths: Collection[str] | None = None) -> dict[str, SeenFile]:
        """Return the size, time, inode and reader version with which logs were read, by path. `paths` limits them."""
        every = "SELECT path, size, mtime_ns, inode, version FROM files"
        named = [(path,) for path in paths or ()]
        rows = self.db.execute(every) if paths is None else self.db.executemany(f"{every} WHERE path = ?", named)
        return {row[0]: SeenFile._make(row[1:]) for row in rows}

    def checkpoint(self, path: str, version: str, inode: int | None = None) -> Checkpoint | None:
        """Return where readers of `version` stopped in a log; `None` if unknown, or if its `inode` has changed."""
        row = self.db.execute(
            "SELECT offset, lines, probe, state FROM files "
            "WHERE path = ?1 AND version = ?2 AND inode = ifnull(?3, inode)",
            (path, version, inode),
        ).fetchone()
        return Checkpoint(*row) if row else None

    def save(self, reading: Reading, document: Document | None, publish: Callable[[], None] | None = None) -> bool:
        """Store the result of reading a log, and the `document` of its session. Call `publish` before the commit.

        Return False, without calling `publish` or storing the document, if another log has a newer copy of the session.
        """
        with write_transaction(self.db):
            session, rank, wins = None, "", False
            if document is not None:
                session, rank, wins = self._claim(reading, document)
                if wins:
                    rewritten = self._is_rewritten(reading)
                    if self._write_session(session, document) or rewritten:
                        self.owe_erasing()
            self._write_file(reading, session, rank)
            self.set_meta("updated_at", datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
            if wins and publish:
                publish()
        return wins

    def sources(self) -> list[tuple[AgentName, str, str]]:
        """Return agent, session id and log path of each session with a log, newest first."""
        return self._all(
            "SELECT sessions.agent, session_id, sessions.path FROM sessions "
            "JOIN files ON files.path = sessions.path AND files.session = sessions.id AND skipped = '' "
            "ORDER BY files.mtime_ns DESC"
        )

    def read_again(self, directory: str) -> int:
        """Mark the logs of sessions in or below `directory` to be read again. Return the number of these sessions."""
        below = directory.rstrip("/")
        at = "{0} = ?1 OR substr({0}, 1, ?2) = ?1 || '/'"
        place = f"{at.format('cwd')} OR {at.format('resolved_cwd')}"
        with write_transaction(self.db):
            again = f"UPDATE sessions SET repo_root = '' WHERE {place} RETURNING ifnull(home, id)"  # noqa: S608
            rows = list({*self._all(again, (below, len(below) + 1))})
            self.db.executemany("UPDATE files SET mtime_ns = -1 WHERE session = ?", rows)
        return len(rows)

    def forget_files(self, paths: Iterable[str]) -> None:
        """Remove deleted logs from the index. Their sessions stay, with another log or without one."""
        with write_transaction(self.db):
            for path in paths:
                for (session,) in self._all("DELETE FROM files WHERE path = ? RETURNING session", (path,)):
                    if session is not None:
                        self._leave_log(session, path)

    def forget_session(self, agent: AgentName, session_id: str) -> bool:
        """Remove a session, and skip its logs from now on. Return False if it is unknown. `erase` removes its text."""
        row = self.db.execute("SELECT id FROM sessions WHERE agent = ? AND session_id = ?", (agent, session_id)).get
        if row is None:
            return False
        with write_transaction(self.db):
            self._remove_session(row)
            self.owe_erasing()
        return True

    def replace_texts(self, session: int, chunks: Sequence[tuple[bytes, str]], words: Words) -> None:
        """Replace the texts and hashes of a session's chunks, its words and its title. `erase` removes old texts."""
        with write_transaction(self.db):
            self.owe_erasing()
            self._remove_guests(session)
            (part,) = self.db.execute("SELECT part FROM sessions WHERE id = ?", (session,)).fetchone() or (0,)
            had = {placement[2] for placement, _, _ in self._placed(session)}
            has = [self._chunk_id(part, digest, text) for digest, text in chunks]
            self.db.executemany(
                "UPDATE placements SET chunk = ?, voices = NULL WHERE session = ? AND position = ?",
                [(chunk, session, position) for position, chunk in enumerate(has)],
            )
            vectors.adopt(self.db, part, sorted(set(has) - had))
            self._drop_orphans(had - set(has))
            named = (words.title, words.also_called, words.headline, session)
            self.db.execute("UPDATE sessions SET title = ?, also_called = ?, headline = ? WHERE id = ?", named)
            self._write_words(session, part, words)
            if edits := self.edits([session]).get(session):
                self._write_edits(session, edits.masked_again())
            self._write_authored(session, ())
            self._write_errors(session, ())
            self._write_commits(session, part, keep=False)

    # -- erasing ---------------------------------------------------------------------------------------------------
    # Text that was removed from the index is erased from its files too, where SQLite would keep it: in free pages, in
    # parts of the word indexes that are not merged yet, and in the write-ahead log.

    def owe_erasing(self) -> None:
        """Record that text is about to be deleted and must be erased, even after a kill of the process."""
        self.set_meta(_ERASE, _ALL)

    def owes_erasing(self) -> bool:
        """Return True if deleted text may still be in the database files."""
        return self.meta(_ERASE) != ""

    def erase(self, seconds: float | None = None) -> bool:
        """Erase deleted text from the database files, with the index's lock held. Return True if none is left.

        Return False if a reader of the old content, another writer or a full disk prevents it, or if it would take
        longer than `seconds`.
        """
        if seconds is None or self.path.stat().st_size <= seconds * BYTES_PER_SECOND:
            if self.meta(_ERASE) == _ALL and vacuum(self.db, _WORD_INDEXES):
                self.set_meta(_ERASE, _LOG)
            if self.meta(_ERASE) == _LOG and empty_write_ahead_log(self.db):
                self.db.execute("DELETE FROM meta WHERE key = ?", (_ERASE,))
        return not self.owes_erasing()

    def _remove_guests(self, home: int) -> None:
        """Remove the rows that stand for a session's work in other repositories."""
        for (guest,) in self._all("SELECT id FROM sessions WHERE home = ?", (home,)):
            self._remove_session(guest)

    def _remove_session(self, row: int) -> None:
        self._remove_guests(row)
        chunks = {chunk for (chunk,) in self.db.execute("SELECT chunk FROM placements WHERE session = ?", (row,))}
        self.db.execute("DELETE FROM placements WHERE session = ?", (row,))
        self._drop_orphans(chunks)
        for words in ("session_words", "session_work", "commit_words"):
            self.db.execute(f"DELETE FROM {words} WHERE rowid = ?", (row,))  # noqa: S608 - constants
        for facts in ("edits", "authored", "errors", "beginnings", "commits"):
            self.db.execute(f"DELETE FROM {facts} WHERE session = ?", (row,))  # noqa: S608 - constants
        self.db.execute(
            "UPDATE files SET session = NULL, rank = '', skipped = ?, broken = 0, broken_lines = '[]', "
            "offset = 0, lines = 0, probe = '', state = x'' WHERE session = ?",
            (FORGOTTEN, row),
        )
        self.db.execute("DELETE FROM sessions WHERE id = ?", (row,))

    def read_forgotten(self) -> None:
        """Mark the logs of forgotten sessions to be read again, because a person has undone the forgetting."""
        self.db.execute("UPDATE files SET mtime_ns = -1 WHERE skipped = ?", (FORGOTTEN,))

    def _leave_log(self, session: int, path: str) -> None:
        """Detach a session from the log at `path`, which no longer contains it, and have its other logs read again."""
        self.db.execute("UPDATE sessions SET path = '' WHERE ?1 IN (id, home) AND path = ?2", (session, path))
        self._read_again(session, path)

    def _read_again(self, session: int, path: str) -> None:
        """Mark all logs of a session except the one at `path` to be read again."""
        self.db.execute("UPDATE files SET mtime_ns = -1 WHERE session = ? AND path <> ?", (session, path))

    def _claim(self, reading: Reading, document: Document) -> tuple[int, str, bool]:
        """Return the session's row, this log's rank (see `_rank`), and True if the session is stored from this log.

        If text was cut from the log that the session is stored from, another log may rank higher. The first log still
        decides until the other one is read again.
        """
        session = document.session
        row = self.db.execute(
            "SELECT id, path FROM sessions WHERE agent = ? AND session_id = ?", (session.agent, session.session_id)
        ).fetchone()
        rank = _rank(session, reading.file)
        if row is None:
            return self._new_session(session.agent, session.session_id, self._part(document)), rank, True
        path = str(reading.file.path)
        rivals = self.db.execute(
            "SELECT rank, path FROM files WHERE session = ? AND path <> ? ORDER BY rank DESC, path", (row[0], path)
        ).fetchone()
        wins = rivals is None or rank > rivals[0] or (rank == rivals[0] and path < rivals[1])
        if not wins and row[1] == path:
            self._read_again(row[0], path)
            wins = True
        return row[0], rank, wins

    def _new_session(self, agent: AgentName, session_id: str, part: int) -> int:
        names = ", ".join(_SESSION_COLUMNS)
        empty = (part, *(None if name == "home" else "" for name in _SESSION_COLUMNS[1:]))
        marks = ", ".join("?" * (len(_SESSION_COLUMNS) + 2))
        self.db.execute(
            f"INSERT INTO sessions(agent, session_id, {names}) VALUES({marks})", (agent, session_id, *empty)
        )
        return self.db.last_insert_rowid()

    def _is_rewritten(self, reading: Reading) -> bool:
        """Return True if stored text may be gone from a log: it did not only grow, or another version reads it."""
        old = self.db.execute(
            "SELECT size, inode, version FROM files WHERE path = ?", (str(reading.file.path),)
        ).fetchone()
        if old is None or reading.resumed:
            return False
        size, inode, version = old
        return reading.file.size < size or (reading.file.inode, reading.version) != (inode, version)

    def _write_session(self, row: int, document: Document, home: int | None = None) -> bool:
        """Store a session in its row. Return True if words are gone from it, or from its work in other repositories."""
        session = document.session
        names = self.db.execute("SELECT title, also_called, headline FROM sessions WHERE id = ?", (row,)).fetchone()
        part = self._part(document)
        values = (
            part, str(session.source_path), session.cwd, document.resolved_cwd,
            document.project.root if document.project.git else "", session.git_branch, session.title,
            document.words.also_called, session.version, session.started, session.last_activity, session.origin,
            session.parent_id, self._family_of(row, session) if home is None else self._family(home),
            len(session.turns), sum(turn.prompt for turn in session.turns), session.token_estimate, session.compactions,
            document.until, document.acted, session.inferred_from, session.head, document.outcome,
            document.answered, *session.cache(), *session.resumed[:2], session.compacted(), session.instructions,
            session.own, document.words.headline, home, document.export,
        )  # fmt: skip
        settings = ", ".join(f"{name} = ?" for name in _SESSION_COLUMNS)
        self.db.execute(f"UPDATE sessions SET {settings} WHERE id = ?", (*values, row))  # noqa: S608 - constant names
        gone = self._place_chunks(row, part, document)
        self._write_commits(row, part, keep=not gone)
        self._write_words(row, part, document.words)
        self._write_edits(row, document.edits)
        self._write_authored(row, document.authored)
        self._write_errors(row, document.errors)
        if home is None:
            gone |= self._write_guests(row, document)
        return gone or not _has_words_of(" ".join(names or ()), document.words)

    def _family_of(self, row: int, session: Session) -> str:
        """Return the root id of the oldest session of a family: all sessions of an agent that share a first turn."""
        if not session.root_id:
            return ""
        self.db.execute("DELETE FROM beginnings WHERE session = ?", (row,))
        self.db.executemany("INSERT INTO beginnings VALUES(?, ?)", [(row, one) for one in session.beginnings])
        near = """SELECT root_id FROM sessions WHERE agent = ?1 AND id IN (SELECT other.session FROM beginnings own
            JOIN beginnings other USING (id) WHERE own.session = ?2 AND other.session <> ?2)"""
        found = self._all(
            f"SELECT started, session_id, root_id FROM sessions WHERE root_id IN ({near}) AND id <> ?2",  # noqa: S608
            (session.agent, row),
        )
        name: str = min([*found, (session.started, session.session_id, session.root_id)])[2]
        renamed = {(name, root) for _, _, root in found if root != name}
        self.db.executemany("UPDATE sessions SET root_id = ? WHERE root_id = ?", sorted(renamed))
        return name

    def _family(self, row: int) -> str:
        return str(self.db.execute("SELECT root_id FROM sessions WHERE id = ?", (row,)).get)

    def _write_guests(self, home: int, document: Document) -> bool:
        session, gone = document.session, False
        known = {part: row for row, part in self._all("SELECT id, part FROM sessions WHERE home = ?", (home,))}
        for guest in document.guests:
            part = self._part(guest)
            name = f"{session.session_id}\n{part}"
            row = known.pop(part, None) or self._new_session(session.agent, name, part)
            gone |= self._write_session(row, guest, home)
        for row in known.values():
            self._remove_session(row)
        return gone or bool(known)

    def _write_edits(self, row: int, edits: Edits) -> None:
        self.db.execute("DELETE FROM edits WHERE session = ?", (row,))
        if edits.files:
            files = json.dumps(edits.files, ensure_ascii=False)
            self.db.execute("INSERT INTO edits VALUES(?, ?, ?)", (row, edits.until, files))

    def _write_authored(self, row: int, authored: Sequence[Authored]) -> None:
        """Store the lines that a session added to files. Rows that have not changed are not written."""
        was = set(self.db.execute("SELECT * FROM authored WHERE session = ?", (row,)))
        rows = [
            (row, position, one.exchange, one.turn, one.moment, one.file, one.file.rpartition("/")[2], one.lines)
            for position, one in enumerate(authored)
        ]
        new = [one for one in rows if one not in was]
        self.db.execute("DELETE FROM authored WHERE session = ? AND position >= ?", (row, len(rows)))
        self.db.executemany("INSERT OR REPLACE INTO authored VALUES(?, ?, ?, ?, ?, ?, ?, ?)", new)

    def _write_errors(self, row: int, errors: Sequence[MetError]) -> None:
        was = set(self.db.execute("SELECT * FROM errors WHERE session = ?", (row,)))
        rows = {(row, one.line, one.exchange, one.turn, int(one.fate), one.by) for one in errors}
        self.db.executemany("DELETE FROM errors WHERE session = ? AND line = ?", [one[:2] for one in was - rows])
        self.db.executemany("INSERT INTO errors VALUES(?, ?, ?, ?, ?, ?)", sorted(rows - was))

    def _write_words(self, row: int, part: int, words: Words) -> None:
        texts = (f"{words.title}\n{words.also_called}", words.asked, words.answered, words.actions, words.symbols)
        self.db.execute(
            "INSERT OR REPLACE INTO session_words(rowid, part, title, asked, answered, actions, symbols) "
            "VALUES(?, ?, ?, ?, ?, ?, ?)",
            (row, f"p{part}", *map(bigrams, texts)),
        )
        work = (row, f"p{part}", bigrams(words.work))
        self.db.execute("INSERT OR REPLACE INTO session_work(rowid, part, names) VALUES(?, ?, ?)", work)

    def add_commits(self, commits: Sequence[tuple[int, str, str]]) -> None:
        """Store commits of sessions: for each the session's row, the commit's name and its masked message."""
        known = "INSERT OR REPLACE INTO commits SELECT id, ?2, ?3 FROM sessions WHERE id = ?1 RETURNING session"
        with write_transaction(self.db):
            rows = {row for (row,) in self.db.executemany(known, commits)}
            for row, part in self._all(f"SELECT id, part FROM sessions WHERE id IN ({vectors.numbers(rows)})"):  # noqa: S608
                self._write_commits(row, part, keep=True)

    def _write_commits(self, row: int, part: int, *, keep: bool) -> None:
        """Store the words of a session's commit messages. With `keep` False, delete the commits."""
        if not keep:
            self.db.execute("DELETE FROM commits WHERE session = ?", (row,))
        texts = [text for (text,) in self._all("SELECT text FROM commits WHERE session = ? ORDER BY name", (row,))]
        if texts or not keep:
            words = (row, f"p{part}", bigrams("\n".join(texts)))
            self.db.execute("INSERT OR REPLACE INTO commit_words(rowid, part, text) VALUES(?, ?, ?)", words)

    def _place_chunks(self, row: int, part: int, document: Document) -> bool:
        """Store a session's chunks, except unchanged ones. Return True if a chunk's old text is gone from the session.

        A text that a new chunk continues is not gone.
        """
        before = self._placed(row)
        known = {(placed_in, digest): placement[2] for placement, placed_in, digest in before}
        places = [
            (row, position, known.get((part, chunk.hash)) or self._chunk_id(part, chunk.hash, chunk.text), chunk.turn,
             chunk.message_id, chunk.role, chunk.exchange, *fork, *chunk.lines, json.dumps(chunk.voices))
            for position, (chunk, fork) in enumerate(zip(document.chunks, _forks(document), strict=True))
        ]  # fmt: skip
        was = {placement for placement, _, _ in before}
        self.db.execute("DELETE FROM placements WHERE session = ? AND position >= ?", (row, len(places)))
        self.db.executemany(
            "INSERT OR REPLACE INTO placements VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [place for place in places if place not in was],
        )
        had, has = {placement[2] for placement in was}, {place[2] for place in places}
        vectors.adopt(self.db, part, sorted(has - had))
        gone = self.texts(had - has).values()
        self._drop_orphans(had - has)
        new = tuple(chunk.text for chunk in document.chunks)
        return not all(any(one.startswith(text) for one in new) for text in gone)

    def _placed(self, row: int) -> list[tuple[tuple[Any, ...], int, bytes]]:
        """Return the stored positions of a session's chunks, each with the index's part and the hash of its chunk."""
        found = self.db.execute(
            "SELECT placements.*, chunks.part, chunks.hash FROM placements JOIN chunks ON chunks.id = chunk "
            "WHERE session = ?",
            (row,),
        )
        return [(placed[:-2], *placed[-2:]) for placed in found]

    def _chunk_id(self, part: int, digest: bytes, text: str) -> int:
        row = self.db.execute("SELECT id FROM chunks WHERE part = ? AND hash = ?", (part, digest)).fetchone()
        if row:
            return int(row[0])
        self.db.execute("INSERT INTO chunks(part, hash, text) VALUES(?, ?, ?)", (part, digest, text))
        id_ = self.db.last_insert_rowid()
        self.db.execute("INSERT INTO chunk_words(rowid, part, text) VALUES(?, ?, ?)", (id_, f"p{part}", bigrams(text)))
        return id_

    def _drop_orphans(self, candidates: Iterable[int]) -> None:
        placed = "SELECT 1 FROM placements WHERE chunk = ? LIMIT 1"
        orphans = [id_ for id_ in candidates if not self.db.execute(placed, (id_,)).fetchone()]
        vectors.remove(self.db, orphans)
        for id_ in orphans:
            for part, text in self._all("DELETE FROM chunks WHERE id = ? RETURNING 'p' || part, text", (id_,)):
                deleted = ("delete", id_, part, bigrams(text))
                self.db.execute("INSERT INTO chunk_words(chunk_words, rowid, part, text) VALUES(?, ?, ?, ?)", deleted)

    def _write_file(self, reading: Reading, session: int | None, rank: str) -> None:
        file, after = reading.file, reading.checkpoint
        broken = [[line.number, line.reason] for line in reading.broken[:BROKEN_LINES_KEPT]]
        count = len(reading.broken)
        old = self.db.execute(
            "SELECT broken, broken_lines, session FROM files WHERE path = ?", (str(file.path),)
        ).fetchone()
        if old and reading.resumed:
            count, broken = count + old[0], (json.loads(old[1]) + broken)[:BROKEN_LINES_KEPT]
        if old and session is None:
            session = old[2]
        elif old and old[2] not in (None, session):
            self._leave_log(old[2], str(file.path))
        self.db.execute(
            "INSERT OR REPLACE INTO files VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
            (
                str(file.path), file.agent, file.size, file.mtime_ns, file.inode, reading.version,
                after.offset, after.lines, after.probe, after.state, session, rank,
                reading.skipped, count, json.dumps(broken), reading.records, reading.unknown,
            ),
        )  # fmt: skip

    def _part(self, document: Document) -> int:
        project, session = document.project, document.session
        # What changes nothing returns nothing; an id that is set has all rows looked through that refer to it.
        known = "ON CONFLICT DO UPDATE SET {0} = {0} RETURNING id".format
        (in_project,) = self._all(
            f"INSERT INTO projects(key, root) VALUES(?, ?) {known('root')}", (project.key, project.root)
        )
        key = (*in_project, session.agent, int(session.origin != "person"))
        ((part,),) = self._all(f"INSERT INTO parts(project, agent, automated) VALUES(?, ?, ?) {known('agent')}", key)
        return int(part)

    # -- vectors ---------------------------------------------------------------------------------------------------

    def use_model(self, model: str, dimensions: int) -> bool:
        """Prepare the index for vectors of `model`. Return True if vectors of another model were deleted."""
        with_vectors(self.db)
        if self.meta("model") == model:
            return False
        with write_transaction(self.db):
            if (before := self.meta("model")) == model:
                return False
            vectors.create(self.db, dimensions)
            self.db.execute("UPDATE chunks SET block = 0 WHERE block <> 0")
            self.set_meta("model", model)
            self.set_meta("dimensions", str(dimensions))
        return bool(before)

    def add_vectors(self, given: Sequence[tuple[int, bytes]]) -> int:
        """Store float32 vectors by chunk id, also for chunks with an equal text. Return the number of chunks."""
        from indexer.store.nearest import coded

        of_part: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        waiting = "SELECT id, part FROM chunks WHERE hash = (SELECT hash FROM chunks WHERE id = ?) AND block = 0"
        with write_transaction(self.db):
            for (id_, _), vector in zip(given, coded([vector for _, vector in given]), strict=True):
                for twin, part in self.db.execute(waiting, (id_,)):
                    of_part[part][twin] = vector
            for part, group in of_part.items():
                vectors.append(self.db, part, group)
        return sum(map(len, of_part.values()))


def _rank(session: Session, file: LogFile) -> str:
    """Return the rank of a log. Of several logs of a session, the session is read from the log with the greatest rank.

    A log with a later last turn ranks higher; then the original, the longest, and the oldest.
    """
    until = (session.turns[-1].timestamp if session.turns else "") or session.last_activity
    if session.resumed.reason == "elsewhere" and session.resumed.start == len(session.turns):
        until = ""  # it has no end of its own: another log goes further
    where = "copy" if session.copied else "original"
    return f"{until} {where} {file.size:015d} {_LATEST - file.mtime_ns:019d}"


def _has_words_of(names: str, words: Words) -> bool:
    """Return True if each word of `names` (old title and other names) is still in the session's new texts."""
    texts = (words.title, words.also_called, words.headline, words.asked, words.answered, words.actions)
    return all(any(word in text for text in texts) for word in _WORD.findall(names))


def _forks(document: Document) -> list[tuple[int | None, int]]:
    """Return for each chunk the turn after which its exchange can be forked, and how many tokens the fork loads."""
    ends, loads = document.session.ends(), document.session.loads()
    return [(end, loads[-1 if end is None else end]) for end in (ends[chunk.turn] for chunk in document.chunks)]
