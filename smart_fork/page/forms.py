"""Forms of the page: their fields, and names that keep them from being forged or sent twice."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request

from indexer.lazy_compilation import dataclass
from indexer.safe_files import private_dir, write_new
from smart_fork.agents.request_fields import FieldInput
from smart_fork.errors import ForkRefused, NotFound, Usage

T = TypeVar("T")
log = logging.getLogger(__name__)

#: The number of results of forms that are kept to be shown again.
MAX_KEPT = 200
#: The lifetime of a form, equal to the longest sign-in that could have shown it.
FORM_SECONDS = 30 * 86_400.0
#: Within this time, an equal form from another window most likely means that a button was pressed twice.
ALIKE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class SentForm(Generic[T]):
    """A form that a browser sent: its fields `asked`, the time `at` of sending, and the future result of its work."""

    asked: Mapping[str, str]
    at: float
    done: Future[T] = field(default_factory=Future)

    @property
    def moment(self) -> str:
        return datetime.fromtimestamp(self.at, UTC).isoformat()


class PageForms(Generic[T]):
    """The forms of the page. Each has a name that is signed with `secret`, so that no other site can invent one.

    The names of sent forms are stored in `folder`, so that no form does its work twice, even after a restart.
    """

    def __init__(self, secret: Callable[[], str], folder: Path, now: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._folder = folder
        self._now = now
        self._lock = threading.Lock()
        self._sent: OrderedDict[str, SentForm[T]] = OrderedDict()
        self._sweep()

    def new(self, address: str) -> str:
        """Return a signed name for a new form, valid only for the `address` to which it is sent."""
        nonce = f"{int(self._now()):x}-{secrets.token_hex(12)}"
        return f"{nonce}.{self._signature(address, nonce)}"

    def send(self, address: str, form: str, work: Callable[[], T], *, alike: Mapping[str, str] | None = None) -> T:
        """Run `work` for `form` and return its result, or the earlier result if the form was sent before.

        If `work` fails, the form may be sent again. `alike` are the form's fields: if another form with equal fields
        was sent within `ALIKE_SECONDS`, that form's result is returned.

        Raises:
            Usage: the form's name is invalid, for another address, or expired.
            ForkRefused: the form was sent before, and its result is no longer known.
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

    def result(self, form: str) -> T:
        """Return the result of the finished work of `form`.

        Raises:
            NotFound: the form was not sent, its work has not ended, or its result was deleted.
        """
        with self._lock:
            sent = self._sent.get(form)
        if sent is None or not sent.done.done():
            raise NotFound("The result of this form is no longer kept", "`smart-fork active` shows what runs.")
        return sent.done.result()

    def twin(self, form: str) -> SentForm[T] | None:
        """Return the earlier form with equal fields whose result this form got, or `None`."""
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
        ours = hmac.compare_digest(signature.encode("utf-8", "replace"), self._signature(address, nonce).encode())
        if not ours or self._now() - int(nonce.partition("-")[0], 16) >= FORM_SECONDS:
            raise Usage("This form has expired", "Reload the page and send it again.")
        return nonce

    def _note(self, nonce: str) -> None:
        """Store the name of a sent form before its work begins, so that a restart does not repeat it."""
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
        for note in self._folder.glob("*-*") if not self._folder.is_symlink() else ():
            try:
                if self._now() - int(note.name.partition("-")[0], 16) >= FORM_SECONDS:
                    note.unlink()
            except (OSError, ValueError):
                continue

    def _signature(self, address: str, nonce: str) -> str:
        said = f"form {address} {nonce}".encode("utf-8", "replace")
        return hmac.new(self._secret().encode(), said, hashlib.sha256).hexdigest()


def parse_form(kind: type[T], form: Mapping[str, str], only: Collection[str]) -> T:
    """Fill the dataclass `kind` from the fields in `only` of a sent form. The value of a ticked box is "yes"."""
    values: dict[str, Any] = {}
    for one in fields(kind):  # type: ignore[arg-type]  # a request is a dataclass
        said, text = FieldInput.of(one), form.get(one.name, "").strip()
        if said is None or one.name not in only:
            continue
        if bool in said.types:
            values[one.name] = text == "yes" or (None if one.default is None else False)
        elif text:
            is_number = int in said.types and text.isascii() and text.isdigit() and len(text) < 10
            values[one.name] = int(text) if is_number else text
    return kind(**values)


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields of the form in a request's body."""
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
