"""Forms that start something: each was shown by this page, and does its work once, however often it is sent."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from smart_fork.errors import NotFound, Usage

T = TypeVar("T")

#: Answers that are kept to be shown again.
MAX_KEPT = 200


class PageForms(Generic[T]):
    """`new` names a form that is shown; nobody who does not know what `secret` gives can make such a name up."""

    def __init__(self, secret: Callable[[], str]) -> None:
        self._secret = secret
        self._lock = threading.Lock()
        self._sent: OrderedDict[str, Future[T]] = OrderedDict()

    def new(self) -> str:
        """The name of one more form."""
        nonce = secrets.token_hex(16)
        return f"{nonce}.{self._signature(nonce)}"

    def send(self, form: str, work: Callable[[], T]) -> T:
        """What `work` gives; for a form that was sent before, what it gave then. One that failed may be sent again.

        Raises:
            Usage: the form is not ours.
        """
        nonce, _, signature = form.partition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._signature(nonce).encode()):
            raise Usage("This form was not made by this page", "Open the session again, and send the form there.")
        with self._lock:
            answer = self._sent.get(form)
            first = answer is None
            if answer is None:
                answer = self._sent[form] = Future()
        if first:
            self._work(form, answer, work)
        return answer.result()

    def answer(self, form: str) -> T:
        """What was answered to a form that was sent.

        Raises:
            NotFound: it was not, or too long ago.
        """
        with self._lock:
            answer = self._sent.get(form)
        if answer is None or not answer.done():
            raise NotFound("Nothing is known of this any more", "`smart-fork active` shows what runs.")
        return answer.result()

    def _work(self, form: str, answer: Future[T], work: Callable[[], T]) -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again to everybody who waits
            with self._lock:
                del self._sent[form]
            answer.set_exception(error)
        with self._lock:
            done = [name for name, one in self._sent.items() if one.done()]
            for name in done[: max(0, len(self._sent) - MAX_KEPT)]:
                del self._sent[name]

    def _signature(self, nonce: str) -> str:
        return hmac.new(self._secret().encode(), f"form {nonce}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
