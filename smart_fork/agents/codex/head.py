"""Finds the parents of Codex sessions: headers name them in one of three ways."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from indexer.values import dict_in, dicts_in, seconds_in, text_in
from smart_fork.agents.ancestry import Birth, Births, Heads, Kin
from smart_fork.agents.codec import Record
from smart_fork.agents.codex.codec import base_of, payload_of
from smart_fork.agents.codex.history import first_header
from smart_fork.agents.codex.rollouts import find_rollout, id_in, rollout_in


class CodexHeads(Heads):
    """Reads the beginnings of rollouts."""

    goes_on = True

    def base(self, path: Path) -> str:
        header = first_header(path)
        base = base_of(header)
        return text_in(header.get("forked_from_id")) or base.rollout_id if base else ""

    def begins(self, kin: Kin) -> bool:
        """See `Heads.begins`. A log without a header is one of the family as well."""
        records = (payload_of(line.record) for line in islice(LineReader(kin.path), 2))
        metas = [payload if kind == "session_meta" else None for kind, payload in records]
        if first := metas[0] if metas else None:
            kin.begun = utc(_born(kin.path, first).get("timestamp"))
            base, second = base_of(first), metas[1].get("id") if metas[1:] and metas[1] else None
            recorded = first.get("forked_from_id") or second  # old forks have their parent's header second
            if base and not recorded and rollout_in(kin.path) == kin.session_id:
                recorded = base.rollout_id
            kin.base = base and base.end
            kin.recorded = recorded if isinstance(recorded, str) and recorded != kin.session_id else ""
        return True

    def shared(self, kin: Kin, parent: Kin, above: Session, fork: Callable[[], Session | None]) -> int:
        read, end = fork(), 0
        for (i, turn), (_, other) in zip(above.messages, read.messages if read else (), strict=False):
            same = kin.base is None or (turn.id, turn.timestamp) == (other.id, other.timestamp)  # copies have their own
            if turn.text != other.text or not same:
                break
            end = i + 1
        return end


def _born(log: Path, header: Record) -> Record:
    """The header of the rollout with which a thread began; `header` is that of `log`."""
    began = find_rollout(id_in(log)) if rollout_in(log) != id_in(log) else None
    return first_header(began) if began else header


class CodexBirths(Births):
    """Reads how sessions of Codex began."""

    def birth(self, log: Path) -> Birth | None:
        with contextlib.suppress(OSError):
            meta = dict_in(next((line.record.get("payload") for line in LineReader(log)), None))
            parent, born = meta.get("forked_from_id"), seconds_in(str(_born(log, meta).get("timestamp")))
            if isinstance(meta.get("id"), str) and isinstance(meta.get("cwd"), str) and born is not None:
                return Birth(meta["id"], parent if isinstance(parent, str) else None, meta["cwd"], born)
        return None

    def was_asked(self, log: Path, prompt: str) -> bool:
        return any(_asks(line.record.get("payload"), prompt) for line in LineReader(log))


def _asks(payload: object, prompt: str) -> bool:
    said = dict_in(payload)
    texts = (str(part.get("text")).strip() for part in dicts_in(said.get("content")))
    return said.get("role") == "user" and prompt.strip() in texts
