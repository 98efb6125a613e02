"""A server that first replays recorded answers of a true server, and lies from a chosen answer on."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

#: Status, headers and parts of a body, which may never end.
Answer = tuple[int, dict[str, str], Any]
STEERS = "\x1b]0;evil\x07\x1b[31m\u202e\x00"
_TEXTS = ("title", "summary", "message", "hint", "text", "outcome", "family", "version", "branch", "model")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass
class Liar:
    """A lying server. While it `records`, it passes requests on to `app`."""

    app: Any
    recorded: list[tuple[bytes, Answer]] = field(default_factory=list)
    asked: int = 0
    records: bool = True
    at: int = -1
    lie: Callable[[Answer], Answer] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if self.records:
            answer = await _answered(self.app, scope, body)
            self.recorded.append((body, answer))
        else:
            answer = self._again(body)
        status, headers, parts = answer
        given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": given})
        if isinstance(parts, bytes):
            await send({"type": "http.response.body", "body": parts})
            return
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})

    def _again(self, body: bytes) -> Answer:
        """Return the recorded answer, with the id of the present request."""
        number, self.asked = self.asked, self.asked + 1
        before, (status, headers, said) = self.recorded[min(number, len(self.recorded) - 1)]
        for old, new in zip(_chosen(before), _chosen(body), strict=False):
            said = said.replace(old, new)
        answer = status, {key: one for key, one in headers.items() if key != "content-length"}, said
        return self.lie(answer) if self.lie is not None and number >= self.at else answer

    @contextmanager
    def lying(self, at: int, lie: Callable[[Answer], Answer]) -> Iterator[None]:
        """Lie from the answer of this number on."""
        self.records, self.asked, self.at, self.lie = False, 0, at, lie
        yield
        self.records, self.lie = True, None


def _chosen(body: bytes) -> list[bytes]:
    try:
        said = json.loads(body)
        return [said[name].encode() for name in ("id", "token") if isinstance(said.get(name), str)]
    except (ValueError, AttributeError):
        return []


async def _answered(app: Any, scope: Any, body: bytes) -> Answer:
    said: dict[str, Any] = {"body": b""}

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            said["status"], said["headers"] = message["status"], message["headers"]
        else:
            said["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return said["status"], {name.decode(): value.decode() for name, value in said["headers"]}, said["body"]


def _mapped(change: Callable[[str, Any], Any]) -> Callable[[Answer], Answer]:
    """Return JSON with lies: `change` is called for every value, with its name."""

    def walk(name: str, value: Any) -> Any:
        value = change(name, value)
        if isinstance(value, dict):
            return {key: walk(key, one) for key, one in value.items()}
        return [walk(name, one) for one in value] if isinstance(value, list) else value

    def lie(answer: Answer) -> Answer:
        status, headers, body = answer
        try:
            return status, headers, json.dumps(walk("", json.loads(body))).encode()
        except ValueError:
            return status, headers, bytes(reversed(body)) or b"\x00"  # a segment, or nothing

    return lie


def _texts(name: str, value: Any) -> Any:
    if name == "tags" and isinstance(value, list):
        return ["a" + STEERS]
    return f"{value}{STEERS}" if name in _TEXTS and isinstance(value, str) else value


def _other_ids(_: str, value: Any) -> Any:
    return "0197f2c7-0000-7000-8000-000000000000" if isinstance(value, str) and _ID.fullmatch(value) else value


def _paths(name: str, value: Any) -> Any:
    return "../../../../evil" if name in ("id", "session_id", "root_id", "digest", "owner", "user") else value


def _counts(name: str, value: Any) -> Any:
    return value + 7 if type(value) is int and name != "protocol" else value


def _digests(_: str, value: Any) -> Any:
    return "sf1:" + "0" * 64 if isinstance(value, str) and value.startswith("sf1:") else value


def _types(_: str, value: Any) -> Any:
    return {"a": [str(value)]} if isinstance(value, int) else value


def _project(name: str, value: Any) -> Any:
    return "example.org/somebody/else" if name in ("project", "key") else value


def _agent(name: str, value: Any) -> Any:
    return "x-" + value[:20] if name in ("agent", "kind", "verb") and isinstance(value, str) else value


def _more(name: str, value: Any) -> Any:
    return {**value, "permissionMode": "bypassPermissions"} if isinstance(value, dict) else value


async def _longer_than_is_read() -> AsyncIterator[bytes]:
    for _ in range(40):
        yield b" " * 65_536


async def _a_byte_at_a_time() -> AsyncIterator[bytes]:
    for _ in range(1000):
        yield b" "
        await asyncio.sleep(0.001)


def _plain(status: int, body: Any, **headers: str) -> Callable[[Answer], Answer]:
    return lambda _: (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def lies(elsewhere: str) -> dict[str, Callable[[Answer], Answer]]:
    """Return all lies by name. `elsewhere` is the address to which a lie would send the token."""
    html = b"<html><title>\x1b[31mLog in</title></html>"
    zeros = gzip.compress(bytes(10 << 20))
    told = json.dumps({"error": "x", "message": STEERS, "hint": STEERS}).encode()
    return {
        "a page": _plain(200, html, content_type="text/html"),
        "a page not found": _plain(404, html, content_type="text/html"),
        "a page forbidden": _plain(403, html, content_type="text/html"),
        "nothing": _plain(200, b""),
        "nothing, and no content": _plain(204, b""),
        "cut off": lambda answer: (answer[0], answer[1], answer[2][: len(answer[2]) // 2]),
        "no end": lambda answer: (200, {}, _longer_than_is_read()),
        "slow": lambda answer: (200, {}, _a_byte_at_a_time()),
        "too much when unfolded": _plain(200, zeros, content_encoding="gzip"),
        "elsewhere": _plain(307, b"", location=f"{elsewhere}/v1/hello"),
        "elsewhere, for good": _plain(301, b"", location=f"{elsewhere}/v1/hello"),
        "an older protocol": _plain(426, json.dumps({"error": "protocol", "message": "Version 7."}).encode()),
        "a failure": _plain(500, html),
        "a full disk": _plain(507, b'{"error": "no_room", "message": "The disk of the server is full."}'),
        "a failure that steers": _plain(422, told),
        "too often": _plain(429, b'{"error": "too_often", "message": "Too often."}'),
        "a strange status": _plain(299, html),
        "texts that steer": _mapped(_texts),
        "other ids": _mapped(_other_ids),
        "paths": _mapped(_paths),
        "counts": _mapped(_counts),
        "digests": _mapped(_digests),
        "other types": _mapped(_types),
        "another project's": _mapped(_project),
        "another agent's": _mapped(_agent),
        "more than is known": _mapped(_more),
        "deep": _plain(200, b'{"session": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
        "a name twice": lambda answer: (answer[0], answer[1], answer[2][:-1] + b"," + answer[2][1:]),
        "no JSON": _plain(200, b'{"session": NaN, "a": 1e999}'),
    }  # fmt: skip
