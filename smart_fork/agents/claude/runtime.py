"""Start commands and running processes of Claude Code.

Seen with 2.1:

* Claude Code ends its options at ``--``;
* it resumes in the permission mode of the session's log or of the settings, unless ``--permission-mode`` names another;
* ``claude -- doctor`` runs the command ``doctor``, ``/clear`` runs a slash command; with a blank before either, it is
  an ordinary prompt;
* ``-p`` waits 5 seconds, or as long as a variable says, for servers with ``alwaysLoad``; a terminal session does not
  wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from indexer.json_values import dict_in, json_at, text_in
from smart_fork.agents.agent_processes import AgentProcesses, ProcessNote, noted_at
from smart_fork.agents.claude import HOME
from smart_fork.agents.start_command import CommandLine, LaunchKind, LaunchRequest, Staging, Starter
from smart_fork.system.processes import Running

#: The variable that makes it wait for servers as long as for their start.
_PATIENT = {"MCP_CONNECT_TIMEOUT_MS": "30000"}
_STAGED: dict[LaunchKind, Staging] = {"new": "nothing", "resume": "name", "fork": "transcript"}


class ClaudeStarter(Starter):
    """Makes the commands to start Claude Code."""

    forks = ("claude", "--resume", "ID", "--fork-session")
    forks_nothing = True
    asking = ("--permission-mode", "default")

    def line(self, request: LaunchRequest) -> CommandLine:
        """Return the command line for a request. For a new background session, Claude Code itself chooses the id."""
        # In the background only a copy of ours has an id that we know.
        new = None if request.background and not request.at else request.new_session_id
        resumes = request.form == "resume"
        chosen = ("--session-id", new) if new else ()
        session_id = request.session_id if resumes else new
        if session_id and (resumes or request.at):  # a shortened copy is one of its own already
            session: tuple[str, ...] = ("--resume", session_id)
        elif request.form == "new":
            session = chosen
        else:
            session = ("--resume", request.session_id, "--fork-session", *chosen)
        # The session that goes on keeps the name it has.
        named = (f"--name={request.name}",) if request.name and not resumes else ()
        unasked = ("--dangerously-skip-permissions",) if request.skip_permissions else ()
        asking = self.asking if request.of_others else ()
        printed = ("-p", "--output-format", "json") if request.headless else ()
        prompt = request.prompt or ""
        if request.background and prompt.startswith(" "):  # there the blank alone does not make it ordinary
            prompt = f"Prompt:{prompt}"
        asked = ("--", prompt) if prompt else ()
        return CommandLine(
            (request.program, *session, *named, *unasked, *asking, *printed, *asked),
            session_id,
            "branch" if request.form == "fork" and request.at else _STAGED[request.form],
            named=bool(named),
            env=_PATIENT if request.headless else {},
        )


class ClaudeProcesses(AgentProcesses):
    """Recognizes Claude Code's processes, and the session that each has open."""

    forks = ("--fork-session",)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the processes noted in ``sessions/<pid>.json`` of Claude Code's home, and of the home with `log`."""
        homes = {HOME.folder(), *((log.parents[2],) if log and len(log.parents) > 2 else ())}
        for path in (path for home in homes for path in (home / "sessions").glob("*.json")):
            note = dict_in(json_at(path))
            if type(pid := note.get("pid")) is int:
                yield ProcessNote(pid, text_in(note.get("sessionId")), noted_at(path, note.get("startedAt"), 1000))
