"""A conversation to read, as the command line and MCP get it: values."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.masking import Masked
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, record, spread, value


@value
class Message(Value):
    """One message of a conversation."""

    number: int
    message_id: str
    role: str
    timestamp: str
    text: Masked


@value
class MadeCommit(Value):
    """A commit that came of a session: so many `lines` of the lines that it adds are the session's.

    Without lines its message names the session.
    """

    commit: str
    date: str
    subject: Masked
    lines: int
    of: int


@value
class CommitsMade(Value):
    """The newest of the commits that came of a session, and its lines that are in HEAD now, in places PATH:FIRST-LAST.

    `notice` says what was not looked at.
    """

    count: int
    commits: tuple[MadeCommit, ...]
    lines_today: int
    places: tuple[Masked, ...]
    notice: str = rare("")


@record
class Conversation(Value):
    """The answer of ``read_session``. `next_at` is where to read on, when the messages did not all fit.

    `models` are those that have answered, `owner` is whose it is where the team shares it, `resolved` as what it was
    found. `commits` are told with its first message.
    """

    session_id: str
    agent_type: AgentName
    title: str
    working_directory: str
    project_inferred_from: str = rare("")
    last_activity: str
    models: tuple[Masked, ...] = ()
    notice: str = rare("")
    owner: str = rare("")
    resolved: str = rare("")
    commits: CommitsMade | None = rare()
    messages: tuple[Message, ...]
    read_on: Mapping[str, int | None] = spread(next_at=int | None)


@record
class Exported(Value):
    """What is left of a session whose log is gone."""

    session_id: str
    agent_type: AgentName
    notice: str = rare("")
    markdown: Masked
