"""A conversation to read, as the command line and MCP get it: values."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.masking import NOTHING, Masked
from indexer.transcripts.model import AgentName, Resumed
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


@value
class Verdict(Value):
    """A verdict on a session's work: "merged", "kept" or "dropped", from a person or from git (`said_by`).

    `said` is a sentence about it, with the reason that the person gave; `tried` is when the session worked.
    """

    session_id: str
    outcome: str
    said: Masked
    tried: str
    said_by: str
    reason: Masked = rare(NOTHING)


@value
class Noted(Value):
    """Notes on a session, stored beside its log: verdicts on it and on its `forks`, and a person's marks."""

    verdict: Verdict | None = rare()
    forks: tuple[Verdict, ...] = rare(())
    tags: tuple[str, ...] = rare(())
    pinned: bool = rare(default=False)
    archived: bool = rare(default=False)

    @property
    def sentences(self) -> list[str]:
        """Return the verdicts on it and its forks as sentences."""
        return [one.said for one in (*([self.verdict] if self.verdict else []), *self.forks)]

    @property
    def marks(self) -> list[str]:
        """Return its marks in words."""
        flags = [word for word, on in (("pinned", self.pinned), ("archived", self.archived)) if on]
        return [*flags, *(f"#{one}" for one in self.tags)]


@value
class ResumedPart(Value):
    """The messages that an agent's own program loads of a session, where these are not all: those from `start` on.

    Of a session that went on in two folders they are its own end, before which it loads what both ends have.
    """

    start: int
    reason: str
    messages: int
    of: int

    @property
    def sentence(self) -> str:
        """Describe for a person which part is loaded, and why."""
        if self.reason == "elsewhere":
            return (
                f"loads one of two ends: the session went on in two folders. Its own end begins at message {self.start}"
            )
        why = "a record was never written" if self.reason == "gap" else "the session was compacted"
        return f"loads {self.messages} of {self.of} messages: {why}"


def resumed_part(resumed: Resumed, forgotten: int, turns: int) -> ResumedPart | None:
    """Return what is loaded of so many turns, of which a compaction has `forgotten` some; `None` where that is all."""
    loaded = turns - (forgotten if resumed.reason == "compaction" else resumed.start)
    return ResumedPart(resumed.start, resumed.reason, loaded, turns) if resumed.reason else None


@record
class Conversation(Value):
    """The answer of ``read_session``. `next_at` is where to read on, when the messages did not all fit.

    `resumed` is what the agent's own program loads, where that is not all. `models` are those that have answered,
    `owner` is whose it is where the team shares it, `resolved` as what it was found. `commits` are told with its first
    message. `left_out` says what of a very long session was not read. `headline` and `edited_files` are as in `Hit`.
    """

    session_id: str
    agent_type: AgentName
    title: str
    headline: str = rare("")
    edited_files: tuple[str, ...] = rare(())
    working_directory: str
    project_inferred_from: str = rare("")
    last_activity: str
    models: tuple[Masked, ...] = ()
    notice: str = rare("")
    owner: str = rare("")
    resolved: str = rare("")
    forked_from: str = rare("")
    commits: CommitsMade | None = rare()
    noted: Noted | None = rare()
    resumed: ResumedPart | None = rare()
    messages: tuple[Message, ...]
    left_out: str = rare("")
    read_on: Mapping[str, int | None] = spread(next_at=int | None)


@record
class Exported(Value):
    """The remains of a session whose log is gone."""

    session_id: str
    agent_type: AgentName
    notice: str = rare("")
    noted: Noted | None = rare()
    markdown: Masked
