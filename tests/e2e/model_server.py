"""A model on loopback: what the real agents talk to in the end-to-end tests.

It speaks the protocols of the real programs (the Anthropic messages API, the OpenAI responses API and chat completions, all as
server-sent events), keeps every request, and answers from a script, so that a test says what the model does and then
reads, message by message, what the model was sent.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

from tests.e2e import chat_completions, gemini_api

Json = dict[str, Any]
Protocol = Literal["claude", "codex", "qwen", "gemini"]

#: The marks that Claude Code 2.1.332 puts around a long paste.
_PASTED = re.compile(r'\n*</?pasted_content id="\w+">\n*')
#: What the programs put around a person's words. Text that begins so was not said by anybody.
INJECTED = (
    "<system-reminder>",
    "<session_context>",
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md",
    "<permissions",
    "<skills",
    "<local-command-",
    "<command-name>",
    "No response requested.",  # what Claude Code says for the model about a command like /exit
)
#: How Claude Code calls its own tool with which a model waits for MCP servers, and says that it should.
WAIT, CONNECTING = "WaitForMcpServers", "is still connecting"


@dataclass(frozen=True, slots=True)
class Say:
    """The model answers with this text, and says that it has read and written so many tokens of its cache."""

    text: str
    read: int = 0
    wrote: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """The model calls a tool, and does `then` when the tool's result has come back.

    `server` and `tool` name an MCP server and its tool as a person configures them; each protocol has its own spelling.
    A server that is still connecting is waited for, as a real model does that is told so. Without a server it is one of
    the program's own tools; a program that has none of that name is given `then`.
    """

    server: str
    tool: str
    arguments: Json
    then: Answer


@dataclass(frozen=True, slots=True)
class Hold:
    """The model says nothing before `until` is set, and then does `then`."""

    until: threading.Event
    then: Answer


@dataclass(frozen=True, slots=True)
class Calls:
    """The model calls several tools in one answer, and does `then` when all results have come back."""

    calls: tuple[Call, ...]
    then: Answer


Answer = Say | Call | Calls | Hold


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back. `tool` is its name without the server's."""

    tool: str
    text: str

    @property
    def structured(self) -> Json:
        """The structured answer: both programs hand it to the model as JSON, and Codex says first how long it took."""
        answer: Json = json.loads(self.text.partition("\nOutput:\n")[2] or self.text)
        return answer


@dataclass(frozen=True, slots=True)
class Rule:
    """When the last thing that the person said matches, answer so."""

    matches: Callable[[str], bool]
    answer: Answer


@dataclass(frozen=True, slots=True)
class Message:
    """One thing said in a request, whichever protocol carried it."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the program sent it."""

    path: str
    body: Json
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def protocol(self) -> Protocol:
        if self.path.endswith(chat_completions.PATH):
            return "qwen"
        if self.path.endswith(gemini_api.ENDS):
            return "gemini"
        return "codex" if self.path.endswith("/responses") else "claude"

    @property
    def items(self) -> list[Json]:
        """The messages of the one protocol, or the input items of the other; those of the third as those of the first."""
        if self.protocol == "qwen":
            return chat_completions.items(self.body)
        if self.protocol == "gemini":
            return gemini_api.items(self.body)
        return list(self.body.get("input" if self.protocol == "codex" else "messages", []))

    @property
    def said(self) -> list[Message]:
        """The conversation so far, person and model only, without what the programs inject."""
        return [
            Message(item["role"], _PASTED.sub("", text))
            for item in self.items
            if item.get("role") in ("user", "assistant")
            for text in _texts(item.get("content"))
            if text and not text.startswith(INJECTED)
        ]

    @property
    def last_prompt(self) -> str:
        return next((message.text for message in reversed(self.said) if message.role == "user"), "")

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the program offers; a tool in a namespace reads ``namespace/name``."""
        if self.protocol == "qwen":
            return chat_completions.tools(self.body)
        if self.protocol == "gemini":
            return gemini_api.tools(self.body)
        names = []
        for tool in self.body.get("tools") or []:
            inner = tool.get("tools")
            names += (
                [f"{tool['name']}/{part['name']}" for part in inner] if inner else [tool.get("name", tool.get("type"))]
            )
        return names

    @property
    def results(self) -> list[Result]:
        """What tools gave back since the last prompt, oldest first."""
        names: dict[str, str] = {}
        found = []
        for part in self._since_the_last_prompt():
            if part.get("type") in ("tool_use", "function_call"):
                names[part.get("call_id") or part["id"]] = part["name"].rpartition("__")[2]
            elif part.get("type") == "tool_result":
                found.append(Result(names[part["tool_use_id"]], "".join(_texts(part.get("content")))))
            elif part.get("type") == "function_call_output":
                found.append(Result(names[part["call_id"]], "".join(_texts(part["output"]))))
        return found

    @property
    def our_results(self) -> list[Result]:
        """Those that came from an MCP server."""
        return [result for result in self.results if result.tool != WAIT and CONNECTING not in result.text]

    def _since_the_last_prompt(self) -> list[Json]:
        """The one protocol's content blocks, or the other's items."""
        prompts = [
            number
            for number, item in enumerate(self.items)
            if item.get("role") == "user"
            and any(text and not text.startswith(INJECTED) for text in _texts(item.get("content")))
        ]
        items = self.items[prompts[-1] :] if prompts else self.items
        if self.protocol == "codex":
            return items
        return [block for item in items if isinstance(item.get("content"), list) for block in item["content"]]


class ModelServer:
    """The server, its script and what it was sent. Rules that were added last are tried first."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._requests: list[Request] = []
        self._arrived = threading.Condition()
        self._ids = itertools.count(1)
        #: Requests that no real API takes: a call without its result, or a result without its call.
        self.refused: list[Request] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def when(self, matches: str | Callable[[str], bool], answer: Answer | str) -> None:
        """Script an answer for prompts that contain a marker, or that a predicate accepts."""
        test = (lambda text, marker=matches: marker in text) if isinstance(matches, str) else matches
        with self._arrived:
            self._rules.insert(0, Rule(test, Say(answer) if isinstance(answer, str) else answer))

    @property
    def requests(self) -> list[Request]:
        """Every request for a turn of a conversation, oldest first (not: counting tokens, naming a session)."""
        with self._arrived:
            return [request for request in self._requests if request.body.get("tools")]

    @property
    def all_requests(self) -> list[Request]:
        with self._arrived:
            return list(self._requests)

    def wait_for(self, wanted: Callable[[Request], bool], timeout: float = 120) -> Request:
        """The first turn's request that `wanted` accepts; waits for it to arrive."""
        found: list[Request] = []

        def arrived() -> bool:
            found[:] = [r for r in self._requests if r.body.get("tools") and wanted(r)]
            return bool(found)

        with self._arrived:
            if not self._arrived.wait_for(arrived, timeout):
                heard = [request.last_prompt[:100] for request in self._requests]
                raise AssertionError(f"The model was never sent what the test waits for. It heard: {heard}")
        return found[0]

    def wait_for_prompt(self, text: str, timeout: float = 120) -> Request:
        """The first request whose last prompt contains `text`."""
        return self.wait_for(lambda request: text in request.last_prompt, timeout)

    def _record(self, request: Request) -> Answer:
        with self._arrived:
            self._requests.append(request)
            prompt = request.last_prompt
            answer = next((rule.answer for rule in self._rules if rule.matches(prompt)), None)
            self._arrived.notify_all()
        if answer is None or not request.body.get("tools"):
            return Say(f"Noted: {prompt[:60]}")
        if isinstance(answer, Call) and not answer.server and answer.tool not in request.tools:
            return answer.then
        if isinstance(answer, Calls) and len(request.our_results) >= len(answer.calls):
            return answer.then
        for result in request.our_results:
            if isinstance(answer, Call) and result.tool == answer.tool:
                answer = answer.then
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._send(200, "application/json", b"")

            def do_GET(self) -> None:
                self._send(404, "application/json", b"{}")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                path = self.path.split("?")[0]
                if path.endswith("/count_tokens"):
                    self._send(200, "application/json", b'{"input_tokens": 100}')
                elif path.endswith(("/messages", "/responses", chat_completions.PATH, *gemini_api.ENDS)):
                    request = Request(path, body, dict(self.headers.items()))
                    if alone := unpaired(request):
                        error = {
                            "type": "invalid_request_error",
                            "message": f"calls and results that are alone: {alone}",
                        }
                        self._send(400, "application/json", json.dumps({"type": "error", "error": error}).encode())
                        server.refused.append(request)
                        return
                    answer, number = server._record(request), next(server._ids)
                    while isinstance(answer, Hold):
                        answer.until.wait()
                        answer = answer.then
                    self._answer(request, answer, number)
                else:
                    self._send(404, "application/json", b"{}")

            def _answer(self, request: Request, answer: Answer, number: int) -> None:
                if request.protocol == "qwen":
                    events = list(
                        chat_completions.events(
                            _blocks(request, answer, number), request.body, number, _cached(answer)[0]
                        )
                    )
                    if request.body.get("stream"):
                        self._send(200, "text/event-stream", chat_completions.stream(events))
                    else:
                        self._send(200, "application/json", json.dumps(chat_completions.whole(events)).encode())
                    return
                if request.protocol == "gemini":
                    whole = gemini_api.answer(_blocks(request, answer, number), request.body, _cached(answer)[0])
                    streamed = request.path.endswith(gemini_api.ENDS[1])
                    data = gemini_api.stream(whole) if streamed else json.dumps(whole).encode()
                    self._send(200, "text/event-stream" if streamed else "application/json", data)
                    return
                speak = _responses_events if request.protocol == "codex" else _messages_events
                events = list(speak(request, answer, number))
                if request.body.get("stream"):
                    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
                    self._send(200, "text/event-stream", "".join(lines).encode())
                else:
                    self._send(200, "application/json", json.dumps(_whole_message(events)).encode())

            def _send(self, status: int, kind: str, payload: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: object) -> None:
                """Say nothing: the test reads the requests."""

        return Handler


def unpaired(request: Request) -> list[str]:
    """The calls and results of a request that are alone. The one API wants each result in the message after its call."""
    if request.protocol == "codex":
        calls = {
            item["call_id"] for item in request.items if item.get("type", "").endswith("_call") and "call_id" in item
        }
        results = {item["call_id"] for item in request.items if item.get("type", "").endswith("_output")}
        return sorted(calls ^ results)
    alone: set[str] = set()
    asked: set[str] = set()
    for message in request.items:
        content = message["content"] if isinstance(message["content"], list) else []
        answered = {block["tool_use_id"] for block in content if block.get("type") == "tool_result"}
        alone |= answered ^ asked
        asked = {block["id"] for block in content if block.get("type") == "tool_use"}
    return sorted(alone | asked)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or [] if part.get("type") in ("text", "input_text", "output_text")]


def _messages_events(request: Request, answer: Answer, number: int) -> Iterator[Json]:
    """One assistant message of the Anthropic messages API."""
    message: Json = {"id": f"msg_{number:024d}", "type": "message", "role": "assistant", "content": []}
    message |= {"model": request.body.get("model", ""), "stop_reason": None, "stop_sequence": None}
    message["usage"] = {"input_tokens": 100, "output_tokens": 1}
    if any(cached := _cached(answer)):
        message["usage"] |= {"cache_read_input_tokens": cached[0], "cache_creation_input_tokens": cached[1]}
    yield {"type": "message_start", "message": message}
    for index, part in enumerate(answer.calls if isinstance(answer, Calls) else (answer,)):
        block, delta = _content_block(request, part, f"toolu_{number:020d}{index:04d}")
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "end_turn" if isinstance(answer, Say) else "tool_use"
    ending = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


def _content_block(request: Request, part: Say | Call, identity: str) -> tuple[Json, Json]:
    """One block of a message as it begins, and what it is then filled with."""
    if isinstance(part, Say):
        return {"type": "text", "text": ""}, {"type": "text_delta", "text": part.text}
    name, arguments = f"mcp__{part.server}__{part.tool}" if part.server else part.tool, part.arguments
    if part.server and name not in request.tools and WAIT in request.tools:
        name, arguments = WAIT, {"servers": [part.server]}
    block = {"type": "tool_use", "id": identity, "name": name, "input": {}}
    return block, {"type": "input_json_delta", "partial_json": json.dumps(arguments)}


def _cached(answer: Answer) -> tuple[int, int]:
    """How many tokens of its cache the model has read and written for an answer."""
    return (answer.read, answer.wrote) if isinstance(answer, Say) else (0, 0)


def _blocks(request: Request, answer: Answer, number: int) -> Iterator[Json]:
    """The blocks of an answer, complete."""
    for index, part in enumerate(answer.calls if isinstance(answer, Calls) else (answer,)):
        block, delta = _content_block(request, part, f"call_{number}_{index}")
        yield block | ({"text": delta["text"]} if "text" in delta else {"input": json.loads(delta["partial_json"])})


def _whole_message(events: list[Json]) -> Json:
    """The same message for a request that did not ask for a stream."""
    message: Json = dict(events[0]["message"])
    block, delta = dict(events[1]["content_block"]), events[2]["delta"]
    if "text" in delta:
        block["text"] = delta["text"]
    else:
        block["input"] = json.loads(delta["partial_json"])
    return message | {"content": [block], "stop_reason": events[4]["delta"]["stop_reason"]}


def _responses_events(request: Request, answer: Answer, number: int) -> Iterator[Json]:
    """One answer of the OpenAI responses API."""
    response: Json = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}
    output = []
    for index, part in enumerate(answer.calls if isinstance(answer, Calls) else (answer,)):
        item = _output_item(request, part, f"{number}" if not index else f"{number}_{index}")
        yield {
            "type": "response.output_item.added",
            "output_index": index,
            "item": item | {"content": []} if isinstance(part, Say) else item,
        }
        if isinstance(part, Say):
            where = {"item_id": item["id"], "output_index": index, "content_index": 0}
            yield {"type": "response.output_text.delta", "delta": part.text, **where}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
        output.append(item)
    read, _ = _cached(answer)
    usage: Json = {"input_tokens": 100 + read, "output_tokens": 20, "total_tokens": 120 + read}
    usage |= {"input_tokens_details": {"cached_tokens": read}, "output_tokens_details": {"reasoning_tokens": 0}}
    yield {
        "type": "response.completed",
        "response": response | {"status": "completed", "output": output, "usage": usage},
    }


def _output_item(request: Request, part: Say | Call, number: str) -> Json:
    """One item of an answer, complete."""
    if isinstance(part, Say):
        text = {"type": "output_text", "text": part.text, "annotations": []}
        return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [text]}
    item: Json = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    return item | _codex_name(request, part) | {"arguments": json.dumps(part.arguments)}


def _codex_name(request: Request, call: Call) -> Json:
    """The tool as this request offers it: in a namespace of its server, or flat with the server's name in front."""
    if not call.server:
        return {"name": call.tool}
    for tool in request.body.get("tools") or []:
        for part in tool.get("tools") or []:
            if part["name"] == call.tool and _plain(call.server) in _plain(tool["name"]):
                return {"namespace": tool["name"], "name": call.tool}
        if _plain(call.server) in _plain(tool.get("name", "")) and tool.get("name", "").endswith(call.tool):
            return {"name": tool["name"]}
    raise AssertionError(f"{call.server}/{call.tool} is not offered: {request.tools}")


def _plain(name: str) -> str:
    return name.replace("-", "_")
