"""A question's vectors, which are made once for all that are asked it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotYet

from indexer.embedder import Embedder
from smart_fork.retrieval.search import embedded


class Meaning:
    """The vectors of a question's `texts`: whoever wants them first has them made, in a thread, and the others wait."""

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
