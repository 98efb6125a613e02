"""Chat completions, which Qwen Code and Copilot CLI speak: its messages as those of the messages API, and answers as its events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]
PATH = "/chat/completions"
#: What Copilot CLI says before each prompt.
_MOMENT = re.compile(r"\A<current_datetime>[^<]*</current_datetime>\n\n")
#: How Qwen Code calls the tools of our server, and how Copilot CLI and OpenCode do.
_USUAL, _OTHERS = "mcp__smart-fork__", ("smart-fork-", "smart-fork_")


def items(body: Json) -> list[Json]:
    """The messages of a request, with calls and results as blocks; results that follow each other are one message."""
    found: list[Json] = []
    answering = False
    for message in body.get("messages", []):
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if not answering:
                found.append({"role": "user", "content": []})
            found[-1]["content"].append(block)
        elif message["role"] in ("user", "assistant"):
            found.append(
                {"role": message["role"], "content": [*_text(message), *map(_call, message.get("tool_calls") or ())]}
            )
        answering = message["role"] == "tool"
    return found


def tools(body: Json) -> list[str]:
    """The names of the tools that are offered."""
    return [_usual(tool["function"]["name"]) for tool in body.get("tools") or []]


def events(blocks: Iterable[Json], body: Json, number: int, cached: int = 0) -> Iterator[Json]:
    """One answer, as what a stream brings. Each block is a text, or a call with its input; `cached` tokens were read."""
    say: Json = {"role": "assistant", "content": ""}
    calls: list[Json] = []
    offered = [tool["function"]["name"] for tool in body.get("tools") or []]
    for block in blocks:
        if block["type"] == "text":
            say["content"] += block["text"]
        else:
            spelled = (block["name"].replace(_USUAL, other) for other in (_USUAL, *_OTHERS))
            name = next((one for one in spelled if one in offered), block["name"])
            function = {"name": name, "arguments": json.dumps(block["input"])}
            calls.append({"index": len(calls), "id": block["id"], "type": "function", "function": function})
    if calls:
        say["tool_calls"] = calls
    head = {"id": f"chat_{number}", "created": number, "model": body.get("model"), "object": "chat.completion.chunk"}
    usage: Json = {"prompt_tokens": 100 + cached, "completion_tokens": 20, "total_tokens": 120 + cached}
    usage |= {"prompt_tokens_details": {"cached_tokens": cached}} if cached else {}
    yield {**head, "choices": [{"index": 0, "delta": say, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}
    yield {**head, "choices": [], "usage": usage}


def stream(answer: Iterable[Json]) -> bytes:
    """The events as they are sent."""
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in answer) + b"data: [DONE]\n\n"


def whole(answer: Iterable[Json]) -> Json:
    """The same for a request that did not ask for a stream."""
    first, last, end = answer
    choice = {"index": 0, "message": first["choices"][0]["delta"], "finish_reason": last["choices"][0]["finish_reason"]}
    return {**first, "object": "chat.completion", "choices": [choice], "usage": end["usage"]}


def _text(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": _MOMENT.sub("", content)}] if content else []
    return [
        {"type": "text", "text": _MOMENT.sub("", part["text"])} for part in content or [] if part.get("type") == "text"
    ]


def _call(call: Json) -> Json:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": _usual(function["name"]),
        "input": json.loads(function["arguments"] or "{}"),
    }


def _usual(name: str) -> str:
    before = next((other for other in _OTHERS if name.startswith(other)), "")
    return f"{_USUAL}{name.removeprefix(before)}" if before else name
