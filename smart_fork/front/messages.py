"""One line of the conversation: a message of JSON-RPC, as far as it must be understood to be passed on."""

from __future__ import annotations

from typing import Any, Literal

import orjson

from indexer.shapes import dataclass

Kind = Literal["request", "notification", "answer"]
Id = str | int


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """A message, and the line that it came in, without its end."""

    line: bytes
    content: dict[str, Any]

    @property
    def kind(self) -> Kind:
        """What it is: only a request is answered."""
        if "method" not in self.content:
            return "answer"
        return "request" if "id" in self.content else "notification"

    @property
    def id(self) -> Id:
        """Of a request, or of the one that is answered."""
        number: Id = self.content["id"]
        return number

    @property
    def method(self) -> str:
        """What is asked for, or told; empty for an answer."""
        return str(self.content.get("method", ""))

    @property
    def params(self) -> dict[str, Any]:
        """What goes with it."""
        return self.content.get("params") or {}

    def with_id(self, number: Id) -> RpcMessage:
        """The same under another id."""
        return made(self.content | {"id": number})


def made(content: dict[str, Any]) -> RpcMessage:
    """A message of ours."""
    return RpcMessage(orjson.dumps(content), content)


def read(line: bytes) -> RpcMessage | None:
    """The message in `line`; `None` where it holds none: such a line is passed over, as the SDK does it.

    Any text at all may come, also none that JSON could hold.
    """
    try:
        content = orjson.loads(line)
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("jsonrpc") != "2.0":
        return None
    method, params = content.get("method", ""), content.get("params")
    if not isinstance(method, str) or not isinstance(params, dict | None):
        return None
    if not _is_id(content["id"]) if "id" in content else "method" not in content:
        return None
    # On one line, whatever stood between its parts.
    return RpcMessage(line.strip().replace(b"\r", b" ").replace(b"\n", b" "), content)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
