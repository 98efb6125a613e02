"""Start commands, processes and screen of OpenCode.

Seen with 1.18:

* ``opencode run`` stores a prompt that is one argument with quotation marks around it, and a prompt from standard input
  unchanged;
* ``--prompt`` begins a new session in a terminal, and is lost with ``-s``: smart-fork types the prompt instead;
* smart-fork can choose the id of an imported session, but not the ids of new sessions and of OpenCode's own forks.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import apsw

from indexer.locks import locked_by
from indexer.masking import Masked, beginning, mask
from smart_fork.agents.agent_processes import AgentProcesses, ProcessNote
from smart_fork.agents.ancestry import SessionBeginning, WorkerSessions
from smart_fork.agents.opencode.database import opened
from smart_fork.agents.opencode.session_reader import conversation, document_at, text_of
from smart_fork.agents.screen import Question, Screen, words
from smart_fork.agents.start_command import CommandLine, Delivery, LaunchRequest, Staging, Starter
from smart_fork.display_text import printable
from smart_fork.system.processes import Running

#: The left border of a box, and the lower end of the input box.
_BORDER, _END = "┃", re.compile(r"^\s*╹▀{10,}")
_ASKS = re.compile(r"^\W*△\s*(\S.*)$")
_WORKS = re.compile(r"\besc (?:again to )?interrupt\b")
_LAST = 4


class OpenCodeScreen(Screen):
    """Reads OpenCode's terminal screen."""

    def question(self, screen: Masked) -> Question | None:
        """Return the question on the screen, if any. Its options have no numbers: smart-fork cannot choose one."""
        lines = [printable(line).strip(f" {_BORDER}") for line in screen.splitlines()]
        first = next((i for i in reversed(range(len(lines))) if _ASKS.match(lines[i])), None)
        if first is None:
            return None
        text = "\n".join(line for line in lines[first:] if line)
        return Question(beginning(mask(text), Question.MAX_CHARACTERS))

    def works(self, screen: str) -> bool:
        return any(_WORKS.search(line) for line in screen.rstrip().splitlines()[-_LAST:])

    def hears(self, screen: str) -> bool:
        lines = screen.splitlines()
        return any(map(_END.match, lines)) and not any(map(_ASKS.match, lines))

    def holds(self, screen: str, text: str) -> bool:
        """Return True if the lowest input box has `text`, or "Pasted", which OpenCode shows for a long text."""
        lines = screen.splitlines()
        end = next((i for i in reversed(range(len(lines))) if _END.match(lines[i])), None)
        if end is None:
            return False
        first = end
        while first > 0 and lines[first - 1].lstrip().startswith(_BORDER):
            first -= 1
        held = words("".join(lines[first:end]))
        return "Pasted" in held or words(text)[:20] in held


#: The number of characters after ``ses_`` in OpenCode's own ids.
_ID_CHARACTERS = 26


class OpenCodeStarter(Starter):
    """Makes the commands to start OpenCode."""

    forks = ("opencode", "-s", "ID", "--fork")
    ids = re.compile(r"ses_[A-Za-z0-9]{8,64}")
    beginnings = re.compile(r"ses_[A-Za-z0-9]{4,64}")

    def line(self, request: LaunchRequest) -> CommandLine:
        """Return the command line for a request. A fork resumes the session that smart-fork has imported before."""
        session_id = {"new": None, "resume": request.session_id, "fork": request.new_session_id}[request.form]
        goes_on = ("-s", session_id) if session_id else ()
        unasked = ("--auto",) if request.skip_permissions else ()
        staging: Staging = "branch" if request.form == "fork" else "nothing"
        if request.headless:
            argv = (request.program, "run", "--format", "json", *goes_on, *unasked)
            return CommandLine(argv, session_id, staging, "input")
        delivery: Delivery = "typed" if session_id else "argument"
        asked = (f"--prompt={request.prompt}",) if request.prompt and delivery == "argument" else ()
        return CommandLine((request.program, *goes_on, *unasked, *asked), session_id, staging, delivery)

    def new_id(self) -> str:
        return f"ses_{secrets.token_hex(_ID_CHARACTERS // 2)}"


class OpenCodeProcesses(AgentProcesses):
    """Finds OpenCode's processes, and the session that each seems to have open."""

    forks = ("--fork",)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the processes that seem to have a session open; OpenCode does not record it.

        A process counts if it runs in the session's directory, it started before the session's last change, and the
        session is the newest of that directory. A process with a session id in its command line is skipped.
        """
        import psutil  # no start needs it

        own = {pid: one for pid, one in processes.items() if self.runs(one.words)} if log else {}
        newest = _last_written(log.parent, session_id) if log and own else None
        for pid, one in own.items() if newest else ():
            with suppress(psutil.Error, OSError):
                named = any(OpenCodeStarter.ids.fullmatch(word) for word in one.words)
                if newest and not named and one.born <= newest[1] and psutil.Process(pid).cwd() == newest[0]:
                    yield ProcessNote(pid, session_id, sure=False)

    def near(self, log: Path, processes: Mapping[int, Running]) -> str:
        """Return a sentence about the process that has OpenCode's database open, and may write; else empty."""
        process = locked_by(log.parent, *_LOCKED) if log.parent.is_file() else None
        return "" if process is None else f"process {process} has OpenCode's database open"


#: The bytes that each open connection to an SQLite database locks.
_LOCKED = 0x40000002, 510
_NEWEST = """SELECT id, directory, time_updated / 1000.0 FROM session WHERE parent_id IS NULL
    AND directory = (SELECT directory FROM session WHERE id = ?) ORDER BY time_updated DESC LIMIT 1"""


def _last_written(database: Path, session_id: str) -> tuple[str, float] | None:
    """Return a session's directory and last change in Unix seconds; `None` unless it is the newest in its directory."""
    with suppress(OSError, apsw.Error), opened(database) as db:
        one, directory, moment = db.execute(_NEWEST, (session_id,)).fetchone() or ("", "", 0.0)
        return (str(directory), float(moment)) if one == session_id else None
    return None


class OpenCodeWorkerSessions(WorkerSessions):
    """Recognizes which new session a started worker (an agent) has created.

    A fork's session needs no recognition, because smart-fork chooses its id.
    """

    def beginning(self, log: Path) -> SessionBeginning | None:
        try:
            info = document_at(log, 1)["info"]
        except OSError:
            return None
        created, cwd = info["time"]["created"], info.get("directory")
        if info.get("parentID") or not created or not isinstance(cwd, str):
            return None
        return SessionBeginning(log.name, None, cwd, created / 1000)

    def was_asked(self, log: Path, prompt: str) -> bool:
        said = conversation(document_at(log))
        return any(info.get("role") == "user" and text_of(parts) == prompt.strip() for info, parts in said)
