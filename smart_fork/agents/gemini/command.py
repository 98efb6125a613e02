"""Starts Gemini CLI.

Seen with 0.61:

* the id of a new session can be chosen, that of a fork (``--session-file``) cannot. So what is forked is a copy of
  ours, which lies where it is found from the fork's directory;
* **a session that was resumed is deleted** when Gemini CLI is next started in that directory, together with all logs
  whose names end in the same 8 characters. A log that is named after the whole id stays: so are ours, and one that is
  gone on with gets such a name first;
* a prompt that begins with ``/`` or ``?`` is a command of its own, blanks before it or not, and is left out of what a
  resumed session remembers.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from indexer.masking import Masked, mask_screen
from indexer.transcripts.state import utc
from indexer.values import seconds_in
from smart_fork.agents.agent import CallerIdentity, ClientCall, newest_logs
from smart_fork.agents.agent_processes import START_SECONDS, Presence, ProcessNote
from smart_fork.agents.gemini.home import BEGINS, CHATS, id_of, project_for, root_of
from smart_fork.agents.gemini.log import GeminiAdapter, start_of
from smart_fork.agents.screen import Question, Screen
from smart_fork.agents.starter import OptionStarter
from smart_fork.system.processes import Running

_BOX = re.compile(r"^[ \t]*[│┃]?(.*?)[ \t]*[│┃]?[ \t]*$", re.MULTILINE)
_CHOSEN = re.compile(r"^(\s*)●(?=\s+\d[.)]\s)", re.MULTILINE)

_RULE = re.compile(r"^─{10,}$")


class GeminiScreen(Screen):
    """See `Screen`."""

    typed = re.compile(r"^ ?[>*!](\s|$)")
    keys = re.compile(r"\(esc\)|" + Screen.keys.pattern, re.IGNORECASE)
    above = re.compile(r"^\s*([─━═▔╌╭╰]{2,}.*|[✦\u2139✕⚠>?✓].*)$")
    busy = re.compile(r"\(esc to cancel(, \d+[hms][^()]*)?\)")
    shows_rest = True

    def question(self, screen: Masked) -> Question | None:
        plain = _CHOSEN.sub("\\1\u276f", _BOX.sub(r"\1", screen))
        return super().question(mask_screen(plain))

    def hears(self, screen: str) -> bool:
        """See `Screen.hears`: below a line across the screen; above it stands what was typed before."""
        lines = screen.splitlines()
        rule = next((number for number in reversed(range(len(lines))) if _RULE.match(lines[number])), len(lines))
        return super().hears("\n".join(lines[rule:]))


class GeminiStarter(OptionStarter):
    """The command lines of Gemini CLI. Its own way to fork deletes what it has made."""

    asking = ("--approval-mode", "default")
    unasked = ("--yolo",)
    resumed = "name"


#: The options that name the session of a process.
_NAMING = ("--resume", "-r", "--session-id")
_LOGS = f"{BEGINS}*.jsonl"


class GeminiCalls(CallerIdentity):
    """See `CallerIdentity`.

    Nothing that Gemini CLI tells its servers says which session calls, and so the process that has started us: it was
    told the session that it goes on with, or began one when it started. Where several are begun since, that one counts
    which was written last: who calls has just been asked something.
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
        return _named(words) or _begun(Path(call.project), utc(since))


def _named(words: Sequence[str]) -> str | None:
    """The session that a process was told to work in, if there is one of that id."""
    named = (word for option, word in pairwise(words) if option in _NAMING)
    return next((one for one in named if GeminiAdapter().locate(one)), None)


def _begun(project: Path, since: str) -> str | None:
    """The session that was written last of those that were begun in a directory since then."""
    newest = newest_logs(project_for(project) / CHATS, _LOGS)
    return next((id_of(path) for path in newest if start_of(path) >= since), None)


class GeminiPresence(Presence):
    """See `Presence`. Gemini CLI notes nothing, but began a session's log shortly after it was started itself."""

    forks = ("--session-file",)

    def notes(self, session_id: str, log: Path | None, processes: Mapping[int, Running]) -> Iterator[ProcessNote]:
        """See `Presence.notes`. It notes nothing: a process is in the session that was begun last since it was started.

        Where several run in a directory, each is also in the one that was begun just after its start.
        """
        here = self._at(log, processes) if log else {}
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
        """See `Presence.near`. It notes nowhere which sessions it has open, so it must not run in their directory."""
        found = next(iter(self._at(log, processes)), None)
        return "" if found is None else f"Gemini CLI, process {found}, runs in {root_of(log.parent.parent)}"

    def _at(self, log: Path, processes: Mapping[int, Running]) -> dict[int, Running]:
        """Those in the directory of a log, without those that have only started themselves again."""
        import psutil

        root, found = root_of(log.parent.parent), {}
        for pid, one in processes.items() if root else ():
            with contextlib.suppress(psutil.Error, OSError):
                if self.runs(one.words) and psutil.Process(pid).cwd() == root:
                    found[pid] = one
        again = {one.parent for one in found.values()}
        return {pid: one for pid, one in found.items() if pid not in again}
