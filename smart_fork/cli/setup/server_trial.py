"""The trial of a registered MCP server: setup starts it as the agent would, lists its tools, and searches."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from indexer.environment import Setting
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.mcp_registration import Registration
from smart_fork.cli.setup.foreign_file import ForeignFile
from smart_fork.cli.setup.setup_output import Trial
from smart_fork.errors import SmartForkError
from smart_fork.finding.answer import RecentSession
from smart_fork.finding.recent import list_recent
from smart_fork.system.processes import Processes
from smart_fork.system.version import own_version

#: How long a server may take for all of it. The agents wait for 30 s, and for an answer far longer.
SECONDS = 120.0
_END_SECONDS = 5.0
_TOOL = "find_sessions"
_RESULTS = 5
#: A title of fewer words, as "ship it", may stand above anything.
_MIN_TITLE_WORDS = 3


class _BrokenError(Exception):
    """An error: an MCP server that setup tries did not answer, or its answer is no valid MCP."""


def try_server(way: Registration, *, ask: bool = True) -> Trial:
    """Try the MCP server registered with the agent of `way`: start it, and list its tools.

    With `ask`, also have it search for the newest session by its title.
    """
    try:
        entry = way.value(ForeignFile(way.path()).read()) or {}
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
    env = {**way.environment(os.environ, entry), Setting.INDEXING: "false"}  # it answers from what is there by now
    with _server(list(way.argv(entry)), folder, env) as server:
        started = time.perf_counter()
        name, protocol = way.client
        client = {"name": name, "version": own_version()}
        server.ask("initialize", {"protocolVersion": protocol, "capabilities": {}, "clientInfo": client})
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
    if not results:
        return replace(trial, ok=False, error="it found nothing for the newest session's own title")
    best = next((one for one in results if one.get("session_id") == newest.session_id), results[0])
    found, score = str(best.get("title", "")), float(best.get("score", 0.0))
    return replace(trial, asked=newest.title, found=found, score=score, answer_seconds=seconds)


def _newest(agent: str) -> RecentSession | None:
    """Return the newest session with a title long enough to search for, if possible of `agent`; `None` without one."""
    for whose in (agent, "all") if agent in READERS.names else ("all",):
        found = [one for one in list_recent(whose, None, _RESULTS, everywhere=True).sessions if one.project_path]
        if titled := [one for words in (_MIN_TITLE_WORDS, 1) for one in found if len(one.title.split()) >= words]:
            return titled[0]
    return None


class _TriedServer:
    """An MCP server that setup has started to try it. This process exchanges lines of JSON with it."""

    def __init__(self, process: Any) -> None:
        self._process, self._number = process, 0

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a JSON-RPC message to the server."""
        try:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _BrokenError("it ended at its start") from error

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the server, and return its result. Ignore the server's other messages."""
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
def _server(argv: list[str], folder: Path, env: Mapping[str, str]) -> Iterator[_TriedServer]:
    process: Any = Processes().converse(argv, cwd=folder, env=env)
    late = threading.Timer(SECONDS, process.kill)
    late.start()
    try:
        yield _TriedServer(process)
    finally:
        with suppress(OSError):
            process.stdin.close()  # a server ends with its input, and takes what it has started with it
        with suppress(TimeoutExpired):
            process.wait(_END_SECONDS)
        late.cancel()
        process.kill()
        process.stdout.close()
        process.wait()
