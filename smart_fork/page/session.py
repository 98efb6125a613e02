"""A session that an address names, to read, to fork and to note something of; its sub-agents, outputs and commits."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from indexer.lazy import dataclass
from indexer.masking import knowing
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.references import Reference
from smart_fork.agents.revealed_secrets import revealed_secrets
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.excise.answer import RolledBack
from smart_fork.excise.cutting import LastCut, last_cut
from smart_fork.finding import session_notes, sessions
from smart_fork.finding.commits import commits_made
from smart_fork.finding.fork_worth import cache_in_words
from smart_fork.finding.query import plain, words_of
from smart_fork.finding.results import fork_command, title
from smart_fork.finding.session_notes import noted_if_known
from smart_fork.finding.session_place import where_now
from smart_fork.finding.session_view import ResumedPart, SessionNotes, resumed_part
from smart_fork.finding.sessions import Located
from smart_fork.finding.team_search import team_room
from smart_fork.forking.plan import shared_until
from smart_fork.forking.restored_logs import is_others
from smart_fork.page.desk import Asked, Desk, Scopes, folder, in_thread
from smart_fork.page.index_views import undone
from smart_fork.page.phrases import link, session_link, subagent_link
from smart_fork.page.reading import (
    ConversationPage,
    LeftForks,
    Since,
    check_still,
    looked_at,
    mark_in,
    mark_of,
    reading,
    since,
)
from smart_fork.page.renderer import HEADERS, PageValues, Shown, problem, rendered, streamed
from smart_fork.page.steps import Steps
from smart_fork.workers import comparison
from smart_fork.workers.comparison import NotedSession

log = logging.getLogger(__name__)


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
    tells the state that is shown, and `since` what has become of the one that was shown before. `resumed` is what its
    agent loads, where that is not all.
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
    cut: LastCut | None = None
    command: str = ""
    kind: str = "session"
    owner: str = ""
    within: str = ""
    way: str = ""
    outputs: str = ""
    mark: str = ""
    since: Since | None = None
    noted: SessionNotes = SessionNotes()
    left_out: str = ""
    resumed: ResumedPart | None = None


def located(place: Mapping[str, str]) -> Located:
    """The session that an address names.

    Raises:
        SmartForkError: there is none, or it is another agent's.
    """
    if place["agent"] not in AGENTS:
        raise NotFound(f"No such session of {place['agent']}")
    return sessions.locate(str(Reference(place["agent"], place["session_id"])))


@bounded()
def conversation(place: Mapping[str, str], asked: Mapping[str, str]) -> SessionPage:
    """A session to read, from its log, a kept copy, or where both are gone its export.

    Raises:
        SmartForkError: there is none, or no such message in it.
    """
    there = located(place)
    one = AddressedSession(there.agent, there.session_id)
    noted = next(iter(noted_if_known([(there.agent, there.session_id)]).values()), SessionNotes())
    if not there.readable:
        return SessionPage(one=one, title=there.session_id, export=sessions.exported(there), noted=noted)
    session = sessions.look_into(there, keep_raw=True)
    agent, way = AGENTS[session.agent], session_link(one)
    begun = agent.subagents.begun(session) if agent.subagents else {}
    read, shown = read_of(session, asked, begun)
    return SessionPage(
        left_out=sessions.left_out(session),
        **shown,
        one=one,
        title=title(session.title) or there.session_id,
        left=LeftForks(session, read),
        cached=cache_in_words(shared_until(session)),
        log_gone=there.path is None,
        cut=last_cut(session.session_id) if there.path is not None else None,
        command=fork_command(
            session.agent, session.session_id, session.cwd, of_others=is_others(session.session_id, session)
        )
        if session.resumed.reason not in ("gap", "elsewhere")
        else f"smart-fork fork {session.session_id}",
        way=way,
        outputs=way,
        noted=noted,
    )


def read_of(
    session: Session, asked: Mapping[str, str], begun: Mapping[str, str] | None = None
) -> tuple[ConversationPage, dict[str, Any]]:
    """Return the part of a session to show, and the fields of a `SessionPage` that follow from it."""
    asks = plain(asked.get("q", ""))
    words = words_of(asks) if asks else ()
    before = since(mark_in(asked["since"]), session) if asked.get("since") else None
    at = before.first if before and before.first is not None else number(asked.get("at"))
    read = reading(session, at, words=words, work=AGENTS[session.agent].codec, begun=begun)
    return read, {
        "session": session, "reading": read, "q": asks, "words": words, "at": at, "fork": number(asked.get("fork")),
        "tokens": session.token_estimate, "mark": str(mark_of(session)), "since": before,
        "resumed": resumed_part(session.resumed, session.compacted(), len(session.turns)),
    }  # fmt: skip


def become(place: Mapping[str, str], asked: Mapping[str, str], project: str | None = None) -> tuple[Since, str]:
    """Return the changes of the session since the state asked about, and where to show them.

    With a `project` of one that is shared of it, as its server has it now.

    Raises:
        SmartForkError: no such state can have been shown, or a shared session cannot be read now.
    """
    mark = mark_in(asked.get("mark", ""))
    one = AddressedSession(place["agent"], place["session_id"])
    if project is None:
        return looked_at(place, mark), f"{session_link(one, since=str(mark))}#more"
    way = session_link(one, kind="shared", project=project, since=str(mark))
    return since(mark, team_room().look_into(one.session_id, folder(project)).session), f"{way}#more"


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


def shared(place: Mapping[str, str], asked: Mapping[str, str], project: str) -> SessionPage:
    """A session that is shared of a project, read as its server has it now; nothing of it is written.

    Raises:
        SmartForkError: there is none that may be read, no such message in it, or the server is away.
    """
    there = team_room().look_into(place["session_id"], folder(project))
    session = there.session
    if session.agent != place["agent"]:
        raise NotFound(f"No such session of {place['agent']}")
    one = AddressedSession(session.agent, place["session_id"])
    _, shown = read_of(session, asked)
    return SessionPage(
        **shown, one=one, title=there.title or one.session_id,
        command=shlex.join(("smart-fork", "fork", one.session_id)), kind="shared", owner=there.owner, within=project,
    )  # fmt: skip


def delegated(place: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """The conversation of the sub-agent that an address names, as the session that is `one` has it now.

    `way` and `outputs` are those of a `SessionPage`.

    Raises:
        SmartForkError: there is no such session or sub-agent, or no such message.
    """
    there = located(place)
    parent, session = subagent(place)
    at, agent = number(asked.get("at")), AGENTS[there.agent]
    one = AddressedSession(there.agent, there.session_id)
    address = subagent_link(one, place["name"])
    begun = agent.subagents.begun(session) if agent.subagents else {}
    return {
        "one": one,
        "title": title(parent.title) or there.session_id,
        "asked": title(session.title),
        "session": session,
        "reading": reading(session, at, work=agent.codec, begun=begun),
        "at": at,
        "address": address,
        "way": session_link(one),
        "outputs": address,
    }


def subagent(place: Mapping[str, str]) -> tuple[Session, Session]:
    """A session, and the conversation of the sub-agent that an address names.

    Raises:
        SmartForkError: there is no such session or sub-agent, or its log cannot be read.
    """
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
    return parent, child


def output(place: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """The step that an address names by its turn, and by its place among the calls of that, and all that came back.

    Raises:
        SmartForkError: there is no such session or step, or the session's log is gone, or it is another one by now than
            that of which the address is.
    """
    there, turn, call = located(place), number(place["turn"]), number(place["call"])
    session = sessions.look_into(there, keep_raw=True) if there.readable and "name" not in place else None
    if "name" in place:
        _, session = subagent(place)
    if session is not None:
        check_still(asked.get("seen", ""), session)
    steps = Steps(session, AGENTS[there.agent].codec) if session else None
    known = revealed_secrets((one.raw for one in session.turns), AGENTS[there.agent].codec) if session else ()
    told = steps.of(turn) if session and steps and turn is not None and turn < len(session.turns) else ()
    with knowing(known):
        step = next((one for one in told if one.call == call), None)
    if session is None or steps is None or step is None:
        raise NotFound("No such step in this session", "Open the session again.")
    one = AddressedSession(there.agent, there.session_id)
    back = subagent_link(one, place["name"]) if "name" in place else session_link(one)
    with knowing(known):
        body = steps.output(step)
    return {
        "one": one,
        "title": title(session.title) or there.session_id,
        "step": step,
        "output": body,
        "back": f"{link(back, at=step.number)}#message-{step.number}",
    }


def commits(place: Mapping[str, str], _asked: Mapping[str, str]) -> Shown:
    """The commits of the session that an address names; `None` if none is known. `project` is where it worked.

    Raises:
        SmartForkError: there is no such session, or its log is gone.
    """
    there = located(place)
    session = sessions.look_into(there)
    made = commits_made([(there.agent, there.session_id)], session.cwd).get(there.session_id)
    one = AddressedSession(there.agent, there.session_id)
    head = title(session.title) or there.session_id
    return {"one": one, "title": head, "project": where_now(session.cwd), "made": made}


_MARKS = {"pin": session_notes.PINNED, "archive": session_notes.ARCHIVED}


def noted(form: Mapping[str, str]) -> comparison.NotedSession:
    """Note what the form says.

    Raises:
        SmartForkError: it was not noted.
    """
    session, (do, _, name) = form.get("session", ""), form.get("do", "").partition(" ")
    if do == "verdict":
        return NotedSession.judge(session, session_notes.outcome(form.get("outcome", "")), form.get("reason", ""))
    if do == "unjudge":
        return NotedSession.unjudge(session)
    if do not in ("tag", "untag", "mark", "unmark") or (do.endswith("mark") and name not in _MARKS):
        raise Usage("No such action", "Reload the page.")
    mark = _MARKS[name] if do.endswith("mark") else session_notes.tag(name or form.get("tag", "").strip())
    return NotedSession.mark([session], [mark], remove=do.startswith("un"))[0]


def session_routes(desk: Desk, scopes: Scopes) -> list[Route]:
    """The addresses of one's own sessions, and of those that the team shares."""
    own, theirs = "/session/{agent}/{session_id}", "/shared/{agent}/{session_id}"
    printed = desk.page("output.html", output)

    async def read_theirs(request: Request) -> Response:
        work = partial(shared, request.path_params, request.query_params, scopes.of(request).project)
        return await desk.shown("session.html", work, by=streamed)

    async def since_then(request: Request, *, theirs: bool = False) -> Response:
        """Answer a window that polls: usually with nothing."""
        project = scopes.of(request).project if theirs else None
        try:
            now, way = await in_thread(partial(become, request.path_params, request.query_params, project))
        except SmartForkError as error:
            return problem(error)
        except OSError as error:  # the window asks again
            log.info("whether a session has gone on cannot be told: %s", error)
            return Response(status_code=503, headers=HEADERS)
        if now.became == "same":
            return Response(status_code=204, headers=HEADERS)
        return rendered("since.html", now, {"way": way})

    def undone_by(place: Asked, _: Asked) -> Shown:
        return {"undone": desk.answer(place["form"], RolledBack)}

    async def noted_by(request: Request) -> Response:
        try:
            told = desk.answer(request.path_params["form"], NotedSession)
        except SmartForkError as error:
            return await desk.problem(error)
        where = session_link(AddressedSession(told.agent_type, told.session_id))
        return RedirectResponse(f"{where}#notes", 303, HEADERS)

    return [
        Route(own, desk.page("session.html", conversation, by=streamed)),
        Route(theirs, read_theirs),
        Route(f"{own}/since", since_then),
        Route(f"{theirs}/since", partial(since_then, theirs=True)),
        Route(f"{own}/output/{{turn}}/{{call}}", printed),
        Route(f"{own}/agents/{{name}}", desk.page("subagent.html", delegated, by=streamed)),
        Route(f"{own}/agents/{{name}}/output/{{turn}}/{{call}}", printed),
        Route(f"{own}/commits", desk.page("commits.html", commits)),
        Route("/undo", desk.does(undone, "/undone/{form}"), methods=["POST"]),
        Route("/undone/{form}", desk.page("undone.html", undone_by)),
        Route("/note", desk.does(noted, "/noted/{form}"), methods=["POST"]),
        Route("/noted/{form}", noted_by),
    ]
