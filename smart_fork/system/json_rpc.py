"""JSON-RPC messages, one on each line, and error answers to lines that are not valid messages."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any, Literal

import orjson

from indexer.lazy_compilation import dataclass

Kind = Literal["request", "notification", "answer"]
Id = str | int

#: The deepest nesting of objects and lists. All later parsers accept deeper nesting.
MAX_DEPTH = 100
_PARSE_ERROR, _INVALID_REQUEST, _INVALID_PARAMS = -32700, -32600, -32602
_TEXT = r'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)(?:"|\\?\Z)'
_TOKEN = re.compile(rf"{_TEXT}|[\[\]{{}}]", re.DOTALL)
_VALUE = re.compile(rf"\s*:\s*({_TEXT}|-?\d[\d.eE+-]*|[^\s,}}])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """A JSON-RPC message: the parsed `content`, and the `line` it was read from, without the line break."""

    line: bytes
    content: dict[str, Any]

    @property
    def kind(self) -> Kind:
        """Return the kind of the message: "request", "notification" or "answer". Only a request gets an answer."""
        if "method" not in self.content:
            return "answer"
        return "request" if "id" in self.content else "notification"

    @property
    def id(self) -> Id:
        """Return the id of this request; for an answer, the id of the request that it answers."""
        number: Id = self.content["id"]
        return number

    @property
    def method(self) -> str:
        """Return the name of the method that a request or notification calls; empty for an answer."""
        return str(self.content.get("method", ""))

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters that a request or notification passes to its method; empty without any."""
        return self.content.get("params") or {}

    @classmethod
    def of(cls, content: dict[str, Any]) -> RpcMessage:
        """Build a message from its parsed `content`."""
        return cls(orjson.dumps(content), content)

    @classmethod
    def read(cls, line: bytes) -> RpcMessage | None:
        """Parse a line as a message; `None` for a line that is not a valid message (see `refusal`)."""
        try:
            content = orjson.loads(line)
        except ValueError:
            return None
        if not isinstance(content, dict) or _fault(content) or _is_deep(line):
            return None
        # On one line, whatever stood between its parts.
        return cls(line.strip().replace(b"\r", b" ").replace(b"\n", b" "), content)

    @classmethod
    def refusal(cls, line: bytes) -> RpcMessage | None:
        """Return the error message with which to answer a `line` that is not a valid message.

        It has the invalid request's id, if that is readable. For several messages on one line, it is a list with an
        error for each id. Return `None` for a notification, an answer or an empty line, which get no answer.
        """
        text = line.decode("utf-8", "replace").strip().removeprefix("\ufeff")
        content = _members(text)
        if not text or not _is_waited_for(content):
            return None
        code, why = _reason(line)
        error = {"code": code, "message": f"Not a JSON-RPC message: {why}."}
        several = content if isinstance(content, list) else []
        waiting = [one for one in several if isinstance(one, dict) and "id" in one and _is_waited_for(one)]
        said = [{"jsonrpc": "2.0", "id": _sent_back(one), "error": error} for one in waiting or [content]]
        written = json.dumps(said if waiting else said[0])  # which holds half a character in an id, too
        return cls(written.encode(), said[0])


def _reason(line: bytes) -> tuple[int, str]:
    try:
        content = orjson.loads(line)
    except ValueError:
        return _PARSE_ERROR, _unreadable(line)
    if isinstance(content, list):
        return _INVALID_REQUEST, "it is a batch. Send each message on its own"
    if not isinstance(content, dict):
        return _INVALID_REQUEST, "it is not an object"
    return _fault(content) or (_INVALID_REQUEST, f"it is nested more than {MAX_DEPTH} deep")


def _unreadable(line: bytes) -> str:
    if line.startswith(codecs.BOM_UTF8):
        return "it begins with a byte-order mark"
    try:
        json.dumps(json.loads(line), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except UnicodeEncodeError:
        return "it has a lone surrogate"
    except json.JSONDecodeError as error:
        several = error.msg == "Extra data"
        return "something follows it. Send each message on a line of its own" if several else "it is not JSON"
    except RecursionError:
        return f"it is nested more than {MAX_DEPTH} deep"
    except ValueError:
        pass
    return "it has an invalid number (NaN, 1e400)"


def _fault(content: dict[str, Any]) -> tuple[int, str] | None:
    if content.get("jsonrpc") != "2.0":
        return _INVALID_REQUEST, 'jsonrpc must be "2.0"'
    if not isinstance(content.get("method", ""), str):
        return _INVALID_REQUEST, "method must be text"
    if "id" in content and not _is_id(content["id"]):
        return _INVALID_REQUEST, "id must be text or a whole number of 64 bits"
    if not content.keys() & ({"method"} if "id" not in content else {"method", "result", "error"}):
        return _INVALID_REQUEST, "it has no method"
    if not isinstance(content.get("params"), dict | None):
        return _INVALID_PARAMS, "params must be an object"
    return None


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _sent_back(content: object) -> object:
    """Return the id for the answer to an invalid message. A fraction is no valid id, but its sender recognizes it."""
    number = content.get("id") if isinstance(content, dict) else None
    is_number = isinstance(number, float) and abs(number) < float("inf")
    return number if is_number or _is_id(number) else None


def _is_waited_for(content: object) -> bool:
    if not isinstance(content, dict):
        return True
    if "method" in content:
        return "id" in content
    return "result" not in content and "error" not in content


def _is_deep(line: bytes) -> bool:
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _TOKEN.finditer(line.decode()):
        depth += 1 if token[0] in ("{", "[") else -1 if token[0] in ("}", "]") else 0
        if depth > MAX_DEPTH:
            return True
    return False


def _members(text: str) -> Any:
    """Parse JSON. Of invalid JSON, return an object's readable members (of several objects, a list), or `None`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        found = _first_members(text) if text.startswith("{") else [None]
        return found if len(found) > 1 else found[0]


def _first_members(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("{", "["):
            found += [{}] if depth == 0 else []
            depth += 1
        elif token[0] in ("}", "]"):
            depth = max(0, depth - 1)
        elif depth == 1 and (value := _VALUE.match(text, token.end())):
            found[-1][str(_scalar(token[0]))] = _scalar(value[1])
    return found


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {} if text == "{" else None
