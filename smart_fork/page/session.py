"""A session that an address names, to read and to fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.references import reference
from smart_fork.conversation import Noted
from smart_fork.errors import NotFound, Usage
from smart_fork.notes import noted_if_known
from smart_fork.page.phrases import session_link
from smart_fork.page.renderer import PageValues
from smart_fork.page.since import Since, looked_at, mark_in, mark_of, since
from smart_fork.retrieval.cache import cache_in_words, cached_until
from smart_fork.whereabouts import where_now

if TYPE_CHECKING:
    from indexer.transcripts.model import Session
    from smart_fork.excise.last_cut import Cut
    from smart_fork.page.reading import ConversationPage, LeftForks
    from smart_fork.sessions import Located


@dataclass(frozen=True, slots=True)
class AddressedSession:
    """A session as links name it."""

    agent_type: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(PageValues):
    """A session to read; where its log and copies are gone, its `export` alone. `fork` is where a fork would begin.

    One that the team shares is of another `kind`, of an `owner`, and read `within` a project. Below `way` are the
    addresses of its sub-agents, below `outputs` those of what came back from steps, where these can be read. `mark`
    tells the state that is shown, and `since` what has become of the one that was shown before.
    """

    one: AddressedSession
    title: str
    session: Session | None = None
    reading: ConversationPage | None = None
    export: str = ""
    q: str = ""
    words: Sequence[str] = ()
    left: LeftForks | None = None
    at: int | None = None
    fork: int | None = None
    tokens: int = 0
    cached: str = ""
    log_gone: bool = False
    cut: Cut | None = None
    command: str = ""
    kind: str = "session"
    owner: str = ""
    within: str = ""
    way: str = ""
    outputs: str = ""
    mark: str = ""
    since: Since | None = None
    noted: Noted = Noted()


def located(place: Mapping[str, str]) -> Located:
    """The session that an address names.

    Raises:
        SmartForkError: there is none, or it is another agent's.
    """
    from smart_fork import sessions

    if place["agent"] not in AGENTS:
        raise NotFound(f"No such session of {place['agent']}")
    return sessions.locate(reference(place["agent"], place["session_id"]))


def conversation(place: Mapping[str, str], asked: Mapping[str, str]) -> SessionPage:
    """A session to read, from its log, a kept copy, or where both are gone its export.

    Raises:
        SmartForkError: there is none, or no such message in it.
    """
    from smart_fork import sessions
    from smart_fork.excise.last_cut import last_cut
    from smart_fork.forking.others import is_others
    from smart_fork.page.reading import LeftForks
    from smart_fork.retrieval.results import fork_command, title

    there = located(place)
    one = AddressedSession(there.agent, there.session_id)
    noted = next(iter(noted_if_known([(there.agent, there.session_id)]).values()), Noted())
    if not there.readable:
        return SessionPage(one=one, title=there.session_id, export=sessions.exported(there), noted=noted)
    session = sessions.look_into(there, keep_raw=True)
    agent, way = AGENTS[session.agent], session_link(one)
    begun = agent.subagents.begun(session) if agent.subagents else {}
    read, shown = read_of(session, asked, begun)
    return SessionPage(
        **shown,
        one=one,
        title=title(session.title) or there.session_id,
        left=LeftForks(session, read),
        cached=cache_in_words(cached_until(session.cache())),
        log_gone=there.path is None,
        cut=last_cut(session.session_id) if there.path is not None else None,
        command=fork_command(
            session.agent, session.session_id, where_now(session.cwd), of_others=is_others(session.session_id, session)
        ),
        way=way,
        outputs=way,
        noted=noted,
    )


def read_of(
    session: Session, asked: Mapping[str, str], begun: Mapping[str, str] | None = None
) -> tuple[ConversationPage, dict[str, Any]]:
    """What is read of a session as it is `asked` for, and all of a `SessionPage` that follows from that."""
    from smart_fork.page.reading import reading
    from smart_fork.retrieval.query import plain, words_of

    asks = plain(asked.get("q", ""))
    words = words_of(asks) if asks else ()
    before = since(mark_in(asked["since"]), session) if asked.get("since") else None
    at = before.first if before and before.first is not None else number(asked.get("at"))
    read = reading(session, at, words=words, work=AGENTS[session.agent].codec, begun=begun)
    return read, {
        "session": session, "reading": read, "q": asks, "words": words, "at": at, "fork": number(asked.get("fork")),
        "tokens": session.token_estimate, "mark": str(mark_of(session)), "since": before,
    }  # fmt: skip


def become(place: Mapping[str, str], asked: Mapping[str, str]) -> tuple[Since, str]:
    """What has become of the session of an address since the state that is asked about, and where that is shown.

    Raises:
        Usage: no such state can have been shown.
    """
    mark = mark_in(asked.get("mark", ""))
    one = AddressedSession(place["agent"], place["session_id"])
    return looked_at(place, mark), f"{session_link(one, since=str(mark))}#more"


def number(text: str | None) -> int | None:
    """The number of a message, as an address or a form gives it.

    Raises:
        Usage: it is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Usage("Not a message number")
    return int(text)
