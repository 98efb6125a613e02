"""The pages of one session: conversation, sub-agents, outputs, commits, notes, and the forms to forget or cut it."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, knowing
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.decoders import revealed_secrets
from smart_fork.agents.references import Reference
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage
from smart_fork.excise import erasure
from smart_fork.excise.answer import CutRequest, Excised, RolledBack
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.cutting import LastCut, cut, last_cut, rollback
from smart_fork.finding import session_lookup, session_notes
from smart_fork.finding.fork_suitability import cache_in_words, shared_until
from smart_fork.finding.hit import ResumedPart
from smart_fork.finding.query import plain, words_of
from smart_fork.finding.results import fork_command, resumed_part, title
from smart_fork.finding.session_commits import commits_made
from smart_fork.finding.session_lookup import Located
from smart_fork.finding.session_notes import SessionNotes
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.finding.team_sessions import team_room
from smart_fork.forking.source_sessions import is_others
from smart_fork.page.agent_steps import Steps
from smart_fork.page.changes_since_shown import ChangeSinceShown, ShownState, change_at_address, refuse_changed_session
from smart_fork.page.conversation_page import ConversationPage, LazyForks, reading
from smart_fork.page.endpoint_builder import Asked, Endpoints, ProjectCookie, existing_directory, in_thread
from smart_fork.page.renderer import (
    HEADERS,
    PageValues,
    Shown,
    link,
    problem,
    rendered,
    session_link,
    streamed,
    subagent_link,
)
from smart_fork.workers.verdicts import NotedSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AddressedSession:
    """A session's agent and id, as an address of the page names them."""

    agent_type: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(PageValues):
    """The values of a session's page. If a session has neither a log nor a copy, only its `export` is shown.

    `fork` is the number of the message at which the fork form is open. For a teammate's session, `kind` is "shared",
    `owner` is the teammate, and `within` is the project. The addresses of sub-agents begin with `way`, those of tool
    outputs with `outputs`. `mark` is the shown state, and `since` the change since the state in the address. `resumed`
    is the part that the agent loads, if not everything.
    """

    one: AddressedSession
    title: str
    session: Session | None = None
    reading: ConversationPage | None = None
    export: str = ""
    q: str = ""
    words: Sequence[str] = ()
    left: LazyForks | None = None
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
    since: ChangeSinceShown | None = None
    noted: SessionNotes = SessionNotes()
    left_out: str = ""
    resumed: ResumedPart | None = None


def located(place: Mapping[str, str]) -> Located:
    """Find the session that the address parts `agent` and `session_id` in `place` name.

    Raises:
        SmartForkError: the session does not exist, or it is another agent's.
    """
    if place["agent"] not in AGENTS:
        raise NotFound(f"No such session of {place['agent']}")
    return session_lookup.locate(str(Reference(place["agent"], place["session_id"])))


@bounded()
def conversation(place: Mapping[str, str], asked: Mapping[str, str]) -> SessionPage:
    """Return the values of the page of the session at the address `place`, from its log, a copy, or its export.

    An export is a Markdown file, which stays when the log is gone.

    Raises:
        SmartForkError: the session or the requested message does not exist.
    """
    there = located(place)
    one = AddressedSession(there.agent, there.session_id)
    noted = next(iter(session_notes.noted_if_known([(there.agent, there.session_id)]).values()), SessionNotes())
    if not there.readable:
        return SessionPage(one=one, title=there.session_id, export=session_lookup.exported(there), noted=noted)
    session = session_lookup.look_into(there, keep_raw=True)
    agent, way = AGENTS[session.agent], session_link(one)
    begun = agent.subagents.begun(session) if agent.subagents else {}
    read, shown = read_of(session, asked, begun)
    command = f"smart-fork fork {session.session_id}"
    if session.resumed.reason not in ("gap", "elsewhere"):
        of_others = is_others(session.session_id, session)
        command = fork_command(session.agent, session.session_id, session.cwd, of_others=of_others)
    return SessionPage(
        left_out=session_lookup.left_out(session),
        **shown,
        one=one,
        title=title(session.title) or there.session_id,
        left=LazyForks(session, read),
        cached=cache_in_words(shared_until(session)),
        log_gone=there.path is None,
        cut=last_cut(session.session_id) if there.path is not None else None,
        command=command,
        way=way,
        outputs=way,
        noted=noted,
    )


def read_of(
    session: Session, asked: Mapping[str, str], begun: Mapping[str, str] | None = None
) -> tuple[ConversationPage, dict[str, Any]]:
    """Return the conversation's page that the query `asked` requests, and the fields of `SessionPage` about it."""
    asks = plain(asked.get("q", ""))
    words = words_of(asks) if asks else ()
    before = ShownState.parse(asked["since"]).change_to(session) if asked.get("since") else None
    at = before.first if before and before.first is not None else number(asked.get("at"))
    read = reading(session, at, words=words, codec=AGENTS[session.agent].codec, begun=begun)
    return read, {
        "session": session, "reading": read, "q": asks, "words": words, "at": at, "fork": number(asked.get("fork")),
        "tokens": session.token_estimate, "mark": str(ShownState.of(session)), "since": before,
        "resumed": resumed_part(session.resumed, session.compacted(), len(session.turns)),
    }  # fmt: skip


def changes_since(
    place: Mapping[str, str], asked: Mapping[str, str], project: str | None = None
) -> tuple[ChangeSinceShown, str]:
    """Return the change of the session at `place` since the query's state `mark`, and the address of its new messages.

    With a `project`, the session is one that the project's team shares.

    Raises:
        SmartForkError: the mark is invalid, or the shared session cannot be read now.
    """
    shown = ShownState.parse(asked.get("mark", ""))
    one = AddressedSession(place["agent"], place["session_id"])
    if project is None:
        return change_at_address(place, shown), f"{session_link(one, since=str(shown))}#more"
    way = session_link(one, kind="shared", project=project, since=str(shown))
    return shown.change_to(team_room().look_into(one.session_id, existing_directory(project)).session), f"{way}#more"


def number(text: str | None) -> int | None:
    """Parse the number of a message; `None` for an empty text.

    Raises:
        Usage: `text` is not a message number.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Usage("Not a message number")
    return int(text)


def shared(place: Mapping[str, str], asked: Mapping[str, str], project: str) -> SessionPage:
    """Return the values of the page of a teammate's session at the address `place`, read from the team's server.

    The session is not stored here.

    Raises:
        SmartForkError: the session or message does not exist, may not be read, or the server does not answer.
    """
    there = team_room().look_into(place["session_id"], existing_directory(project))
    session = there.session
    if session.agent != place["agent"]:
        raise NotFound(f"No such session of {place['agent']}")
    one = AddressedSession(session.agent, place["session_id"])
    _, shown = read_of(session, asked)
    return SessionPage(
        **shown, one=one, title=there.title or one.session_id,
        command=shlex.join(("smart-fork", "fork", one.session_id)), kind="shared", owner=there.owner, within=project,
    )  # fmt: skip


def subagent_page(place: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """Return the template values for the conversation of the sub-agent that the address parts `place` name."""
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
        "reading": reading(session, at, codec=agent.codec, begun=begun),
        "at": at,
        "address": address,
        "way": session_link(one),
        "outputs": address,
    }


def subagent(place: Mapping[str, str]) -> tuple[Session, Session]:
    """Return the session and the sub-agent's conversation that the address parts `place` name.

    Raises:
        NotFound: the sub-agent does not exist, or its log cannot be read.
    """
    there, name = located(place), place["name"]
    agents = AGENTS[there.agent].subagents
    hint = "Open the session again."
    if agents is None or not there.readable:
        raise NotFound("No such sub-agent in this session", hint)
    try:
        parent = session_lookup.look_into(there)
        child = agents.read(parent, name)
    except OSError as error:
        raise NotFound(f"The sub-agent's log cannot be read: {error.strerror or error}", hint) from error
    if child is None:
        raise NotFound("No such sub-agent in this session", hint)
    return parent, child


def output(place: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """Return the template values for the whole output of the tool call with the turn and index in the address `place`.

    Raises:
        SmartForkError: the session, its log or the step does not exist, or the session has changed since it was shown.
    """
    there, turn, call = located(place), number(place["turn"]), number(place["call"])
    session = session_lookup.look_into(there, keep_raw=True) if there.readable and "name" not in place else None
    if "name" in place:
        _, session = subagent(place)
    if session is not None:
        refuse_changed_session(asked.get("seen", ""), session)
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
    """Return the template values for the git commits of the session at `place`. `made` is `None` if none is known."""
    there = located(place)
    session = session_lookup.look_into(there)
    made = commits_made([(there.agent, there.session_id)], session.cwd).get(there.session_id)
    one = AddressedSession(there.agent, there.session_id)
    head = title(session.title) or there.session_id
    return {"one": one, "title": head, "project": WorkDirectory(session.cwd).now, "made": made}


@bounded()
def about_to_forget(_: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """Return the template values of the page that asks whether to forget a session (remove it for good)."""
    located = session_lookup.locate(asked.get("session", ""))
    try:
        about = title(session_lookup.look_into(located).title)
    except NotFound:
        about = title("")
    return {"agent_type": located.agent, "session_id": located.session_id, "about": about}


def removed(form: Mapping[str, str]) -> erasure.Removal:
    """Forget a session (remove it from the index for good), or undo that, as a form asks."""
    session = _named_session(form)
    return erasure.undo_forgetting(session) if form.get("do") == "undo" else erasure.forget(session)


def about_to_cut(_: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """Plan a cut (removing turns from a session's log), and return the template values to show it.

    With `secrets` in the query, secrets are masked instead. `shown` is a fingerprint of the plan, which the form sends
    with the order to cut. `said` maps the numbers of the turns to the beginnings of their texts or tool calls.

    Raises:
        SmartForkError: the cut would be refused.
    """
    would = cut(_request(asked, dry_run=True))
    shown = {"turns": asked.get("turns", ""), "shown": _digest(would.removed, would.masked), "said": _said(would)}
    return {"excised": would, "secrets": asked.get("secrets") == "yes", **shown}


def _said(would: Excised) -> dict[int, Masked]:
    try:
        turns = session_lookup.look_into(session_lookup.locate(str(Reference(would.tool, would.session_id)))).turns
    except SmartForkError:
        return {}
    going = {number: turns[number] for number in would.numbers if number is not None and number < len(turns)}
    texts = {number: turn.text or "; ".join(call.action for call in turn.tool_calls) for number, turn in going.items()}
    return {number: title(text) for number, text in texts.items() if text}


def excised(form: Mapping[str, str]) -> Excised:
    """Cut turns out of a session, or mask its secrets, in all files that hold them.

    The cut must match the plan that the form showed: after another cut, the turn numbers may mean other turns.
    """

    def as_shown(planned: CutPlan) -> bool:
        if _digest([turn.id for turn in planned.removed], planned.masked) != form.get("shown", ""):
            raise ForkRefused(
                "The session has changed since this was shown",
                "Open `Index` and press `Show what would go` again.",
            )
        return True

    return cut(_request(form, dry_run=False), agree=as_shown)


def _digest(removed: Iterable[str], masked: Mapping[str, int]) -> str:
    """Return a fingerprint of a planned cut, made from the ids of turns to remove and the counts of masked secrets."""
    return blake2b(repr((*removed, *masked.items())).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _request(asked: Mapping[str, str], *, dry_run: bool) -> CutRequest:
    session, turns = _named_session(asked), asked.get("turns", "").strip()
    secrets = asked.get("secrets") == "yes"
    if not (turns or secrets):
        raise Usage("Which turns?", "Use the numbers of `smart-fork excise list`: 5-7,9. Or mask secrets.")
    meant = session_lookup.locate(session).reference  # never a path
    return CutRequest(meant, turns=turns, secrets=secrets, dry_run=dry_run, force=asked.get("force") == "yes")


def _named_session(form: Mapping[str, str]) -> str:
    if session := form.get("session", "").strip():
        return session
    raise Usage("Which session?", "Give its id, or at least 8 characters of it.")


def undone(form: Mapping[str, str]) -> RolledBack:
    """Undo the last cut (turns removed from a session's log), in all files that the cut changed."""
    cut = last_cut(form.get("session", ""))
    if cut is None or cut.snapshot != form.get("snapshot"):
        raise NotFound("This cut was already undone, or a later one was made", "Open the session again.")
    return rollback(cut.snapshot)


_MARKS = {"pin": session_notes.PINNED, "archive": session_notes.ARCHIVED}


def noted(form: Mapping[str, str]) -> NotedSession:
    """Set or remove a session's verdict, tag, pin or archive mark, as a form asks."""
    session, (do, _, name) = form.get("session", ""), form.get("do", "").partition(" ")
    if do == "verdict":
        return NotedSession.judge(session, session_notes.outcome(form.get("outcome", "")), form.get("reason", ""))
    if do == "unjudge":
        return NotedSession.unjudge(session)
    if do not in ("tag", "untag", "mark", "unmark") or (do.endswith("mark") and name not in _MARKS):
        raise Usage("No such action", "Reload the page.")
    mark = _MARKS[name] if do.endswith("mark") else session_notes.tag(name or form.get("tag", "").strip())
    return NotedSession.mark([session], [mark], remove=do.startswith("un"))[0]


def session_routes(endpoints: Endpoints, project_cookie: ProjectCookie) -> list[Route]:
    """Return the routes that show and change sessions of this machine, and those that show sessions of the team."""
    own, theirs = "/session/{agent}/{session_id}", "/shared/{agent}/{session_id}"
    printed = endpoints.page("output.html", output)

    async def read_theirs(request: Request) -> Response:
        work = partial(shared, request.path_params, request.query_params, project_cookie.of(request).project)
        return await endpoints.respond("session.html", work, by=streamed)

    async def since_then(request: Request, *, theirs: bool = False) -> Response:
        """Answer a browser that keeps asking if a session has changed. The response is empty if it has not."""
        project = project_cookie.of(request).project if theirs else None
        try:
            now, way = await in_thread(partial(changes_since, request.path_params, request.query_params, project))
        except SmartForkError as error:
            return problem(error)
        except OSError as error:  # the window asks again
            log.info("whether a session has gone on cannot be told: %s", error)
            return Response(status_code=503, headers=HEADERS)
        if now.became == "same":
            return Response(status_code=204, headers=HEADERS)
        return rendered("since.html", now, {"way": way})

    def removal(place: Asked, _: Asked) -> Shown:
        done = endpoints.forms.result(place["form"])
        if isinstance(done, erasure.Removal):
            return {"removal": done}
        return {"removal": None, "excised": endpoints.result(place["form"], Excised)}

    def undone_by(place: Asked, _: Asked) -> Shown:
        return {"undone": endpoints.result(place["form"], RolledBack)}

    async def noted_by(request: Request) -> Response:
        try:
            told = endpoints.result(request.path_params["form"], NotedSession)
        except SmartForkError as error:
            return await endpoints.problem(error)
        where = session_link(AddressedSession(told.agent_type, told.session_id))
        return RedirectResponse(f"{where}#notes", 303, HEADERS)

    return [
        Route(own, endpoints.page("session.html", conversation, by=streamed)),
        Route(theirs, read_theirs),
        Route(f"{own}/since", since_then),
        Route(f"{theirs}/since", partial(since_then, theirs=True)),
        Route(f"{own}/output/{{turn}}/{{call}}", printed),
        Route(f"{own}/agents/{{name}}", endpoints.page("subagent.html", subagent_page, by=streamed)),
        Route(f"{own}/agents/{{name}}/output/{{turn}}/{{call}}", printed),
        Route(f"{own}/commits", endpoints.page("commits.html", commits)),
        Route("/forget", endpoints.page("forget.html", about_to_forget)),
        Route("/forget", endpoints.form(removed, "/removed/{form}"), methods=["POST"]),
        Route("/excise", endpoints.page("excise.html", about_to_cut)),
        Route("/excise", endpoints.form(excised, "/removed/{form}"), methods=["POST"]),
        Route("/removed/{form}", endpoints.page("removed.html", removal)),
        Route("/undo", endpoints.form(undone, "/undone/{form}"), methods=["POST"]),
        Route("/undone/{form}", endpoints.page("undone.html", undone_by)),
        Route("/note", endpoints.form(noted, "/noted/{form}"), methods=["POST"]),
        Route("/noted/{form}", noted_by),
    ]
