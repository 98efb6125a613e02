"""Removal of turns from Claude Code's logs: links between records, records that repeat others, files beside a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from indexer.json_values import dict_in, dicts_in
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import GivenBack, Role
from smart_fork.agents import AGENTS
from smart_fork.agents.claude import HOME
from smart_fork.agents.claude.session_reader import CODEC, is_request
from smart_fork.agents.decoders import Record, text_of
from smart_fork.agents.excision import titles
from smart_fork.agents.excision.transcript import TranscriptTurn
from smart_fork.agents.tree_cutter import COMPACTS, NOTHING, PLAIN, RecordFacts, TreeCutter, files_below
from smart_fork.errors import NotFound

#: The fields that show a first line of Claude Code. Summaries and file snapshots, which may come first, have the last
#: two.
_MARKS = ("uuid", "sessionId", "parentUuid", "leafUuid", "messageId")
#: A message with one of these was not typed by a person.
_NOT_TYPED = ("isMeta", "isCompactSummary", "isSidechain")
_TITLES = {"custom-title": "customTitle", "agent-name": "agentName", "ai-title": "aiTitle", "summary": "summary"}


def _keys_repeated(record: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys of the calls, message or prompt that a bookkeeping record repeats: it is removed with them."""
    places = (record, dict_in(record.get("attachment")))
    named = [place.get(name) for place in places for name in ("toolUseID", "parentToolUseID")]
    named += [one.get("toolUseId") for one in dicts_in(record.get("replacements"))]
    keys = [f"call:{one}" for one in named if isinstance(one, str)]
    if isinstance(record.get("messageId"), str):
        keys.append(f"turn:{record['messageId']}")
    name = _TITLES.get(str(record.get("type")))
    return (*keys, *(titles.mark_of_title(record.get(name)) if name else ()))


def discover_newest_claude() -> Path:
    """Return the path of Claude Code's newest log, of all projects.

    Raises:
        NotFound: No project has a session.
    """
    if log := AGENTS["claude"].reader.newest_log():
        return log
    raise NotFound(f"no .jsonl session files under {HOME.folder() / 'projects'}", "Give a path or a session's id.")


class ClaudeCutter(TreeCutter):
    """Loads Claude Code's logs, ``<session-id>.jsonl``, so that turns can be removed."""

    codec = CODEC
    links = ("parentUuid", "logicalParentUuid", "leafUuid")

    def begins(self, record: Record) -> bool:
        """Return True if `record` can begin a log of Claude Code.

        In similar formats of other agents, messages have a field ``parts``, or records have ``systemPayload``.
        """
        of_another = "systemPayload" in record or "parts" in dict_in(record.get("message"))
        return "type" in record and any(key in record for key in _MARKS) and not of_another

    def may_be_copied(self, turn: TranscriptTurn) -> bool:
        return turn.prompt

    def role(self, record: Record, said: str, results: Sequence[GivenBack]) -> Role:
        message = None if is_request(record) else record.get("message")
        kind = (message.get("role") if isinstance(message, dict) else None) or record.get("type")
        if results and not said:
            return "tool"
        return kind if kind in ("user", "assistant") else "system"

    def is_typed(self, record: Record) -> bool:
        return record.get("type") == "user" and not any(record.get(one) is True for one in _NOT_TYPED)

    def about(self, record: Record) -> RecordFacts:
        attachment, message, parts = record.get("attachment"), record.get("message"), CODEC.parts(record)
        kind = attachment.get("type") if isinstance(attachment, dict) else record.get("subtype")
        words = (record.get("type"), kind, record.get("summary"), record.get("content"), record.get("lastPrompt"))
        only_thoughts = bool(parts) and all(part.get("type") in CODEC.thoughts for part in parts)
        answer = (f"part:{message['id']}",) if isinstance(message, dict) and message.get("id") else ()
        if is_request(record):
            repeats: tuple[str, ...] = (TranscriptTurn.ANY,)
        elif isinstance(message, dict):
            repeats = answer if only_thoughts else ()  # thoughts are removed with their answer
        else:
            repeats = _keys_repeated(record)
        return RecordFacts(
            "" if parts else " ".join(word for word in words if isinstance(word, str)),
            COMPACTS if record.get("isCompactSummary") is True else NOTHING,
            () if only_thoughts else answer,
            repeats,
        )

    def copied(self, record: Record) -> str:
        """Return the prompt that a record about waiting prompts or the last prompt repeats; empty for other records."""
        queued = dict_in(record.get("attachment")).get("prompt")
        name = {"queue-operation": "content", "last-prompt": "lastPrompt"}.get(str(record.get("type")), "")
        return text_of(record.get(name, queued))

    def public(self) -> Mapping[str, object]:
        return {"ClaudeLoader": self, "discover_newest_claude": discover_newest_claude}

    def is_said(self, turn: TranscriptTurn) -> bool:
        return bool(turn.key)

    def pieces(self, line: bytes) -> list[bytes]:
        """Return a list with this line of a snapshot; empty for a logged request to the model, which repeats others."""
        requests = b'"api-request' in line and any(is_request(record) for _, record in decode_line(line)[0])
        return [] if requests else [line]

    def files_of(self, path: Path) -> list[Path]:
        return files_below(path.with_suffix(""))

    def stores(self, session_id: str) -> list[Path]:
        found = (home / "file-history" / session_id for home in HOME.folders())
        return [folder for folder in found if folder.is_dir()]

    def apart(self) -> list[Path]:
        """Return the settings file ``~/.claude.json``, in which old versions of Claude Code kept a person's prompts."""
        return [Path.home() / ".claude.json"]

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Return the files of the `removed` turns' tool calls: long results, and logs of sub-agents."""
        folder = path.with_suffix("")
        if not folder.is_dir():
            return []
        calls = {call.id for turn in removed for call in turn.tool_calls}
        calls |= {result.tool_use_id for turn in removed for result in turn.tool_results}
        found = [folder / "tool-results" / f"{call}.txt" for call in sorted(calls) if PLAIN.fullmatch(call)]
        for agent in sorted({agent for turn in removed if turn.tool_results for agent in _agents_of(turn)}):
            found += [folder / "subagents" / f"agent-{agent}{ending}" for ending in (".jsonl", ".meta.json")]
        return [path for path in found if path.is_file()]


def _agents_of(turn: TranscriptTurn) -> Iterator[str]:
    """Yield the names of the sub-agents that gave the tool results of a turn."""
    for _, record in decode_line(turn.raw)[0]:
        name = dict_in(record.get("toolUseResult")).get("agentId")
        if isinstance(name, str) and PLAIN.fullmatch(name):
            yield name
