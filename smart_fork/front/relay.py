"""Who gets which message: what only reads the service, what acts a server of our own, which gets all without the other.

The client sees one server. It has begun the conversation once; each of the two is told the same when first needed.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Literal, Protocol

from smart_fork.errors import SmartForkError
from smart_fork.front.remote import INITIALIZED
from smart_fork.front.routes import acts
from smart_fork.rpc import Id, RpcMessage, made, read, refusal
from smart_fork.service.client import ServiceGoneError

#: Questions to the service at once.
QUESTIONS = 32
#: How long a client that has closed our input is still answered: a script writes all that it asks and waits.
LAST_SECONDS = 0.5

_INITIALIZE, _CANCELLED = "initialize", "notifications/cancelled"
#: Of what we ask a server of our own ourselves.
_OUR_HELLO, _OUR_LIST = "smart-fork: initialize", "smart-fork: tools"
_LIST = made({"jsonrpc": "2.0", "id": _OUR_LIST, "method": "tools/list", "params": {}})
_LIST_CHANGED = made({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
#: A server that ended, or could not be started; free for an implementation to choose.
_GONE_CODE = -32000
_IN_USE = {"code": -32600, "message": "This id is already in use: an earlier request with it has no answer yet."}
Side = Literal["service", "own"]

log = logging.getLogger(__name__)


class Far(Protocol):
    """The conversation with the service; see `Remote`."""

    def ask(self, request: RpcMessage, heard: Callable[[RpcMessage], None]) -> None: ...
    def tell(self, message: RpcMessage) -> None: ...
    def end(self) -> None: ...


class NearServer(Protocol):
    """A server of our own; see `Local`."""

    def tell(self, message: RpcMessage) -> None: ...
    def end(self) -> None: ...


class Relay:
    """One conversation of a client, whose messages it writes to `out`.

    The client has introduced itself with `hello` and been told of the tools `listed`; without `hello` it begins in
    another way, and what then speaks to whom is not known here. `remote` is the service, where one runs; `reading`
    names the tools that only read; `start` starts a server of our own.
    """

    def __init__(
        self,
        out: BinaryIO,
        *,
        hello: RpcMessage | None,
        remote: Far | None,
        reading: Collection[str],
        listed: list[Any],
        start: Callable[[Callable[[RpcMessage], None], Callable[[int], None]], NearServer],
    ) -> None:
        self._out, self._hello, self._remote, self._start = out, hello, remote, start
        #: Whom the service is asked through, for as long as it answers.
        self._asked_through = remote
        self._reading, self._listed = reading, listed
        self._asking = ThreadPoolExecutor(QUESTIONS, "ask")
        self._telling = ThreadPoolExecutor(1, "tell")
        self._lock = threading.RLock()
        self._answered = threading.Condition(self._lock)
        self._writing = threading.Lock()
        self._local: NearServer | None = None
        #: Requests of the client that are not answered, and who has them.
        self._open: dict[Id, tuple[RpcMessage, Side | None]] = {}
        #: Requests that a server of our own ended over; see `_ended`.
        self._asked_again: set[Id] = set()
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
                elif (answer := refusal(line)) is not None:
                    self._write(answer)
            with self._answered:
                self._answered.wait_for(lambda: not self._open, LAST_SECONDS)
        finally:
            if self._local is not None:
                self._local.end()
            if self._remote is not None:
                self._remote.end()
            for threads in (self._asking, self._telling):
                threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, message: RpcMessage) -> None:
        if message.kind == "request":
            self._request(message)
        elif message.kind == "answer":
            self._reply(message)
        else:
            self._notice(message)

    def _request(self, message: RpcMessage) -> None:
        with self._lock:
            if self._hello is None and message.method == _INITIALIZE:
                self._hello = message
                self._begin_again()
            if message.id in self._open:
                self._write(made({"jsonrpc": "2.0", "id": message.id, "error": _IN_USE}))
                return
            self._open[message.id] = (message, None)
        if self._asked_through is None:
            self._to_own(message)
        else:
            self._asking.submit(self._ask, message)

    def _begin_again(self) -> None:
        """Replace a server that was asked something before the handshake: it refuses one from then on.

        A client may begin with `server/discover`, and with the handshake where the answer takes long.
        """
        local, self._local = self._local, None
        if local is not None:
            self._lost("smart-fork's server begins again with the handshake", self._left_to_own())
            self._telling.submit(local.end)  # it may take a while

    def _ask(self, message: RpcMessage) -> None:
        remote = self._asked_through
        try:
            if remote is None or acts(message, self._reading):
                self._to_own(message)
            elif self._has(message, "service"):
                remote.ask(message, lambda said: self._heard("service", said))
        except Exception as error:  # noqa: BLE001 - whatever it is, the question must not be lost with it
            expected = isinstance(error, ServiceGoneError | OSError)
            log.log(logging.INFO if expected else logging.ERROR, "working without the service: %s", error)
            self._asked_through = None
            self._to_own(message)

    def _has(self, message: RpcMessage, side: Side) -> bool:
        """Note who has `message`; false where it is answered or taken back by now."""
        with self._lock:
            waits = message.id in self._open
            if waits:
                self._open[message.id] = (message, side)
            return waits

    def _to_own(self, message: RpcMessage) -> None:
        with self._lock:
            if not self._has(message, "own"):
                return
            try:
                local = self._local = self._local or self._begun()
            except (SmartForkError, OSError) as error:
                log.exception("no server of our own")
                self._lost(f"smart-fork's server could not be started: {error}", self._left_to_own())
                return
        if message is not self._hello:  # it was greeted with that
            local.tell(message)  # without the lock: it may have to be listened to before it reads on

    def _begun(self) -> NearServer:
        """A server that has been greeted as the client has greeted us."""
        local = self._start(lambda said: self._heard("own", said), self._ended)
        if (hello := self._hello) is not None:
            waits = self._open.get(hello.id, (None, None))[0] is hello
            local.tell(hello if waits else hello.with_id(_OUR_HELLO))
            if not waits:
                local.tell(INITIALIZED)
                local.tell(_LIST)
        return local

    def _ended(self, status: int) -> None:
        """The server of our own has ended by itself. What only reads is asked of another one, once: it may be why."""
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        with self._lock:
            self._local = None
            forgotten = [number for number, (side, _) in self._asked.items() if side == "own"]
            for number in forgotten:
                del self._asked[number]
            waiting = self._left_to_own()
            again = [one for one in waiting if one.id not in self._asked_again and not acts(one, self._reading)]
            self._asked_again.update(one.id for one in again)
            self._lost(
                f"smart-fork's server {how} before it answered. Ask again: smart-fork starts another one",
                [one for one in waiting if one not in again],
            )
        for number in forgotten:  # the client may show a form that nobody reads any more
            self._write(made({"jsonrpc": "2.0", "method": _CANCELLED, "params": {"requestId": number}}))
        for message in again:
            self._to_own(message)

    def _left_to_own(self) -> list[RpcMessage]:
        """What a server of our own has not answered."""
        return [message for message, side in self._open.values() if side == "own"]

    def _lost(self, why: str, requests: Iterable[RpcMessage]) -> None:
        """Say to whoever waits for these answers why they do not come."""
        with self._answered:
            waiting = [one.id for one in requests if self._open.pop(one.id, None) is not None]
            self._answered.notify_all()
        for number in waiting:
            error = {"code": _GONE_CODE, "message": why}
            self._write(made({"jsonrpc": "2.0", "id": number, "error": error}))

    def _reply(self, message: RpcMessage) -> None:
        """The client has answered one of the two."""
        number = message.id
        side, theirs = self._asked.pop(number, (None, 0)) if isinstance(number, int) else (None, 0)
        if side is not None:
            self._tell(message.with_id(theirs), side)

    def _notice(self, message: RpcMessage) -> None:
        if message.method == _CANCELLED:
            number = message.params.get("requestId")
            with self._lock:
                _, side = self._open.pop(number, (None, None)) if isinstance(number, str | int) else (None, None)
                self._answered.notify_all()
            if side is not None:
                self._tell(message, side)
        else:
            self._tell(message, "own")
            self._tell(message, "service")

    def _tell(self, message: RpcMessage, side: Side) -> None:
        if side == "service":
            if self._asked_through is not None:
                self._telling.submit(self._asked_through.tell, message)
        elif (local := self._local) is not None:
            local.tell(message)

    def _heard(self, side: Side, message: RpcMessage) -> None:
        """Pass on what one of the two says."""
        if message.kind == "answer" and message.id == _OUR_LIST and side == "own":
            self._compare(message)
        elif message.kind == "answer":
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

    def _compare(self, listed: RpcMessage) -> None:
        """Tell the client where it was told of other tools than there are."""
        result = listed.content.get("result")
        if isinstance(result, dict) and result.get("tools") != self._listed:
            self._write(_LIST_CHANGED)

    def _write(self, message: RpcMessage) -> None:
        try:
            with self._writing:
                self._out.write(message.line + b"\n")
                self._out.flush()
        except OSError:  # nobody listens any more: there is no more to be said
            os._exit(0)
