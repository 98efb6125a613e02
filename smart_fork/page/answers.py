"""What the page's addresses are answered with: searches, sessions, families, forks. Values for its templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from smart_fork.errors import IndexUnavailable, NotFound, SmartForkError, Usage
from smart_fork.retrieval.answer import Answer, RecentSession
from smart_fork.retrieval.phrasings import MAX_CHARACTERS, MOST
from smart_fork.retrieval.upkeep import Engine

#: Results at first, and where more are asked for; and how many of the latest sessions.
RESULTS, MORE, RECENT = 10, 50, 30
#: From which chance on a session is shown with what it says.
WORTH = 0.05


def found(asked: Mapping[str, str], also: Sequence[str], engine: Engine) -> dict[str, Any]:
    """What a search finds, without one the latest sessions; what is wrong with the question is in `problem`.

    `also` are lines of a field, each the question in other words.
    """
    intent, project, agent = (asked.get(name, "").strip() for name in ("q", "project", "agent"))
    limit = MORE if asked.get("n") else RESULTS
    values: dict[str, Any] = {
        "q": intent,
        "also": also,
        "also_most": MOST,
        "also_characters": MAX_CHARACTERS,
        "project": project,
        "agent": agent,
        "limit": limit,
        "most": MORE,
        "worth": WORTH,
    }
    values |= {"answer": None, "recent": [], "problem": None}
    try:
        if intent:
            values["answer"] = _search(values, engine)
        else:
            values["recent"] = _recent(project, agent)
    except SmartForkError as error:
        values["problem"] = error
    return values


def lines(fields: Iterable[str]) -> list[str]:
    """The lines of a field that is given once, as a form sends it, or once for each line, as our addresses have it."""
    return [line.strip() for text in fields for line in text.splitlines() if line.strip()]


def _search(values: Mapping[str, Any], engine: Engine) -> Answer:
    from smart_fork.retrieval.finder import find
    from smart_fork.retrieval.request import FindRequest

    project = values["project"]
    question = FindRequest(
        values["q"],
        agent_type=values["agent"] or "all",
        limit=values["limit"],
        project_path=project or None,
        all_projects=not project,
        also=values["also"],
    )
    return find(question, engine)


def _recent(project: str, agent: str) -> tuple[RecentSession, ...]:
    from smart_fork.retrieval.session_list import list_recent

    return list_recent(agent or "all", project or None, RECENT, everywhere=not project).sessions


def projects() -> list[str]:
    """The projects that sessions are known of; none where the index cannot be used, of which the search tells."""
    from smart_fork.retrieval.index_access import opened

    try:
        with opened() as store:
            return store.projects()
    except IndexUnavailable:
        return []


def indexing() -> dict[str, Any] | None:
    """What became of the last run of the indexer and when the next is; `None` where the index cannot be used."""
    from datetime import UTC, datetime

    from indexer.runs import last_run, next_run
    from smart_fork.retrieval.index_access import opened

    try:
        with opened() as store:
            return {"last": last_run(store), "next": next_run(store, datetime.now(UTC))}
    except IndexUnavailable:
        return None


def conversation(place: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, Any]:
    """A session to read, from its log, a kept copy, or where both are gone its export.

    Raises:
        SmartForkError: there is none, or no such message in it.
    """
    from smart_fork import sessions
    from smart_fork.excise.last_cut import last_cut
    from smart_fork.page.blocks import blocks
    from smart_fork.page.conversation import reading
    from smart_fork.retrieval.results import fork_command, title

    located = sessions.locate(place["session_id"])
    if located.agent != place["agent"]:
        raise NotFound(f"No such session of {place['agent']}")
    values: dict[str, Any] = {"one": {"agent_type": located.agent, "session_id": located.session_id}}
    if not located.readable:
        export = blocks(sessions.exported(located))
        return values | {"title": located.session_id, "session": None, "reading": None, "export": export}
    session = sessions.look_into(located)
    return values | {
        "title": title(session.title) or located.session_id,
        "session": session,
        "reading": reading(session, number(asked.get("at"))),
        "at": number(asked.get("at")),
        "fork": number(asked.get("fork")),
        "tokens": session.token_estimate,
        "log_gone": located.path is None,
        "cut": last_cut(session.session_id) if located.path is not None else None,
        "command": fork_command(session.agent, session.session_id, session.cwd),
    }


def related(session_id: str) -> dict[str, Any]:
    """The family of a session, and its lines on a time line.

    Raises:
        SmartForkError: there is no such session, or it cannot be read.
    """
    from smart_fork.families.lineage import lineage
    from smart_fork.page.timeline import timeline

    family = lineage(session_id)
    titles = {one.session_id: one.title or one.session_id for one in family.sessions}
    return {
        "session_id": family.session_id,
        "count": family.count,
        "return_command": family.return_command,
        "sessions": family.sessions,
        "line": timeline(family.sessions),
        "titles": titles,
    }


def forked(form: Mapping[str, str]) -> dict[str, Any]:
    """Start the fork that a form asks for.

    Raises:
        SmartForkError: nothing was started.
    """
    from smart_fork.agents.options import Options
    from smart_fork.forking.launch import fork_session

    given = {name: form.get(name, "").strip() for name in ("session", "prompt", "at", "worktree", "place")}
    if not given["prompt"]:
        raise Usage("What is the fork to do?", "Go back and say it in a sentence.")
    return fork_session(
        given["session"],
        Options(prompt=given["prompt"], worktree=given["worktree"] == "yes" or None, place=given["place"] or None),
        at=number(given["at"]),
    ).as_json()


def outcome(fork: Mapping[str, Any]) -> dict[str, Any]:
    """A fork that was started, and whether it still runs: the page may be looked at long afterwards."""
    from smart_fork.registry import Registry
    from smart_fork.workers.observation import WorkerWatch

    with Registry() as registry:
        seen = WorkerWatch().look(registry.get(fork["worker_id"]), registry)
    return {"fork": fork, "state": seen.state}


def undone(form: Mapping[str, str]) -> dict[str, Any]:
    """Undo the last cut of a session, in all files that it has changed.

    Raises:
        SmartForkError: nothing was undone.
    """
    from smart_fork.excise import rollback
    from smart_fork.excise.last_cut import last_cut

    cut = last_cut(form.get("session", ""))
    if cut is None or cut.snapshot != form.get("snapshot"):
        raise NotFound("That cut has been undone, or is not the last one any more", "Open the session again.")
    return rollback(cut.snapshot)


def number(text: str | None) -> int | None:
    """The number of a message, as an address or a form gives it.

    Raises:
        Usage: it is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Usage("That is not the number of a message")
    return int(text)
