"""Terminals in which workers (agents that smart-fork started) run: a tmux window or an iTerm2 tab; and the choice among
all places to run.

tmux: each project has one tmux session, each worker one window. tmux runs no shell if a command has two or more
arguments. Two texts in these arguments are escaped: a trailing ``;``, which would separate commands, and ``#(…)`` in a
directory name, which tmux would run. Text is pasted from a tmux buffer, byte for byte; agents request bracketed paste,
so newlines in it are text.

iTerm2 (macOS, Python API, extra ``iterm2``): a command is one line, which iTerm2 splits itself, and no environment can
be passed. So the line runs a fixed command, which reads the real command from a private file.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from indexer.environment import Setting
from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, mask, mask_screen
from indexer.project import project_of
from indexer.safe_files import state_home
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.start_command import Delivery
from smart_fork.display_text import plain_name, quoted
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed, ProgramMissing, SmartForkError, Usage
from smart_fork.system.processes import Completed, Machine
from smart_fork.workers.registry import WorkerRecord
from smart_fork.workers.worker_place import (
    KEYS,
    BackgroundPlace,
    HerePlace,
    ProcessPlace,
    WorkerLocation,
    WorkerPlace,
    command_through_file,
    has_ended,
    is_running,
    remove_command_file,
    require_ours,
)

TMUX_SECONDS = 10.0
MAX_NAME_CHARACTERS = 40
#: The longest command: the tmux server takes 16 KiB in one message, including everything around it.
MAX_COMMAND_BYTES = 8_000
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
#: The caller's network settings: proxies, and certificates of a company's own authority.
_NETWORK = (
    *_PROXIES,
    *map(str.lower, _PROXIES),
    *("NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
)
#: Variables that a window gets from the caller, or not at all: a running server has the environment of its starter.
#: No secrets are among them, since they would be visible in the list of processes.
_OURS = (Setting.HOME, *AGENTS.home_variables(), *AGENTS.overrides(), *_NETWORK)
PASSED_ON = ("PATH", "HOME", *_OURS)
#: Variables removed from a server that smart-fork starts: every later window would inherit them, also of other homes.
NOT_KEPT = (*AGENTS.callers_own, *_OURS)
#: How often, and after how many seconds, a window is asked again for the exit status.
_LOOKS, _LOOK_SECONDS = 20, 0.02
#: The prefix of smart-fork's tmux sessions, before the project's name.
OURS = "smart-fork-"
#: The tmux option with the state home of a session or window, since several homes may share a tmux server. A window
#: opened by a person inherits its session's.
OWNER = "@smart_fork_home"
#: The tmux option with the process of a window: tmux 3.8 forgets it when the process ends.
_OPENED_FOR = "@smart_fork_pid"
_PID = f"#{{?pane_pid,#{{pane_pid}},#{{?{_OPENED_FOR},#{{{_OPENED_FOR}}},-}}}}"


@dataclass(frozen=True, slots=True)
class Window:
    """A tmux window that this smart-fork home (its data directory) opened. Several homes may share a tmux session."""

    terminal_id: str
    pid: int
    session: str
    cwd: str
    name: str


class TmuxPlace(WorkerPlace):
    """A tmux window as a worker's place. It stays open after the agent has ended, to show its last output."""

    name = "tmux"
    delivers = frozenset[Delivery]({"argument", "typed"})

    def available(self, machine: Machine) -> bool:
        return shutil.which("tmux", path=machine.env.get("PATH", os.defpath)) is not None

    def inherited(self, machine: Machine) -> Mapping[str, str]:
        """Return the environment variables of the tmux server, which a person may have started."""
        told = _run(machine, "show-environment", "-g")
        return dict(line.split("=", 1) for line in told.text.splitlines() if told.ok and "=" in line)

    def start(self, plan: ForkPlan, worker: WorkerRecord, machine: Machine) -> WorkerLocation:
        if not plan.cwd.is_dir():  # tmux would silently take the home directory
            raise NotFound(f"No such directory: {plan.cwd}")
        session, env = session_name(plan.cwd), machine.env
        window = ["-n", worker.name.replace("#", "##"), "-c", str(plan.cwd).replace("#", "##")]
        window += ["-P", "-F", "#{pane_id} #{pane_pid}"]
        # What may be secret goes through a private file, and a server that this starts does not have it either.
        apart = {*AGENTS.login_variables(), *(name for name in _NETWORK if "@" in env.get(name, ""))}
        secret = (*AGENTS.login_of(plan.agent).variables(), *_NETWORK)
        given = {name: env[name] for name in secret if name in env and name in apart}
        command = self._command(plan.argv, worker, given)
        # Not tmux's own -e: new sessions know it since 3.2 only, and it can take nothing away.
        words = [f"{name}={env[name]}" for name in (*PASSED_ON, *plan.env) if name in env and name not in apart]
        absent = [one for name in (*AGENTS.callers_own, *PASSED_ON) if name not in env for one in ("-u", name)]
        window += ["--", "/usr/bin/env", *absent, *words, *command]
        bare = {name: value for name, value in env.items() if name not in apart}
        try:
            done = self._open(session, _escaped(window), replace(machine, env=bare))
        except BaseException:
            remove_command_file(command)
            raise
        pane, _, pid = done.text.partition(" ")
        if not pane.startswith("%") or not pid.isdigit():
            raise ProgramFailed(f"tmux did not name the new window: {quoted(done.text)}")
        attach = self.attach_command(session, env)
        return WorkerLocation(terminal_id=pane, pid=int(pid), attach=attach, worker_id=worker.id)

    def ended(self, started: WorkerLocation, machine: Machine) -> Masked | None:
        dead, status = self._pane(started, machine)
        if dead is None:  # or it is a window of another tmux server, which this one does not know
            return None if is_running(started, machine.processes) else mask("Its window was closed.")
        if not dead:
            return None
        # tmux moves everything up by a line for its own "Pane is dead".
        screen = _run(machine, "capture-pane", "-p", "-S", "-20", "-t", started.terminal_id or "")
        lines = [line.rstrip() for line in mask_screen(screen.text).splitlines() if line.strip()]
        words = "\n".join(line for line in lines[-20:] if not line.startswith("Pane is dead"))
        # tmux drops what a program wrote if it sees the program's end before it reads the terminal.
        return mask(words or (f"It ended with status {status}." if status.isdigit() else "It ended."))

    def exit_status(self, started: WorkerLocation, machine: Machine) -> int | None:
        """Return the worker's exit status, after a short wait for tmux; `None` if tmux, such as 3.3, never knows it."""
        for _ in range(_LOOKS):
            dead, status = self._pane(started, machine)
            if not dead or status:
                break
            time.sleep(_LOOK_SECONDS)
        return int(status) if dead and status.lstrip("-").isdigit() else None

    def screen(self, started: WorkerLocation, machine: Machine) -> str | None:
        if self._pane(started, machine)[0] is None:
            return None
        seen = _run(machine, "capture-pane", "-p", "-J", "-t", started.terminal_id or "")
        return seen.stdout.decode("utf-8", "replace")

    def paste(self, started: WorkerLocation, text: str, machine: Machine) -> None:
        pane = self._require(started, machine)
        buffer = f"smart-fork-{secrets.token_hex(8)}"
        pasting = ("paste-buffer", "-d", "-p", "-r", "-b", buffer, "-t", pane)
        done = _run(machine, "load-buffer", "-b", buffer, "-", ";", *pasting, said=text.encode())
        if not done.ok:
            raise ProgramFailed(f"tmux could not paste: {done.complaint}")

    def press(self, started: WorkerLocation, key: str, machine: Machine) -> None:
        if key not in KEYS:
            raise ForkRefused(f"Unknown key: {key!r}")
        pane = self._require(started, machine)
        done = _run(machine, "send-keys", "-t", pane, key)
        if not done.ok:
            raise ProgramFailed(f"tmux could not press {key}: {done.complaint}")

    def close(self, started: WorkerLocation, machine: Machine) -> None:
        """Close the worker's window, also if the worker has ended already."""
        dead, _ = self._pane(started, machine)
        if dead is None:
            return
        if not dead:
            require_ours(started, machine.processes)
        _run(machine, "kill-pane", "-t", started.terminal_id or "")

    def attach_command(self, session: str, env: Mapping[str, str]) -> str:
        """Return the command that shows a tmux session to a person."""
        return shlex.join([*_tmux(env), "attach", "-t", f"={session}"])

    def windows(self, machine: Machine) -> list[Window]:
        """Return the tmux windows that belong to this smart-fork home (its data directory), if tmux runs."""
        # Of a program that is just being started nobody knows yet where it works.
        cwd = "#{?pane_current_path,#{pane_current_path},#{pane_start_path}}"
        form = f"#{{{OWNER}}}\t#{{pane_id}}\t{_PID}\t#{{session_name}}\t{cwd}\t#{{window_name}}"
        listed = _run(machine, "list-panes", "-a", "-F", form)
        rows = (line.split("\t", 5) for line in listed.text.splitlines() if listed.ok)
        return [
            Window(row[1], int(row[2]), *row[3:])
            for row in rows
            if len(row) == 6 and row[0] in ("", _owner()) and row[2].isdigit() and row[3].startswith(OURS)
        ]

    def _pane(self, started: WorkerLocation, machine: Machine) -> tuple[bool | None, str]:
        """Return (ended, exit status) of the process in the worker's window. The status is negative for a signal.

        If the window is gone, return (None, ""). A restarted tmux gives its id to another window: so the process id is
        compared, too.
        """
        how = "#{?#{pane_dead_signal},-#{pane_dead_signal},#{pane_dead_status}}"
        form = f"#{{pane_id}} {_PID} #{{pane_dead}} {how}"
        state = _run(machine, "display-message", "-p", "-t", started.terminal_id or "%", form)
        pane, pid, dead, status = [*state.text.split(), "", "", "", ""][:4]
        another = started.pid is not None and pid != str(started.pid)
        if not state.ok or pane != started.terminal_id or another:
            return None, ""
        return dead == "1", status

    def _require(self, started: WorkerLocation, machine: Machine) -> str:
        """Return the id of the worker's pane (its part of the tmux window), after leaving tmux's scrolling mode there.

        Raises:
            ForkRefused: the worker has ended, or the process in the pane is not the worker's.
        """
        if self._pane(started, machine)[0] is not False or started.terminal_id is None:
            raise ForkRefused("It has ended, or its window was closed")
        require_ours(started, machine.processes)
        # Where somebody is scrolling, keys would scroll, and a paste would not be marked as one.
        _run(machine, "copy-mode", "-q", "-t", started.terminal_id)
        return started.terminal_id

    def _open(self, session: str, window: Sequence[str], machine: Machine) -> Completed:
        # In one message, so that the window is told to stay before the command in it can have ended.
        last = ("-t", f"={session}:{{end}}")
        stay = [";", "set-option", "-w", *last, "remain-on-exit", "on", ";", "set-option", "-w", *last, OWNER, _owner()]
        stay += [";", "set-option", "-w", "-F", *last, _OPENED_FOR, "#{pane_pid}"]
        # Workers outlive whoever looks at them, also where a person's settings end what nobody looks at.
        stay += [";", "set-option", *last, "destroy-unattached", "off"]
        stay += [";", "set-option", "-s", "exit-unattached", "off"]
        ours = [";", "set-option", *last, OWNER, _owner()]
        for _ in range(3):  # another process may open or close the session meanwhile
            if _run(machine, "has-session", "-t", f"={session}").ok:
                done = _run(machine, "new-window", "-d", "-a", *last, *window, *stay)
            else:
                size = ("-x", "200", "-y", "50")
                done = _run(machine, "new-session", "-d", "-s", session, *size, *window, *stay, *ours)
            if done.ok:
                return done
        raise ProgramFailed(f"tmux could not open a window: {done.complaint}", "Run the fork as a process.")

    def _command(self, argv: Sequence[str], worker: WorkerRecord, given: Mapping[str, str]) -> list[str]:
        """Return `argv`; if it is long or needs variables (`given`), a command that reads both from a private file."""
        if not given and sum(len(os.fsencode(word)) + 1 for word in argv) <= MAX_COMMAND_BYTES:
            return list(argv)
        return command_through_file(worker, {"argv": list(argv), "given": given})


class Panes:
    """The panes (parts of windows) of the tmux server with their process ids. tmux is asked once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def pid_in(self, pane: str | None) -> int | None:
        """Return the id of the process in a pane; `None` if there is no such pane, or tmux does not answer."""
        return self._pids.get(pane or "")

    def pane_of(self, pid: int) -> str | None:
        """Return the id of the pane in which the process `pid` runs, if any."""
        return next((pane for pane, other in self._pids.items() if other == pid), None)

    @cached_property
    def _pids(self) -> dict[str, int]:
        try:
            listed = _run(self._machine, "list-panes", "-a", "-F", "#{pane_id} #{pane_pid}")
        except SmartForkError:
            return {}
        pairs = (line.partition(" ") for line in listed.text.splitlines() if listed.ok)
        return {pane: int(pid) for pane, _, pid in pairs if pid.isdigit()}


def session_name(directory: Path) -> str:
    """Return the name of the tmux session for the project of `directory`, which all its worktrees share."""
    project = project_of(directory)
    key = Path(project.key)
    folder = key.parent if project.git and key.name.startswith(".") else key
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.name.removesuffix(".git"))
    return f"{OURS}{name[:MAX_NAME_CHARACTERS].strip('-') or 'fork'}"


def _owner() -> str:
    """Return an id for this smart-fork home (its data directory), stored in the tmux option `OWNER`."""
    return hashlib.sha256(os.fsencode(state_home().resolve())).hexdigest()[:16]


def _escaped(words: Sequence[str]) -> list[str]:
    return [f"{word[:-1]}\\;" if word.endswith(";") else word for word in words]


def _tmux(env: Mapping[str, str]) -> list[str]:
    socket = Setting.TMUX_SOCKET.text(env)
    return ["tmux", "-L", socket] if socket else ["tmux"]


def _run(machine: Machine, *words: str, said: bytes = b"") -> Completed:
    # A server that this starts keeps the environment for every later window.
    env = machine.env
    clean = {name: value for name, value in env.items() if name not in NOT_KEPT}
    try:
        whom = Setting.TMUX_SOCKET.text(env) or "default"
        return machine.processes.run([*_tmux(env), *words], env=clean, timeout=TMUX_SECONDS, input=said, whom=whom)
    except SmartForkError as error:
        hint = f"Does `{shlex.join([*_tmux(env), 'ls'])}` answer? Forks can run as processes without it."
        raise ProgramFailed(error.message, hint) from error


INSTALL = "On macOS: install smart-fork[iterm2], and allow iTerm2's Python API in its settings."
#: The sequences around a bracketed paste, which agents request from their terminal.
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"

T = TypeVar("T")


class ITerm2Place(WorkerPlace):
    """A new tab in the front window of iTerm2, as a worker's place."""

    name = "iterm2"
    delivers = frozenset[Delivery]({"argument", "typed"})

    def available(self, machine: Machine) -> bool:
        """Return True on macOS if the extra ``iterm2`` of smart-fork is installed."""
        return sys.platform == "darwin" and find_spec("iterm2") is not None

    def start(self, plan: ForkPlan, worker: WorkerRecord, machine: Machine) -> WorkerLocation:
        if not plan.cwd.is_dir():
            raise NotFound(f"No such directory: {plan.cwd}")
        title, hands_over = (
            plain_name(worker.name),
            {"argv": list(plan.argv), "cwd": str(plan.cwd), "env": dict(machine.env)},
        )
        command = shlex.join(command_through_file(worker, hands_over))

        async def open_tab(app: Any, connection: Any) -> tuple[str, int | None]:
            import iterm2

            window = app.current_terminal_window
            if window is None:
                window = await iterm2.Window.async_create(connection, command=command)
                session = window.current_tab.current_session
            else:
                session = (await window.async_create_tab(command=command)).current_session
            await session.async_set_name(title)
            return session.session_id, int(await session.async_get_variable("pid") or 0) or None

        session_id, pid = _in_iterm2(open_tab)
        return WorkerLocation(terminal_id=session_id, pid=pid, attach=f"iTerm2, tab “{title}”", worker_id=worker.id)

    def ended(self, started: WorkerLocation, machine: Machine) -> Masked | None:
        """Return a sentence if the worker has ended, else `None`. Its last output is lost, because the tab closes."""
        return mask("Its tab was closed.") if has_ended(started, machine.processes) else None

    def screen(self, started: WorkerLocation, machine: Machine) -> str | None:

        async def read(app: Any, _connection: Any) -> str | None:
            session = app.get_session_by_id(started.terminal_id)
            if session is None:
                return None
            contents = await session.async_get_screen_contents()
            return "\n".join(contents.line(i).string for i in range(contents.number_of_lines))

        return _in_iterm2(read)

    def paste(self, started: WorkerLocation, text: str, machine: Machine) -> None:
        require_ours(started, machine.processes)
        self._send(started, f"{PASTE_BEGINS}{text}{PASTE_ENDS}")

    def press(self, started: WorkerLocation, key: str, machine: Machine) -> None:
        if key not in KEYS:
            raise ForkRefused(f"Unknown key: {key!r}")
        require_ours(started, machine.processes)
        self._send(started, {"Enter": "\r", "Up": "\x1b[A", "Down": "\x1b[B"}.get(key, key))

    def close(self, started: WorkerLocation, machine: Machine) -> None:
        require_ours(started, machine.processes)

        async def close_tab(app: Any, _connection: Any) -> None:
            if session := app.get_session_by_id(started.terminal_id):
                await session.async_close(force=True)

        _in_iterm2(close_tab)

    def _send(self, started: WorkerLocation, text: str) -> None:
        async def send(app: Any, _connection: Any) -> bool:
            session = app.get_session_by_id(started.terminal_id)
            if session is not None:
                await session.async_send_text(text, suppress_broadcast=True)
            return session is not None

        if not _in_iterm2(send):
            raise ForkRefused("Its tab was closed")


def _in_iterm2(work: Callable[[Any, Any], Awaitable[T]]) -> T:
    """Connect to iTerm2, and call `work` with its application and the connection. Return the result."""
    import iterm2

    async def main(connection: Any) -> T:
        return await work(await iterm2.async_get_app(connection), connection)

    try:
        result: T = iterm2.run_until_complete(main)
    except Exception as error:  # its own, those of its connection and of its protocol
        raise ProgramFailed(f"iTerm2 failed: {error}", INSTALL) from error
    return result


# The choice among all kinds of places. A new kind is one class, and one line here.

_OWN = AGENTS.in_background()
PLACES: tuple[WorkerPlace, ...] = (
    TmuxPlace(), ProcessPlace(), ITerm2Place(), *map(BackgroundPlace, _OWN, _OWN), HerePlace(),
)  # fmt: skip


def choose_place(name: str | None, machine: Machine) -> WorkerPlace:
    """Return the kind of place called `name`; without a name, tmux if it is installed, else a background process.

    A name of an agent means its own background sessions; if its installed version has none, a background process.

    Raises:
        Usage: there is no such place.
        ProgramMissing: the place needs a program that is not installed.
    """
    if name is None:
        return TmuxPlace() if TmuxPlace().available(machine) else ProcessPlace()
    place = next((known for known in PLACES if known.name == name), None)
    if place is None:
        raise Usage(f"Unknown place to run: {name}", f"Places are: {', '.join(known.name for known in PLACES)}.")
    if not place.available(machine):
        if isinstance(place, ITerm2Place):
            raise ProgramMissing("iTerm2 is not available", INSTALL)
        if place.agent:
            return ProcessPlace()
        raise ProgramMissing(f"{name} is not installed", "Install it, or run the fork as a process.")
    return place


def place_of(worker: WorkerRecord) -> WorkerPlace:
    """Return the kind of place in which a worker was started; raise `NotFound` if this version does not know it."""
    place = next((known for known in PLACES if known.name == worker.place), None)
    if place is None:
        raise NotFound(f"{worker.id} runs in a place unknown to this version: {worker.place}")
    return place
