"""Forms that start something: each was shown by this page for one thing, and does it once, however often it is sent."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from indexer.files import write_new
from indexer.paths import private_dir
from indexer.shapes import dataclass
from smart_fork.errors import ForkRefused, NotFound, Usage
from smart_fork.page.entry import LONGEST_SECONDS

T = TypeVar("T")

#: Answers that are kept to be shown again.
MAX_KEPT = 200
#: A form may be sent for so long: nobody is let in for longer who was shown it.
FORM_SECONDS = LONGEST_SECONDS
#: Who asks for the same so soon from another window has most likely pressed the same button twice.
ALIKE_SECONDS = 120.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SentForm(Generic[T]):
    """A form that was sent: what it `asked` for, when, and what is `done` for it."""

    asked: Mapping[str, str]
    at: float
    done: Future[T] = field(default_factory=Future)

    @property
    def moment(self) -> str:
        """When, as ISO 8601."""
        return datetime.fromtimestamp(self.at, UTC).isoformat()


class PageForms(Generic[T]):
    """`new` names a form that is shown; nobody who does not know what `secret` gives can make such a name up.

    Those that were sent are noted in `folder`: after a restart too none does its work a second time.
    """

    def __init__(self, secret: Callable[[], str], folder: Path, now: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._folder = folder
        self._now = now
        self._lock = threading.Lock()
        self._sent: OrderedDict[str, SentForm[T]] = OrderedDict()
        self._sweep()

    def new(self, address: str) -> str:
        """The name of one more form, which is sent to `address`."""
        nonce = f"{int(self._now()):x}-{secrets.token_hex(12)}"
        return f"{nonce}.{self._signature(address, nonce)}"

    def send(self, address: str, form: str, work: Callable[[], T], *, alike: Mapping[str, str] | None = None) -> T:
        """What `work` gives; for a form that was sent before, what it gave then. One that failed may be sent again.

        Where another form has asked for the same as `alike` a moment ago, it is what that one has been given.

        Raises:
            Usage: the form is not ours, or was shown for something else or too long ago.
            ForkRefused: it was sent before, and what it gave is not known any more.
        """
        nonce = self._nonce(address, form)
        with self._lock:
            sent, first = self._sent.get(form), False
            if sent is None:
                self._note(nonce)
                twin = self._alike(alike)
                first = twin is None
                sent = self._sent[form] = twin or SentForm(dict(alike or {}), self._now())
        if first:
            self._work(sent.done, work)
        return sent.done.result()

    def answer(self, form: str) -> T:
        """What was answered to a form that was sent.

        Raises:
            NotFound: it was not, or too long ago.
        """
        with self._lock:
            sent = self._sent.get(form)
        if sent is None or not sent.done.done():
            raise NotFound("The result of this form is no longer kept", "`smart-fork active` shows what runs.")
        return sent.done.result()

    def twin(self, form: str) -> SentForm[T] | None:
        """The form that had asked for the same before, and whose answer this one was given; `None` where none had."""
        with self._lock:
            sent = self._sent.get(form)
            first = next((name for name, one in self._sent.items() if one is sent), form)
        return sent if first != form else None

    def _alike(self, asked: Mapping[str, str] | None) -> SentForm[T] | None:
        since = self._now() - ALIKE_SECONDS
        same = (one for one in self._sent.values() if asked and one.asked == asked and one.at > since)
        return next(same, None)

    def _work(self, done: Future[T], work: Callable[[], T]) -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again to everybody who waits
            with self._lock:
                for name in [name for name, one in self._sent.items() if one.done is done]:
                    del self._sent[name]
                    (self._folder / name.partition(".")[0]).unlink(missing_ok=True)
            done.set_exception(error)
        with self._lock:
            ended = [name for name, one in self._sent.items() if one.done.done()]
            for name in ended[: max(0, len(self._sent) - MAX_KEPT)]:
                del self._sent[name]

    def _nonce(self, address: str, form: str) -> str:
        nonce, _, signature = form.partition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._signature(address, nonce).encode()):
            raise Usage("This form has expired", "Reload the page and send it again.")
        if self._now() - int(nonce.partition("-")[0], 16) >= FORM_SECONDS:
            raise Usage("This form has expired", "Reload the page and send it again.")
        return nonce

    def _note(self, nonce: str) -> None:
        """Note that it is sent, before anything is done: what is ended in the middle of it is not done again."""
        try:
            write_new(private_dir(self._folder) / nonce, ())
        except FileExistsError:
            raise ForkRefused(
                "This form was already sent",
                "See `Workers` for what runs and `Index` for cuts. To send it again, reload the page.",
            ) from None
        except OSError as error:  # what it asks for most likely says so as well
            log.warning("that a form was sent cannot be noted: %s", error)

    def _sweep(self) -> None:
        """Take away the notes of forms that nobody can send any more."""
        for note in self._folder.glob("*-*") if not self._folder.is_symlink() else ():
            try:
                if self._now() - int(note.name.partition("-")[0], 16) >= FORM_SECONDS:
                    note.unlink()
            except (OSError, ValueError):
                continue

    def _signature(self, address: str, nonce: str) -> str:
        said = f"form {address} {nonce}".encode("utf-8", "replace")
        return hmac.new(self._secret().encode(), said, hashlib.sha256).hexdigest()
