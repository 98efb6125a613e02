"""Reads LoCoMo and LongMemEval files: chats, and the questions that are asked of them.

LoCoMo (``locomo10.json``): conversations of two people in dated sessions. LongMemEval (``longmemeval_s*.json``): one
haystack of sessions a question. Both are told apart by their keys, whatever a file is called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

#: The evidence of a LoCoMo question names turns, such as ``D3:12``: session 3, turn 12.
_EVIDENCE = re.compile(r"D(\d+):\d+")
_SESSION = re.compile(r"session_(\d+)")
_KINDS = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
#: How both write a date; the weekday of LongMemEval is left out before.
_DATES = ("%I:%M %p on %d %B, %Y", "%Y/%m/%d %H:%M", "%Y/%m/%d")
_WEEKDAY = re.compile(r"\s*\([A-Za-z]+\)\s*")
_NO_DATE = datetime(2023, 5, 1, 10, tzinfo=UTC)


class Said(NamedTuple):
    """A turn of a chat."""

    role: Literal["user", "assistant"]
    text: str


class Chat(NamedTuple):
    """A session of the data."""

    name: str
    began: datetime
    turns: tuple[Said, ...]


class Asked(NamedTuple):
    """A question, and the names of the sessions that hold its evidence. `abstains` where the data have no answer."""

    name: str
    text: str
    kind: str
    right: frozenset[str]
    abstains: bool = False


class Haystack(NamedTuple):
    """Sessions that are indexed together, and what is asked of them."""

    name: str
    chats: tuple[Chat, ...]
    questions: tuple[Asked, ...]


class Data(NamedTuple):
    """A file in one of the two forms."""

    benchmark: Literal["LoCoMo", "LongMemEval"]
    haystacks: tuple[Haystack, ...]


def read(path: Path) -> Data | None:
    """The data of a file; None if it has neither form."""
    try:
        given = json.loads(path.read_bytes())
    except ValueError:
        return None
    entries = [one for one in _entries(given) if isinstance(one, dict)]
    if stacks := tuple(_longmemeval(one, n) for n, one in enumerate(entries) if "haystack_sessions" in one):
        return Data("LongMemEval", stacks)
    if stacks := tuple(_locomo(one, n) for n, one in enumerate(entries) if _is_dict(one, "conversation")):
        return Data("LoCoMo", stacks)
    return None


def _entries(given: Any) -> Sequence[Any]:
    """The conversations or questions of a file: a list, one of them, or an object that holds the list."""
    if not isinstance(given, dict):
        return given if isinstance(given, list) else []
    if "conversation" in given or "haystack_sessions" in given:
        return [given]
    return next((value for value in given.values() if isinstance(value, list)), list(given.values()))


def _locomo(sample: Mapping[str, Any], number: int) -> Haystack:
    told = sample["conversation"]
    chats = tuple(sorted(_locomo_chats(told), key=lambda chat: int(chat.name)))
    questions = tuple(_locomo_questions(sample.get("qa")))
    return Haystack(_text(sample.get("sample_id")) or f"conversation {number}", chats, questions)


def _locomo_chats(told: Mapping[str, Any]) -> Iterator[Chat]:
    """The sessions of a conversation: the first speaker is the user, the other one the assistant."""
    first = _text(told.get("speaker_a"))
    for key, turns in told.items():
        if not (match := _SESSION.fullmatch(key)) or not isinstance(turns, list):
            continue
        said = []
        for turn in turns:
            if not isinstance(turn, dict) or not (text := _text(turn.get("text"))):
                continue
            speaker = _text(turn.get("speaker"))
            first = first or speaker
            said.append(Said("user" if speaker == first else "assistant", f"{speaker}: {text}" if speaker else text))
        if said:
            yield Chat(match[1], _date(told.get(f"{key}_date_time")), tuple(said))


def _locomo_questions(given: Any) -> Iterator[Asked]:
    for number, one in enumerate(given if isinstance(given, list) else []):
        if not isinstance(one, dict) or not (text := _text(one.get("question"))):
            continue
        if right := frozenset(str(int(name)) for name in _EVIDENCE.findall(str(one.get("evidence")))):
            kind = _text(one.get("category"))
            yield Asked(str(number), text, _KINDS.get(kind, kind or "other"), right)


def _longmemeval(one: Mapping[str, Any], number: int) -> Haystack:
    name = _text(one.get("question_id")) or f"question {number}"
    sessions, names = _list(one.get("haystack_sessions")), _list(one.get("haystack_session_ids"))
    dates = _list(one.get("haystack_dates"))
    chats = []
    for place, turns in enumerate(sessions):
        said = [_turn(turn) for turn in _list(turns) if isinstance(turn, dict) and _text(turn.get("content"))]
        if said:
            chat = _text(names[place]) if place < len(names) else f"session {place}"
            chats.append(Chat(chat, _date(dates[place] if place < len(dates) else None), tuple(said)))
    right = frozenset(map(_text, _list(one.get("answer_session_ids"))))
    text, kind = _text(one.get("question")), _text(one.get("question_type")) or "other"
    asked = (Asked(name, text, kind, right, name.endswith("_abs")),) if text and right else ()
    return Haystack(name, tuple(chats), asked)


def _turn(turn: Mapping[str, Any]) -> Said:
    return Said("assistant" if turn.get("role") == "assistant" else "user", _text(turn["content"]))


def _date(given: Any) -> datetime:
    text = _WEEKDAY.sub(" ", _text(given))
    for form in _DATES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return _NO_DATE


def _is_dict(one: Mapping[str, Any], key: str) -> bool:
    return isinstance(one.get(key), dict)


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _text(given: Any) -> str:
    """Text without surrounding space; a number as its digits, everything else as none."""
    return str(given).strip() if isinstance(given, str | int) else ""
