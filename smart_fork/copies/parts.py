"""Several sessions written as one: what is kept of each, and a line that says from where and when it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import orjson

from indexer.masking import mask, shorten
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.distilled import Distilled
from smart_fork.agents.excerpt import Excerpt
from smart_fork.agents.facets import copier, forms_of, starter_of, title_of
from smart_fork.agents.forms import Becomes, HomePlace, Utterance
from smart_fork.errors import ForkRefused
from smart_fork.sharing.neutral import neutral
from smart_fork.snippets import printable

#: Of a title or a directory, how much a line says.
SAID_CHARACTERS = 100
_MARKS = str.maketrans({"<": "(", ">": ")", "\n": " ", "\t": " "})


@dataclass(frozen=True, slots=True)
class Part:
    """What of a session goes into a copy that has parts of several."""

    session: Session
    excerpt: Excerpt


def whence(session: Session) -> str:
    """From where and when a part is. What others have called it is quoted."""
    when = (session.last_activity or session.started)[:16].replace("T", " ")
    facts = (
        f"session {_plain(session.session_id)} of {title_of(session.agent)}",
        f'"{_plain(session.title)}"' if session.title else "",
        when and f"last used {when} UTC",
        session.cwd and f"in {_plain(session.cwd)}",
        session.git_branch and f"on branch {_plain(session.git_branch)}",
    )
    return f"What follows is from {', '.join(filter(None, facts))}."


def beginning_with(text: str, excerpt: Excerpt) -> Excerpt:
    """The excerpt with a line at its beginning."""
    if not excerpt.kept:
        return excerpt
    first = min(excerpt.kept)
    told = "\n".join(filter(None, (text, excerpt.told.get(first, ""))))
    return replace(excerpt, told={**excerpt.told, first: told})


def without_shared(part: Part, others: Sequence[Session]) -> Part:
    """The part without what its session has from a beginning that it shares with one of `others`."""
    shared = max((_shared(part.session, other) for other in others), default=0)
    kept = frozenset(turn for turn in part.excerpt.kept if turn >= shared)
    told = {turn: text for turn, text in part.excerpt.told.items() if turn >= shared}
    return replace(part, excerpt=replace(part.excerpt, kept=kept, told=told))


@contextmanager
def distilled(parts: Sequence[Part], agent: AgentName, new: NewSession) -> Iterator[list[Distilled]]:
    """What is kept of each, as `agent` writes it; a session of another agent as it can be told.

    Raises:
        Usage: sessions of one of the agents cannot be told to the other.
        ForkRefused: a log was rewritten meanwhile, or nothing is left out of sessions of that agent.
    """
    with ExitStack() as stack:
        own = [part if part.session.agent == agent else stack.enter_context(_told(part, agent)) for part in parts]
        made = [copier(agent).distilled(part.session, part.excerpt, new) for part in own]
        yield [one for one in made if isinstance(one, Distilled)]


@contextmanager
def _told(part: Part, agent: AgentName) -> Iterator[Part]:
    """A part of another agent's session as one of `agent`, in a private file that is gone afterwards."""
    session, kept = part.session, sorted(part.excerpt.kept)
    forms = AGENTS[session.agent].forms
    records = [forms.told(record) for record in forms.records_of(session, part.excerpt.end)] if forms else []
    turns = [session.turns[number] for number in kept]
    messages = neutral(turns, records).messages
    said = [Utterance(one.role == "user", one.rendered(), turns[one.turn].timestamp) for one in messages]
    session_id = starter_of(agent).new_id() or str(uuid4())
    becomes = Becomes(session_id, HomePlace(session.cwd, str(Path.home())))
    with tempfile.TemporaryDirectory(prefix="told-") as folder:
        name = copier(agent).place(Path(folder) / "log", NewSession(session_id, None, datetime.now(UTC))).name
        log = Path(folder) / name
        log.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in forms_of(agent).log_of(said, becomes)))
        read = READERS[agent].read(log).session
        if read is None:
            raise ForkRefused(f"Nothing of {session.session_id} can be told to {title_of(agent)}")
        everything = frozenset(range(len(read.turns)))
        lines = "\n".join(text for _, text in sorted(part.excerpt.told.items()))
        sizes = tuple(turn.token_est for turn in read.turns)
        yield Part(read, Excerpt(everything, len(read.turns) - 1, {0: lines} if lines else {}, sizes))


def _shared(one: Session, other: Session) -> int:
    """How many turns at the beginning are the same in both."""
    if one.agent != other.agent or one.root_id != other.root_id:
        return 0
    count = 0
    for mine, theirs in zip(one.turns, other.turns, strict=False):
        if (mine.id, mine.role, mine.text, mine.timestamp) != (theirs.id, theirs.role, theirs.text, theirs.timestamp):
            break
        count += 1
    return count


def _plain(text: str) -> str:
    return shorten(mask(printable(text).translate(_MARKS)), SAID_CHARACTERS)
