"""smart-fork as it is asked here: index brought up to date, then its search, through its Python API."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .play import Moment

#: As many results as the product gives.
DEPTH = 50


class Answer(NamedTuple):
    """Session ids, best first; the first one's score and the results themselves where a tool has them."""

    sessions: tuple[str, ...]
    score: float | None = None
    hits: tuple[Any, ...] = ()


class Kept:
    """An embedder that remembers vectors in a file, by their text's hash: the same text is embedded once."""

    def __init__(self, embedder: Any, path: Path) -> None:
        self._embedder, self._known = embedder, sqlite3.connect(path, check_same_thread=False)
        self._one_at_a_time = threading.Lock()
        self._known.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self._embedder.model)

    @property
    def dimensions(self) -> int:
        """The size of its vectors."""
        return int(self._embedder.dimensions)

    def embed(self, texts: Sequence[str]) -> Any:
        """Return a vector for each text."""
        with self._one_at_a_time:
            return self._vectors(texts)

    def _vectors(self, texts: Sequence[str]) -> Any:
        import numpy as np

        keys = [hashlib.sha256(f"{self.model}\0{text}".encode("utf-8", "surrogatepass")).digest() for text in texts]
        found = {key: row[0] for key in keys if (row := self._of(key))}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            made = self._embedder.embed(list(missing.values()))
            found |= {key: vector.tobytes() for key, vector in zip(missing, made, strict=True)}
            rows = [(key, found[key]) for key in missing]
            with self._known:
                self._known.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        return np.stack([np.frombuffer(found[key], np.float32) for key in keys])

    def _of(self, key: bytes) -> Any:
        return self._known.execute("SELECT vector FROM vectors WHERE text = ?", (key,)).fetchone()


class SmartFork:
    """smart-fork in the home of this process."""

    def __init__(self, embedder: Any) -> None:
        self.embedder = embedder
        self.seconds: dict[str, list[float]] = {"index": [], "answer": []}

    def bring_up_to_date(self) -> None:
        """Read what is new in the logs, and embed it."""
        from indexer.log_changes import Report, changed_logs
        from indexer.pipeline import embed_waiting, read_logs
        from indexer.safe_files import index_db, private_dir, state_home
        from indexer.store.sqlite import Store
        from smart_fork.agents.log_readers import READERS
        from smart_fork.finding.session_commits import note_commits

        started = time.perf_counter()
        private_dir(state_home())
        store, report = Store(index_db()), Report()
        try:
            read_logs(store, READERS, changed_logs(store, READERS, report), report)
            embed_waiting(store, self.embedder, report)
            note_commits(store)
        finally:
            store.close()
        self.seconds["index"].append(time.perf_counter() - started)

    def ask(self, moment: Moment, also: Sequence[str] = ()) -> Answer:
        """Ask as a person does: the whole prompt, in the repository; or as an agent does, `also` in other words."""
        from smart_fork.finding.index_refresh import Engine
        from smart_fork.finding.request import FindRequest
        from tests.smart_fork.searches import find

        started = time.perf_counter()
        request = FindRequest(moment.question.text, agent_type="all", limit=DEPTH, also=also)
        found = find(request, Engine(self.embedder), moment.clone)
        if not also:
            self.seconds["answer"].append(time.perf_counter() - started)
        if getattr(found, "search_mode", "") != "hybrid":
            raise SystemExit(f"smart-fork did not search as it should: {found.as_json()}")
        hits = tuple(getattr(found, "results", ()))
        return Answer(tuple(hit.session_id for hit in hits), hits[0].score if hits else None, hits)

    def ask_by(self, mode: str, moment: Moment) -> Answer:
        """Ask by words alone ("lexical") or by meaning alone ("vector")."""
        from indexer.project import project_of
        from indexer.safe_files import index_db
        from indexer.store.sqlite import Store
        from smart_fork.agents.log_readers import READERS
        from smart_fork.finding import search
        from smart_fork.finding.query import Query, plain

        store = Store(index_db())
        try:
            scope = store.scope(project_of(moment.clone), READERS.names, automated=False)
            query = Query(plain(moment.question.text), scope, DEPTH)
            hits = search._search(  # noqa: SLF001 - one mode, without the chain
                store, query, self._vectors, mode, None
            ).hits
        finally:
            store.close()
        return Answer(tuple(hit.session.session_id for hit in hits), hits[0].score if hits else None)

    def _vectors(self, texts: Sequence[str]) -> list[bytes]:
        return [vector.tobytes() for vector in self.embedder.embed(texts)]
