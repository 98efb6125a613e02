"""A window of tmux: one tmux session for each project, one window for each worker.

tmux takes a command as separate arguments and runs no shell then, if they are at least two. What it does read is
escaped: an argument's trailing ``;`` would separate commands, and ``#(…)`` in a directory's name would be run.

What is typed goes through a buffer and is pasted: tmux sends a buffer's bytes as they are, and the agents, which ask
for bracketed paste, take newlines in it as text.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from indexer.files import state_home
from indexer.lazy import dataclass
from indexer.masking import Masked, mask, mask_screen
from indexer.project import project_of
from indexer.settings import Setting
from smart_fork.agents import AGENTS
from smart_fork.agents.starter import Delivery, ForkPlan
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed, SmartForkError
from smart_fork.snippets import quoted
from smart_fork.system.processes import Completed, Processes
from smart_fork.workers.place import KEYS, Started, WorkerPlace, hand_over, not_taken, require_ours, runs
from smart_fork.workers.registry import WorkerRecord

TMUX_SECONDS = 10.0
MAX_NAME_CHARACTERS = 40
#: The server takes 16 KiB in one message, with everything around the command.
MAX_COMMAND_BYTES = 8_000
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
#: How whoever forks reaches the network: proxies, and the certificates of a company's own authority.
_NETWORK = (
    *_PROXIES,
    *map(str.lower, _PROXIES),
    *("NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
)
#: The window has these as whoever forks has them, or not at all: a server that runs already has the environment of
#: whoever started it. No secrets: they would stand in the list of processes.
_OURS = (Setting.HOME, *AGENTS.home_variables(), *AGENTS.overrides(), *_NETWORK)
PASSED_ON = ("PATH", "HOME", *_OURS)
#: Not kept by a server that we start: every later window would have it, also one of somebody with another home.
NOT_KEPT = (*AGENTS.callers_own, *_OURS)
#: How often, and after how long, a window is asked again how what ran in it has ended.
_LOOKS, _LOOK_SECONDS = 20, 0.02
#: Our sessions are named after projects, with this in front.
OURS = "smart-fork-"
#: The option that says to which state home a session or window belongs: several may share a tmux server. A window that
#: a person opens has that of its session.
OWNER = "@smart_fork_home"
#: The option that says for which process a window was opened: of one that has ended, tmux 3.8 does not know that.
_OPENED_FOR = "@smart_fork_pid"
_PID = f"#{{?pane_pid,#{{pane_pid}},#{{?{_OPENED_FOR},#{{{_OPENED_FOR}}},-}}}}"


@dataclass(frozen=True, slots=True)
class Window:
    """A window in one of our sessions, whoever opened it, or one of ours in a session of another home."""

    terminal_id: str
    pid: int
    session: str
    cwd: str
    name: str


class TmuxPlace(WorkerPlace):
    """Runs the agent as a person would. The window stays when it has ended, so that its last words can be read."""

    name = "tmux"
    delivers = frozenset[Delivery]({"argument", "typed"})

    def available(self, processes: Processes, env: Mapping[str, str]) -> bool:
        """Where tmux is installed."""
        return shutil.which("tmux", path=env.get("PATH", os.defpath)) is not None

    def inherited(self, processes: Processes, env: Mapping[str, str]) -> Mapping[str, str]:
        """See `WorkerPlace.inherited`: those of the server, which may be a person's own."""
        told = _run(processes, env, "show-environment", "-g")
        return dict(line.split("=", 1) for line in told.text.splitlines() if told.ok and "=" in line)

    def start(self, plan: ForkPlan, worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> Started:
        if not plan.cwd.is_dir():  # tmux would silently take the home directory
            raise NotFound(f"No such directory: {plan.cwd}")
        session = session_name(plan.cwd)
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
            done = self._open(session, _escaped(window), processes, bare)
        except BaseException:
            not_taken(command)
            raise
        pane, _, pid = done.text.partition(" ")
        if not pane.startswith("%") or not pid.isdigit():
            raise ProgramFailed(f"tmux did not name the new window: {quoted(done.text)}")
        attach = self.attach_command(session, env)
        return Started(terminal_id=pane, pid=int(pid), attach=attach, worker_id=worker.id)

    def ended(self, started: Started, processes: Processes, env: Mapping[str, str]) -> Masked | None:
        dead, status = self._pane(started, processes, env)
        if dead is None:  # or it is a window of another tmux server, which this one does not know
            return None if runs(started, processes) else mask("Its window was closed.")
        if not dead:
            return None
        # tmux moves everything up by a line for its own "Pane is dead".
        screen = _run(processes, env, "capture-pane", "-p", "-S", "-20", "-t", started.terminal_id or "")
        lines = [line.rstrip() for line in mask_screen(screen.text).splitlines() if line.strip()]
        words = "\n".join(line for line in lines[-20:] if not line.startswith("Pane is dead"))
        # tmux drops what a program wrote if it sees the program's end before it reads the terminal.
        return mask(words or (f"It ended with status {status}." if status.isdigit() else "It ended."))

    def exit_status(self, started: Started, processes: Processes, env: Mapping[str, str]) -> int | None:
        """See `WorkerPlace.exit_status`. tmux may learn of it after the end, and of some it never does (3.3)."""
        for _ in range(_LOOKS):
            dead, status = self._pane(started, processes, env)
            if not dead or status:
                break
            time.sleep(_LOOK_SECONDS)
        return int(status) if dead and status.lstrip("-").isdigit() else None

    def screen(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str | None:
        if self._pane(started, processes, env)[0] is None:
            return None
        seen = _run(processes, env, "capture-pane", "-p", "-J", "-t", started.terminal_id or "")
        return seen.stdout.decode("utf-8", "replace")

    def paste(self, started: Started, text: str, processes: Processes, env: Mapping[str, str]) -> None:
        pane = self._require(started, processes, env)
        buffer = f"smart-fork-{secrets.token_hex(8)}"
        pasting = ("paste-buffer", "-d", "-p", "-r", "-b", buffer, "-t", pane)
        done = _run(processes, env, "load-buffer", "-b", buffer, "-", ";", *pasting, said=text.encode())
        if not done.ok:
            raise ProgramFailed(f"tmux could not paste: {done.complaint}")

    def press(self, started: Started, key: str, processes: Processes, env: Mapping[str, str]) -> None:
        if key not in KEYS:
            raise ForkRefused(f"Unknown key: {key!r}")
        pane = self._require(started, processes, env)
        done = _run(processes, env, "send-keys", "-t", pane, key)
        if not done.ok:
            raise ProgramFailed(f"tmux could not press {key}: {done.complaint}")

    def close(self, started: Started, processes: Processes, env: Mapping[str, str]) -> None:
        """See `WorkerPlace.close`. The window of one that has ended is closed as well."""
        dead, _ = self._pane(started, processes, env)
        if dead is None:
            return
        if not dead:
            require_ours(started, processes)
        _run(processes, env, "kill-pane", "-t", started.terminal_id or "")

    def attach_command(self, session: str, env: Mapping[str, str]) -> str:
        """What a person types to see one of our sessions."""
        return shlex.join([*_tmux(env), "attach", "-t", f"={session}"])

    def windows(self, processes: Processes, env: Mapping[str, str]) -> list[Window]:
        """All windows in our sessions; none where no tmux runs. Those of another home are not ours."""
        # Of a program that is just being started nobody knows yet where it works.
        cwd = "#{?pane_current_path,#{pane_current_path},#{pane_start_path}}"
        form = f"#{{{OWNER}}}\t#{{pane_id}}\t{_PID}\t#{{session_name}}\t{cwd}\t#{{window_name}}"
        listed = _run(processes, env, "list-panes", "-a", "-F", form)
        rows = (line.split("\t", 5) for line in listed.text.splitlines() if listed.ok)
        return [
            Window(row[1], int(row[2]), *row[3:])
            for row in rows
            if len(row) == 6 and row[0] in ("", _owner()) and row[2].isdigit() and row[3].startswith(OURS)
        ]

    def _pane(self, started: Started, processes: Processes, env: Mapping[str, str]) -> tuple[bool | None, str]:
        """Whether the process in its window has ended, and with which status, or with minus which signal.

        `None` where the window is gone.

        A tmux that was restarted gives the same names again, so the process has to be the same too.
        """
        how = "#{?#{pane_dead_signal},-#{pane_dead_signal},#{pane_dead_status}}"
        form = f"#{{pane_id}} {_PID} #{{pane_dead}} {how}"
        state = _run(processes, env, "display-message", "-p", "-t", started.terminal_id or "%", form)
        pane, pid, dead, status = [*state.text.split(), "", "", "", ""][:4]
        another = started.pid is not None and pid != str(started.pid)
        if not state.ok or pane != started.terminal_id or another:
            return None, ""
        return dead == "1", status

    def _require(self, started: Started, processes: Processes, env: Mapping[str, str]) -> str:
        """Its window, ready to be typed into, if what runs there is what was started."""
        if self._pane(started, processes, env)[0] is not False or started.terminal_id is None:
            raise ForkRefused("It has ended, or its window was closed")
        require_ours(started, processes)
        # Where somebody is scrolling, keys would scroll, and a paste would not be marked as one.
        _run(processes, env, "copy-mode", "-q", "-t", started.terminal_id)
        return started.terminal_id

    def _open(self, session: str, window: Sequence[str], processes: Processes, env: Mapping[str, str]) -> Completed:
        # In one message, so that the window is told to stay before the command in it can have ended.
        last = ("-t", f"={session}:{{end}}")
        stay = [";", "set-option", "-w", *last, "remain-on-exit", "on", ";", "set-option", "-w", *last, OWNER, _owner()]
        stay += [";", "set-option", "-w", "-F", *last, _OPENED_FOR, "#{pane_pid}"]
        # Workers outlive whoever looks at them, also where a person's settings end what nobody looks at.
        stay += [";", "set-option", *last, "destroy-unattached", "off"]
        stay += [";", "set-option", "-s", "exit-unattached", "off"]
        ours = [";", "set-option", *last, OWNER, _owner()]
        for _ in range(3):  # another process may open or close the session meanwhile
            if _run(processes, env, "has-session", "-t", f"={session}").ok:
                done = _run(processes, env, "new-window", "-d", "-a", *last, *window, *stay)
            else:
                size = ("-x", "200", "-y", "50")
                done = _run(processes, env, "new-session", "-d", "-s", session, *size, *window, *stay, *ours)
            if done.ok:
                return done
        raise ProgramFailed(f"tmux could not open a window: {done.complaint}", "Run the fork as a process.")

    def _command(self, argv: Sequence[str], worker: WorkerRecord, given: Mapping[str, str]) -> list[str]:
        """The command; or where it is too long for tmux, or given something, a program that becomes it."""
        if not given and sum(len(os.fsencode(word)) + 1 for word in argv) <= MAX_COMMAND_BYTES:
            return list(argv)
        return hand_over(worker, {"argv": list(argv), "given": given})


class Panes:
    """The panes of the tmux server, whoever opened them, looked up once, when they are first asked for."""

    def __init__(self, processes: Processes, env: Mapping[str, str]) -> None:
        self._processes, self._env = processes, env

    def pid_in(self, pane: str | None) -> int | None:
        """The process in that pane; `None` where there is no such pane, or nobody tells."""
        return self._pids.get(pane or "")

    def pane_of(self, pid: int) -> str | None:
        """The pane in which that process is."""
        return next((pane for pane, other in self._pids.items() if other == pid), None)

    @cached_property
    def _pids(self) -> dict[str, int]:
        try:
            listed = _run(self._processes, self._env, "list-panes", "-a", "-F", "#{pane_id} #{pane_pid}")
        except SmartForkError:
            return {}
        pairs = (line.partition(" ") for line in listed.text.splitlines() if listed.ok)
        return {pane: int(pid) for pane, _, pid in pairs if pid.isdigit()}


def session_name(directory: Path) -> str:
    """The tmux session of the project that `directory` is in: one for all worktrees, also of a bare repository."""
    project = project_of(directory)
    key = Path(project.key)
    folder = key.parent if project.git and key.name.startswith(".") else key
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.name.removesuffix(".git"))
    return f"{OURS}{name[:MAX_NAME_CHARACTERS].strip('-') or 'fork'}"


def _owner() -> str:
    """Our state home, as `OWNER` has it: without anything that tmux, or a line of its output, could take for more."""
    return hashlib.sha256(os.fsencode(state_home().resolve())).hexdigest()[:16]


def _escaped(words: Sequence[str]) -> list[str]:
    return [f"{word[:-1]}\\;" if word.endswith(";") else word for word in words]


def _tmux(env: Mapping[str, str]) -> list[str]:
    socket = Setting.TMUX_SOCKET.text(env)
    return ["tmux", "-L", socket] if socket else ["tmux"]


def _run(processes: Processes, env: Mapping[str, str], *words: str, said: bytes = b"") -> Completed:
    # A server that this starts keeps the environment for every later window.
    clean = {name: value for name, value in env.items() if name not in NOT_KEPT}
    try:
        whom = Setting.TMUX_SOCKET.text(env) or "default"
        return processes.run([*_tmux(env), *words], env=clean, timeout=TMUX_SECONDS, input=said, whom=whom)
    except SmartForkError as error:
        hint = f"Does `{shlex.join([*_tmux(env), 'ls'])}` answer? Forks can run as processes without it."
        raise ProgramFailed(error.message, hint) from error
