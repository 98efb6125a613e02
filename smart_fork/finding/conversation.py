"""Reads the messages of a session as a conversation, and writes the conversation as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from indexer.errors import joined
from indexer.json_values import Value, rare, record, spread, value
from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, beginning, mask
from indexer.store.base import SessionRow
from indexer.transcripts.lines import bounded, is_over
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork.agents import repository_sessions
from smart_fork.display_text import minute, printable
from smart_fork.errors import NotFound, advice
from smart_fork.finding import results
from smart_fork.finding.answer import CommitsMade
from smart_fork.finding.hit import ResumedPart
from smart_fork.finding.index_access import known_index
from smart_fork.finding.session_lookup import Located, exported, left_out, look_into
from smart_fork.finding.session_notes import SessionNotes, noted_if_known


@value
class Message(Value):
    """A numbered message of a conversation, with its role, time and text."""

    number: int
    message_id: str
    role: str
    timestamp: str
    text: Masked

    @classmethod
    def of(cls, number: int, turn: Turn, characters: int | None) -> Message:
        """Return a turn as a message to show: masked, and shortened to `characters`."""
        text = printable(mask(turn.text))
        return cls(
            number, turn.id, turn.role, turn.timestamp, text if characters is None else beginning(text, characters)
        )


@record
class Conversation(Value):
    """A session's messages, and facts about it, as ``read_session`` returns them.

    If messages did not fit, `next_at` is the message to read next. `resumed` is the part that the session's agent
    loads, if not all. `owner` is the teammate who shares the session, `resolved` its full reference. `commits` are
    given with the first message. `left_out` says how much of a very long session was not read.
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
    noted: SessionNotes | None = rare()
    resumed: ResumedPart | None = rare()
    messages: tuple[Message, ...]
    left_out: str = rare("")
    read_on: Mapping[str, int | None] = spread(next_at=int | None)

    def as_markdown(self) -> Iterator[tuple[str, str]]:
        """Yield (Markdown text, its speaker's role) for each part of the conversation. Facts and headings have no role.

        Lines of a message that look like a message's heading are escaped.
        """
        where = " ".join(printable(self.working_directory).splitlines()) or "directory unknown"
        if self.project_inferred_from and (mark := results.place_mark(self.project_inferred_from)):
            where = f"{where} ({mark})"
        whose = f" · shared by {self.owner}" if self.owner else ""
        whose += f" · fork of {printable(self.forked_from)}" if self.forked_from else ""
        numbers = [one.number for one in self.messages]
        head = [
            f"# {self.headline or self.title}",
            "",
            f"{self.agent_type} {self.session_id} · {where} · {minute(self.last_activity)}{whose}",
            *(("", _JUMPS) if numbers and numbers[-1] - numbers[0] >= len(numbers) else ()),
            *(_noted_in_words(self.noted) if self.noted else ()),
            *(("", f"Edited most: {', '.join(self.edited_files)}") if self.edited_files else ()),
            *(_commits_in_words(self.commits) if self.commits else ()),
            *(("", f"Its agent alone {self.resumed.sentence}") if self.resumed else ()),
        ]
        yield "\n".join(head), ""
        before = 0
        for one in self.messages:
            if self.resumed and before < self.resumed.start <= one.number:
                both = "what both ends have, and this one" if self.resumed.reason == "elsewhere" else "what follows"
                yield f"\n> Its agent alone loads {both}, from message {self.resumed.start} on", ""
            before = one.number
            yield f"\n## {one.number} · {one.role} · {minute(one.timestamp)}\n", ""
            yield _HEADING.sub(r"\\\g<0>", one.text), one.role


@record
class Exported(Value):
    """A session's Markdown export, returned instead of a conversation if the session's log is gone."""

    session_id: str
    agent_type: AgentName
    notice: str = rare("")
    noted: SessionNotes | None = rare()
    markdown: Masked


#: A line in a message that looks like the heading of a message.
_HEADING = re.compile(r"^(?=[^\S\n]*##[^\S\n]*\d+[^\S\n]*·)", re.MULTILINE)
_JUMPS = "Numbers jump over records that are no messages: tool calls, their output, and what an agent notes for itself."


#: The processor seconds after which an answer with a session's messages ends.
ANSWER_SECONDS = 6.0


@bounded()
def conversation(
    located: Located, reading: ReadRange, *, notice: str = "", resolved: str = ""
) -> Conversation | Exported:
    """Read a session's messages in a range. If the session's log is gone, return its export (a Markdown file)."""
    one = located.agent, located.session_id
    noted = noted_if_known([one]).get(one) if reading.at is None else None  # they are told with the first message
    if not located.readable:
        text = exported(located)
        text = beginning(text, reading.characters) if reading.characters else text
        return Exported(
            session_id=located.session_id, agent_type=located.agent, notice=notice, noted=noted, markdown=text
        )
    author = repository_sessions.author_of(str(located.path or ""))
    if author:
        notice = results.written_by([author], notice or results.UNTRUSTED)
    session = look_into(located)
    read = reading.conversation(session, notice=notice, resolved=resolved, owner=author)
    if reading.at is not None:
        return read
    from smart_fork.finding.session_commits import commits_made

    made = commits_made([(session.agent, session.session_id)], session.cwd).get(session.session_id)
    parent, edited = _parent_and_edited_files(session)
    return replace(read, commits=made, noted=noted, forked_from=parent or "", edited_files=edited)


def _parent_and_edited_files(session: Session) -> tuple[str | None, tuple[str, ...]]:
    family, edited = list[SessionRow](), tuple[str, ...]()
    with known_index() as store:
        if store and (row := store.session(session.agent, session.session_id)):
            family, edited = store.family(row.root_id) if session.own else [], results.edited_files(store, row)
    return results.parent_of(session, family, results.known_parents()), edited


def _noted_in_words(noted: SessionNotes) -> Iterator[str]:
    for said in filter(None, (", ".join(noted.marks), *noted.sentences)):
        yield from ("", said)


def _commits_in_words(made: CommitsMade) -> Iterator[str]:
    if made.count:
        yield from ("", f"Commits: {made.count}", "")
    for one in made.commits:
        wrote = f"{one.lines} of {one.of} lines" if one.lines else "its message names this session"
        yield f"- {minute(one.date)[:10]} {one.commit[:8]} {one.subject} ({wrote})"
    if more := made.count - len(made.commits):
        yield f"- {more} more"
    if made.count:
        yield from ("", f"Lines of these in HEAD now: {made.lines_today}", "")
        places = (one.rpartition(":") for one in made.places)
        for name, several in groupby(places, key=lambda one: one[0]):
            yield f"- {name}: {', '.join(numbers for *_, numbers in several)}"
    if made.notice:
        yield from ("", made.notice)


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A range of a conversation's messages: from `before` messages before message `at` to `after` messages after it.

    At most about `characters` are read. Without `at`, the range begins at the first message.
    """

    at: int | None = None
    before: int = 0
    after: int | None = None
    characters: int | None = None

    def messages(self, session: Session) -> tuple[list[Message], int | None]:
        """Return the session's messages in the range, numbered and masked, and the number of the next one, if any.

        Raises:
            NotFound: there is no message of that number.
        """
        said, characters = list(session.messages), self.characters
        if (at := self.at) is not None:
            middle = next((i for i, (number, _) in enumerate(said) if number >= at), None)
            if middle is None or at < 0:
                hint = left_out(session) or f"The last one is {said[-1][0]}."
                raise NotFound(f"No message {at} in {session.session_id}", hint)
            said = said[max(0, middle - self.before) : None if self.after is None else middle + self.after + 1]
        chosen: list[Message] = []
        used = 0
        for number, turn in said:
            one = Message.of(number, turn, characters)
            used += len(one.text)
            if chosen and ((characters is not None and used > characters) or is_over(ANSWER_SECONDS)):
                return chosen, number
            chosen.append(one)
        return chosen, None

    def conversation(
        self, session: Session, *, notice: str = "", resolved: str = "", owner: str = "", called: str = ""
    ) -> Conversation:
        """Return a session's messages in the range, and facts about it. `called` is a title for a log without one."""
        chosen, next_at = self.messages(session)
        left = left_out(session)
        if next_at is not None and self.characters is None:
            rest = advice(
                f"`smart-fork show {session.session_id} --at {next_at} -C 100` reads on.", tool=f"Read on at {next_at}."
            )
            left = joined(f"Messages from {next_at} on are not printed", rest, left)
        return Conversation(
            session_id=session.session_id, agent_type=session.agent, title=results.title(called or session.title),
            headline=results.title(session.headline), working_directory=session.cwd,
            project_inferred_from=session.inferred_from, last_activity=session.last_activity,
            models=tuple(map(printable, session.models)), notice=notice, owner=owner, resolved=resolved,
            resumed=results.resumed_part(session.resumed, session.compacted(), len(session.turns)),
            messages=tuple(chosen), left_out=left, read_on={} if self.characters is None else {"next_at": next_at},
        )  # fmt: skip
