"""How Qwen Code is started.

Seen with 0.24:

* the id of a new session can be chosen, that of a fork (``--fork-session``) cannot: ``--session-id`` is refused beside
  it. So what is forked is a copy of ours, which has its own id, and lies where it is found from the fork's directory;
* a prompt behind ``--`` is not taken; behind ``=`` anything is, also what begins with a hyphen;
* on its screen a prompt that begins with ``/`` is a command of its own, blanks before it or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smart_fork.agents.starter import CommandLine, Starter, ordinary

if TYPE_CHECKING:
    from smart_fork.agents.fork_request import ForkRequest


class QwenStarter(Starter):
    """The command lines of Qwen Code."""

    name = "qwen"
    asking = ("--approval-mode", "default")

    def line(self, request: ForkRequest) -> CommandLine:
        """See `Starter.line`."""
        session_id = request.session_id if request.form == "resume" else request.new_session_id
        session: tuple[str, ...] = ("--session-id" if request.form == "new" else "--resume", session_id or "")
        unasked = ("--yolo",) if request.skip_permissions else ()
        asking = self.asking if request.of_others else ()
        return CommandLine(
            (request.program, *(session if session_id else ()), *unasked, *asking, *_asked(request)),
            session_id,
            "branch" if request.form == "fork" else "nothing",
        )

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """See `Starter.fork_words`."""
        return ("qwen", "--resume", session_id, "--fork-session")


def _asked(request: ForkRequest) -> tuple[str, ...]:
    if request.headless:
        return ("--output-format", "json", f"--prompt={request.prompt or ''}")
    if not request.prompt:
        return ()
    return (f"--prompt-interactive={ordinary(request.prompt, ('/',))}",)
