"""A client, a service and a server of one's own that are not real, around a real relay."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from typing import Any, Self

from smart_fork.front.relay import Relay
from smart_fork.rpc import RpcMessage, made
from smart_fork.service.client import ServiceGoneError

SECONDS = 120  # a machine may be busy; where all is well it costs nothing
READING = frozenset({"list_sessions", "read_session"})


def request(number: int | str, method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number: int | str, tool: str, **arguments: object) -> dict[str, Any]:
    return request(number, "tools/call", name=tool, arguments=arguments)


def told(method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def answer(to: RpcMessage, by: str) -> RpcMessage:
    return made({"jsonrpc": "2.0", "id": to.id, "result": {"by": by}})


INITIALIZE = request(
    0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"}
)


class Service:
    """Answers whatever it is asked, unless `asked` does something else for that id."""

    def __init__(self) -> None:
        self.asked: dict[object, Callable[[RpcMessage, Callable[[RpcMessage], None]], None]] = {}
        self.heard: list[RpcMessage] = []
        self.told: queue.Queue[RpcMessage] = queue.Queue()
        self.ended = False

    def ask(self, message: RpcMessage, heard: Callable[[RpcMessage], None]) -> None:
        self.heard.append(message)
        how = self.asked.get(message.id)
        if how is not None:
            how(message, heard)
        else:
            heard(answer(message, "service"))

    def tell(self, message: RpcMessage) -> None:
        self.told.put(message)

    def end(self) -> None:
        self.ended = True


class Own:
    """A server of one's own, that answers at once all but what is in `silent`, and dies of what is in `deadly`."""

    def __init__(self) -> None:
        self.told: list[RpcMessage] = []
        self.heard: Callable[[RpcMessage], None] = lambda _: None
        self.dies: Callable[[int], None] = lambda _: None
        self.silent: set[object] = set()
        self.deadly: set[object] = set()
        self.lists: list[object] = []
        self.started = 0
        self.ended = False

    def start(self, heard: Callable[[RpcMessage], None], dies: Callable[[int], None]) -> Own:
        self.started += 1
        self.heard, self.dies = heard, dies
        return self

    def tell(self, message: RpcMessage) -> None:
        self.told.append(message)
        if message.kind != "request":
            return
        if message.id in self.deadly:
            self.dies(-9)
        elif message.id == "smart-fork: tools":
            self.heard(made({"jsonrpc": "2.0", "id": message.id, "result": {"tools": self.lists}}))
        elif message.id not in self.silent:
            self.heard(answer(message, "own"))

    def end(self) -> None:
        self.ended = True


class Conversation:
    """A client's, that has been greeted. Leaving the context closes the relay's input, and waits for its end."""

    def __init__(self, *, begin: bool = True, service: bool = True) -> None:
        self.service, self.own = Service(), Own()
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._said: queue.Queue[bytes] = queue.Queue()
        self._relay = Relay(
            self,  # type: ignore[arg-type]
            hello=made(INITIALIZE) if begin else None,
            remote=self.service if begin and service else None,
            reading=READING,
            listed=[],
            start=self.own.start,
        )
        self._asks = begin and service
        self._thread = threading.Thread(target=self._relay.run, args=(iter(self._lines.get, None),))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.put(None)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        assert self.service.ended is self._asks

    def say(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            self._lines.put(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next that the client is told."""
        line = self._said.get(timeout=SECONDS)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        said: dict[str, Any] = json.loads(line)
        return said

    def rest(self) -> list[dict[str, Any]]:
        """What else the client has been told by now."""
        heard = []
        while not self._said.empty():
            heard.append(self.hear())
        return heard

    def silence(self) -> bool:
        """Whether the client has been told nothing more."""
        return self._said.empty()

    def write(self, line: bytes) -> None:
        self._said.put(line)

    def flush(self) -> None:
        pass


def dies(*_: object) -> None:
    raise ServiceGoneError("it was killed")


def dies_in_the_middle(message: RpcMessage, heard: Callable[[RpcMessage], None]) -> None:
    heard(made(told("notifications/progress", progressToken=message.id, progress=1)))
    raise ServiceGoneError("it was killed")
