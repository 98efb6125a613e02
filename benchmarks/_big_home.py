"""A home of any size: logs of Claude Code and Codex as they are, most of their bytes what tools gave back.

Sizes are log-normal, as those of real logs; the text of every log is its own. An exchange is what somebody asked, some
tool calls with outputs of a few kilobytes (which Claude Code writes twice), and an answer.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECTS = 50
#: One log in so many is Codex's.
CODEX = 5
#: Calls an exchange, and lines of an output in the mean: the passages a megabyte follow from them.
CALLS, LINES = 8, 200
#: The same for what is written while the service runs, every few seconds.
GROWING_CALLS, GROWING_LINES = 2, 80
SMALLEST, SPREAD = 20_000, 1.2
_DAY = 86_400
_CUT = 60


@dataclass(slots=True)
class Log:
    """A log that can grow: how many `exchanges` it has, its last record's id (`parent`), and what was `asked` first."""

    path: Path
    session_id: str
    agent: str
    project: Path
    exchanges: int = 0
    parent: str | None = None
    asked: str = ""


class BigHome:
    """Makes such a home in `folder`, and lets its logs grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._random = random.Random(7)
        self._said = [_sentence(self._random) for _ in range(40_000)]
        self._output = [json.dumps(line)[1:-1] for line in _lines_of_code(self._random, 20_000)]
        self.logs: list[Log] = []

    def make(self, logs: int, gigabytes: float, lines: int = LINES) -> int:
        """Write that many logs, and return their bytes. All but the newest are older than a week.

        The more `lines` a tool gives back in the mean, the fewer passages a megabyte has.
        """
        weights = [math.exp(self._random.gauss(0, SPREAD)) for _ in range(logs)]
        scale, written = gigabytes * 1e9 / sum(weights), 0
        for number, weight in enumerate(weights):
            log = self._new(number)
            self.logs.append(log)
            with log.path.open("ab") as file:
                while file.tell() < max(SMALLEST, weight * scale):
                    file.write(self._exchange(log, CALLS, lines))
                written += file.tell()
            age = _DAY * (self._random.random() * 7 if number % 25 == 0 else 8 + self._random.random() * 300)
            os.utime(log.path, (time.time() - age, time.time() - age))
        return written

    def growing(self, number: int) -> list[Log]:
        """Return that many logs of all sizes."""
        by_size = sorted(self.logs, key=lambda log: log.path.stat().st_size)
        return [by_size[(2 * index + 1) * len(by_size) // (2 * number)] for index in range(number)]

    def append(self, log: Log, word: str) -> None:
        """Write one more exchange, with this word in its prompt."""
        with log.path.open("ab") as file:
            file.write(self._exchange(log, GROWING_CALLS, GROWING_LINES, word))

    def _new(self, number: int) -> Log:
        project = self.folder / "work" / f"project-{number % PROJECTS:02}"
        project.mkdir(parents=True, exist_ok=True)
        session = f"{number:08x}-1111-4111-8111-111111111111"
        if number % CODEX:
            path = self.folder / ".claude/projects" / str(project).replace("/", "-") / f"{session}.jsonl"
            log = Log(path, session, "claude", project)
        else:
            day = self.folder / f".codex/sessions/2026/{number % 12 + 1:02}/{number % 28 + 1:02}"
            log = Log(day / f"rollout-2026-01-02T03-04-05-{session}.jsonl", session, "codex", project)
        log.path.parent.mkdir(parents=True, exist_ok=True)
        if log.agent == "codex":
            meta = {"id": session, "timestamp": _moment(0), "cwd": str(project), "originator": "codex-tui"}
            log.path.write_bytes(_line({"timestamp": _moment(0), "type": "session_meta", "payload": meta}))
        return log

    def _exchange(self, log: Log, calls: int, lines: int, word: str = "") -> bytes:
        asked = f"{self._say(2)} {word}".strip()
        answered = self._say(self._random.randint(6, 14))
        given = [(self._say(1)[:_CUT], self._given_back(lines)) for _ in range(calls)]
        log.exchanges += 1
        log.asked = log.asked or asked
        return b"".join((_claude if log.agent == "claude" else _codex)(log, asked, given, answered))

    def _say(self, sentences: int) -> str:
        return " ".join(self._random.choices(self._said, k=sentences))

    def _given_back(self, lines: int) -> str:
        """Return a tool's output, escaped for JSON."""
        start, number = self._random.randrange(len(self._output)), int(self._random.expovariate(1 / lines)) + 1
        return "\\n".join(self._output[start : start + number])


def _claude(log: Log, asked: str, given: Sequence[tuple[str, str]], answered: str) -> Iterator[bytes]:
    def record(kind: str, message: dict[str, Any], output: str = "") -> bytes:
        identity = f"{log.session_id[:8]}-{log.exchanges}-{len(given)}-{next(numbers)}"
        data = _line({
            "type": kind, "uuid": identity, "parentUuid": log.parent, "sessionId": log.session_id, "version": "2.1.0",
            "cwd": str(log.project), "gitBranch": "main", "timestamp": moment, "message": message,
            **({"toolUseResult": {"stdout": _HERE}} if output else {}),
        })  # fmt: skip
        log.parent = identity
        return data.replace(_HERE.encode(), output.encode()) if output else data

    numbers, moment = iter(range(1 << 20)), _moment(log.exchanges)
    yield record("user", {"role": "user", "content": asked})
    for number, (about, output) in enumerate(given):
        call, message = f"toolu_{log.exchanges}_{number}", f"msg_{log.exchanges}_{number}"
        use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"pytest -k '{about}'"}}
        yield record("assistant", {"role": "assistant", "id": message, "content": [use]})
        result = {"type": "tool_result", "tool_use_id": call, "content": _HERE}
        yield record("user", {"role": "user", "content": [result]}, output)
    said = {"role": "assistant", "id": f"msg_{log.exchanges}_end", "content": [{"type": "text", "text": answered}]}
    yield record("assistant", said)


def _codex(log: Log, asked: str, given: Sequence[tuple[str, str]], answered: str) -> Iterator[bytes]:
    def item(payload: dict[str, Any]) -> bytes:
        return _line({"timestamp": _moment(log.exchanges), "type": "response_item", "payload": payload})

    yield item({"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]})
    for number, (about, output) in enumerate(given):
        call, arguments = f"call_{log.exchanges}_{number}", json.dumps({"cmd": f"pytest -k '{about}'"})
        yield item({"type": "function_call", "call_id": call, "name": "exec_command", "arguments": arguments})
        result = item({"type": "function_call_output", "call_id": call, "output": _HERE})
        yield result.replace(_HERE.encode(), output.encode())
    yield item({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answered}]})


#: Stands for an output until the record is JSON: to encode megabytes again and again would take longest.
_HERE = "@output@"


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _moment(minutes: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(1_767_000_000 + 60 * minutes))


def _lines_of_code(rand: random.Random, number: int) -> list[str]:
    names = [f"{rand.choice(_VERBS)}{rand.choice(_THINGS)}{rand.choice(_THINGS)}" for _ in range(3_000)]
    shapes = (
        "    {} = self.{}({}, limit={})",
        "{}.py:{}: {} in {}",
        'assert {}({}) == {}, "{}"',
        "PASSED tests/{}::{} [{} {}]",
    )
    return [
        rand.choice(shapes).format(rand.choice(names), rand.choice(names), rand.choice(names), rand.randrange(1000))
        for _ in range(number)
    ]


def _sentence(rand: random.Random) -> str:
    """Ten words as developers use them, of as many tokens as real ones, and now and then a name."""
    words = [rand.choice(_SMALL_WORDS if rand.random() < 0.5 else _WORDS) for _ in range(10)]
    if rand.random() < 0.3:
        words[rand.randrange(10)] = f"{rand.choice(_VERBS)}_{rand.choice(_THINGS).lower()}_{rand.randrange(100)}"
    return f"{' '.join(words)}."


_SMALL_WORDS = (
    "the", "to", "and", "a", "of", "in", "is", "it", "for", "that", "with", "on", "not", "as", "we", "if", "so",
    "when", "then", "now", "all", "no", "only", "also", "into", "after", "this", "which", "from",
)  # fmt: skip
_WORDS = (
    "has", "function", "test", "file", "error", "retry", "upload", "server", "client", "request", "response",
    "timeout", "cache", "database", "table", "column", "query", "index", "commit", "branch", "merge", "review",
    "deploy", "build", "release", "version", "package", "import", "module", "class", "method", "argument", "return",
    "value", "string", "number", "list", "path", "folder", "directory", "process", "thread", "lock", "queue",
    "worker", "signal", "event", "message", "header", "socket", "network", "connection", "session", "user", "login",
    "page", "button", "form", "style", "layout", "image", "render", "component", "state", "update", "delete",
    "create", "insert", "select", "sort", "filter", "search", "result", "score", "rank", "limit", "offset",
    "memory", "buffer", "stream", "parser", "token", "syntax", "compiler", "warning", "failing", "passing",
    "broken", "fixed", "missing", "duplicate", "empty", "large", "slow", "fast", "first", "last", "rename", "move",
    "copy", "write", "read", "open", "close", "start", "stop", "wait", "check", "measure", "explain",
)  # fmt: skip
_VERBS = ("fetch", "parse", "write", "merge", "check", "build", "split", "count", "store", "match")
_THINGS = ("Report", "Upload", "Window", "Session", "Chunk", "Header", "Retry", "Buffer", "Record", "Folder", "Worker")
