"""How Codex is started.

Seen with 0.169:

* it ends its options at ``--``;
* ``/clear`` runs a slash command, ``!touch x`` a shell command; one blank before them makes each an ordinary prompt;
* what it may do is said by its settings of now alone, not by what the session has recorded;
* ``codex fork`` asks which directory is meant unless ``-C`` says so.
"""

from __future__ import annotations

from smart_fork.agents.starter import CommandLine, ForkRequest, Presence, Starter


class CodexStarter(Starter):
    """The command lines of Codex."""

    forks = ("codex", "fork", "ID")

    def line(self, request: ForkRequest) -> CommandLine:
        """See `Starter.line`. Its forks and new sessions have ids of their own choice; a fork writes immediately."""
        goes_on_in = request.session_id if request.form == "resume" else request.new_session_id if request.at else None
        if goes_on_in:
            words: tuple[str, ...] = ("resume", goes_on_in)
        else:
            words = () if request.form == "new" else ("fork", request.session_id)
        place = ("-C", str(request.target_cwd))
        unasked = ("--dangerously-bypass-approvals-and-sandbox",) if request.skip_permissions else ()
        if request.headless:  # only `exec` itself takes a directory
            command = (request.program, "exec", *place, *words, *unasked)
        else:
            command = (request.program, *words, *place, *unasked)
        asked = ("--", request.prompt) if request.prompt else ()
        forks = request.form == "fork"
        return CommandLine(
            (*command, *asked),
            goes_on_in,
            "branch" if forks and request.at else "nothing",
            writes=forks and goes_on_in is None,
        )


#: The processes of this agent.
PRESENCE = Presence(("codex",), forks=("fork",))
