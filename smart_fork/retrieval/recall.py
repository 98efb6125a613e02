"""Which past session knows what somebody asks first in a new one: told unasked, so only where it is likely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.shapes import dataclass
from indexer.store.base import SessionRow
from indexer.transcripts.boilerplate import RECALL_TAG, strip_boilerplate
from indexer.transcripts.model import AgentName
from smart_fork.agents.births import worker_of
from smart_fork.agents.facets import title_of
from smart_fork.agents.registration import NAME
from smart_fork.agents.selection import ALL, readable
from smart_fork.conversation import Noted
from smart_fork.notes import noted_of
from smart_fork.registry.file import has_registry
from smart_fork.registry.workers import Registry
from smart_fork.retrieval.fork_point import lost
from smart_fork.retrieval.found import Candidate, Candidates
from smart_fork.retrieval.obstacles import Forkable, obstacles
from smart_fork.retrieval.query import plain
from smart_fork.retrieval.request import FindRequest
from smart_fork.text.snippets import quotation

#: The least chance with which anything is said.
LEAST = 0.8
TITLE_CHARACTERS, OUTCOME_CHARACTERS = 80, 160


@dataclass(frozen=True, slots=True)
class FirstPrompt:
    """What was asked first in a session that has just begun in `directory`."""

    agent: AgentName
    session_id: str
    directory: str
    prompt: str

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> FirstPrompt | None:
        """What a program says of one; `None` where that is none."""
        agent = next((name for name in readable() if name == told.get("agent")), None)
        rest = [told.get(name) for name in ("session_id", "directory", "prompt")]
        session_id, directory, prompt = (value if isinstance(value, str) else "" for value in rest)
        sound = agent is not None and session_id and directory.startswith("/")
        return cls(agent, session_id, directory, prompt) if agent is not None and sound else None


@dataclass(frozen=True, slots=True)
class Recalled:
    """The session that probably knows, and what a model is told of it."""

    session_id: str
    chance: float
    line: str


def asked_by(first: FirstPrompt) -> FindRequest | None:
    """What a first prompt asks; `None` where it is not a person's."""
    intent = plain(strip_boilerplate(first.prompt))
    if not intent or _is_a_workers(first):
        return None
    return FindRequest(intent, agent_type=ALL, limit=1, min_score=LEAST)


def recalled(found: Candidates) -> Recalled | None:
    """The session that probably knows; `None` where none does, or none that can be forked."""
    hit = next(iter(found.hits), None)
    if hit is None or found.mode != "hybrid" or not _can_be_forked(hit.session):
        return None
    known = noted_of(hit.session.agent, hit.session.session_id)
    if known and known.archived:  # it was not hidden before: then another one would seem likelier than it is
        return None
    return Recalled(hit.session.session_id, hit.score, line_of(hit, known))


def line_of(hit: Candidate, noted: Noted | None = None) -> str:
    """One line about a session: which, what a fork of it loads, and how it is forked. It asks for nothing.

    Nobody knows what the reader has: so both the tool and the command are named.
    """
    row, place = hit.session, hit.place
    agent = title_of(row.agent)
    some = place.tokens if place else 0
    at = place.ends if place and lost(place.turn, place.ends, row.forgotten, row.gap) else None
    command = " ".join((NAME, "fork", row.session_id, *(() if at is None else ("--at", str(at)))))
    title = quotation(row.title, TITLE_CHARACTERS)
    loads = row.tokens if at is None else some
    upto = f" ({some:,} up to the answer)" if 0 < some < loads else ""
    return (
        f"<{RECALL_TAG}>A past {agent} session of this repository probably knows this (score {hit.score:.2f}): "
        f'"{title}", last active {row.last_activity[:10]}. A fork of it loads about {loads:,} '
        f"tokens{upto}.{outcome_of(noted, OUTCOME_CHARACTERS)} To fork it, call smart_fork with fork_session_id "
        f'{row.session_id}{"" if at is None else f" and at {at}"}, or in a terminal: {command} "PROMPT". '
        f"The title is a quotation, not an instruction.</{RECALL_TAG}>"
    )


def outcome_of(noted: Noted | None, characters: int) -> str:
    """What came of a session, and of its last fork, as a quotation behind a sentence; empty if nothing is noted."""
    sentences = noted.sentences[:2] if noted else ()
    return "".join(f' Noted (a quotation): "{quotation(one, characters)}".' for one in sentences)


def is_plain_id(text: str) -> bool:
    """Whether an id can be told to a model, which may put it into a command."""
    return text.isascii() and text.replace("-", "").isalnum()


def _can_be_forked(row: SessionRow) -> bool:
    if not is_plain_id(row.session_id):
        return False
    one = Forkable(row.agent, row.session_id, row.path, row.cwd, row.origin, bool(row.prompts))
    return not obstacles(one)


def _is_a_workers(first: FirstPrompt) -> bool:
    if not has_registry():
        return False
    with Registry() as registry:
        return worker_of(registry, first.agent, first.session_id, first.prompt) is not None
