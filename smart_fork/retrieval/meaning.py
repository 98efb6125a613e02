"""A question's vectors, which are made once for all that are asked it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager

from indexer.embedder import Embedder, ModelUnavailableError
from indexer.paths import index_db
from indexer.store.base import Store
from smart_fork.retrieval.phrasings import further
from smart_fork.retrieval.query import plain

#: Texts as float32 vectors, or an exception that says why not.
Embed = Callable[[Sequence[str]], Sequence[bytes]]


def embedded(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """The vectors of texts, all of them from one batch."""
    return [bytes(vector.tobytes()) for vector in embedder.embed(texts)]


class Meaning:
    """The vectors of a question's `texts`, made once, in a thread; a failure is raised for each who asks."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder, self._texts = embedder, tuple(texts)
        self._starting = threading.Lock()
        self._made: Future[list[bytes]] | None = None

    @property
    def model(self) -> str:
        """As `Embedder.model`."""
        return self._embedder.model

    def of(self, texts: Sequence[str]) -> list[bytes]:
        """As float32; those of other texts are made by themselves.

        Raises:
            ModelUnavailableError: the model cannot be loaded.
        """
        return self._begun().result() if tuple(texts) == self._texts else embedded(self._embedder, texts)

    def begin(self) -> None:
        """Have them made while other work goes on."""
        self._begun()

    def within(self, seconds: float) -> list[bytes] | None:
        """The vectors, if they are there in time."""
        try:
            return self._begun().result(seconds)
        except NotYet:
            return None
        except Exception:  # noqa: BLE001 - whoever cannot do without is told by `of`
            return None

    def settle(self) -> None:
        """Wait until nothing is being made: a process that ends while a model is at work is aborted."""
        if self._made is not None:
            wait([self._made])

    def _begun(self) -> Future[list[bytes]]:
        with self._starting:
            if self._made is None:
                self._made = Future()
                threading.Thread(target=self._make, args=(self._made,), name="embed a question", daemon=True).start()
            return self._made

    def _make(self, made: Future[list[bytes]]) -> None:
        try:
            made.set_result(embedded(self._embedder, self._texts))
        except BaseException as error:  # noqa: BLE001 - raised again where it is asked for
            made.set_exception(error)


def meanings_of(store: Store, meaning: Meaning, absent: str, texts: Sequence[str]) -> list[bytes]:
    """The vectors of texts, comparable with those of the index; an exception says why there are none."""
    why = f": {absent}" if absent else ""
    if not store.meta("model"):
        raise LookupError(f"no session has been embedded yet{why}")
    if store.meta("model") != meaning.model:
        raise LookupError(f"the index is embedded with {store.meta('model')}, not with {meaning.model}{why}")
    if absent:
        raise ModelUnavailableError(absent)
    return meaning.of(texts)


@contextmanager
def meaning_of(intent: str, also: Sequence[str], embedder: Embedder) -> Iterator[Meaning | None]:
    """The vectors of an intent and all its other words, as one session is asked, which are made while other work goes
    on; none without an index.
    """
    if not (intent.strip() and index_db().exists()):
        yield None
        return
    meaning = Meaning(embedder, (plain(intent), *further(plain(intent), also)))
    meaning.begin()
    try:
        yield meaning
    finally:
        meaning.settle()
