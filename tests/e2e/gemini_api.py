"""What Gemini CLI speaks: its contents as the messages of the messages API, and answers as its events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
#: How it spells the tool of a server, and how the others do.
_OURS, _THEIRS = re.compile(r"\Amcp_([a-z-]+)_(.+)"), re.compile(r"\Amcp__([a-z-]+)__(.+)")
ENDS = (":generateContent", ":streamGenerateContent")


def items(body: Json) -> list[Json]:
    """The contents of a request, with calls and results as blocks."""
    roles = {"user": "user", "model": "assistant"}
    return [
        {"role": roles[one["role"]], "content": [block for part in one["parts"] for block in _block(part)]}
        for one in body.get("contents", [])
    ]


def tools(body: Json) -> list[str]:
    """The names of the tools that are offered."""
    return [one["name"] for tool in body.get("tools") or [] for one in tool.get("functionDeclarations", [])]


def answer(blocks: Iterable[Json], body: Json, cached: int = 0) -> Json:
    """One answer. Each block is a text, or a call with its input; `cached` tokens were read. Who wants JSON gets the
    least that it takes.
    """
    schema = (body.get("generationConfig") or {}).get("responseJsonSchema")
    parts = [{"text": json.dumps(_least(schema))}] if schema else [_part(block) for block in blocks]
    usage = {"promptTokenCount": 100 + cached, "candidatesTokenCount": 20, "totalTokenCount": 120 + cached}
    usage |= {"cachedContentTokenCount": cached} if cached else {}
    said = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return {"candidates": [said], "usageMetadata": usage, "modelVersion": "mock"}


def stream(whole: Json) -> bytes:
    """The answer as it is sent to who asks for a stream."""
    return f"data: {json.dumps(whole)}\n\n".encode()


def _block(part: Json) -> Iterable[Json]:
    if "functionCall" in part:
        call = part["functionCall"]
        name = _OURS.sub(r"mcp__\1__\2", call["name"])
        yield {"type": "tool_use", "id": call["id"], "name": name, "input": call.get("args", {})}
    elif "functionResponse" in part:
        answered = part["functionResponse"]
        told = answered.get("response", {})
        yield {"type": "tool_result", "tool_use_id": answered["id"], "content": str(told.get("output", told))}
    elif part.get("text"):
        yield {"type": "text", "text": part["text"]}


def _part(block: Json) -> Json:
    if block["type"] == "text":
        return {"text": block["text"]}
    name = _THEIRS.sub(r"mcp_\1_\2", block["name"])
    return {"functionCall": {"id": block["id"], "name": name, "args": block["input"]}}


def _least(schema: Json) -> Any:
    kind = str(schema.get("type", "object")).lower()
    if kind == "object":
        return {name: _least(one) for name, one in schema.get("properties", {}).items()}
    return {"array": [], "boolean": False, "integer": 1, "number": 1}.get(kind, "x")
