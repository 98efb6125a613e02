"""Start commands and processes of Codex.

Seen with 0.169:

* Codex ends its options at ``--``;
* ``/clear`` runs a slash command, ``!touch x`` a shell command; with a blank before either, it is an ordinary prompt;
* its permissions come from its present settings alone, not from the permissions that the session has recorded;
* ``codex fork`` asks for the directory unless ``-C`` names it;
* its first request waits a second for MCP servers, but for a ``required`` server until that answers. If a required
  server does not answer, Codex does not start.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from smart_fork.agents.agent_processes import AgentProcesses, ProcessNote
from smart_fork.agents.codex import HOME
from smart_fork.agents.codex.rollouts import is_uuid
from smart_fork.agents.mcp_registration import NAME
from smart_fork.agents.start_command import CommandLine, LaunchRequest, Starter
from smart_fork.errors import ForkRefused
from smart_fork.system.processes import Running


class CodexStarter(Starter):
    """Makes the commands to start Codex."""

    forks = ("codex", "fork", "ID")
    waits = True

    def line(self, request: LaunchRequest) -> CommandLine:
        """Return the command line for a request. Codex chooses new ids, and writes a fork's log before its prompt."""
        goes_on_in = request.session_id if request.form == "resume" else request.new_session_id if request.at else None
        if goes_on_in:
            words: tuple[str, ...] = ("resume", goes_on_in)
        else:
            words = () if request.form == "new" else ("fork", request.session_id)
        waiting = ("-c", f"mcp_servers.{NAME}.required=true") if request.has_tools and request.prompt else ()
        place = ("-C", str(request.target_cwd), *waiting)
        unasked = ("--dangerously-bypass-approvals-and-sandbox",) if request.skip_permissions else ()
        if request.headless:  # only `exec` itself takes a directory
            command = (request.program, "exec", *place, *words, *unasked)
        else:
            command = (request.program, *words, *place, *unasked)
        asked = ("--", request.prompt) if request.prompt else ()
        forks = request.form == "fork"
        return CommandLine(
            (*command, *asked),
            goes_on_in,
            "branch" if forks and request.at else "nothing",
            writes=forks and goes_on_in is None,
        )


#: The words of processes that are no window of a person.
_SERVES = {"app-server", "exec", "mcp-server"}
_OPEN = "Codex still has it open. Close Codex and stop its server: codex app-server daemon stop"


class CodexProcesses(AgentProcesses):
    """Finds Codex's processes, which lock each open session.

    If Codex's server runs the session for a window, the server holds the lock, a bit longer than the window is open.
    """

    forks = ("fork",)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the processes that have a session open; instead of Codex's server, the windows that may show it."""
        own, holders = self._holders(session_id, processes)
        shown = [pid for pid in holders if "app-server" not in own[pid].words]
        yield from (ProcessNote(pid, session_id) for pid in shown)
        for pid, one in own.items() if holders and not shown else ():
            if _SERVES.isdisjoint(one.words) and not any(is_uuid(word) and word != session_id for word in one.words):
                yield ProcessNote(pid, session_id, sure=False)

    def queue(self, session_id: str, text: str, running: Callable[[], Mapping[int, Running]]) -> tuple[str, ...]:
        """Return the arguments of ``codex queue`` for a message; empty unless Codex's server has the session open.

        A window that does not use the server never gets queued messages.
        """
        own, holders = self._holders(session_id, running())
        served = any("app-server" in own[pid].words for pid in holders)
        return ("queue", f"--thread={session_id}", f"--message={text}") if served else ()

    def _holders(self, session_id: str, processes: Mapping[int, Running]) -> tuple[Mapping[int, Running], list[int]]:
        """Return all processes of Codex, and the ids of those that have the session open."""
        own = {pid: one for pid, one in processes.items() if self.runs(one.words)} if is_uuid(session_id) else {}
        return own, [pid for pid in own if _has_open(pid, _lock(session_id))]

    def hold(self, session_id: str) -> int | None:
        """Lock a session, so that Codex cannot open it. Return the file descriptor; `None` if Codex made no lock file.

        Raises:
            ForkRefused: Codex has the session open.
        """
        if not is_uuid(session_id):
            return None
        try:
            lock = os.open(_lock(session_id), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ForkRefused(_OPEN) from error
        return lock


def _lock(session_id: str) -> Path:
    return HOME.folder() / "thread-writer-locks" / f"{session_id}.lock"


def _has_open(pid: int, path: Path) -> bool:
    import psutil

    with suppress(psutil.Error, OSError):
        return any(one.path == str(path) for one in psutil.Process(pid).open_files())
    return False
