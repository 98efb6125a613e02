"""A copy of a session up to an earlier message, that the real program can resume.

Only what ends a finished turn can be the last message: nothing waits for a tool's answer, and the agent has said its
last word on what it was asked (B-074). A point inside an exchange moves forward to there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from indexer.paths import codex_home, private_dir
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.lines import Line, LineReader, decode_line
from indexer.transcripts.model import Agent, Session
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.plan import check_id
from smart_fork.staging import folder_of, write_new

#: Forks of forks are followed this far.
MAX_FORK_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Branch:
    """A session file that we wrote. `at` is its last message; `moved` says that it is later than the one asked for."""

    agent: Agent
    session_id: str
    source_session_id: str
    path: Path
    copied: int
    at: str
    moved: bool


def message_at(session: Session, number: int) -> str:
    """The id of message `number`, as ``show`` numbers them; where something was done, of the next that was said.

    Raises:
        NotFound: there is no such message.
    """
    said = next((turn for index, turn in session.messages if 0 <= number <= index), None)
    if said is None:
        raise NotFound(f"No message {number} in this session", f"smart-fork show {session.session_id} numbers them.")
    return said.id


def branch_point(session: Session, at: str) -> int:
    """The index of the first turn, from message `at` on, after which the session can go on differently.

    Raises:
        ForkRefused: `at` is not in what the agent remembers, or what it belongs to was never finished.
    """
    start = next((index for index, turn in enumerate(session.turns) if turn.id == at), None)
    if start is None:
        raise ForkRefused(f"Invalid or inactive branch point: {at}", "Take a message that smart-fork show lists.")
    points = session.branch_points()
    for point in points:
        if point >= start:
            return point
    hint = f"The last message that can be forked at is {session.turns[points[-1]].id}." if points else ""
    raise ForkRefused(f"Invalid or inactive branch point: {at}: the agent has not finished its answer", hint)


def write_branch(
    adapter: AgentAdapter, source: Path, *, at: str, new_session_id: str, target_cwd: Path, now: datetime
) -> Branch:
    """Write the copy, under an id of its own, where the agent finds it from `target_cwd`. The source is only read.

    Raises:
        NotFound: the source is gone or holds no conversation.
        ForkRefused: see `branch_point`; or a session of that id exists.
    """
    new = check_id(new_session_id, "new")
    try:
        session = adapter.read(source, keep_raw=True).session
    except FileNotFoundError as error:
        raise NotFound(f"The session's log is gone: {source}") from error
    if session is None:
        raise NotFound(f"Source session not found or empty: {source}")
    end = branch_point(session, at)
    if adapter.name == "claude":
        target = folder_of(target_cwd) / f"{new}.jsonl"
        records = list(_claude_records(session, end, new, target_cwd))
    else:
        target = codex_home() / "sessions" / f"{now:%Y/%m/%d}" / f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{new}.jsonl"
        records = list(_codex_records(adapter, session, end, new, target_cwd=target_cwd, now=now))
    private_dir(target.parent)
    try:
        write_new(target, (orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records))
    except FileExistsError:
        raise ForkRefused(f"A session of this id already exists: {target}") from None
    last = session.turns[end].id
    return Branch(adapter.name, new, session.session_id, target, len(records), last, last != at)


def _claude_records(session: Session, end: int, new: str, target_cwd: Path) -> Iterator[dict[str, Any]]:
    """What was said on the active chain since the last compaction, as one line of parents (B-001…B-004, B-071)."""
    records = [record for turn in session.turns[: end + 1] for _, record in decode_line(turn.raw)[0]]
    records = [record for record in records if record.get("type") in ("user", "assistant")]
    start = max((i for i, record in enumerate(records) if record.get("isCompactSummary") is True), default=0)
    parent: str | None = None
    for record in records[start:]:
        record["parentUuid"] = parent
        record["sessionId"] = new
        record["forkedFrom"] = {"sessionId": session.session_id, "messageUuid": record["uuid"]}
        if "cwd" in record:
            record["cwd"] = str(target_cwd)
        parent = record["uuid"]
        yield record


def _codex_records(
    adapter: AgentAdapter, session: Session, end: int, new: str, *, target_cwd: Path, now: datetime
) -> Iterator[dict[str, Any]]:
    """A header of its own, then the records of the session and of those it was forked from, without ordinals."""
    moment = now.astimezone().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    lines = _through_parents(adapter, session.source_path, None, ())
    meta: dict[str, Any] = {}
    kept = []
    last = session.turns[end].id
    past = False
    for key, record in lines:
        payload = record["payload"]
        if record["type"] == "session_meta":
            meta = payload if not meta or payload.get("id") == session.session_id else meta
            continue
        if past and key != last and _begins_a_turn(record["type"], payload):
            break
        past = past or key == last
        record.pop("ordinal", None)
        kept.append(record)
        if past and payload.get("type") == "task_complete":
            break
    gone = ("history_mode", "history_base", "forked_from_ordinal_exclusive", "parent_thread_id", "context_window")
    header = {name: value for name, value in meta.items() if name not in gone}
    if header.get("cwd") != str(target_cwd):
        header.pop("git", None)  # the branch and commit of another directory
    header |= {"id": new, "forked_from_id": session.session_id, "timestamp": moment, "cwd": str(target_cwd)}
    if "session_id" in header:
        header["session_id"] = new
    if "runtime_workspace_roots" in header:
        header["runtime_workspace_roots"] = [str(target_cwd)]
    yield {"timestamp": moment, "type": "session_meta", "payload": header}
    yield from kept


def _begins_a_turn(kind: str, payload: dict[str, Any]) -> bool:
    said = payload.get("type")
    if kind == "response_item":
        return said != "message" or payload.get("role") != "assistant"
    return kind in ("turn_context", "compacted") or said in ("task_started", "user_message", "thread_rolled_back")


def _through_parents(
    adapter: AgentAdapter, path: Path, end: int | None, seen: tuple[Path, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of a rollout after those of its parents, with the ids that the reader gives their turns."""
    first = True
    for line in LineReader(path):
        record = _enveloped(line)
        if record is None:
            continue
        number = record.get("ordinal", line.number)
        if end is not None and isinstance(number, int) and number >= end:
            return
        base = record["payload"].get("history_base") if record["type"] == "session_meta" else None
        if first and isinstance(base, dict):
            above = next(iter(adapter.locate(str(base.get("thread_id")))), None)
            if above is None or above in seen or len(seen) >= MAX_FORK_DEPTH:
                raise NotFound(f"The session that this one was forked from is gone: {base.get('thread_id')}")
            yield from _through_parents(adapter, above, base.get("end_ordinal_exclusive"), (*seen, path))
        first = False
        yield str(number), record


def _enveloped(line: Line) -> dict[str, Any] | None:
    """A record in today's form; the oldest rollouts have bare items."""
    record = line.record
    if isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str):
        return record
    if isinstance(record.get("type"), str):
        return {"timestamp": record.get("timestamp", ""), "type": "response_item", "payload": record}
    if "record_type" not in record and isinstance(record.get("id"), str):
        return {"timestamp": record.get("timestamp", ""), "type": "session_meta", "payload": record}
    return None
