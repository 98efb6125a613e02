"""The demo's home, once for all golden files, and everything that is asked in it, one after the other."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import anyio
import numpy as np
import pytest
from mcp import Client

from smart_fork.agents.claude.log_files import slug
from smart_fork.cli.demo import DemoHome, write_demo_home
from smart_fork.cli.main import main
from smart_fork.system.processes import Processes
from tests.conftest import move_into
from tests.golden.normalize import NOW, Normal
from tests.smart_fork.fake_agents import AGENT, Scripted
from tests.smart_fork.forks import eventually
from tests.smart_fork.tool_server import create_server
from tests.smart_fork.world import WordsModel
from tests.support.executables import shebang

HEADLESS = ("--in", "process")
#: Of the help pages; and how long the name of a home is, for it is a part of what is counted and of what is cut.
WIDTH, HOME_LENGTH = 100, 130

#: The scripted agents, which also end in peace when they are told to.
ENDING = f"{shebang('-IS')}import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n{AGENT}"


class PlacelessModel(WordsModel):
    """Texts are as near each other as elsewhere: what is in a home's name does not count."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._names = re.compile("|".join(re.escape(name) for name in (str(home.resolve()), slug(str(home.resolve())))))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return super().embed([self._names.sub("", text) for text in texts])


class Scene:
    """Runs commands in the demo's repository, in this process."""

    def __init__(self, demo: DemoHome, patch: pytest.MonkeyPatch) -> None:
        self.demo, self.patch = demo, patch
        self.agents = Scripted(demo.home)
        self.model = PlacelessModel(demo.home)
        names = "\n".join(path.read_text() for path in demo.home.glob(".c*/**/*.jsonl"))
        self.normal = Normal(demo.home, set(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", names)))

    def run(self, *words: str, stdin: str = "") -> SimpleNamespace:
        """One command; what it printed, and its exit code."""
        said, complained = io.StringIO(), io.StringIO()
        self.patch.setattr("sys.argv", ["smart-fork", *words])
        self.patch.setattr("__main__.__package__", None)  # as of a program, also under `python -m pytest`
        self.patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(complained),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        return SimpleNamespace(code=ended.value.code, out=said.getvalue(), err=complained.getvalue())

    def json(self, *words: str, stdin: str = "") -> Any:
        """What one command answers with ``--json``."""
        done = self.run(*words, "--json", stdin=stdin)
        assert done.out, done.err
        return json.loads(done.out)

    def tool(self, name: str, **arguments: Any) -> Any:
        """What one tool answers."""

        async def talk() -> Any:
            async with Client(create_server(self.model, everything=True), mode="legacy") as client:
                return await client.call_tool(name, arguments)

        told = anyio.run(talk)
        assert not told.is_error, told.content
        return told.structured_content

    def answered(self, worker: dict[str, Any], words: str) -> None:
        """A worker's agent has said something and is done: without a terminal it ends then."""
        *_, pid = self.agents.call(worker["worker_id"])
        session = worker.get("new_session_id") or worker["session_id"]
        (log,) = self.demo.home.glob(f".c*/**/*{session}.jsonl")
        now = datetime.now(UTC).isoformat()
        if worker["agent_type"] == "claude":
            content = [{"type": "text", "text": words}]
            message = {
                "role": "assistant",
                "content": content,
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 1200},
            }
            records: list[dict[str, Any]] = [
                {"type": "assistant", "uuid": f"answer-{words}", "message": message, "timestamp": now}
            ]
        else:
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}
            records = [
                {"type": "response_item", "payload": item},
                {"type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": words}},
            ]
        with log.open("a") as file:
            file.writelines(json.dumps({"timestamp": now, **one}) + "\n" for one in records)
        os.kill(pid, signal.SIGUSR1)
        eventually(lambda: not Processes().alive(pid))


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """The demo's home below `folder`, with both agents scripted, no other program but git, and the time of Greenwich."""
    home = folder.resolve() / "h".ljust(HOME_LENGTH - len(str(folder.resolve())) - 1, "h")
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        move_into(home, patch)
        programs = home / "bin"
        programs.mkdir()
        (programs / "git").symlink_to(which("git") or "git")
        for name in ("claude", "codex"):
            (programs / name).write_text(ENDING)
            (programs / name).chmod(0o755)
        for name, value in {
            "PATH": str(programs), "TZ": "UTC", "LANG": "C.UTF-8", "SMART_FORK_BACKGROUND": "0", "USER": "demo",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        time.tzset()
        patch.setattr("typer.rich_utils.MAX_WIDTH", WIDTH)
        for name in ("smart_fork.finding.session_library", "smart_fork.doctor", "indexer.default_embedder"):
            patch.setattr(f"{name}.configured_embedder", lambda **_: PlacelessModel(home))
        patch.setattr("smart_fork.cli.service.unit_settings.login_home", lambda: home)
        patch.setattr("smart_fork.cli.service.installation.native_kind", lambda: "systemd")  # on macOS too
        demo = write_demo_home(home, now=NOW)
        patch.chdir(demo.project)
        one = Scene(demo, patch)
        try:
            yield one
        finally:
            one.agents.end()
    time.tzset()
