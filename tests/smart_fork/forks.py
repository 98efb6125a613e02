"""What the tests of forking share: records of both agents, and fakes of time and of other programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.request_fields import Options
from smart_fork.forking.branch import branch
from smart_fork.forking.request import BranchRequest, ForkRequest, SessionChoice
from smart_fork.forking.results import Branched
from smart_fork.system.processes import Completed, Processes

SESSION = "60309e1e-0000-4000-8000-000000000001"
NEW = "7a1c0000-0000-4000-8000-000000000002"
HELP = {
    "claude": "  --fork-session   When resuming, create a new session ID\n  -r, --resume\n",
    "codex": "Commands:\n  exec   Run\n  resume  Resume\n  fork    Fork a previous session\n",
    "qwen": "      --fork-session  Fork\n  -r, --resume\n",
    "opencode": "Commands:\n  opencode import <file>  import session data\n",
    "gemini": "      --session-file  Load a session\n  -r, --resume\n",
    "copilot": "  --resume[=session]\n  --session-id <id>\n",
}


def write_log(path: Path, records: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return path


def said(uid: str, parent: str | None, kind: str, content: object, **more: object) -> dict:
    """One record of Claude Code."""
    message = {"role": kind, "content": content, **({"id": f"msg_{uid}"} if kind == "assistant" else {})}
    return {
        "type": kind, "uuid": uid, "parentUuid": parent, "sessionId": SESSION, "isSidechain": False, "cwd": "/old",
        "timestamp": "2026-01-01T00:00:00.000Z", "message": message, "gitBranch": "main", "odd": [1, {"ü": None}], **more,
    }  # fmt: skip


def text(words: str) -> list[dict]:
    return [{"type": "text", "text": words}]


def codex_path(home: Path, session_id: str) -> Path:
    return home / ".codex/sessions/2026/01/02" / f"rollout-2026-01-02T03-04-05-{session_id}.jsonl"


def codex_records(session_id: str, directory: Path, prompts: list[str], start: int = 0, **meta: object) -> list[dict]:
    records = [("session_meta", {"id": session_id, "session_id": session_id, "cwd": str(directory), "history_mode": "paginated",
                                 "timestamp": "2026-01-02T03:04:05.000Z", "cli_version": "0.169.0", "originator": "codex-tui", **meta})]  # fmt: skip
    for prompt in prompts:
        records += [
            ("event_msg", {"type": "task_started", "turn_id": prompt}),
            ("turn_context", {"turn_id": prompt, "cwd": str(directory)}),
            ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}),
            ("response_item", {"type": "function_call", "name": "shell", "call_id": f"c-{prompt}", "arguments": "{}"}),
            ("response_item", {"type": "function_call_output", "call_id": f"c-{prompt}", "output": "ok"}),
            ("response_item", {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Done: {prompt}"}]}),
            ("event_msg", {"type": "token_count", "info": None}),
            ("event_msg", {"type": "task_complete", "turn_id": prompt}),
        ]  # fmt: skip
    return [
        {"timestamp": "2026-01-02T03:04:05.000Z", "ordinal": start + i, "type": kind, "payload": payload}
        for i, (kind, payload) in enumerate(records)
    ]


class FakeProcesses:
    """Answers without running anything: `answers` maps a program's name to (code, output), or to a function of its arguments."""

    def __init__(self, answers: dict | None = None) -> None:
        self.answers = {name: (0, text) for name, text in HELP.items()} | (answers or {})
        self.ran: list[tuple[str, ...]] = []
        self.started: list[dict] = []
        self.living = True
        self.on_start: Callable[[dict], None] = lambda _call: None

    def run(self, argv, *, cwd=None, env=None, timeout, input=b"", whom=""):  # noqa: A002
        self.ran.append(tuple(argv))
        name = Path(argv[0]).name
        if name == "git":
            return Processes().run(argv, cwd=cwd, env=env, timeout=timeout, input=input)
        code, output = answer(argv) if callable(answer := self.answers.get(name, (1, ""))) else answer
        return Completed(tuple(argv), code, output.encode(), b"")

    def start(self, argv, *, cwd, env, log, input=b""):  # noqa: A002
        call = {"argv": tuple(argv), "cwd": cwd, "env": dict(env), "log": log} | ({"input": input} if input else {})
        self.started.append(call)
        log.write_text("Something went wrong\n")
        self.on_start(call)
        return 4242

    def alive(self, pid):
        return self.living

    def running(self):
        return {}

    def exit_status(self, pid):
        return None

    def environment(self, pid):
        return self.started[-1]["env"] if self.living and self.started else None

    def end(self, pid, *, force):
        self.living = False

    def replace(self, argv, *, cwd, env):
        self.started.append({"argv": tuple(argv), "cwd": cwd, "env": dict(env), "log": None})
        raise SystemExit(0)


class FakeClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.time = time.time()
        self.slept = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept += seconds


class HastyClock(FakeClock):
    """Whoever waits in vain has done so after a few looks: two hundred say the same."""

    def sleep(self, seconds: float) -> None:
        super().sleep(20 * seconds)


def told(request: ForkRequest) -> tuple[str, str | None, dict]:
    """The session, the prompt, and all else that a fork was asked for."""
    options = {name: getattr(request.options, name) for name in ("worktree", "with_changes", "place", "name")}
    more = {name: getattr(request, name) for name in ("at", "cwd", "caller_session_id", "as_agent", "budget")}
    said = {name: value for name, value in more.items() if value is not None}
    return request.session, request.options.prompt, options | said | {"dry_run": request.dry_run}


def choosing(
    *, auto_fork: bool = False, fork_index: int | None = None, ask: object = None, or_all: bool = False,
    call: dict | None = None, fork_session_id: str = "", **how: object,
) -> tuple[SessionChoice, ForkRequest]:  # fmt: skip
    """Which result is forked, and how."""
    return SessionChoice(auto_fork, fork_index, ask, or_all, call or {}), ForkRequest(fork_session_id, **how)


def branched(session_id: str, *, now: float | None = None, clock: object = None, **how: object) -> Branched:
    """A branch of a session."""
    options = Options(**{name: how.pop(name) for name in ("prompt", "place", "unmasked") if name in how})
    return branch(BranchRequest(session_id, options, **how), now=now, clock=clock)


def plan_of(argv: list[str], cwd: Path, **more: object) -> ForkPlan:
    """A plan that runs `argv`."""
    values = {
        "agent": "claude", "argv": tuple(argv), "cwd": cwd, "env": {}, "source_session_id": SESSION,
        "new_session_id": NEW, "staging": "nothing", "at": None, "name": "", "prompt": "go", "headless": False,
    }  # fmt: skip
    return ForkPlan(**values | more)


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-c", code, *words]


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below, with its bytes and its time."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def eventually(look: Callable[[], object], seconds: float = 90.0) -> object:
    """What `look` gives, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found
