"""A real try of each agent's way in: its registered command, started as it starts it, greeted and asked."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from smart_fork.agents import READERS
from smart_fork.agents.registration import Registration
from smart_fork.errors import SmartForkError
from smart_fork.retrieval.answer import RecentSession
from smart_fork.retrieval.session_list import list_recent
from smart_fork.setup.setup_answer import Trial
from smart_fork.system import foreign_files
from smart_fork.system.processes import Processes
from smart_fork.system.release import own_version

#: How long a server may take for all of it. The agents wait for 30 s, and for an answer far longer.
SECONDS = 120.0
_END_SECONDS = 5.0
_TOOL = "find_sessions"
_RESULTS = 5


class _BrokenError(Exception):
    """The server did not answer, or not as one should."""


def try_server(way: Registration, *, ask: bool = True) -> Trial:
    """Start the server that is registered with an agent, and ask it for the newest session by its title."""
    try:
        entry = way.value(foreign_files.read(way.path(), "")) or {}
    except (SmartForkError, ValueError) as error:
        return Trial(way.agent, ok=False, error=str(error))
    if not way.argv(entry):
        return Trial(way.agent, ok=False, error="no smart-fork server is registered")
    newest = _newest(way.agent) if ask else None
    folder = Path(newest.project_path) if newest else Path.home()
    try:
        return _tried(way, entry, newest, folder if folder.is_dir() else Path.home())
    except (SmartForkError, _BrokenError, OSError) as error:
        return Trial(way.agent, ok=False, error=str(error))


def _tried(way: Registration, entry: Mapping[str, Any], newest: RecentSession | None, folder: Path) -> Trial:
    with _server(list(way.argv(entry)), folder, way.environment(os.environ, entry)) as server:
        started = time.perf_counter()
        name, protocol = way.client
        server.ask(
            "initialize",
            {
                "protocolVersion": protocol,
                "capabilities": {},
                "clientInfo": {"name": name, "version": own_version()},
            },
        )
        server.say({"method": "notifications/initialized"})
        tools = len(server.ask("tools/list", {})["tools"])
        listed = time.perf_counter()
        trial = Trial(way.agent, ok=tools > 0, tools=tools, tools_seconds=round(listed - started, 2))
        if newest is None:
            return trial
        named = {"agent_type": newest.agent_type, "project_path": newest.project_path, "limit": _RESULTS}
        question = {"intent": newest.title, **named}
        answer = server.ask("tools/call", {"name": _TOOL, "arguments": question})
        seconds = round(time.perf_counter() - listed, 2)
    return _judged(trial, newest, answer, seconds)


def _judged(trial: Trial, newest: RecentSession, answer: Mapping[str, Any], seconds: float) -> Trial:
    results = (answer.get("structuredContent") or {}).get("results", [])
    if answer.get("isError"):
        said = " ".join(str(part.get("text", "")) for part in answer.get("content", []))
        return Trial(trial.agent, ok=False, error=f"it answered: {said}")
    best = next((one for one in results if one.get("session_id") == newest.session_id), results[0] if results else {})
    return Trial(
        trial.agent,
        ok=trial.ok and bool(results),
        tools=trial.tools,
        tools_seconds=trial.tools_seconds,
        asked=newest.title,
        found=str(best.get("title", "")),
        score=float(best.get("score", 0.0)),
        answer_seconds=seconds,
        error="" if results else "it found nothing for the newest session's own title",
    )


def _newest(agent: str) -> RecentSession | None:
    """The newest session with a title, of this agent if it has one."""
    for whose in (agent, "all") if agent in READERS.names else ("all",):
        for one in list_recent(whose, None, _RESULTS, everywhere=True).sessions:
            if one.title and one.project_path:
                return one
    return None


class _Server:
    """A server that is spoken with in lines of JSON."""

    def __init__(self, process: Any) -> None:
        self._process, self._number = process, 0

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        try:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _BrokenError("it ended at its start") from error

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and wait for its answer; whatever else it says meanwhile is passed over."""
        self._number += 1
        self.say({"id": self._number, "method": method, "params": params})
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError as error:
                raise _BrokenError("its answer is not MCP") from error
            if isinstance(said, dict) and said.get("id") == self._number and "method" not in said:
                if "error" in said:
                    raise _BrokenError(f"{method} failed: {said['error'].get('message', '')}")
                result: dict[str, Any] = said.get("result", {})
                return result
        raise _BrokenError("it ended, or did not answer in time")


@contextmanager
def _server(argv: list[str], folder: Path, env: Mapping[str, str]) -> Iterator[_Server]:
    process: Any = Processes().converse(argv, cwd=folder, env=env)
    late = threading.Timer(SECONDS, process.kill)
    late.start()
    try:
        yield _Server(process)
    finally:
        with suppress(OSError):
            process.stdin.close()  # a server ends with its input, and takes what it has started with it
        with suppress(TimeoutExpired):
            process.wait(_END_SECONDS)
        late.cancel()
        process.kill()
        process.stdout.close()
        process.wait()
