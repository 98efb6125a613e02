"""A question's vectors, which are made once for all that are asked it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotYet

from indexer.embedder import Embedder, ModelUnavailableError
from indexer.store.base import Store

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

    def of(self) -> list[bytes]:
        """As float32.

        Raises:
            ModelUnavailableError: the model cannot be loaded.
        """
        return self._begun().result()

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


def check_comparable(store: Store, model: str, absent: str) -> None:
    """Refuse vectors of a model that the index is not embedded with, or that is `absent`.

    Raises:
        LookupError: they cannot be compared.
        ModelUnavailableError: it is absent.
    """
    why = f": {absent}" if absent else ""
    if not store.meta("model"):
        raise LookupError(f"no session has been embedded yet{why}")
    if store.meta("model") != model:
        raise LookupError(f"the index is embedded with {store.meta('model')}, not with {model}{why}")
    if absent:
        raise ModelUnavailableError(absent)
