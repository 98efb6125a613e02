"""Parts of the setup that change no files of other programs: copies of logs, recall, and the service."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from indexer import kept_logs
from indexer.safe_files import private_dir, remove, replace_file
from indexer.settings import Setting
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_retention import Deletion
from smart_fork.agents.mcp_registration import Registration
from smart_fork.cli.preload.client import folder
from smart_fork.cli.service import installation
from smart_fork.cli.service.client import find_service
from smart_fork.cli.service.instance import stop
from smart_fork.cli.setup import agent_settings
from smart_fork.cli.setup.ledger import Ledger, LedgerLine, Step, write_errors
from smart_fork.doctor import Check
from smart_fork.errors import SmartForkError
from smart_fork.hooks import hint_switch
from smart_fork.system.processes import Processes

_STAYS = "Existing copies stay; `smart-fork forget ID` removes one."
_REFUSED = "SMART_FORK_KEEP_TRANSCRIPTS disables copies"
_OFF = "`smart-fork setup --no-recall` switches it off."


class LogCopies:
    """The part of the setup that copies session logs of agents that delete old ones."""

    NAME = "copies of logs"

    @classmethod
    def planned(cls, deletion: Deletion, *, wanted: bool) -> Step:
        """Return the step that switches on copies of one agent's logs, which are deleted as `deletion` says.

        If the copies are not `wanted`, it has the state "left": it is not done.
        """
        path = kept_logs.switch_of(deletion.agent)
        step = partial(Step, "keep", cls.NAME, str(path.parent.parent), agent=deletion.agent)
        said = f"{deletion.in_words()}."
        if deletion.kept:
            return step("there")
        if kept_logs.copies_refused():
            return step("left", why=f"{said} {_REFUSED}")
        if not wanted:
            return step("left", why=f"{said} --keep-logs keeps compressed copies, {deletion.room()}")
        why = f"{said} Copies take {deletion.room()}; only you can read them; secrets are not masked"
        return step("new", why=why, act=partial(cls._written, deletion))

    @staticmethod
    def offered(agents: Collection[AgentName]) -> bool:
        """Return True if one of `agents` deletes logs that smart-fork could copy, and does not copy yet."""
        refused = kept_logs.copies_refused()
        return any(not (one.kept or refused) for one in Deletion.expected(time.time(), agents))

    @staticmethod
    def _written(deletion: Deletion, ledger: Ledger) -> list[str]:
        path = kept_logs.switch_of(deletion.agent)
        ledger.begin(LedgerLine(what="keep", agent=deletion.agent, path=path))
        with write_errors(path, "written"):
            private_dir(path.parent)
            replace_file(path, [b""])
        return []

    @staticmethod
    def undo(line: LedgerLine) -> list[str]:
        """Stop copying the logs of the agent of `line`. Return a note that existing copies stay."""
        with write_errors(line.path, "removed"):
            remove(line.path)
        return [_STAYS]

    @staticmethod
    def difference(line: LedgerLine) -> str:
        """Return a complaint if the logs of the agent of `line` are no longer copied; else an empty text."""
        return "" if kept_logs.copies_wanted(READERS[line.agent]) else "logs are no longer copied"


class Recall:
    """The part of the setup that switches on recall: hints from past sessions at first prompts, edits and errors."""

    NAME = "recall at first prompts, edits, failed commands and compactions"

    @classmethod
    def planned(cls, way: Registration) -> Step:
        """Return the step that switches on recall for the agent of `way`, whose hooks print the hints.

        Without suitable hooks, it has the state "left": it is not done.
        """
        agent = way.agent
        step = partial(Step, "recall", cls.NAME, str(hint_switch.file_of(agent)), agent=agent)
        hooks = AGENTS[agent].hooks
        if hooks is None or not (hooks.recalls or hooks.edits):
            return step(state="left", why=f"{way.title} has no hook for prompts or edits")
        if hint_switch.is_on(agent):
            return step(state="there")
        return step(state="new", act=partial(cls._written, agent))

    @staticmethod
    def _written(agent: AgentName, ledger: Ledger) -> list[str]:
        path = hint_switch.file_of(agent)
        ledger.write(LedgerLine(what="recall", agent=agent, path=path))
        with write_errors(path, "written"):
            hint_switch.turn_on(agent)
        return [*agent_settings.follow_recall(agent), f"Recall works while the service runs. {_OFF}"]

    @staticmethod
    def undo(line: LedgerLine) -> list[str]:
        """Switch recall off for the agent of `line`. Return notes for the person."""
        agent = AGENTS.registration_of(line.agent).agent
        with write_errors(line.path, "removed"):
            hint_switch.turn_off(agent)
        return list(agent_settings.follow_recall(agent))

    @staticmethod
    def difference(line: LedgerLine) -> str:
        """Return a complaint if recall, which setup switched on, is off now; else an empty text."""
        return "" if line.path.is_file() else "recall is off"

    @staticmethod
    def checks(ledger: Ledger) -> Iterator[Check]:
        """Yield a check for ``doctor`` if setup has switched recall on: it works only while a service runs."""
        agents = [
            AGENTS.registration_of(line.agent) for line in ledger if line.what == "recall" and line.path.is_file()
        ]
        if not agents:
            return
        asked = hint_switch.prompt_hint_counts()
        detail = (
            f"on for {AGENTS.titles(way.agent for way in agents)}; "
            f"suggested a session in {asked.told} of {asked.sessions} new sessions"
        )
        if find_service() is None:
            step = f"Start the service: `smart-fork service install`, or `smart-fork serve`. {_OFF}"
            yield Check("recall", ok=False, detail=f"{detail}; no service runs", next_step=step, optional=True)
        else:
            yield Check("recall", ok=True, detail=detail)


#: Words in the command line of a process that completes the index in the background.
_INDEXING = frozenset({"index", "run", "--if-idle"})
#: Environment variables that say to which home a process belongs.
_HOMES = (Setting.HOME, "HOME")
#: The consequence if no service is installed: each search updates the index first.
_OTHERWISE = "searches update the index"


class ServicePart:
    """The part of the setup that installs the service, a process that keeps the index fresh."""

    NAME = "service"

    @classmethod
    def planned(cls, program: str, processes: Processes) -> Step:
        """Return the step that installs the service with `program`, the path of the ``smart-fork`` command.

        If this system cannot run it, the step has the state "left": it is not done.
        """
        kind = installation.native_kind()
        step = partial(Step, "service", cls.NAME)
        if kind is None:
            return step("this system", "left", why=f"neither launchd nor systemd is here; {_OTHERWISE}")
        keeper = installation.supervisor(kind, processes)
        there = installation.installed(keeper)
        if there is not None and there.program == program:
            return step(str(keeper.path), "there")
        try:
            if os.geteuid() == 0 and os.environ.get("SUDO_USER"):
                return step(kind, "left", why="it runs for a user, not for root")
            keeper.reach()
        except SmartForkError:
            return step(kind, "left", why=f"{kind} does not answer here; {_OTHERWISE}")
        return step(str(keeper.path), "changed" if keeper.path.exists() else "new", act=partial(cls._written, keeper))

    @staticmethod
    def _written(keeper: installation.Supervisor, ledger: Ledger) -> list[str]:
        if not keeper.path.exists() and ledger.of("service", "", keeper.path) is None:
            ledger.begin(LedgerLine(what="service", path=keeper.path))
        return installation.install(keeper, installation.settings_for(keeper))

    @staticmethod
    def undo(line: LedgerLine, processes: Processes | None = None) -> list[str]:
        """Stop and uninstall the service that setup recorded in `line`."""
        keeper = installation.supervisor(processes=processes)
        if keeper.path == line.path:
            keeper.uninstall()
        return []

    @staticmethod
    def difference(line: LedgerLine) -> str:
        """Return a complaint if the service that setup installed was uninstalled since; else an empty text."""
        return "" if line.path.exists() else "the service was removed"


def end_running(processes: Processes) -> list[str]:
    """End this home's background processes: the service, index runs and preloaders. Return their names.

    Processes that an agent started, such as MCP servers, go on. A preloader (which runs commands faster) ends when its
    socket is deleted.
    """
    ended = ["the service"] if stop() else []
    here = [os.environ.get(one) for one in _HOMES]
    for pid in [pid for pid, one in processes.running().items() if _INDEXING.issubset(one.words)]:
        if here == list(map((processes.environment(pid) or {}).get, _HOMES)):
            processes.end(pid, force=False)
            ended.append("indexing")
    if Path(preloaders := folder()).exists():
        shutil.rmtree(preloaders, ignore_errors=True)
        ended.append("the preloader")
    return ended
