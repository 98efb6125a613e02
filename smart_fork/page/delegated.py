"""What a sub-agent has said and done, beside the session that has set it to work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.errors import NotFound
from smart_fork.page.phrases import session_link, subagent_link
from smart_fork.page.renderer import PageValues
from smart_fork.page.session import AddressedSession, located, number

if TYPE_CHECKING:
    from indexer.masking import Masked
    from indexer.transcripts.model import Session
    from smart_fork.page.reading import ConversationPage


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgentPage(PageValues):
    """A conversation of a sub-agent of the session that is `one`; `way` and `outputs` are those of a `SessionPage`."""

    one: AddressedSession
    title: str
    asked: Masked
    session: Session
    reading: ConversationPage
    at: int | None
    address: str
    way: str
    outputs: str


def delegated(place: Mapping[str, str], asked: Mapping[str, str]) -> SubAgentPage:
    """The conversation of the sub-agent that an address names, as the session has it now.

    Raises:
        SmartForkError: there is no such session or sub-agent, or no such message.
    """
    from smart_fork.page.reading import reading
    from smart_fork.retrieval.results import title

    there = located(place)
    parent, session = subagent(place)
    at, agent = number(asked.get("at")), AGENTS[there.agent]
    one = AddressedSession(there.agent, there.session_id)
    address = subagent_link(one, place["name"])
    begun = agent.subagents.begun(session) if agent.subagents else {}
    return SubAgentPage(
        one=one,
        title=title(parent.title) or there.session_id,
        asked=title(session.title),
        session=session,
        reading=reading(session, at, work=agent.codec, begun=begun),
        at=at,
        address=address,
        way=session_link(one),
        outputs=address,
    )


class DelegatedWork(NamedTuple):
    """A session, and the conversation of a sub-agent that it has set to work."""

    parent: Session
    child: Session


def subagent(place: Mapping[str, str]) -> DelegatedWork:
    """The sub-agent's conversation that an address names, with its session.

    Raises:
        SmartForkError: there is no such session or sub-agent, or its log cannot be read.
    """
    from smart_fork import sessions

    there, name = located(place), place["name"]
    agents = AGENTS[there.agent].subagents
    hint = "Open the session again."
    if agents is None or not there.readable:
        raise NotFound("No such sub-agent in this session", hint)
    try:
        parent = sessions.look_into(there)
        child = agents.read(parent, name)
    except OSError as error:
        raise NotFound(f"The sub-agent's log cannot be read: {error.strerror or error}", hint) from error
    if child is None:
        raise NotFound("No such sub-agent in this session", hint)
    return DelegatedWork(parent, child)
