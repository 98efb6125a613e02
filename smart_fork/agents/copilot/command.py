"""How Copilot CLI is started.

Seen with 1.0.102:

* the id of a new session can be chosen; there is no option to fork one. So what is forked is a copy of ours, which has
  a folder of its own that says where it works;
* ``--resume=ID`` finds a session from everywhere, and goes on in the session's own directory;
* a prompt is taken behind ``=``, whatever it begins with; one that begins with ``/`` is a command of its own, also
  without a terminal, and on its screen one with ``!``, ``?`` or ``#`` as well;
* without a terminal it does not ask: what is not allowed is denied. What was allowed in a session, and that it worked
  by itself, stands in its log and counts for nothing when it is gone on with.
"""

from __future__ import annotations

from smart_fork.agents.starter import OptionStarter


class CopilotStarter(OptionStarter):
    """The command lines of Copilot CLI."""

    asking = ("--mode=interactive",)
    unasked = ("--allow-all",)
    interactive, joined = "--interactive", True
    commands = ("/", "!", "?", "#")

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """See `Starter.fork_words`. Its own way to fork is a command on its screen."""
        return ("smart-fork", "fork", session_id)
