"""Secrets out of lines that stay (``cut --secrets``).

What ties records together is never changed: ids, signatures, encrypted reasoning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import orjson

from indexer.masking import knowing, mask
from indexer.masking.parts import hidden_in_parts, lines_at, together
from indexer.masking.secrets import hidden, spans_of
from indexer.transcripts.lines import decode_line
from indexer.unchecked import dict_in
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts.model import Transcript
from smart_fork.agents.cuts.ties import DEPTH, is_tie
from smart_fork.agents.learned import learned
from smart_fork.excise.plan import Plan, plan, same_records
from smart_fork.json_edits import respelled

_MASK = re.compile(r"\[REDACTED:([a-z0-9-]{1,40})\]")
_THINKING = ("thinking", "redacted_thinking")


def masked(session: Transcript, ids: Collection[str], among: Collection[str] | None, *, relink: bool = True) -> Plan:
    """A plan in which secrets become what kind they were: in a session's own lines, those of `among` where given.

    What is in `ids` is cut as well.
    """
    if among is not None:
        same = same_records(session.turns)
        among = {one for named in among for one in (named, *same[named])}
    found, kinds, signed = _mask(session, among, {})
    planned = plan(session, {*ids, *signed}, relink=relink)
    if planned.edits:  # what is linked again is masked as well
        found, kinds, _ = _mask(session, among, planned.edits)
    edits = {position: raw for position, raw in found.items() if session.turns[position].id not in planned.gone}
    return replace(planned, edits={**planned.edits, **edits}, masked=kinds)


def _mask(
    session: Transcript, among: Collection[str] | None, before: Mapping[int, bytes]
) -> tuple[dict[int, bytes], Counter[str], set[str]]:
    """Lines to be rewritten by position, how many secrets of each kind, and turns to be cut: signed thinking."""
    edits: dict[int, bytes] = {}
    kinds: Counter[str] = Counter()
    to_cut: set[str] = set()
    work = AGENTS[session.tool].codec if session.tool in AGENTS else None
    keys = frozenset(learned((turn.raw for turn in session.turns), work))
    for position, turn in enumerate(session.turns):
        if not turn.is_line or (among is not None and turn.id not in among):
            continue
        raw = before.get(position, turn.raw)
        with knowing(keys):
            new, found, unsigned = _masked(raw, keys, padded=session.padded)
        kinds.update(found)
        if unsigned:
            to_cut.add(turn.id)
        elif new != raw:
            edits[position] = new
    return edits, kinds, to_cut


def secrets_in(raw: bytes) -> list[str]:
    """The kinds of the secrets in a line."""
    found: list[str] = []
    for _, record in decode_line(raw)[0]:
        mapped(record, *_collecting(found, ()))
    return found


def _masked(raw: bytes, keys: Collection[str], *, padded: bool) -> tuple[bytes, list[str], bool]:
    found: list[str] = []
    pieces = []
    objects, broken = decode_line(raw)
    if broken or not objects:
        text = raw.decode("utf-8", "surrogateescape")
        return _collecting(found, keys)[0](text).encode("utf-8", "surrogateescape"), found, False
    for source, record in objects:
        before = len(found)
        new = mapped(record, *_collecting(found, keys))
        if len(found) == before:
            pieces.append(source.rstrip(b"\r\n"))
            continue
        if not _without_signed(record, new):
            return raw, found, True
        pieces.append(respelled(source, new))
    line = b" ".join(pieces) if found else raw
    if padded and len(line) > len(raw):
        line = _MASK.sub("***", line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return line, found, False


def _without_signed(record: dict[str, Any], new: dict[str, Any]) -> bool:
    """Take thinking that had to be changed out of a message: it is signed. False where nothing is left."""
    message = new.get("message")
    content, before = dict_in(message).get("content"), dict_in(record.get("message")).get("content")
    if not isinstance(content, list) or not isinstance(before, list):
        return True
    kept = [
        block
        for block, was in zip(content, before, strict=True)
        if block == was or dict_in(was).get("type") not in _THINKING
    ]
    if isinstance(message, dict):
        message["content"] = kept
    return bool(kept)


def _collecting(
    found: list[str], keys: Collection[str]
) -> tuple[Callable[[str], str], Callable[[list[str]], list[str]]]:
    """What masks a text, and what masks several that are one; lines of known `keys` are secret wherever they are."""

    def change(text: str) -> str:
        new = mask(hidden(text, lines_at(text, keys)))
        if new != text:
            already = len(_MASK.findall(text))
            found.extend(_MASK.findall(new)[already:] or ["secret"])
        return new

    def lines(parts: list[str]) -> list[str]:
        text = "\n".join(parts)
        if change(text) == text:
            return parts
        return [mask(part) for part in hidden_in_parts(parts, spans_of(text))]

    return change, lines


_Change = Callable[[str], str]
_ChangeAll = Callable[[list[str]], list[str]]


def mapped(value: Any, change: _Change, lines: _ChangeAll = list, depth: int = 0) -> Any:
    """The same with every text changed, and those that are one text by `lines`. A text that is JSON stays JSON."""
    if isinstance(value, str):
        return _mapped_text(value, change, lines, depth)
    if depth < DEPTH and isinstance(value, dict):
        return {
            key: part if is_tie(key, part) else mapped(part, change, lines, depth + 1) for key, part in value.items()
        }
    if depth < DEPTH and isinstance(value, list):
        return [mapped(part, change, lines, depth + 1) for part in together(value, lines, is_tie)]
    return value


def _mapped_text(value: str, change: Callable[[str], str], lines: Callable[[list[str]], list[str]], depth: int) -> str:
    new = change(value)
    if new == value or not value.startswith(("{", "[")):
        return new
    try:
        inner = orjson.loads(value)
    except orjson.JSONDecodeError:
        return new
    return orjson.dumps(mapped(inner, change, lines, depth + 1)).decode()
