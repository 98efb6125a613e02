"""Workers that seem to run: a tmux that is played at the subprocess seam, and a clock that things happen by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from indexer.environment import WORKER_ID
from smart_fork.system.processes import Completed, Machine
from smart_fork.workers.registry import Registry, WorkerRecord
from tests.smart_fork.forks import FakeClock, FakeProcesses
from tests.smart_fork.world import World

PANE, PID = "%7", 4242
STARTED = 1_767_225_600.0  # 2026-01-01T00:00:00Z
BEFORE, AT_START, LATER, LATEST = (
    "2025-12-31T23:00:00.000Z", "2026-01-01T00:00:00.000Z", "2026-01-01T00:01:00.000Z", "2026-01-01T00:02:00.000Z",
)  # fmt: skip


class PlayedTerminal(FakeProcesses):
    """One window of tmux with one process in it. What is pasted appears on its screen; `on_key` says what keys do.

    The first `lost` pastes and keys never arrive.
    """

    def __init__(self, screen: str = "❯ ") -> None:
        super().__init__()
        self.screen = screen
        self.worker_id = ""
        self.others: dict[int, str] = {}
        self.state = f"{PANE} {PID} 0"
        self.pasted: list[str] = []
        self.keys: list[str] = []
        self.on_key: Callable[[str], None] = lambda _key: None
        self.lost = 0
        self.signals: list[tuple[int, bool]] = []

    def run(self, argv, *, cwd=None, env=None, timeout, input=b"", whom=""):  # noqa: A002
        if Path(argv[0]).name != "tmux":
            return super().run(argv, cwd=cwd, env=env, timeout=timeout, input=input)
        said, words = "", list(argv)
        if "display-message" in words:
            said = self.state
        elif "capture-pane" in words:
            said = self.screen
        elif "load-buffer" in words:
            self.pasted.append(input.decode())
            if self._arrives():
                self.screen += input.decode()
        elif "send-keys" in words:
            self.keys.append(words[-1])
            if self._arrives():
                if words[-1] == "Enter" and self.pasted:
                    self.screen = self.screen.removesuffix(self.pasted[-1])
                self.on_key(words[-1])
        elif "kill-pane" in words:
            self.close()
        return Completed(tuple(argv), 0, said.encode(), b"")

    def _arrives(self) -> bool:
        self.lost -= 1
        return self.lost < 0

    def close(self) -> None:
        """The window closes, and the process in it ends."""
        self.living, self.state = False, ""

    def start(self, argv, *, cwd, env, log, input=b""):  # noqa: A002
        self.living = True
        return super().start(argv, cwd=cwd, env=env, log=log, input=input)

    def environment(self, pid):
        marks = {PID: self.worker_id, **self.others}
        return {WORKER_ID: marks[pid]} if self.living and pid in marks else None

    def end(self, pid, *, force):
        self.signals.append((pid, force))
        self.living = False


class Script(FakeClock):
    """Time passes by sleeping, and each sleep is followed by the next thing that happens."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        super().__init__()
        self.time = STARTED + 3600
        self.happens = list(happens)
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.sleeps.append(seconds)
        if self.happens:
            self.happens.pop(0)()


#: What a log says of an answer's tokens.
USAGE = {
    "input_tokens": 4, "cache_read_input_tokens": 142_000, "cache_creation_input_tokens": 1_100, "output_tokens": 20,
}  # fmt: skip


class Stage:
    """One worker with a log of its own, as Claude Code writes it, and everything that is looked at."""

    def __init__(
        self,
        world: World,
        cwd: Path,
        place: str = "tmux",
        *,
        prompt: str = "go",
        clock: Script | None = None,
        pid: int = PID,
    ) -> None:
        self.world, self.cwd = world, cwd
        self.terminal = PlayedTerminal()
        self.clock = clock or Script()
        self.parent = world.claude(cwd, "what the parent was asked", "what the parent said")
        self.session = world.fork_claude(self.parent, cwd, "its own first words")
        self.log = world.log_of(self.session)
        self.records = [json.loads(line) | {"timestamp": BEFORE} for line in self.log.read_text().splitlines()[:-1]]
        self.write()
        with Registry() as registry:
            worker = registry.add("claude", source_session_id=self.parent, place=place, cwd=cwd, prompt=prompt, name="fixer", now=STARTED)  # fmt: skip
            registry.set_session_id(worker.id, self.session)
            output = world.home / "output.log"
            output.write_text("What it printed last")
            registry.set_started(worker.id, command=("claude",), terminal_id=PANE if place == "tmux" else None, pid=pid, log=output if place == "process" else None, attach="look here")  # fmt: skip
        self.id = self.terminal.worker_id = worker.id

    @property
    def around(self) -> Machine:
        return Machine(self.terminal, {"PATH": str(self.world.home / "bin"), "HOME": str(self.world.home)}, self.clock)

    @property
    def worker(self) -> WorkerRecord:
        with Registry() as registry:
            return registry.get(self.id)

    def write(self, *records: dict) -> None:
        """Add to the log."""
        self.records += records
        self.world.write_claude(self.session, self.cwd, self.records)

    def asked(self, words: str, time: str = LATER) -> None:
        self._say("user", words, time)

    def said(self, words: str, time: str = LATER, reason: str = "end_turn", **more: object) -> None:
        self._say("assistant", [{"type": "text", "text": words}], time, stop_reason=reason, **more)

    def _say(self, kind: str, content: object, time: str, **more: object) -> None:
        (record,) = self.world.claude_records(self.session, self.cwd, "x")
        record |= {"type": kind, "timestamp": time, "message": {"role": kind, "content": content, **more}}
        self.write(record | {"parentUuid": self.records[-1]["uuid"]})

    def hooked(self, status: str, note: str = "", at: str = LATEST) -> None:
        with Registry() as registry:
            registry._set(self.id, "status = ?, status_note = ?, status_at = ?", status, note, at)
