"""Agents that are programs of ours: they note what they were given, write a log as the real ones do, and stay until ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import HELP, eventually
from tests.support.executables import shebang

AGENT = f"""{shebang("-IS")}import os, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
if words[-1:] == ["--help"]:
    print({HELP!r}[name])
    sys.exit()
import json, re, signal, uuid
from datetime import UTC, datetime
from pathlib import Path
home = Path(os.environ["HOME"])
def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{{path.name}}.{{os.getpid()}}")
    part.write_text(text)
    part.rename(path)
now = datetime.now(UTC).isoformat()
if name == "claude":
    flag = "--session-id" if "--session-id" in words else "--resume"
    session = words[words.index(flag) + 1]
    folder = home / ".claude/projects" / re.sub("[^A-Za-z0-9]", "-", os.getcwd())
    path = folder / f"{{session}}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a") as log:
        asked = {{"type": "user", "message": {{"role": "user", "content": words[-1]}}, "timestamp": now, "sessionId": session}}
        log.write("".join(json.dumps(one) + "\\n" for one in ({{"type": "mode", "sessionId": session}}, asked)[: 1 + ("--" in words)]))
elif "resume" in words:
    session = words[words.index("resume") + 1]
    folder = home / ".codex/sessions/2026/01/03"
    folder.mkdir(parents=True, exist_ok=True)
    path = next(folder.parents[2].rglob(f"*{{session}}.jsonl"), folder / f"rollout-2026-01-03T00-00-00-{{session}}.jsonl")
    with path.open("a") as log:
        log.write(json.dumps({{"timestamp": now, "type": "event_msg", "payload": {{"type": "task_started"}}}}) + "\\n")
else:
    session, forked = str(uuid.uuid4()), words[words.index("fork") + 1] if "fork" in words else None
    meta = {{"id": session, "cwd": os.getcwd(), "timestamp": now, **({{"forked_from_id": forked}} if forked else {{}})}}
    said = {{"type": "message", "role": "user", "content": [{{"type": "input_text", "text": words[-1]}}]}}
    records = [{{"type": "session_meta", "payload": meta}}, {{"type": "response_item", "payload": said}}]
    path = home / ".codex/sessions/2026/01/03" / f"rollout-2026-01-03T00-00-00-{{session}}.jsonl"
    write(path, "".join(json.dumps({{"timestamp": now, **one}}) + "\\n" for one in records))
write(home / "ran" / os.environ["SMART_FORK_WORKER_ID"], json.dumps([name, words, os.getcwd(), os.getpid()]))
if sys.stdout.isatty():
    print("\\u276f ", end="", flush=True)
    for said in sys.stdin:
        with path.open("a") as log:
            log.write(json.dumps({{"type": "heard", "text": said}}) + "\\n")
        print("\\u276f ", end="", flush=True)
signal.pause()
"""


class Scripted:
    """Both agents' programs in one home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def ran(self) -> dict[str, tuple[str, list[str], str, int]]:
        """What has been run by now, by worker: program, arguments, directory, process."""
        return {path.name: tuple(json.loads(path.read_text())) for path in sorted((self.home / "ran").glob("[!.]*"))}

    def call(self, worker_id: str) -> tuple[str, list[str], str, int]:
        """What that worker was given, as soon as it runs."""
        eventually((self.home / "ran" / worker_id).exists)
        return self.ran()[worker_id]

    def end(self) -> None:
        """End all of them, those too that have not come to note anything."""
        with Registry() as registry:
            pids = {worker.pid for worker in registry.workers() if worker.pid}
        pids |= {pid for *_, pid in self.ran().values()}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(Processes().alive, pids)))


@pytest.fixture
def scripted(programs: Path, home: Path):
    """Both agents, scripted; whatever was started is ended with the test."""
    for name in ("claude", "codex"):
        (programs / name).write_text(AGENT)
    agents = Scripted(home)
    yield agents
    agents.end()
