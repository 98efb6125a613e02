"""Who gets which message: what only reads the service, what acts a server of our own, which gets all without the other.

The client sees one server. It begins the conversation once; each of the two is told the same when it is first needed.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, Literal, Protocol

from smart_fork.errors import SmartForkError
from smart_fork.front.local import Local
from smart_fork.front.messages import Id, Message, made, read
from smart_fork.front.remote import INITIALIZED
from smart_fork.front.routing import acts
from smart_fork.service.client import ServiceGoneError

#: Questions to the service at once.
QUESTIONS = 32
#: How long a client that has closed our input is still answered: a script writes all that it asks and waits.
LAST_SECONDS = 0.5

_CANCELLED = "notifications/cancelled"
Side = Literal["service", "own"]

log = logging.getLogger(__name__)


class Far(Protocol):
    """The conversation with the service; see `Remote`."""

    @property
    def reading(self) -> frozenset[str]: ...
    def greet(self, hello: Message) -> Message: ...
    def ask(self, request: Message, heard: Callable[[Message], None]) -> None: ...
    def tell(self, message: Message) -> None: ...
    def end(self) -> None: ...


class Near(Protocol):
    """A server of our own; see `Local`."""

    def tell(self, message: Message) -> None: ...
    def end(self) -> None: ...


class Relay:
    """One conversation of a client, whose messages it writes to `out`."""

    def __init__(
        self,
        remote: Far,
        out: BinaryIO,
        start: Callable[[Callable[[Message], None], Callable[[int], None]], Near] = Local,
    ) -> None:
        self._remote, self._out, self._start = remote, out, start
        self._asking = ThreadPoolExecutor(QUESTIONS, "ask")
        self._telling = ThreadPoolExecutor(1, "tell")
        self._lock = threading.RLock()
        self._answered = threading.Condition(self._lock)
        self._writing = threading.Lock()
        self._hello: Message | None = None
        self._local: Near | None = None
        #: The service is not asked any more; or the client has not begun as one does who can be answered by two.
        self._alone = False
        #: Requests of the client that are not answered, and who has them.
        self._open: dict[Id, tuple[Message, Side | None]] = {}
        #: Requests to the client, by the ids that we give them: two servers may choose the same.
        self._asked: dict[int, tuple[Side, Id]] = {}
        self._numbers = itertools.count(1)

    def run(self, lines: Iterable[bytes]) -> None:
        """Pass on what the client says, until it has no more to say."""
        try:
            for line in lines:
                message = read(line)
                if message is not None:
                    self._take(message)
            with self._answered:
                self._answered.wait_for(lambda: not self._open, LAST_SECONDS)
        finally:
            if self._local is not None:
                self._local.end()
            self._remote.end()
            for threads in (self._asking, self._telling):
                threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, message: Message) -> None:
        if message.kind == "request":
            self._request(message)
        elif message.kind == "answer":
            self._reply(message)
        else:
            self._notice(message)

    def _request(self, message: Message) -> None:
        with self._lock:
            self._open[message.id] = (message, None)
            if self._hello is None and not self._alone:
                # Later versions of the protocol begin in another way: what then speaks to whom is not known here.
                self._alone = message.method != "initialize"
                self._hello = message if not self._alone else None
        if self._alone:
            self._to_own(message)
        else:
            self._asking.submit(self._ask, message)

    def _ask(self, message: Message) -> None:
        try:
            if message is self._hello:
                self._heard("service", self._remote.greet(message))
            elif self._alone or acts(message, self._remote.reading):
                self._to_own(message)
            elif self._has(message, "service"):
                self._remote.ask(message, lambda said: self._heard("service", said))
        except Exception as error:  # noqa: BLE001 - whatever it is, the question must not be lost with it
            expected = isinstance(error, ServiceGoneError | OSError)
            log.log(logging.INFO if expected else logging.ERROR, "working without the service: %s", error)
            self._alone = True
            self._to_own(message)

    def _has(self, message: Message, side: Side) -> bool:
        """Note who has `message`; false where it is answered or taken back by now."""
        with self._lock:
            waits = message.id in self._open
            if waits:
                self._open[message.id] = (message, side)
            return waits

    def _to_own(self, message: Message) -> None:
        with self._lock:
            if not self._has(message, "own"):
                return
            try:
                local = self._local = self._local or self._begun()
            except (SmartForkError, OSError):
                log.exception("no server of our own")
                self._gone(1)
                return
        if message is not self._hello:  # it was greeted with that
            local.tell(message)  # without the lock: it may have to be listened to before it reads on

    def _begun(self) -> Near:
        """A server that has been greeted as the client has greeted us. Its answer counts where there was none yet."""
        local = self._start(lambda said: self._heard("own", said), self._gone)
        if (hello := self._hello) is not None:
            waits = self._open.get(hello.id, (None, None))[0] is hello
            local.tell(hello if waits else hello.with_id("smart-fork: initialize"))
            local.tell(INITIALIZED)
        return local

    def _reply(self, message: Message) -> None:
        """The client has answered one of the two."""
        number = message.id
        side, theirs = self._asked.pop(number, (None, 0)) if isinstance(number, int) else (None, 0)
        if side is not None:
            self._tell(message.with_id(theirs), side)

    def _notice(self, message: Message) -> None:
        if message.method == _CANCELLED:
            number = message.params.get("requestId")
            with self._lock:
                _, side = self._open.pop(number, (None, None)) if isinstance(number, str | int) else (None, None)
                self._answered.notify_all()
            if side is not None:
                self._tell(message, side)
        elif message.method != INITIALIZED.method or self._hello is None:  # each was told when it was greeted
            self._tell(message, "own")
            self._tell(message, "service")

    def _tell(self, message: Message, side: Side) -> None:
        if side == "service":
            if not self._alone:
                self._telling.submit(self._remote.tell, message)
        elif self._local is not None:
            self._local.tell(message)

    def _heard(self, side: Side, message: Message) -> None:
        """Pass on what one of the two says."""
        if message.kind == "answer":
            with self._answered:
                waited = self._open.pop(message.id, None)
                self._answered.notify_all()
            if waited is not None:
                self._write(message)
        elif message.kind == "request":
            with self._lock:
                number = next(self._numbers)
                self._asked[number] = (side, message.id)
            self._write(message.with_id(number))
        elif message.method != _CANCELLED:
            self._write(message)
        elif (ours := self._taken_back(side, message.params.get("requestId"))) is not None:
            self._write(made(message.content | {"params": message.params | {"requestId": ours}}))

    def _taken_back(self, side: Side, theirs: object) -> int | None:
        """Our id of what one of the two does not want to know from the client any more."""
        with self._lock:
            ours = next((number for number, asked in self._asked.items() if asked == (side, theirs)), None)
            if ours is not None:
                del self._asked[ours]
            return ours

    def _write(self, message: Message) -> None:
        try:
            with self._writing:
                self._out.write(message.line + b"\n")
                self._out.flush()
        except OSError:  # nobody listens any more
            self._gone(0)

    def _gone(self, status: int) -> None:
        """The server of our own has ended, or the client: there is no more to be said."""
        os._exit(status if 0 <= status <= 255 else 1)
