"""A window of tmux: one tmux session for each project, one window for each worker.

tmux takes a command as separate arguments and runs no shell then, if they are at least two. What it does read is
escaped: an argument's trailing ``;`` would separate commands, and ``#(…)`` in a directory's name would be run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from indexer.project import project_of
from smart_fork.errors import NotFound, ProgramFailed, SmartForkError
from smart_fork.plan import CALLERS_OWN, ForkPlan
from smart_fork.processes import Completed, Processes
from smart_fork.registry import Worker
from smart_fork.staging import write_new
from smart_fork.workers import handoff
from smart_fork.workers.base import Started, worker_file

#: Uses a server of its own (``tmux -L``).
SOCKET = "SMART_FORK_TMUX_SOCKET"
TMUX_SECONDS = 30.0
MAX_NAME_CHARACTERS = 40
#: The server takes 16 KiB in one message, with everything around the command.
MAX_COMMAND_BYTES = 8_000
#: Given to the window, since a server that runs already has the environment of whoever started it. No secrets: they
#: would stand in the list of processes.
PASSED_ON = ("PATH", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "SMART_FORK_HOME", "SMART_FORK_CLAUDE", "SMART_FORK_CODEX")


class TmuxPlace:
    """Runs the agent as a person would. The window stays when it has ended, so that its last words can be read."""

    name = "tmux"
    headless = False
    replaces = False

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Where tmux is installed."""
        return shutil.which("tmux", path=env.get("PATH", os.defpath)) is not None

    def start(self, plan: ForkPlan, worker: Worker, processes: Processes, env: Mapping[str, str]) -> Started:
        """See `Place.start`."""
        if not plan.cwd.is_dir():  # tmux would silently take the home directory
            raise NotFound(f"No such directory: {plan.cwd}")
        session = session_name(plan.cwd)
        window = ["-n", worker.name.replace("#", "##"), "-c", str(plan.cwd).replace("#", "##")]
        window += ["-P", "-F", "#{pane_id} #{pane_pid}"]
        for name in (*(name for name in PASSED_ON if name in env), *plan.env):
            window += ["-e", f"{name}={env[name]}"]
        window += ["--", *self._command(plan.argv, worker)]
        done = self._open(session, _escaped(window), processes, env)
        pane, _, pid = done.text.partition(" ")
        attach = shlex.join([*_tmux(env), "attach", "-t", f"={session}"])
        return Started(terminal_id=pane, pid=int(pid), attach=attach)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:
        """See `Place.ended`."""
        target = ["-t", started.terminal_id or ""]
        state = _run(processes, env, "display-message", "-p", *target, "#{pane_id} #{pane_dead} #{pane_dead_status}")
        pane, dead, status = [*state.text.split(), "", "", ""][:3]
        if not state.ok or not pane.startswith("%"):
            return "Its window was closed."
        if dead != "1":
            return None
        # tmux moves everything up by a line for its own "Pane is dead".
        screen = _run(processes, env, "capture-pane", "-p", "-S", "-20", *target)
        lines = [line.rstrip() for line in screen.text.splitlines() if line.strip()]
        words = "\n".join(line for line in lines[-20:] if not line.startswith("Pane is dead"))
        # tmux drops what a program wrote if it sees the program's end before it reads the terminal.
        return words or (f"It ended with status {status}." if status else "It ended.")

    def _open(self, session: str, window: Sequence[str], processes: Processes, env: Mapping[str, str]) -> Completed:
        # In one message, so that the window is told to stay before the command in it can have ended.
        stay = (";", "set-option", "-w", "-t", f"={session}:{{end}}", "remain-on-exit", "on")
        for _ in range(3):  # another process may open or close the session meanwhile
            if _run(processes, env, "has-session", "-t", f"={session}").ok:
                done = _run(processes, env, "new-window", "-d", "-a", "-t", f"={session}:{{end}}", *window, *stay)
            else:
                size = ("-x", "200", "-y", "50")
                done = _run(processes, env, "new-session", "-d", "-s", session, *size, *window, *stay)
            if done.ok:
                return done
        raise ProgramFailed(f"tmux could not open a window: {done.complaint}", "Run the fork as a process.")

    def _command(self, argv: Sequence[str], worker: Worker) -> list[str]:
        """The command, or for one that is too long for tmux, a program that reads it from a file and becomes it."""
        if sum(len(os.fsencode(word)) + 1 for word in argv) <= MAX_COMMAND_BYTES:
            return list(argv)
        file = worker_file(worker, ".command.json")
        write_new(file, [orjson.dumps(list(argv))])
        return [sys.executable, "-I", str(Path(handoff.__file__).resolve()), str(file)]


def session_name(directory: Path) -> str:
    """The tmux session of the project that `directory` is in."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(project_of(directory).root).name)
    return f"smart-fork-{name[:MAX_NAME_CHARACTERS].strip('-') or 'fork'}"


def _escaped(words: Sequence[str]) -> list[str]:
    return [f"{word[:-1]}\\;" if word.endswith(";") else word for word in words]


def _tmux(env: Mapping[str, str]) -> list[str]:
    socket = env.get(SOCKET)
    return ["tmux", "-L", socket] if socket else ["tmux"]


def _run(processes: Processes, env: Mapping[str, str], *words: str) -> Completed:
    # A server that this starts keeps the environment for every later window.
    clean = {name: value for name, value in env.items() if name not in CALLERS_OWN}
    try:
        return processes.run([*_tmux(env), *words], env=clean, timeout=TMUX_SECONDS)
    except SmartForkError as error:
        raise ProgramFailed(f"tmux: {error.message}", "Run the fork as a process.") from error
