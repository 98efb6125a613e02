"""What a sub-agent has said and done, beside the session that has set it to work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.errors import NotFound
from smart_fork.page.answers import AddressedSession, located, number
from smart_fork.page.phrases import session_link
from smart_fork.page.renderer import PageValues

if TYPE_CHECKING:
    from indexer.masking import Masked
    from indexer.transcripts.model import Session
    from smart_fork.page.conversation import ConversationPage


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
    from smart_fork import sessions
    from smart_fork.page.conversation import reading
    from smart_fork.retrieval.results import title

    there = located(place)
    session, at = subagent(place), number(asked.get("at"))
    one = AddressedSession(there.agent, there.session_id)
    way, agent = session_link(one), AGENTS[there.agent]
    address = f"{way}/agents/{quote(place['name'], safe='')}"
    begun = agent.subagents.begun(session) if agent.subagents else {}
    return SubAgentPage(
        one=one,
        title=title(sessions.look_into(there).title) or there.session_id,
        asked=title(session.title),
        session=session,
        reading=reading(session, at, work=agent.work, begun=begun),
        at=at,
        address=address,
        way=way,
        outputs=address,
    )


def subagent(place: Mapping[str, str]) -> Session:
    """The sub-agent's conversation that an address names.

    Raises:
        SmartForkError: there is no such session or sub-agent, or its log cannot be read.
    """
    from smart_fork import sessions

    there, name = located(place), place["name"]
    agents = AGENTS[there.agent].subagents
    hint = "Open the session again."
    try:
        found = agents.read(sessions.look_into(there), name) if agents and there.readable else None
    except OSError as error:
        raise NotFound(f"The log of that sub-agent cannot be read: {error.strerror or error}", hint) from error
    if found is None:
        raise NotFound("There is no such sub-agent of that session", hint)
    return found
