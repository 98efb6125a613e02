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

from typing import TYPE_CHECKING

from smart_fork.agents.starter import CommandLine, Staging, Starter, ordinary

if TYPE_CHECKING:
    from smart_fork.agents.fork_request import ForkRequest

#: How prompts begin that are commands of its own.
_COMMANDS = ("/", "?")
_STAGED: dict[str, Staging] = {"fork": "branch", "resume": "name", "new": "nothing"}


class GeminiStarter(Starter):
    """The command lines of Gemini CLI."""

    name = "gemini"
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
            _STAGED[request.form],
        )

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """See `Starter.fork_words`. Its own way to fork deletes what it has made."""
        return ("smart-fork", "fork", session_id)


def _asked(request: ForkRequest) -> tuple[str, ...]:
    said = ordinary(request.prompt or "", _COMMANDS)
    if request.headless:
        return ("--output-format", "json", f"--prompt={said}")
    return (f"--prompt-interactive={said}",) if said else ()
