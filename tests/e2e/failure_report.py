"""What is to be seen on a machine when a test fails: what runs, the terminals, the ends of the logs, what the model was asked."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from tests.e2e.agents import Machine

#: Below the home: what the agents and we write while we run.
LOGS = (
    ".smart-fork/logs/**/*.log",
    ".claude/projects/*/*.jsonl",
    ".claude/debug/*.txt",
    ".codex/log/*.log",
    ".codex/sessions/*/*/*/*.jsonl",
)
_FILES, _LINES, _CHARACTERS, _PROMPTS, _ROWS = 3, 3, 240, 12, 16


#: Without one a row of a screen is a frame or a picture.
_WORD = re.compile(r"\w")


def situation(machine: Machine) -> str:
    """All of it, as text for a person who was not there."""
    return "\n".join([*_running(machine), *_terminals(machine), *_log_ends(machine.home), *_prompts(machine)])


def _running(machine: Machine) -> Iterator[str]:
    yield "--- what runs: process, parent, state, where the kernel has it wait, age, command"
    for process in machine.processes():
        try:
            age = f"{time.time() - process.create_time():.0f} s"
            where = Path(f"/proc/{process.pid}/wchan")
            waits = where.read_text() if where.exists() else "-"
            command = " ".join(process.cmdline())[:_CHARACTERS]
            yield f"{process.pid} {process.ppid()} {process.status()} {waits} {age} {command}"
        except (psutil.Error, OSError):  # it has ended meanwhile
            continue


def _terminals(machine: Machine) -> Iterator[str]:
    form = "#{pane_id} #{pane_pid} #{pane_dead} #{session_name} #{pane_start_command}"
    for pane in machine.tmux("list-panes", "-a", "-F", form, check=False).splitlines():
        yield f"--- terminal {pane[:_CHARACTERS]}"
        screen = machine.tmux("capture-pane", "-p", "-t", pane.split()[0], check=False)
        yield from [line.rstrip() for line in screen.splitlines() if _WORD.search(line)][-_ROWS:]


def _log_ends(home: Path) -> Iterator[str]:
    for pattern in LOGS:
        for path in sorted(home.glob(pattern), key=_changed)[-_FILES:]:
            yield f"--- {path.relative_to(home)}"
            try:
                lines = path.read_text(errors="replace").splitlines()
            except OSError as error:
                lines = [str(error)]
            yield from (line[:_CHARACTERS] for line in lines[-_LINES:])


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # they come and go
        return 0


def _prompts(machine: Machine) -> Iterator[str]:
    yield "--- what the model was asked last"
    yield from (f"{one.protocol}: {one.last_prompt[:100]!r}" for one in machine.model.all_requests[-_PROMPTS:])
