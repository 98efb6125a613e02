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

from typing import TYPE_CHECKING

from smart_fork.agents.starter import CommandLine, Starter, ordinary

if TYPE_CHECKING:
    from smart_fork.agents.fork_request import ForkRequest

#: How prompts begin that are commands of its own.
_COMMANDS = ("/", "!", "?", "#")


class CopilotStarter(Starter):
    """The command lines of Copilot CLI."""

    name = "copilot"
    asking = ("--mode=interactive",)

    def line(self, request: ForkRequest) -> CommandLine:
        """See `Starter.line`."""
        session_id = request.session_id if request.form == "resume" else request.new_session_id
        option = "--session-id" if request.form == "new" else "--resume"
        session = (f"{option}={session_id}",) if session_id else ()
        unasked = ("--allow-all",) if request.skip_permissions else ()
        asking = self.asking if request.of_others else ()
        return CommandLine(
            (request.program, *session, *unasked, *asking, *_asked(request)),
            session_id,
            "branch" if request.form == "fork" else "nothing",
        )

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """See `Starter.fork_words`. Its own way to fork is a command on its screen."""
        return ("smart-fork", "fork", session_id)


def _asked(request: ForkRequest) -> tuple[str, ...]:
    said = ordinary(request.prompt or "", _COMMANDS)
    if request.headless:
        return ("--output-format", "json", f"--prompt={said}")
    return (f"--interactive={said}",) if said else ()
