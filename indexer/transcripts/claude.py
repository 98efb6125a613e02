"""Claude Code: ``<home>/projects/<slug>/<session-id>.jsonl``, one record a line, linked by ``parentUuid``."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from sys import intern
from typing import Any, Literal

from indexer.paths import claude_home
from indexer.transcripts.actions import describe, error_note, is_ours, runs_ours
from indexer.transcripts.base import Checkpoint, LogFile, ReadResult
from indexer.transcripts.boilerplate import strip_boilerplate
from indexer.transcripts.chain import Chain
from indexer.transcripts.files import regular_file, regular_files
from indexer.transcripts.lines import Line, changed_at, first_lines, probe, resume
from indexer.transcripts.model import Agent, Origin, Session, ToolCall, ToolResult, Turn, estimate_tokens, shorten
from indexer.transcripts.state import count, is_path, pack, utc
from indexer.transcripts.symbols import Symbols

TITLE_CHARACTERS = 100
#: Different working directories remembered a session.
MAX_CWDS = 50
_SLUG_CHARACTERS = 200
_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
#: Records that name the session, and the field that has the name.
_TITLES = {"custom-title": "customTitle", "agent-name": "agentName", "ai-title": "aiTitle"}


class ClaudeAdapter:
    """Reads Claude Code's sessions; versions 1.0 to 2.1 seen."""

    name: Agent = "claude"

    def home(self) -> Path:
        return claude_home()

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return ((self.home() / "projects", 1),)

    def discover(self) -> Iterator[LogFile]:
        return self._logs(".jsonl")

    def log_at(self, location: str) -> LogFile | None:
        file = regular_file(location, self.name, self.folders())
        return file if file and _is_session(location, str(self.home() / "projects")) else None

    def locate(self, session_id: str) -> tuple[Path, ...]:
        found = [file for file in self._logs(f"{session_id}.jsonl") if file.path.stem == session_id]
        return tuple(file.path for file in sorted(found, key=lambda file: file.mtime_ns, reverse=True))

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        reader, kept = resume(path, None if keep_raw else checkpoint)
        fold = _Fold(path, kept, keep_raw=keep_raw)
        for line in reader:
            fold.feed(line)
        state = fold.pack() if reader.worth_resuming and not keep_raw else b""
        after = Checkpoint(reader.offset, reader.lines, probe(path, reader.offset), state)
        session, skipped = fold.session()
        return ReadResult(session, skipped, after, tuple(reader.broken), reader.bytes_read, kept is not None)

    def id_of(self, path: Path) -> str:
        return path.stem

    def glance(self, path: Path) -> Session | None:
        fold = _Fold(path, None, keep_raw=False)
        for line in first_lines(path):
            fold.feed(line)
        session, _ = fold.session()
        return replace(session, last_activity=changed_at(path)) if session else None

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        return ("claude", "--resume", session_id)

    def _logs(self, suffix: str) -> Iterator[LogFile]:
        projects = str(self.home() / "projects")
        for file in regular_files(projects, self.name, suffix, depth=1):
            if _is_session(file.location, projects):
                yield file


def _is_session(location: str, projects: str) -> bool:
    """Whether a file is in a folder of its own project, and no sub-agent's."""
    folder, _, name = location.rpartition("/")
    return not name.startswith("agent-") and folder != projects


def slug(path: str) -> str:
    """The folder name that Claude Code gives a working directory (F-170, F-171). Lossy: never decode it (F-172)."""
    resolved = unicodedata.normalize("NFC", os.path.realpath(path))
    units = resolved.encode("utf-16-be", "surrogatepass")
    pairs = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
    name = "".join(chr(u) if u < 128 and chr(u).isalnum() else "-" for u in pairs)
    if len(name) <= _SLUG_CHARACTERS:
        return name
    number = 0
    for unit in pairs:
        number = (number * 31 + unit) & 0xFFFFFFFF
    signed = number - (1 << 32) if number & 0x80000000 else number
    return f"{name[:_SLUG_CHARACTERS]}-{_base36(abs(signed))}"


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
        if not number:
            return digits


class _Fold:
    """What the records of one file add up to. Fed line by line; `state` can be kept and gone on with."""

    def __init__(self, path: Path, kept: tuple[dict[str, Any], list[Turn]] | None, *, keep_raw: bool) -> None:
        self.path = path
        self.keep_raw = keep_raw
        self._place: tuple[object, ...] = ()
        self._moment = ""
        self.facts, turns = kept or ({}, [])
        self.chain = Chain(turns, self.facts.pop("links", None))
        self.symbols = Symbols(self.facts.pop("symbols", ()))
        self.ours: set[str] = set(self.facts.pop("ours", ()))

    def pack(self) -> bytes:
        parts = {"links": self.chain.links, "symbols": list(self.symbols), "ours": sorted(self.ours)}
        return pack(self.facts | parts, list(self.chain.turns))

    def feed(self, line: Line) -> None:
        record = line.record
        kind = record.get("type")
        self._note_facts(kind, record)
        identity = record.get("uuid")
        if not isinstance(identity, str) or not identity:
            return
        if record.get("isSidechain") is True:
            self.facts["sidechain"] = True
            return
        identity = intern(identity)
        turn = self._turn(kind, record, identity, line)
        if turn is None:
            self.chain.link(identity, parent_of(record))
        else:
            self.chain.add(turn)

    def _note_facts(self, kind: object, record: dict[str, Any]) -> None:
        facts = self.facts
        get = record.get
        place = (get("cwd"), get("sessionId"), get("gitBranch"), get("version"), get("teamName"))
        if place != self._place:  # nearly all records say the same again
            self._place = place
            self._note_place(*place)
        self._moment = moment = utc(get("timestamp"))
        if moment:
            if moment < facts.setdefault("started", moment):
                facts["started"] = moment
            if moment > facts.setdefault("last", moment):
                facts["last"] = moment
        forked = record.get("forkedFrom")
        if "parent" not in facts and isinstance(forked, dict) and isinstance(forked.get("sessionId"), str):
            facts["parent"] = forked["sessionId"]
        title = _TITLES.get(kind) if isinstance(kind, str) else None
        if title and isinstance(record.get(title), str):
            facts[title] = record[title].strip()
        elif kind == "summary" and isinstance(record.get("summary"), str):
            # Old versions put summaries of *other* sessions at the head of a file: the leaf tells whose it is.
            facts.setdefault("summaries", {})[str(record.get("leafUuid"))] = record["summary"]

    def _note_place(self, cwd: object, session_id: object, *named: object) -> None:
        facts = self.facts
        if is_path(cwd) and cwd not in (known := facts.setdefault("cwds", [])) and len(known) < MAX_CWDS:
            known.append(cwd)
        if isinstance(session_id, str):
            facts.setdefault("first_session_id", session_id)
        for key, value in zip(("gitBranch", "version", "teamName"), named, strict=True):
            if isinstance(value, str) and value:
                facts[key] = value

    def _turn(self, kind: object, record: dict[str, Any], identity: str, line: Line) -> Turn | None:
        message = record.get("message")
        if kind == "assistant" and isinstance(message, dict):
            text, calls = self._assistant(message)
            group, loaded = str(message.get("id") or ""), loaded_after(message)
            return self._make(record, identity, line, "assistant", text, calls=calls, group=group, loaded=loaded)
        if kind == "user" and isinstance(message, dict):
            return self._user(record, message, identity, line)
        if kind == "attachment" and isinstance(record.get("attachment"), dict):
            attachment = record["attachment"]
            if attachment.get("type") == "queued_command":  # typed by the person while the agent worked
                text = strip_boilerplate(_text(attachment.get("prompt")))
                return self._make(record, identity, line, "user", text, prompt=bool(text))
        if kind == "system" and record.get("subtype") == "compact_boundary":
            self.facts["compactions"] = self.facts.get("compactions", 0) + 1
        return None

    def _user(self, record: dict[str, Any], message: dict[str, Any], identity: str, line: Line) -> Turn:
        content = message.get("content")
        results = self._results(content)
        if record.get("isMeta") is True or record.get("isCompactSummary") is True:
            left = estimate_tokens(_text(content)) if record.get("isCompactSummary") is True else 0
            return self._make(record, identity, line, "system", "", results=results, loaded=left)
        text = strip_boilerplate(_text(content))
        prompt = bool(text) and not results
        if prompt and (by := _typed_by(record)):
            self.facts[by] = True
        role = "tool" if results and not text else "user"
        return self._make(record, identity, line, role, text, results=results, prompt=prompt)

    def _make(
        self, record: dict[str, Any], identity: str, line: Line, role: Any, text: str, *,
        calls: tuple[ToolCall, ...] = (), results: tuple[ToolResult, ...] = (), prompt: bool = False, group: str = "",
        loaded: int = 0,
    ) -> Turn:  # fmt: skip
        return Turn(
            id=identity, parent_id=parent_of(record), role=role,
            timestamp=self._moment, text=text, token_est=estimate_tokens(text, len(calls)),
            tool_calls=calls, tool_results=results, prompt=prompt, group=intern(group),
            raw=line.raw if self.keep_raw else b"", loaded=loaded,
        )  # fmt: skip

    def _assistant(self, message: dict[str, Any]) -> tuple[str, tuple[ToolCall, ...]]:
        content = message.get("content")
        calls = []
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict) or block.get("type") != "tool_use":
                continue
            identity, name, arguments = (
                intern(str(block.get("id") or "")),
                intern(str(block.get("name") or "")),
                block.get("input"),
            )
            action = describe(name, arguments) if isinstance(arguments, dict) else ""
            if is_ours(name) or runs_ours(arguments):
                self.ours.add(identity)
            elif action:
                self.symbols.add_all(arguments)
            calls.append(ToolCall(identity, name, action))
        text = "" if message.get("model") == "<synthetic>" else _text(content).strip()
        return text, tuple(calls)

    def _results(self, content: object) -> tuple[ToolResult, ...]:
        results = []
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                continue
            identity, failed, note = intern(str(block.get("tool_use_id") or "")), block.get("is_error") is True, ""
            if identity not in self.ours:
                output = _text(block.get("content"))
                self.symbols.add(output)
                note = error_note(output) if failed else ""
            results.append(ToolResult(identity, failed, note))
        return tuple(results)

    def session(self) -> tuple[Session | None, str]:
        facts = self.facts
        turns = self.chain.active()
        if not turns:
            return None, "only sub-agent records" if facts.get("sidechain") else "no conversation"
        if not any(turn.prompt for turn in turns):
            return None, "nobody asked anything"
        stem = self.path.stem
        return Session(
            agent="claude",
            session_id=stem if len(stem) >= 32 or "first_session_id" not in facts else facts["first_session_id"],
            source_path=self.path,
            turns=turns,
            cwd=self._cwd(),
            git_branch=facts.get("gitBranch", ""),
            title=self._title(turns),
            version=facts.get("version", ""),
            started=facts.get("started", ""),
            last_activity=facts.get("last", ""),
            origin=self._origin(),
            parent_id=facts.get("parent"),
            root_id=turns[0].id,
            compactions=facts.get("compactions", 0),
            symbols=tuple(self.symbols),
        ), ""

    def _cwd(self) -> str:
        """Where the session was started (F-150).

        The records' ``cwd`` drifts, and a fork's begin with its parent's: the folder's name, which cannot be decoded,
        tells which of them it is; failing that the first.
        """
        known = self.facts.get("cwds", [])
        own = next((cwd for cwd in known if slug(cwd) == self.path.parent.name), None)
        return own or (known[0] if known else _unslugged(self.path.parent.name))

    def _title(self, turns: tuple[Turn, ...]) -> str:
        facts = self.facts
        own = next((facts["summaries"][t.id] for t in reversed(turns) if t.id in facts.get("summaries", {})), "")
        given = facts.get("customTitle") or facts.get("agentName") or facts.get("aiTitle") or own
        return shorten(given or next(turn.text for turn in turns if turn.prompt), TITLE_CHARACTERS)

    def _origin(self) -> Origin:
        """Several signs, since each alone has been wrong: a team's name, who typed the prompts, a name given to it."""
        facts = self.facts
        if facts.get("teamName"):
            return "subagent"
        if facts.get("by_program") and not facts.get("by_hand") and not facts.get("customTitle"):
            return "automated"
        return "person"


def parent_of(record: dict[str, Any]) -> str | None:
    """The record before this one: after a compaction only the logical parent leads on to what was before."""
    parent = record.get("parentUuid") or record.get("logicalParentUuid")
    return intern(parent) if isinstance(parent, str) else None


def _typed_by(record: dict[str, Any]) -> Literal["by_hand", "by_program", ""]:
    """Who wrote this prompt; empty where the agent itself sent it.

    Copies in a fork keep these signs, while ``entrypoint`` becomes the fork's own.
    """
    source, origin = record.get("promptSource"), record.get("origin")
    if isinstance(origin, dict) and origin.get("kind") == "human":
        return "by_hand"
    if source == "system":
        return ""
    if isinstance(source, str):
        return "by_program" if source == "sdk" else "by_hand"
    return "by_program" if str(record.get("entrypoint") or "").startswith("sdk") else "by_hand"


def loaded_after(message: dict[str, Any]) -> int:
    """What the model had in its context when it had said this."""
    usage = message.get("usage")
    if not isinstance(usage, dict) or message.get("model") == "<synthetic>":
        return 0
    return sum(map(count, map(usage.get, _USAGE)))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"]
        return "\n\n".join(part for part in parts if isinstance(part, str))
    return ""


def _unslugged(name: str) -> str:
    """A slug taken back to a path, where that folder exists (F-150): the last resort for a log without any ``cwd``."""
    guess = name.replace("-", "/")
    return guess if guess.startswith("/") and Path(guess).is_dir() else ""
