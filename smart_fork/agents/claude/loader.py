"""Claude Code's sessions as they are cut."""

from __future__ import annotations

from pathlib import Path
from sys import intern
from typing import Any

from indexer.transcripts.model import Role
from smart_fork.agents.claude.codec import ClaudeCodec
from smart_fork.agents.codec import text_of
from smart_fork.cuts import titles, transcript
from smart_fork.cuts.lines import RawLine, first_record, preview, tokens
from smart_fork.cuts.model import Call, Result, Transcript, TranscriptTurn
from smart_fork.cuts.transcript import SeenLine

#: Fields that name another record, and are linked again where it goes.
LINKS = ("parentUuid", "logicalParentUuid", "leafUuid")
#: What a first line has of one; summaries and snapshots of files, which may come first, have the last two.
_MARKS = ("uuid", "sessionId", "parentUuid", "leafUuid", "messageId")
CODEC = ClaudeCodec()
_NOTHING: dict[str, Any] = {}
_TITLES = {"custom-title": "customTitle", "agent-name": "agentName", "ai-title": "aiTitle", "summary": "summary"}


class ClaudeLoader:
    """Reads ``<session-id>.jsonl``; every line is kept, none is sorted."""

    @staticmethod
    def detect(path: Path) -> bool:
        """Whether the first line that is not empty is a record of Claude Code.

        An agent that has taken over its form has parts in its messages, or a payload.
        """
        if path.suffix.lower() != ".jsonl":
            return False
        record = first_record(path)
        message = record.get("message")
        of_another = "systemPayload" in record or (isinstance(message, dict) and "parts" in message)
        return "type" in record and any(key in record for key in _MARKS) and not of_another

    @staticmethod
    def load(path: Path) -> Transcript:
        """The session in `path`.

        Raises:
            NotFound: it is not there.
            OSError: it cannot be read.
        """
        return transcript.load("claude", path, _seen)


def _main(line: RawLine) -> dict[str, Any]:
    """Of several records on one line the one that is conversation."""
    return next((record for record in line.objects if record.get("uuid")), line.objects[0] if line.objects else {})


def _seen(line: RawLine) -> SeenLine:
    record = _main(line)
    turn = _turn(line, record)
    session_id = next((str(one["sessionId"]) for one in line.objects if one.get("sessionId")), "")
    if turn.prompt:
        return SeenLine(turn, session_id, CODEC.decode(record).text, "")
    return SeenLine(turn, session_id, None, _repeated(record))


def _turn(line: RawLine, record: dict[str, Any]) -> TranscriptTurn:
    identity = str(record["uuid"]) if isinstance(record.get("uuid"), str) else ""
    blocks = [block for one in line.objects for block in CODEC.parts(one)]
    calls = tuple(
        Call(intern(str(block.get("id") or "")), intern(str(block.get("name") or "")))
        for block in blocks
        if block.get("type") == "tool_use"
    )
    results = [block for block in blocks if block.get("type") == "tool_result"]
    said = CODEC.decode(record).text
    outputs = [text_of(block.get("content")) for block in results]
    size = len(said) + sum(map(len, outputs)) + sum(_size(block) for block in blocks)
    turn_id = identity or f"line-{line.number}"
    message = record.get("message")
    prompt = _is_prompt(record, said, results)
    return TranscriptTurn(
        id=turn_id,
        parent_id=next((record[name] for name in LINKS if isinstance(record.get(name), str)), None),
        links=tuple(one[name] for one in line.objects for name in LINKS if isinstance(one.get(name), str)),
        role=_role(record, results, said),
        timestamp=str(record.get("timestamp") or ""),
        preview=preview(said or ("" if blocks else _note(record)), [call.name for call in calls], outputs),
        token_est=tokens(size, len(calls)) if isinstance(message, dict) else 0,
        tool_calls=calls,
        tool_results=tuple(Result(intern(str(block.get("tool_use_id") or ""))) for block in results),
        kept=line.place,
        meta={"compacts": True} if record.get("isCompactSummary") is True else _NOTHING,
        aliases=tuple(one["uuid"] for one in line.objects if isinstance(one.get("uuid"), str) and one is not record),
        repeats=_keys_repeated(record) if not isinstance(message, dict) else _thought_for(message, blocks),
        says=(
            f"turn:{turn_id}",
            *(f"call:{call.id}" for call in calls if call.id),
            *_part_of(message, blocks),
            *(titles.made_of(said) if prompt else ()),
        ),
        key=identity,
        prompt=prompt,
    )


def _role(record: dict[str, Any], results: list[dict[str, Any]], said: str) -> Role:
    message = record.get("message")
    kind = (message.get("role") if isinstance(message, dict) else None) or record.get("type")
    if results and not said:
        return "tool"
    return kind if kind in ("user", "assistant") else "system"


def _is_prompt(record: dict[str, Any], said: str, results: list[dict[str, Any]]) -> bool:
    typed = record.get("isMeta") is not True and record.get("isCompactSummary") is not True
    sidechain = record.get("isSidechain") is True
    return record.get("type") == "user" and bool(said.strip()) and not results and typed and not sidechain


def _size(block: dict[str, Any]) -> int:
    """About how long the arguments of a call are."""
    arguments = block.get("input") if block.get("type") == "tool_use" else None
    return len(str(arguments)) if arguments else 0


def _note(record: dict[str, Any]) -> str:
    """What a line of bookkeeping is, for a list."""
    attachment = record.get("attachment")
    kind = attachment.get("type") if isinstance(attachment, dict) else record.get("subtype")
    words = (record.get("type"), kind, record.get("summary"), record.get("content"), record.get("lastPrompt"))
    return " ".join(word for word in words if isinstance(word, str))


def _repeated(record: dict[str, Any]) -> str:
    """The prompt that a line of bookkeeping repeats."""
    attachment = record.get("attachment")
    queued = attachment.get("prompt") if isinstance(attachment, dict) else None
    name = {"queue-operation": "content", "last-prompt": "lastPrompt"}.get(str(record.get("type")), "")
    copy = record.get(name, queued)
    return text_of(copy)


def _thought_for(message: dict[str, Any], blocks: list[dict[str, Any]]) -> tuple[str, ...]:
    """A line of thinking alone belongs to the rest of its answer: without that no model takes it."""
    return () if _part_of(message, blocks) or not message.get("id") else (f"part:{message['id']}",)


def _part_of(message: object, blocks: list[dict[str, Any]]) -> tuple[str, ...]:
    """The answer that a line says something of, and does not only think for."""
    thinking = blocks and all(block.get("type") in CODEC.thoughts for block in blocks)
    known = isinstance(message, dict) and message.get("id")
    return (f"part:{known}",) if known and not thinking else ()


def _keys_repeated(record: dict[str, Any]) -> tuple[str, ...]:
    """Progress of a call, what hooks said of it, what was shown for its result; files before a message; a title."""
    places = [record, record.get("attachment")]
    named = [
        place.get(name) for place in places if isinstance(place, dict) for name in ("toolUseID", "parentToolUseID")
    ]
    keys = [f"call:{one}" for one in named if isinstance(one, str)]
    shown = record.get("replacements")
    named = [one.get("toolUseId") for one in shown if isinstance(one, dict)] if isinstance(shown, list) else []
    keys += [f"call:{one}" for one in named if isinstance(one, str)]
    if isinstance(record.get("messageId"), str):
        keys.append(f"turn:{record['messageId']}")
    name = _TITLES.get(str(record.get("type")))
    return (*keys, *(titles.quoting(record.get(name)) if name else ()))
