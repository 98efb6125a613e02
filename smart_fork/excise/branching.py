"""A copy of a session without some of its turns; the original stays as it is (E-075).

It is the only way to be without turns that stand in another session's file: those that a fork of Codex inherited.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from indexer.paths import codex_home, private_dir
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import Agent
from smart_fork.agents.plan import check_id
from smart_fork.agents.staging import folder_of, write_new
from smart_fork.copies.codex_copy import CodexForm, enveloped
from smart_fork.errors import ForkRefused, Usage
from smart_fork.excise.loading import load_with_tool, located
from smart_fork.excise.plan import Plan, plan, refuse
from smart_fork.excise.ranges import chosen


@dataclass(frozen=True, slots=True)
class Branched:
    """A session file that we wrote."""

    agent: Agent
    session_id: str
    source_session_id: str
    path: Path
    plan: Plan


def branch(
    reference: str, turns: str = "", ids: Sequence[str] = (), *, new_session_id: str = "",
    target_cwd: Path | None = None, force: bool = False, now: datetime | None = None,
) -> Branched:  # fmt: skip
    """Write a copy of a session without these turns, under an id of its own, where its agent finds it.

    Raises:
        Usage, NotFound: something in the request is not acceptable.
        Refused: a warning or a problem, and it was not insisted on.
        ForkRefused: a session of that id exists.
    """
    session = load_with_tool("auto", located(reference))
    if session.tool not in ("claude", "codex"):
        raise Usage(f"There are no branches of {session.tool} sessions")
    planned = plan(session, chosen(session.turns, turns, ids) if turns or ids else ())
    if not planned.changes:
        raise Usage("nothing to cut was named", "Give a range such as 5-7,9, or --id.")
    if not force:
        refuse(planned)
    new = check_id(new_session_id or str(uuid.uuid4()), "new")
    moment = now or datetime.now()  # noqa: DTZ005 - Codex names its files by local time
    if session.tool == "claude":
        folder = folder_of(target_cwd) if target_cwd else session.source_path.resolve().parent
        target, lines = folder / f"{new}.jsonl", _claude_lines(planned, new, target_cwd)
    else:
        name = f"rollout-{moment:%Y-%m-%dT%H-%M-%S}-{new}.jsonl"
        target = codex_home() / "sessions" / f"{moment:%Y/%m/%d}" / name
        lines = _codex_lines(planned, CodexForm(session.session_id, new, moment, target_cwd))
    private_dir(target.parent)
    try:
        write_new(target, (orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in lines))
    except FileExistsError:
        raise ForkRefused(f"A session of this id already exists: {target}") from None
    agent: Agent = "claude" if session.tool == "claude" else "codex"
    return Branched(agent, new, session.session_id, target, planned)


def _claude_lines(planned: Plan, new: str, cwd: Path | None) -> Iterator[dict[str, Any]]:
    source = planned.session.session_id
    for record in _records(planned):
        if "sessionId" in record:
            record["sessionId"] = new
        if isinstance(record.get("uuid"), str):
            record["forkedFrom"] = {"sessionId": source, "messageUuid": record["uuid"]}
        if cwd is not None and "cwd" in record:
            record["cwd"] = str(cwd)
        yield record


def _codex_lines(planned: Plan, form: CodexForm) -> Iterator[dict[str, Any]]:
    yield form.header(planned.session.source_path)
    for record in filter(None, map(enveloped, _records(planned))):
        if kept := form.carried_over(record):
            yield kept


def _records(planned: Plan) -> Iterator[dict[str, Any]]:
    """What stays, as it would be written."""
    for position, turn in enumerate(planned.session.turns):
        if turn.id not in planned.gone:
            for _, record in decode_line(planned.edits.get(position, turn.raw))[0]:
                yield record
