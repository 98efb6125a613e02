"""Several sessions written as one: what is kept of each, and a line that says from where and when it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.copier import NewSession
from smart_fork.agents.distilled import Distilled
from smart_fork.agents.excerpt import Excerpt
from smart_fork.agents.facets import copier
from smart_fork.agents.forms import HomePlace
from smart_fork.copies.told import as_session, utterances
from smart_fork.sharing.neutral import read


@dataclass(frozen=True, slots=True)
class Part:
    """What of a session goes into a copy that has parts of several."""

    session: Session
    excerpt: Excerpt


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
    session, excerpt = part.session, part.excerpt
    said = utterances(session, read(session, excerpt.end, excerpt.kept).messages, excerpt.told)
    place = HomePlace(session.cwd, str(Path.home()))
    with as_session(agent, said, place, source_id=session.session_id) as told:
        sizes = tuple(turn.token_est for turn in told.turns)
        yield Part(told, Excerpt(frozenset(range(len(told.turns))), len(told.turns) - 1, {}, sizes))


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
