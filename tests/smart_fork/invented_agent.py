"""An agent that there is not, beside those that there are: it writes as Claude Code does, below a home of its own.

To be imported before all else of smart_fork, in a process of its own: `from tests.smart_fork import made_up`.
"""

from __future__ import annotations

from dataclasses import replace

from indexer.transcripts.base import Agents
from smart_fork import agents
from smart_fork.agents import AllAgents, log_adapters, log_readers
from smart_fork.agents.agent import ProgramSpec
from smart_fork.agents.claude import Claude
from smart_fork.agents.claude import log_files as claude_log
from smart_fork.agents.claude.runtime import ClaudeStarter
from smart_fork.agents.description import Home

NAME, TITLE = "madeup", "Made Up"


class MadeUpAdapter(claude_log.ClaudeAdapter):
    """Claude Code's logs elsewhere."""

    name = NAME

    def read(self, path, checkpoint=None, *, keep_raw=False):
        result = super().read(path, checkpoint, keep_raw=keep_raw)
        return replace(result, session=result.session and replace(result.session, agent=NAME))

    def glance(self, path):
        session = super().glance(path)
        return session and replace(session, agent=NAME)


class MadeUpStarter(ClaudeStarter):
    """Claude Code's commands, of another program."""

    name = NAME


class MadeUp(Claude):
    """See `Agent`."""

    name = NAME
    title = TITLE
    home = Home("MADEUP_HOME", ".madeup")
    command = ProgramSpec("madeup", "madeup", ())
    cutter = hooks = registration = caller = None
    tells = marks = clients = ()
    starter = MadeUpStarter()


agents.AGENTS = log_adapters.AGENTS = AllAgents(*agents.AGENTS, MadeUp())
log_readers.OWN = Agents(*log_readers.OWN, MadeUpAdapter())
log_readers.READERS = log_readers.Readers(*log_readers.OWN)
