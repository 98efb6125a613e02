"""A conversation of this machine, or else of the team."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from indexer.masking import beginning
from indexer.transcripts.lines import bounded
from smart_fork import sessions
from smart_fork.agents.checkpoints import author_of
from smart_fork.agents.references import here
from smart_fork.conversation import Conversation, Exported
from smart_fork.errors import Ambiguous, NotFound, Usage
from smart_fork.notes import noted_if_known
from smart_fork.retrieval.elsewhere import written_by
from smart_fork.retrieval.results import UNTRUSTED
from smart_fork.team.login import is_known


@bounded()
def conversation(
    session_id: str, reading: sessions.Reading, project: Path | None, *, notice: str = ""
) -> Conversation | Exported:
    """Read a session of this machine, or of the team of `project`; the export if its log is gone.

    Raises:
        SmartForkError: there is no such session or message, or it cannot be read.
    """
    try:
        located = sessions.locate(session_id)
    except (NotFound, Usage) as missing:
        if isinstance(missing, Ambiguous) or project is None or not is_known():
            raise
        from smart_fork.team.conversation import read

        return read(session_id, missing, project, reading)
    one = located.agent, located.session_id
    noted = noted_if_known([one]).get(one) if reading.at is None else None  # they are told with the first message
    if not located.readable:
        text = sessions.exported(located)
        text = beginning(text, reading.characters) if reading.characters else text
        return replace(sessions.told_export(located, text, notice=notice), noted=noted)
    from smart_fork.retrieval.commits_made import commits_made

    author = author_of(str(located.path or ""))
    notice = written_by([author], notice or UNTRUSTED) if author else notice
    session = sessions.look_into(located)
    told = sessions.told(session, reading, notice=notice, resolved=here(session_id).by, owner=author)
    if reading.at is not None:
        return told
    made = commits_made([(session.agent, session.session_id)], session.cwd)
    return replace(told, commits=made.get(session.session_id), noted=noted)
