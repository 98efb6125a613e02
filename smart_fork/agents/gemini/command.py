"""How Gemini CLI is started.

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

from smart_fork.agents.starter import OptionStarter


class GeminiStarter(OptionStarter):
    """The command lines of Gemini CLI."""

    asking = ("--approval-mode", "default")
    unasked = ("--yolo",)
    resumed = "name"

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """See `Starter.fork_words`. Its own way to fork deletes what it has made."""
        return ("smart-fork", "fork", session_id)
