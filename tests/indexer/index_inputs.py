"""Input of the index's tests: sessions as values, logs on disk, a fast embedder, and the content of an index."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import numpy as np

from indexer.pipeline import document_of
from indexer.safe_files import index_root
from indexer.session_export import Piece, export_path, is_export
from indexer.sqlite_tools import write_transaction
from indexer.store.base import Document, Reading
from indexer.store.damage import read_only
from indexer.store.sqlite import Store
from indexer.store.vectors import read
from indexer.transcripts.base import Checkpoint, LogFile
from indexer.transcripts.model import Session, Turn, estimate_tokens
from smart_fork.agents.claude.log_files import slug
from smart_fork.agents.log_readers import READERS

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def moment(minutes: int) -> str:
    return (START + timedelta(minutes=minutes)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class HashEmbedder:
    """An embedder with unit vectors that depend on the text alone. It counts the texts."""

    def __init__(self, model: str = "hash", dimensions: int = 16) -> None:
        self.model = model
        self.dimensions = dimensions
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]):
        self.embedded += texts
        return np.stack([vector_of(f"{self.model} {text}", self.dimensions) for text in texts])


def vector_of(text: str, dimensions: int = 16):
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    vector = np.random.default_rng(seed).normal(size=dimensions).astype(np.float32)
    return vector / np.linalg.norm(vector)


# -- sessions as values


def session_of(*texts: str, session_id: str = "s1", cwd: str = "", path: str = "", **facts) -> Session:
    """Return a session of alternating user and assistant turns."""
    turns = tuple(
        Turn(f"t{i}", None, "assistant" if i % 2 else "user", moment(i), text, estimate_tokens(text), prompt=not i % 2)
        for i, text in enumerate(texts)
    )
    facts = {"agent": "claude", "root_id": "t0", "last_activity": moment(len(texts)), "started": moment(0)} | facts
    return Session(
        session_id=session_id, source_path=Path(path or f"/logs/{session_id}.jsonl"), turns=turns, cwd=cwd, **facts
    )


def reading_of(session: Session, size: int = 1000, **facts) -> Reading:
    file = LogFile(session.agent, str(session.source_path), size, 1, 1)
    return Reading(file, "1", Checkpoint(size, 3, "probe", b"state"), **facts)


def save(store: Store, session: Session, size: int = 1000) -> Document:
    document, _ = document_of(session, READERS)
    store.save(reading_of(session, size), document)
    return document


def crowd(store, parts: int, rows: int):
    """Store chunks of other projects from row 10,000 on, with random words and vectors. Return the vectors."""
    vectors = np.random.default_rng(7).normal(size=(rows, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with write_transaction(store.db):
        for number in range(1000, 1000 + parts):
            store.db.execute("INSERT INTO projects VALUES(?, ?, ?)", (number, f"/crowd/{number}", f"/crowd/{number}"))
            store.db.execute("INSERT INTO parts VALUES(?, ?, 'claude', 0)", (number, number))
        for number in range(rows):
            row, part = 10_000 + number, 1000 + number % parts
            text = "needle needle" if number % 10 == 0 else "other"
            store.db.execute("INSERT INTO chunks VALUES(?, ?, ?, ?, 0)", (row, part, b"%d" % number, text))
            store.db.execute("INSERT INTO chunk_words(rowid, part, text) VALUES(?, ?, ?)", (row, f"p{part}", text))
    assert rows == store.add_vectors([(10_000 + number, vector.tobytes()) for number, vector in enumerate(vectors)])
    return vectors


def piece(text: str, exchange: int = 0, role: str = "assistant", turn: int = 0) -> Piece:
    return Piece(role, text, turn, f"m{turn}", exchange)


# -- logs on disk


def claude_records(
    session_id: str, cwd: str, texts: Sequence[str], first: int = 0, parent: str | None = None
) -> list[dict]:
    records = []
    for number, text in enumerate(texts, first):
        role = "assistant" if number % 2 else "user"
        content = [{"type": "text", "text": text}] if number % 2 else text
        identity = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{number} {text} {parent}"))
        records.append({
            "type": role, "uuid": identity, "parentUuid": parent, "sessionId": session_id, "cwd": cwd, "version": "2.1.0",
            "timestamp": moment(number), "message": {"role": role, "content": content, "id": f"msg{number}", "model": "m"},
        })  # fmt: skip
        parent = identity
    return records


def claude_log(session_id: str, cwd: str, *texts: str, folder: str = "", tail: bytes = b"") -> Path:
    path = READERS["claude"].home() / "projects" / (folder or slug(cwd)) / f"{session_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(claude_records(session_id, cwd, texts)) + tail)
    return path


def codex_log(session_id: str, cwd: str, *texts: str) -> Path:
    path = READERS["codex"].home() / "sessions/2026/01/02" / f"rollout-2026-01-02T03-04-05-{session_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"id": session_id, "timestamp": moment(0), "cwd": cwd, "originator": "codex-tui", "cli_version": "0.100.0"}
    records = [{"timestamp": moment(0), "type": "session_meta", "payload": meta}]
    for number, text in enumerate(texts):
        role, kind = ("assistant", "output_text") if number % 2 else ("user", "input_text")
        payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        records.append({"timestamp": moment(number), "type": "response_item", "payload": payload})
    path.write_bytes(lines(records))
    return path


def lines(records: Sequence[dict]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
    later = path.stat().st_mtime_ns + 1_000_000_000  # a file system may be too coarse to see it
    os.utime(path, ns=(later, later))


# -- everything an index holds


def content(path: Path) -> dict:
    """Return everything that can be found in an index and its exports, without row numbers."""
    with read_only(path) as db:
        return _content(db)


def _content(db: apsw.Connection) -> dict:
    session_names = (
        "agent, session_id, path, cwd, resolved_cwd, repo_root, git_branch, title, headline, version, started, last_activity, "
        "origin, parent_id, root_id, turns, prompts, tokens, compactions, export"
    )
    chunk_of = dict(
        db.execute(
            "SELECT chunks.id, key || hex(hash) FROM chunks JOIN parts ON parts.id = part JOIN projects ON projects.id = project"
        ).fetchall()
    )
    texts = [text for (text,) in db.execute("SELECT text FROM chunks")]
    words = sorted({word for text in texts for word in text.lower().split() if word.isalnum()})
    session_of_row = dict(db.execute("SELECT id, session_id FROM sessions").fetchall())
    found = {
        word: (
            sorted(
                chunk_of[row]
                for (row,) in db.execute("SELECT rowid FROM chunk_words WHERE chunk_words MATCH ?", (f'"{word}"',))
            ),
            sorted(
                session_of_row[row]
                for (row,) in db.execute("SELECT rowid FROM session_words WHERE session_words MATCH ?", (f'"{word}"',))
            ),
        )
        for word in words
    }
    vectors = {}
    if db.execute("SELECT 1 FROM meta WHERE key = 'model'").fetchone():
        vectors = {
            chunk_of[row]: np.frombuffer(vector, np.int8).astype(np.float32) for row, vector in stored_vectors(db)
        }
    return {
        "sessions": db.execute(f"SELECT {session_names} FROM sessions ORDER BY agent, session_id").fetchall(),  # noqa: S608
        "placements": db.execute(
            "SELECT session_id, position, hash, text, turn, message_id, role, exchange, ends, placements.tokens, "
            "first_line, last_line FROM placements "
            "JOIN sessions ON sessions.id = session JOIN chunks ON chunks.id = chunk ORDER BY session_id, position"
        ).fetchall(),
        "chunks": sorted(chunk_of.values()),
        "logs": db.execute(
            "SELECT path, size, mtime_ns, version, offset, lines, probe, skipped, broken FROM files ORDER BY path"
        ).fetchall(),
        "words": found,
        "vectors": vectors,
        "exports": {
            str(file.relative_to(index_root())): file.read_bytes() for file in index_root().rglob("*") if file.is_file()
        },
    }


def lost_passages(db: apsw.Connection) -> list[str]:
    """Return passages that are not on their recorded lines of an unchanged export."""
    lost = []
    for agent, session_id, export, first, last, text in db.execute(
        "SELECT agent, session_id, export, first_line, last_line, text FROM placements "
        "JOIN sessions ON sessions.id = session JOIN chunks ON chunks.id = chunk"
    ):
        path = export_path(agent, session_id)
        if is_export(path, export):
            lines = path.read_text("utf-8").split("\n")[first - 1 : last] if first else []
            said = "".join("".join(lines).replace("## User", "").replace("## Assistant", "").split())
            if "".join(text.removeprefix("User: ").split()) not in said:
                lost.append(text)
    return lost


def stored_vectors(db: apsw.Connection) -> list[tuple[int, bytes]]:
    """Return every stored vector with its chunk."""
    return list(read(db, [row for (row,) in db.execute("SELECT rowid FROM vectors_rowids")]))


def same_vectors(one: dict, other: dict, apart: int = 1) -> bool:
    return one.keys() == other.keys() and all(np.allclose(one[key], other[key], atol=apart) for key in one)
