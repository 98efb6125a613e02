"""More sessions for a home with the demo's: `script` says what one is made of, the others write it as an agent does."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from smart_fork.agents.claude.log_files import slug
from smart_fork.cli.demo import DemoHome
from tests.demo_logs.claude_log import ClaudeLog
from tests.demo_logs.clock import DemoClock, ordered_id, random_id
from tests.demo_logs.codex_log import CodexLog
from tests.demo_logs.script import Scripted


def session_id(name: str) -> str:
    """The id of a session of Claude Code, the demo's own ones among them, by what its script calls it."""
    return random_id("demo", name)


def write_more(demo: DemoHome, more: Sequence[Scripted]) -> None:
    """Write these sessions, in this order: a fork comes after its parent."""
    now = datetime.now(UTC)
    for scripted in more:
        clock = DemoClock(now - timedelta(days=scripted.days_ago))
        cwd = demo.home / "repos" / scripted.repository
        if scripted.agent == "claude":
            folder = demo.home / ".claude" / "projects" / slug(str(cwd))
            before = _records(folder / f"{session_id(scripted.fork_of)}.jsonl") if scripted.fork_of else []
            path = folder / f"{session_id(scripted.name)}.jsonl"
            records = ClaudeLog(scripted, session_id(scripted.name), str(cwd), clock).write(before)
        else:
            name, local = ordered_id(clock.now, "demo", scripted.name), clock.now.astimezone()
            day = demo.home / ".codex" / "sessions" / local.strftime("%Y/%m/%d")
            path = day / f"rollout-{local:%Y-%m-%dT%H-%M-%S}-{name}.jsonl"
            records = CodexLog(scripted, name, str(cwd), clock).write()
        _save(path, records, clock.now)


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _save(path: Path, records: list[dict[str, Any]], changed: datetime) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    os.utime(path, (changed.timestamp(), changed.timestamp()))
