"""How OpenCode is started.

Seen with 1.18:

* a prompt that is one argument of ``opencode run`` is stored with quotation marks around it; on standard input it is
  what it is;
* ``--prompt`` begins a new session in a terminal, and is lost with ``-s``: there the prompt is typed;
* the ids of new sessions and of its own forks cannot be chosen, that of a session that is imported can.
"""

from __future__ import annotations

import re
import secrets

from smart_fork.agents.presence import Presence
from smart_fork.agents.starter import CommandLine, Delivery, ForkRequest, Staging, Starter

#: Of those that OpenCode makes itself as many characters stand behind ``ses_``.
_ID_CHARACTERS = 26


class OpenCodeStarter(Starter):
    """The command lines of OpenCode."""

    ids = re.compile(r"ses_[A-Za-z0-9]{8,64}")
    beginnings = re.compile(r"ses_[A-Za-z0-9]{4,64}")

    def line(self, request: ForkRequest) -> CommandLine:
        """See `Starter.line`. A fork is a copy that was imported, and is gone on with in its own directory."""
        session_id = None if request.form == "new" else request.session_id
        if request.form == "fork":
            session_id = request.new_session_id
        goes_on = ("-s", session_id) if session_id else ()
        unasked = ("--auto",) if request.skip_permissions else ()
        staging: Staging = "branch" if request.form == "fork" else "nothing"
        if request.headless:
            argv = (request.program, "run", "--format", "json", *goes_on, *unasked)
            return CommandLine(argv, session_id, staging, "input")
        delivery: Delivery = "typed" if session_id else "argument"
        asked = (f"--prompt={request.prompt}",) if request.prompt and delivery == "argument" else ()
        return CommandLine((request.program, *goes_on, *unasked, *asked), session_id, staging, delivery)

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """See `Starter.fork_words`."""
        return ("opencode", "-s", session_id, "--fork")

    def new_id(self) -> str:
        """See `Starter.new_id`."""
        return f"ses_{secrets.token_hex(_ID_CHARACTERS // 2)}"


#: The processes of this agent.
PRESENCE = Presence(("opencode",), forks=("--fork",))
