"""Several sessions written as one: the kept turns of each, and a line that names their session and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.copier import Distilled, Excerpt, NewSession
from smart_fork.agents.facets import copier
from smart_fork.agents.forms import HomePlace
from smart_fork.copies.told import as_session, utterances
from smart_fork.sharing.neutral import read


@dataclass(frozen=True, slots=True)
class Part:
    """The kept turns of one of a copy's sessions."""

    session: Session
    excerpt: Excerpt


def beginning_with(text: str, excerpt: Excerpt) -> Excerpt:
    """Return the excerpt with a line at its beginning."""
    if not excerpt.kept:
        return excerpt
    first = min(excerpt.kept)
    told = "\n".join(filter(None, (text, excerpt.told.get(first, ""))))
    return replace(excerpt, told={**excerpt.told, first: told})


def without_shared(part: Part, others: Sequence[Session]) -> Part:
    """Return the part without the turns that its session shares with the beginning of one of `others`."""
    shared = max((_shared(part.session, other) for other in others), default=0)
    kept = frozenset(turn for turn in part.excerpt.kept if turn >= shared)
    told = {turn: text for turn, text in part.excerpt.told.items() if turn >= shared}
    return replace(part, excerpt=replace(part.excerpt, kept=kept, told=told))


@contextmanager
def distilled(parts: Sequence[Part], agent: AgentName, new: NewSession) -> Iterator[list[Distilled]]:
    """Yield the kept turns of each part as `agent` writes them. Parts of other agents are handed over.

    Raises:
        Usage: Sessions of one agent cannot be handed over to the other.
        ForkRefused: A log was rewritten meanwhile, or turns of that agent's sessions cannot be dropped.
    """
    with ExitStack() as stack:
        own = [part if part.session.agent == agent else stack.enter_context(_told(part, agent)) for part in parts]
        made = [copier(agent).distilled(part.session, part.excerpt, new) for part in own]
        yield [one for one in made if isinstance(one, Distilled)]


@contextmanager
def _told(part: Part, agent: AgentName) -> Iterator[Part]:
    """Yield a part of another agent's session as a session of `agent`, in a temporary private file."""
    session, excerpt = part.session, part.excerpt
    said = utterances(session, read(session, excerpt.end, excerpt.kept).messages, excerpt.told)
    place = HomePlace(session.cwd, str(Path.home()))
    with as_session(agent, said, place, source_id=session.session_id) as told:
        sizes = tuple(turn.token_est for turn in told.turns)
        yield Part(told, Excerpt(frozenset(range(len(told.turns))), len(told.turns) - 1, {}, sizes))


def _shared(one: Session, other: Session) -> int:
    """Return how many turns at the beginning are the same in both."""
    if one.agent != other.agent or one.root_id != other.root_id:
        return 0
    count = 0
    for mine, theirs in zip(one.turns, other.turns, strict=False):
        if (mine.id, mine.role, mine.text, mine.timestamp) != (theirs.id, theirs.role, theirs.text, theirs.timestamp):
            break
        count += 1
    return count
