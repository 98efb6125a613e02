"""All that came back from one step of a session, of which the conversation shows the last lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.errors import NotFound
from smart_fork.page.delegated import subagent
from smart_fork.page.phrases import link, session_link, subagent_link
from smart_fork.page.renderer import PageValues
from smart_fork.page.session import AddressedSession, located, number
from smart_fork.page.since import check_still

if TYPE_CHECKING:
    from indexer.masking import Masked
    from indexer.transcripts.model import Session
    from smart_fork.page.steps import PageStep


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPage(PageValues):
    """A step of the session that is `one`, and all that came back from it."""

    one: AddressedSession
    title: str
    step: PageStep
    output: Masked
    back: str


def output(place: Mapping[str, str], asked: Mapping[str, str]) -> OutputPage:
    """What came back from the step that an address names by its turn, and by its place among the calls of that.

    Raises:
        SmartForkError: there is no such session or step, or the session's log is gone, or it is another one by now than
            that of which the address is.
    """
    from indexer.masking import knowing
    from smart_fork import sessions
    from smart_fork.agents.learned import learned
    from smart_fork.page.steps import Steps
    from smart_fork.retrieval.results import title

    there, turn, call = located(place), number(place["turn"]), number(place["call"])
    if "name" in place:
        session: Session | None = subagent(place).child
    else:
        session = sessions.look_into(there, keep_raw=True) if there.readable else None
    if session is not None:
        check_still(asked.get("seen", ""), session)
    steps = Steps(session, AGENTS[there.agent].codec) if session else None
    known = learned((one.raw for one in session.turns), AGENTS[there.agent].codec) if session else ()
    told = steps.of(turn) if session and steps and turn is not None and turn < len(session.turns) else ()
    with knowing(known):
        step = next((one for one in told if one.call == call), None)
    if session is None or steps is None or step is None:
        raise NotFound("No such step in this session", "Open the session again.")
    one = AddressedSession(there.agent, there.session_id)
    back = subagent_link(one, place["name"]) if "name" in place else session_link(one)
    with knowing(known):
        body = steps.output(step)
    return OutputPage(
        one=one,
        title=title(session.title) or there.session_id,
        step=step,
        output=body,
        back=f"{link(back, at=step.number)}#message-{step.number}",
    )
