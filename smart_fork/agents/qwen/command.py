"""How Qwen Code is started.

Seen with 0.24:

* the id of a new session can be chosen, that of a fork (``--fork-session``) cannot: ``--session-id`` is refused beside
  it. So what is forked is a copy of ours, which has its own id, and lies where it is found from the fork's directory;
* a prompt behind ``--`` is not taken; behind ``=`` anything is, also what begins with a hyphen;
* on its screen a prompt that begins with ``/`` is a command of its own, blanks before it or not.
"""

from __future__ import annotations

from smart_fork.agents.starter import OptionStarter


class QwenStarter(OptionStarter):
    """The command lines of Qwen Code."""

    asking = ("--approval-mode", "default")
    unasked = ("--yolo",)
    commands, always = ("/",), False

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """See `Starter.fork_words`."""
        return ("qwen", "--resume", session_id, "--fork-session")
