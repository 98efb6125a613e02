"""Start commands, processes and screen of Gemini CLI.

Seen with 0.61:

* smart-fork can choose the id of a new session, but not a fork's (``--session-file``). So smart-fork starts a fork from
  its own copy, in the folder that belongs to the fork's directory;
* **Gemini CLI deletes a resumed session** when it is next started in that directory, with all logs that end in the
  session's first 8 characters. A log named after the whole id remains. smart-fork names its copies like that, and gives
  a log that is resumed a second name in that form;
* a prompt that begins with ``/`` or ``?``, also after blanks, is a command of Gemini CLI. A resumed session does not
  remember it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from indexer.json_values import seconds_in
from indexer.masking import Masked, mask_screen
from indexer.transcripts.reader_state import utc
from smart_fork.agents.agent import CallerIdentity, ClientCall, newest_logs
from smart_fork.agents.agent_processes import START_SECONDS, AgentProcesses, ProcessNote
from smart_fork.agents.gemini.home import BEGINS, CHATS, id_of, project_for, root_of
from smart_fork.agents.gemini.log_files import GeminiAdapter, start_of
from smart_fork.agents.screen import Question, Screen
from smart_fork.agents.start_command import OptionStarter
from smart_fork.system.processes import Running

_BOX = re.compile(r"^[ \t]*[│┃]?(.*?)[ \t]*[│┃]?[ \t]*$", re.MULTILINE)
_CHOSEN = re.compile(r"^(\s*)●(?=\s+\d[.)]\s)", re.MULTILINE)

_RULE = re.compile(r"^─{10,}$")


class GeminiScreen(Screen):
    """Reads Gemini CLI's terminal screen."""

    typed = re.compile(r"^ ?[>*!](\s|$)")
    keys = re.compile(r"\(esc\)|" + Screen.keys.pattern, re.IGNORECASE)
    above = re.compile(r"^\s*([─━═▔╌╭╰]{2,}.*|[✦\u2139✕⚠>?✓].*)$")
    busy = re.compile(r"\(esc to cancel(, \d+[hms][^()]*)?\)")
    shows_rest = True

    def question(self, screen: Masked) -> Question | None:
        plain = _CHOSEN.sub("\\1\u276f", _BOX.sub(r"\1", screen))
        return super().question(mask_screen(plain))

    def hears(self, screen: str) -> bool:
        """Return True if the screen has an input line below the last horizontal rule; earlier prompts are above."""
        lines = screen.splitlines()
        rule = next((number for number in reversed(range(len(lines))) if _RULE.match(lines[number])), len(lines))
        return super().hears("\n".join(lines[rule:]))


class GeminiStarter(OptionStarter):
    """Makes the commands to start Gemini CLI, whose own fork deletes the session it creates."""

    resumed = "name"


#: The options that name the session of a process.
_NAMING = ("--resume", "-r", "--session-id")
_LOGS = f"{BEGINS}*.jsonl"


class GeminiCaller(CallerIdentity):
    """Finds the session of Gemini CLI that made a tool call. Gemini CLI does not send its id.

    It is the session that the command line of the server's parent process names. Otherwise it is the last written of
    the sessions that began after this process, since a prompt was just added to it.
    """

    def session_id(self, call: ClientCall) -> str | None:
        if call.project is None or call.environment is not os.environ:
            return None
        import psutil  # no start needs it

        try:
            above = psutil.Process(os.getppid())
            words, since = above.cmdline(), above.create_time()
        except psutil.Error:
            words, since = [], time.time()
        named = (word for option, word in pairwise(words) if option in _NAMING)
        known: str | None = next((one for one in named if GeminiAdapter().locate(one)), None)
        if known:
            return known
        newest = newest_logs(project_for(Path(call.project)) / CHATS, _LOGS)
        return next((id_of(path) for path in newest if start_of(path) >= utc(since)), None)


class GeminiProcesses(AgentProcesses):
    """Finds Gemini CLI's processes, and infers their sessions from the times at which these began."""

    forks = ("--session-file",)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """Yield the processes that seem to have a session open; Gemini CLI does not record it.

        The session of a process is the last one that began in the process's directory after the process started. If
        several processes run there, a process may also have the session that began just after its start.
        """
        here = self._running_beside(log, processes) if log else {}
        starts = {path: seconds_in(start_of(path)) for path in newest_logs(log.parent, _LOGS)} if log and here else {}
        begun: dict[int, list[tuple[float, str]]] = {pid: [] for pid in here}
        for path, began in starts.items():
            since = [pid for pid in here if began is not None and here[pid].born <= began]
            if began is not None and since:
                begun[max(since, key=lambda pid: here[pid].born)].append((began, id_of(path)))
        for pid, those in begun.items():
            first = [one for one in those if one[0] - here[pid].born <= START_SECONDS] if len(here) > 1 else []
            if any(named == session_id for _, named in (max(those, default=(0.0, "")), *first)):
                yield ProcessNote(pid, session_id, sure=False)

    def near(self, log: Path, processes: Mapping[int, Running]) -> str:
        """Return a sentence about a Gemini CLI process in the log's directory, which may use the log; else empty."""
        found = next(iter(self._running_beside(log, processes)), None)
        return "" if found is None else f"Gemini CLI, process {found}, runs in {root_of(log.parent.parent)}"

    def _running_beside(self, log: Path, processes: Mapping[int, Running]) -> dict[int, Running]:
        """Return the processes in the working directory of `log`, without those that only started a second process."""
        import psutil

        root, found = root_of(log.parent.parent), {}
        for pid, one in processes.items() if root else ():
            with contextlib.suppress(psutil.Error, OSError):
                if self.runs(one.words) and psutil.Process(pid).cwd() == root:
                    found[pid] = one
        again = {one.parent for one in found.values()}
        return {pid: one for pid, one in found.items() if pid not in again}
