"""How Claude Code is started.

Seen with 2.1:

* it ends its options at ``--``;
* it goes on in the mode of permission that its log or its settings name, unless ``--permission-mode`` says another;
* ``claude -- doctor`` runs the command ``doctor``, ``/clear`` runs a slash command; one blank before them makes each an
  ordinary prompt.
"""

from __future__ import annotations

from smart_fork.agents.starter import CommandLine, ForkRequest, Presence, Starter


class ClaudeStarter(Starter):
    """The command lines of Claude Code."""

    forks = ("claude", "--resume", "ID", "--fork-session")
    forks_nothing = True
    asking = ("--permission-mode", "default")

    def line(self, request: ForkRequest) -> CommandLine:
        """See `Starter.line`. The id of a new session can be chosen, that of a fork as well."""
        new, resumes = request.new_session_id, request.form == "resume"
        chosen = ("--session-id", new) if new else ()
        session_id = request.session_id if resumes else new
        if session_id and (resumes or request.at):  # a shortened copy is one of its own already
            session: tuple[str, ...] = ("--resume", session_id)
        elif request.form == "new":
            session = chosen
        else:
            session = ("--resume", request.session_id, "--fork-session", *chosen)
        # The session that goes on keeps the name it has.
        named = (f"--name={request.name}",) if request.name and not resumes else ()
        unasked = ("--dangerously-skip-permissions",) if request.skip_permissions else ()
        asking = self.asking if request.of_others else ()
        printed = ("-p", "--output-format", "json") if request.headless else ()
        asked = ("--", request.prompt) if request.prompt else ()
        return CommandLine(
            (request.program, *session, *named, *unasked, *asking, *printed, *asked),
            session_id,
            "nothing" if request.form != "fork" else "branch" if request.at else "transcript",
            named=bool(named),
        )


#: The processes of this agent.
PRESENCE = Presence(("claude",), forks=("--fork-session",))
