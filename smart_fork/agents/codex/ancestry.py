"""Ancestors of Codex's sessions, and the chain of rollouts (log files) that has a session's whole history."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from indexer.json_values import dict_in, dicts_in, seconds_in, text_in
from indexer.safe_files import open_regular
from indexer.transcripts.lines import Line, LineReader, first_lines
from indexer.transcripts.model import Session
from indexer.transcripts.reader_state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import Ancestry, FamilyLog, SessionBeginning, WorkerSessions
from smart_fork.agents.codex.codec import base_of, ordinal_of, payload_of
from smart_fork.agents.codex.rollouts import find_rollout, id_in, rollout_in
from smart_fork.agents.decoders import Record
from smart_fork.errors import NotFound


class RolloutPart(NamedTuple):
    """A rollout (log file) in a session's history, as a whole or only the records before number `end`."""

    path: Path
    end: int | None = None


def first_header(path: Path) -> Record:
    """Return the header (the first record's payload) of a rollout; empty for an empty file."""
    return next((payload_of(line.record)[1] for line in first_lines(path)), {})


def history(path: Path) -> tuple[list[RolloutPart], str]:
    """Return (parts of a session's history, id of a missing rollout, else ""). The oldest part comes first.

    A rollout that continues itself counts as missing.
    """
    parts = [RolloutPart(path)]
    while base := base_of(first_header(parts[0].path)):
        above, below = find_rollout(base.rollout_id), parts[0].end
        if above is None or above in [part.path for part in parts] or len(parts) > AGENTS.MAX_FORK_DEPTH:
            return parts, base.rollout_id
        parts.insert(0, RolloutPart(above, min(base.end or 0, base.end or 0 if below is None else below)))
    return parts, ""


def lines_of(parts: Iterable[RolloutPart]) -> Iterator[Line]:
    """Yield the lines of the rollouts in `parts` that belong to the session."""
    for part in parts:
        for line in LineReader(part.path):
            if part.end is not None and ordinal_of(line) >= part.end:
                break
            yield line


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a temporary file with the content of a rollout that Codex has compressed."""
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        made = Path(folder, path.stem)
        with open_regular(path) as file, made.open("xb") as copy:
            shutil.copyfileobj(file, copy)
        yield made


@contextmanager
def merged_rollouts(path: Path) -> Iterator[Path]:
    """Yield a temporary file with all records of a session, as one rollout that continues no other.

    Raises:
        OSError: A rollout of its history is gone, or cannot be read.
    """
    parts, missing = history(path)
    if missing:
        raise FileNotFoundError(f"An earlier rollout of {path} is missing")
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        made = Path(folder, path.name.removesuffix(".zst"))
        with made.open("xb") as file:
            for header in islice(LineReader(path), 1):
                about = {name: value for name, value in payload_of(header.record)[1].items() if name != "history_base"}
                file.write(orjson.dumps(header.record | {"ordinal": 0, "payload": about}) + b"\n")
            for line in lines_of(parts):
                if payload_of(line.record)[0] != "session_meta":
                    file.write(line.source.strip() + b"\n")
        yield made


def complete_history(path: Path) -> list[RolloutPart]:
    """Return the parts of a session's history, oldest first.

    Raises:
        NotFound: A rollout is gone.
    """
    parts, missing = history(path)
    if not missing:
        return parts
    own, parent = id_in(parts[0].path), text_in(first_header(parts[0].path).get("forked_from_id"))
    if missing == own or (not parent and rollout_in(parts[0].path) != own):
        raise NotFound(f"An earlier log of this session is missing: {own}")
    raise NotFound(f"The log of its parent session is gone: {parent or missing}")


class CodexAncestry(Ancestry):
    """Finds the parents of Codex's sessions, from the first records of rollouts (logs).

    A log's header names its parent, or the rollout that it continues. Old forks have their parent's header second.
    """

    goes_on = True

    def base(self, path: Path) -> str:
        header = first_header(path)
        base = base_of(header)
        return text_in(header.get("forked_from_id")) or base.rollout_id if base else ""

    def begins(self, kin: FamilyLog) -> bool:
        """Store the facts in a log's first records in `kin`. Return True, even for a log without a header."""
        records = (payload_of(line.record) for line in islice(LineReader(kin.path), 2))
        metas = [payload if kind == "session_meta" else None for kind, payload in records]
        if first := metas[0] if metas else None:
            kin.begun = utc(_session_header(kin.path, first).get("timestamp"))
            base, second = base_of(first), metas[1].get("id") if metas[1:] and metas[1] else None
            recorded = first.get("forked_from_id") or second  # old forks have their parent's header second
            if base and not recorded and rollout_in(kin.path) == kin.session_id:
                recorded = base.rollout_id
            kin.base = base and base.end
            kin.recorded = recorded if isinstance(recorded, str) and recorded != kin.session_id else ""
        return True

    def shared(self, kin: FamilyLog, parent: FamilyLog, above: Session, fork: Callable[[], Session | None]) -> int:
        read, end = fork(), 0
        for (i, turn), (_, other) in zip(above.messages, read.messages if read else (), strict=False):
            same = kin.base is None or (turn.id, turn.timestamp) == (other.id, other.timestamp)  # copies have their own
            if turn.text != other.text or not same:
                break
            end = i + 1
        return end


def _session_header(log: Path, header: Record) -> Record:
    """Return the header of a session's first rollout: `header` itself, unless a rewind began the rollout `log`."""
    began = find_rollout(id_in(log)) if rollout_in(log) != id_in(log) else None
    return first_header(began) if began else header


class CodexWorkerSessions(WorkerSessions):
    """Recognizes which new Codex session a started worker (an agent) has created."""

    def beginning(self, log: Path) -> SessionBeginning | None:
        with suppress(OSError):
            meta = dict_in(next((line.record.get("payload") for line in LineReader(log)), None))
            parent, born = meta.get("forked_from_id"), seconds_in(str(_session_header(log, meta).get("timestamp")))
            if isinstance(meta.get("id"), str) and isinstance(meta.get("cwd"), str) and born is not None:
                return SessionBeginning(meta["id"], parent if isinstance(parent, str) else None, meta["cwd"], born)
        return None

    def was_asked(self, log: Path, prompt: str) -> bool:
        payloads = (dict_in(line.record.get("payload")) for line in LineReader(log))
        parts = (part for one in payloads if one.get("role") == "user" for part in dicts_in(one.get("content")))
        return any(str(part.get("text")).strip() == prompt.strip() for part in parts)
