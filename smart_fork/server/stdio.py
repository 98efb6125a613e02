"""The server's connection to one client on stdin and stdout.

It handles three cases that the MCP SDK gets wrong: the SDK does not answer an invalid line, drops open requests when
stdin closes, and refuses a handshake after another request.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from io import BufferedReader, RawIOBase
from typing import Any, NamedTuple

import anyio
from anyio.abc import ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from smart_fork.system.json_rpc import RpcMessage

#: The time for open answers after stdin was closed: a script writes all requests at first, and waits.
LAST_SECONDS = 0.5
_INITIALIZE, _CANCELLED = "initialize", "notifications/cancelled"
_INITIALIZED = RpcMessage.of({"jsonrpc": "2.0", "method": "notifications/initialized"})
_INVALID_REQUEST, _GONE = -32600, -32000
_IN_USE = "This id is already in use: an earlier request with it has no answer yet."
_BEGUN_AGAIN = "The client has begun again with the handshake."


class Begun(NamedTuple):
    """The client's input that another process has read from stdin before this process started.

    `hello` is the client's `initialize` request if the other process has answered it. `rest` is the input after it.
    """

    hello: bytes = b""
    rest: bytes = b""

    @classmethod
    def of(cls, argument: str) -> Begun:
        """Decode the command-line argument in which `mcp_handshake.encoded_start` has put this input."""
        hello, _, rest = argument.partition(".")
        return cls(base64.b64decode(hello), base64.b64decode(rest))


class Stdio:
    """The connection to a client on stdin and stdout. The SDK gets its valid messages; others are answered here."""

    def __init__(self, begun: Begun) -> None:
        self._hello = begun.hello
        self._lines = anyio.wrap_file(BufferedReader(_Continued(begun.rest, _own_stdin())))
        #: The handshake of a client that sent another request first.
        self._again = b""
        self._open: set[str | int] = set()
        self._closed_one = anyio.Event()
        self._out: Any = None

    async def serve(self, run: Callable[[Any, Any], Awaitable[None]]) -> None:
        """Call `run`, the SDK's server, with streams of the client's messages and of answers, until stdin closes.

        If the client sends its handshake only after another request, call `run` again from the handshake on.
        """
        begins = True
        while begins:
            async with stdio_server(stdin=self) as (heard, self._out):  # type: ignore[arg-type]
                await run(heard, _Answers(self._out, self._is_waited_for))
            begins = bool(self._again)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the client's lines that the SDK should read, until stdin closes or a new handshake comes."""
        opened_by = ""
        if self._hello:
            yield self._hello
            yield _INITIALIZED.line
            self._hello, opened_by = b"", _INITIALIZE
        async for line in self._incoming():
            message = RpcMessage.read(line)
            if message is None:
                if (answer := RpcMessage.refusal(line)) is not None:
                    await self._answer(answer)
                continue
            if message.kind == "request":
                if message.id in self._open:
                    await self._refuse(message.id, _INVALID_REQUEST, _IN_USE)
                    continue
                if message.method == _INITIALIZE and opened_by not in ("", _INITIALIZE):
                    self._again = line
                    await self._refuse_all()
                    return
                opened_by = opened_by or message.method
                self._open.add(message.id)
            elif message.method == _CANCELLED:
                self._close(message.params.get("requestId"))
            yield line
        with anyio.move_on_after(LAST_SECONDS):
            while self._open:
                await self._closed_one.wait()

    async def _incoming(self) -> AsyncIterator[bytes]:
        if self._again:
            line, self._again = self._again, b""
            yield line
        async for line in self._lines:
            yield line

    def _is_waited_for(self, message: Any) -> bool:
        """Return False if a message is the answer to a request that the client has cancelled."""
        return hasattr(message, "method") or self._close(message.id)

    def _close(self, number: object) -> bool:
        if not isinstance(number, int | str) or number not in self._open:
            return False
        self._open.remove(number)
        self._closed_one.set()
        self._closed_one = anyio.Event()
        return True

    async def _refuse_all(self) -> None:
        for number in tuple(self._open):
            self._close(number)
            await self._refuse(number, _GONE, _BEGUN_AGAIN)

    async def _refuse(self, number: str | int, code: int, why: str) -> None:
        await self._answer(RpcMessage.of({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": why}}))

    async def _answer(self, answer: RpcMessage) -> None:
        await self._out.send(SessionMessage(_Written(answer)))  # type: ignore[arg-type]


class _Answers(ObjectSendStream[SessionMessage]):
    """The stream of messages to the client, without answers to cancelled requests."""

    def __init__(self, out: Any, is_waited_for: Callable[[Any], bool]) -> None:
        self._out, self._is_waited_for = out, is_waited_for

    async def send(self, item: SessionMessage) -> None:
        if self._is_waited_for(item.message):
            await self._out.send(item)

    async def aclose(self) -> None:
        await self._out.aclose()


class _Written:
    """An encoded message. The SDK's own class refuses an id that is a fraction or has a lone surrogate."""

    def __init__(self, answer: RpcMessage) -> None:
        self._text = answer.line.decode()

    def model_dump_json(self, **_: object) -> str:
        return self._text


class _Continued(RawIOBase):
    """A stream of the bytes `before`, which were read earlier, and then those of the file descriptor `file`."""

    def __init__(self, before: bytes, file: int) -> None:
        self._before, self._fd = memoryview(before), file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._before[: len(buffer)] if self._before else os.read(self._fd, len(buffer))
        self._before = self._before[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)


def _own_stdin() -> int:
    """Return a new descriptor of stdin, and open /dev/null as descriptor 0 for programs that this process starts."""
    ours = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return ours
