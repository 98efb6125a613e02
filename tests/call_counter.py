"""What one command does, counted: files of ours whose functions it calls, these calls, and work to be done once.

``python -P tests/call_counter.py RESULT WORD...`` runs ``smart-fork WORD...``, and ``RESULT tool NAME ARGUMENTS`` a tool of the
MCP server. Nothing of ours is imported before the counting has begun.
"""

from __future__ import annotations

import atexit
import dis
import inspect
import json
import os
import runpy
import sys
import threading
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

#: Functions that each do at one call what a command should do once.
WORK = {
    "read_changes": "refreshed",
    "read_changed": "refreshed",
    "read_named": "refreshed",
    "complete": "refreshed",
    "gather": "gathered",
}
#: Iterated, it reads a log.
READER = "LineReader.__iter__"
INDEX = "index.db"
NUMBERS = ("files", "calls", "opened", "refreshed", "read", "gathered")

#: Since Python 3.12 these are no calls.
_INLINED = {"<listcomp>", "<setcomp>", "<dictcomp>"}
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NOT_COUNTED = -2


class Counting:
    """Counts calls of functions in these folders, in all threads. A generator that goes on is not called again."""

    def __init__(self, *folders: Path) -> None:
        self.calls = Counter[CodeType]()
        #: Each piece of work that should be done once, with who asked for it.
        self.work: list[tuple[str, list[str]]] = []
        self._folders = tuple(f"{folder.resolve()}{os.sep}" for folder in folders)
        self._begins: dict[CodeType, int] = {}

    def begin(self) -> None:
        import apsw

        apsw.connection_hooks.append(self._database_is_opened)
        threading.settrace(self._called)
        sys.settrace(self._called)

    def as_json(self) -> dict[str, Any]:
        of_file = Counter[str]()
        for code, count in self.calls.items():
            of_file[code.co_filename] += count
        done = Counter(what for what, _ in self.work)
        return {
            "files": len(of_file),
            "calls": of_file.total(),
            **{what: done[what] for what in NUMBERS[2:]},
            "of_file": dict(of_file.most_common()),
            "work": self.work,
        }

    def _database_is_opened(self, database: Any) -> None:
        if Path(database.filename).name == INDEX:
            self._note("opened", sys._getframe(1))

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        begins = self._begins.get(code)
        if begins is None:
            begins = self._begins[code] = self._beginning(code)
        if frame.f_lasti <= begins:
            self.calls[code] += 1
            if code.co_name in WORK and "." not in code.co_qualname:
                self._note(WORK[code.co_name], frame)
        if begins == _NOT_COUNTED or code.co_qualname != READER:
            return None
        frame.f_trace_lines = False
        return self._read

    def _read(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        """A log is read whole when its reader, which began at its start, has come to its end, and not for a glance."""
        ended = event == "return" and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")
        if ended and not (reader := frame.f_locals["self"]).start and not reader._most:
            self._note("read", frame)
        return self._read

    def _beginning(self, code: CodeType) -> int:
        """The instruction at which a frame of this code stands when it has just been called."""
        if (
            not code.co_flags & inspect.CO_OPTIMIZED  # the body of a module or class
            or code.co_name in _INLINED
            or not code.co_filename.startswith(self._folders)
        ):
            return _NOT_COUNTED
        if not code.co_flags & _GENERATOR:
            return sys.maxsize
        return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")

    def _note(self, what: str, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(self._folders):
                stack.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
            frame = frame.f_back
        self.work.append((what, stack))


def main(result: Path, words: list[str]) -> None:
    packages = (find_spec(name) for name in ("indexer", "smart_fork"))
    counting = Counting(*(Path(one.origin).parent for one in packages if one and one.origin))

    def keep() -> None:
        sys.settrace(None)
        result.write_text(json.dumps(counting.as_json()), "utf-8")

    atexit.register(keep)
    counting.begin()
    if words[0] == "tool":
        call_tool(words[1], json.loads(words[2]))
    else:
        sys.argv = ["smart-fork", *words]
        runpy.run_module("smart_fork", run_name="__main__", alter_sys=True)


def call_tool(name: str, arguments: dict[str, Any]) -> None:
    import anyio
    from mcp import Client

    from smart_fork.server import Server

    async def talk() -> None:
        async with Client(Server(), mode="legacy") as client:
            answer = await client.call_tool(name, arguments)
            assert not answer.is_error, answer.content
            sys.stdout.write(json.dumps(answer.structured_content))

    anyio.run(talk)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
