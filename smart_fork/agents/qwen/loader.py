"""Qwen Code's sessions as they are cut."""

from __future__ import annotations

from pathlib import Path
from sys import intern
from typing import Any

from indexer.transcripts.model import Role
from smart_fork.agents.qwen.codec import output_of, parts_of, text_of
from smart_fork.agents.qwen.fold import is_typed, typed_in
from smart_fork.cuts import titles, transcript
from smart_fork.cuts.lines import RawLine, first_record, preview, tokens
from smart_fork.cuts.model import Call, Result, Transcript, TranscriptTurn
from smart_fork.cuts.transcript import SeenLine

#: Fields that name another record, and are linked again where it goes.
LINKS = ("parentUuid",)
_NOTHING: dict[str, Any] = {}
_ROLES: dict[object, Role] = {"user": "user", "assistant": "assistant", "tool_result": "tool"}


class QwenLoader:
    """Reads ``<session-id>.jsonl``; every line is kept, none is sorted."""

    @staticmethod
    def detect(path: Path) -> bool:
        """Whether the first line that is not empty is a record of Qwen Code.

        Others link their records as well, but have no messages of ``parts``, and no payload of the system.
        """
        if path.suffix.lower() != ".jsonl":
            return False
        record = first_record(path)
        message = record.get("message")
        of_parts = isinstance(message, dict) and isinstance(message.get("parts"), list)
        return "uuid" in record and "parentUuid" in record and (of_parts or "systemPayload" in record)

    @staticmethod
    def load(path: Path) -> Transcript:
        """The session in `path`.

        Raises:
            NotFound: it is not there.
            OSError: it cannot be read.
        """
        return transcript.load("qwen", path, _seen)


def _seen(line: RawLine) -> SeenLine:
    record = next((one for one in line.objects if one.get("uuid")), {})
    turn = _turn(line, record)
    session_id = str(record.get("sessionId") or "")
    if turn.role == "assistant" or turn.prompt:
        return SeenLine(turn, session_id, _said(record), "")
    return SeenLine(turn, session_id, None, _repeated(record))


def _turn(line: RawLine, record: dict[str, Any]) -> TranscriptTurn:
    identity = str(record["uuid"]) if isinstance(record.get("uuid"), str) else ""
    parts = [part for one in line.objects for part in parts_of(one.get("message"))]
    made = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
    answers = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
    calls = tuple(Call(intern(str(call.get("id") or "")), intern(str(call.get("name") or ""))) for call in made)
    said, outputs = _said(record), [output_of(answer)[0] for answer in answers]
    size = len(said) + sum(map(len, outputs)) + sum(len(str(call.get("args") or "")) for call in made)
    turn_id = identity or f"line-{line.number}"
    role = _ROLES.get(str(record.get("type")), "system")
    prompt = role == "user" and is_typed(record) and record.get("isSidechain") is not True and bool(said.strip())
    return TranscriptTurn(
        id=turn_id,
        parent_id=record["parentUuid"] if isinstance(record.get("parentUuid"), str) else None,
        links=tuple(one[name] for one in line.objects for name in LINKS if isinstance(one.get(name), str)),
        role=role,
        timestamp=str(record.get("timestamp") or ""),
        preview=preview(said or ("" if parts else _note(record)), [call.name for call in calls], outputs),
        token_est=tokens(size, len(calls)) if role != "system" else 0,
        tool_calls=calls,
        tool_results=tuple(Result(intern(str(answer.get("id") or ""))) for answer in answers),
        kept=line.place,
        meta={"compacts": True} if record.get("subtype") == "chat_compression" else _NOTHING,
        aliases=tuple(one["uuid"] for one in line.objects if isinstance(one.get("uuid"), str) and one is not record),
        repeats=(*_calls_repeated(record), *titles.quoting(_payload(record).get("customTitle"))),
        says=(
            f"turn:{turn_id}",
            *(f"call:{call.id}" for call in calls if call.id),
            *(titles.made_of(said) if prompt else ()),
        ),
        key=identity,
        prompt=prompt,
    )


def _said(record: dict[str, Any]) -> str:
    said = text_of(parts_of(record.get("message")))
    return typed_in(record, said) if record.get("type") == "user" else said


def _payload(record: dict[str, Any]) -> dict[str, Any]:
    payload = record.get("systemPayload")
    return payload if isinstance(payload, dict) else {}


def _event(record: dict[str, Any]) -> dict[str, Any]:
    event = _payload(record).get("uiEvent")
    return event if isinstance(event, dict) else {}


def _note(record: dict[str, Any]) -> str:
    """What a line of bookkeeping is, for a list."""
    payload = _payload(record)
    words = (
        record.get("subtype"),
        _event(record).get("event.name"),
        payload.get("rawCommand"),
        payload.get("customTitle"),
    )
    return " ".join(word for word in words if isinstance(word, str))


def _repeated(record: dict[str, Any]) -> str:
    """The answer that a line of telemetry repeats."""
    said = _event(record).get("response_text")
    return said if isinstance(said, str) else ""


def _calls_repeated(record: dict[str, Any]) -> tuple[str, ...]:
    """The call that a line of telemetry repeats, with what came back."""
    call = _event(record).get("call_id")
    return (f"call:{call}",) if isinstance(call, str) else ()
