"""What the records of one of Claude Code's sessions add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from sys import intern
from typing import Any, Literal

from indexer.masking import NOTHING, Masked, mask
from indexer.transcripts.actions import describe, edited_by, error_note
from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.boilerplate import INTERRUPTED, strip_boilerplate, strip_recall
from indexer.transcripts.chain import Chain
from indexer.transcripts.commands import command_of
from indexer.transcripts.deeds import Deeds
from indexer.transcripts.lines import Line, changed_at, first_lines, last_records, probe, resume
from indexer.transcripts.model import Origin, Proof, Session, ToolCall, ToolResult, Turn, estimate_tokens
from indexer.transcripts.ours import is_ours, opens_a_session, runs_ours
from indexer.transcripts.state import count, is_path, pack, utc
from indexer.transcripts.symbols import Symbols
from indexer.transcripts.titles import also_called, title_of, with_name
from smart_fork.agents.claude.slugs import slug, unslugged

#: Different working directories remembered a session.
MAX_CWDS = 50
#: A file whose name is shorter is not named after its session.
_ID_CHARACTERS = 32
_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
#: Records that name the session, and the field that has the name.
_TITLES = {"custom-title": "customTitle", "agent-name": "agentName", "ai-title": "aiTitle"}
_NAMING = (*(f'"{kind}"'.encode() for kind in _TITLES), b'"summary"')


def read(path: Path, checkpoint: Checkpoint | None, *, keep_raw: bool) -> ReadResult:
    """See `AgentAdapter.read`."""
    reader, kept = resume(path, None if keep_raw else checkpoint)
    fold = _Fold(path, kept, keep_raw=keep_raw)
    for line in reader:
        fold.feed(line)
    state = fold.pack() if reader.worth_resuming and not keep_raw else b""
    after = Checkpoint(reader.offset, reader.lines, probe(path, reader.offset), state)
    session, skipped = fold.session()
    return ReadResult(session, skipped, after, tuple(reader.broken), reader.bytes_read, kept is not None)


def is_copy(path: Path) -> bool:
    """See `AgentAdapter.is_copy`."""
    fold = _Fold(path, None, keep_raw=False)
    for line in first_lines(path):
        fold.feed(line)
        if "cwds" in fold.facts:
            break
    return fold.is_copy()


def glance(path: Path) -> Session | None:
    """See `AgentAdapter.glance`."""
    fold = _Fold(path, None, keep_raw=False)
    for line in first_lines(path):
        fold.feed(line)
    for record in last_records(path, _NAMING):
        fold.note_title(record)
    session, _ = fold.session()
    return replace(session, last_activity=changed_at(path)) if session else None


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
        self.deeds = Deeds(self.facts.pop("deeds", None))

    def pack(self) -> bytes:
        parts = {"links": self.chain.links, "symbols": list(self.symbols), "ours": sorted(self.ours)}
        parts["deeds"] = self.deeds.kept()
        return pack(self.facts | parts, list(self.chain.turns))

    def feed(self, line: Line) -> None:
        record = line.record
        kind = record.get("type")
        self._note_facts(record)
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

    def _note_facts(self, record: dict[str, Any]) -> None:
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
        self.note_title(record)

    def note_title(self, record: dict[str, Any]) -> None:
        """What a record says that the session is called, if it does."""
        facts, kind = self.facts, record.get("type")
        title = _TITLES.get(kind) if isinstance(kind, str) else None
        if title and isinstance(record.get(title), str) and self._is_own(record):
            facts[title] = name = record[title].strip()
            facts["names"] = with_name(facts.get("names", ()), name)
        elif kind == "summary" and isinstance(record.get("summary"), str):
            # Old versions put summaries of *other* sessions at the head of a file: the leaf tells whose it is.
            facts.setdefault("summaries", {})[str(record.get("leafUuid"))] = record["summary"]

    def _is_own(self, record: dict[str, Any]) -> bool:
        """Whether a title is this session's: a copy has those of the session that it was copied from as well."""
        named, stem = record.get("sessionId"), self.path.stem
        return not isinstance(named, str) or len(stem) < _ID_CHARACTERS or named == stem

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
            if attachment.get("type") == "queued_command" and not _is_of_a_machine(attachment):  # typed meanwhile
                text = strip_boilerplate(_text(attachment.get("prompt")))
                return self._make(record, identity, line, "user", text, prompt=bool(text))
        if kind == "system" and record.get("subtype") == "compact_boundary":
            self.facts["compactions"] = self.facts.get("compactions", 0) + 1
        return None

    def _user(self, record: dict[str, Any], message: dict[str, Any], identity: str, line: Line) -> Turn:
        content = message.get("content")
        results = self._results(content)
        if record.get("isMeta") is True or record.get("isCompactSummary") is True or _is_of_a_machine(record):
            left = estimate_tokens(_text(content)) if record.get("isCompactSummary") is True else 0
            return self._make(record, identity, line, "system", "", results=results, loaded=left)
        said = _text(content)
        if said.startswith(INTERRUPTED):
            self.facts["interrupted"] = identity
        text = strip_boilerplate(said)
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
            action = describe(name, arguments) if isinstance(arguments, dict) else NOTHING
            ours = is_ours(name) or runs_ours(arguments)
            if ours or opens_a_session(action):
                self.ours.add(identity)
            elif action:
                self.symbols.add_all(arguments)
            edits = edited_by(name, arguments) if isinstance(arguments, dict) else ()
            if name == "Bash" and not ours and isinstance(arguments, dict):
                self.deeds.begin(identity, command_of(arguments))
            calls.append(ToolCall(identity, name, action, ours, edits))
        text = "" if message.get("model") == "<synthetic>" else strip_recall(_text(content))
        return text, tuple(calls)

    def _results(self, content: object) -> tuple[ToolResult, ...]:
        results = []
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                continue
            identity, failed = intern(str(block.get("tool_use_id") or "")), block.get("is_error") is True
            note, proof = NOTHING, Proof.NOTHING
            if identity not in self.ours:
                output = _text(block.get("content"))
                self.symbols.add(output)
                note = error_note(output) if failed else NOTHING
                proof = self.deeds.end(identity, output, said=not failed)
            results.append(ToolResult(identity, failed, note, proof))
        return tuple(results)

    def session(self) -> tuple[Session | None, str]:
        facts = self.facts
        turns = self.chain.active()
        if not turns:
            return None, "only sub-agent records" if facts.get("sidechain") else "no conversation"
        if not any(turn.prompt for turn in turns):
            return None, "nobody asked anything"
        cwd, title = self._cwd(), self._title(turns)
        return Session(
            agent="claude",
            session_id=self._session_id(),
            source_path=self.path,
            turns=turns,
            cwd=cwd,
            git_branch=mask(facts.get("gitBranch", "")),
            title=title,
            also_called=also_called(title, self._names(turns)),
            version=facts.get("version", ""),
            started=facts.get("started", ""),
            last_activity=facts.get("last", ""),
            origin=self._origin(),
            parent_id=facts.get("parent"),
            root_id=turns[0].id,
            compactions=facts.get("compactions", 0),
            symbols=tuple(self.symbols),
            copied=self.is_copy(),
            named=bool(facts.get("customTitle") or facts.get("agentName")),
            circular=self.chain.circular,
            interrupted=_is_last(self.facts.get("interrupted"), turns),
            inferred_from="folder" if not facts.get("cwds") and cwd else "",
        ), ""

    def is_copy(self) -> bool:
        """Whether the directory of its first record has another folder, or the session another name than the file.

        Claude Code goes on writing where a session began, however its directory drifts; its forks say of all that they
        copy that it was in their own.
        """
        first: str = next(iter(self.facts.get("cwds", ())), "")
        return self._session_id() != self.path.stem or (first != "" and slug(first) != self.path.parent.name)

    def _session_id(self) -> str:
        stem = self.path.stem
        return stem if len(stem) >= _ID_CHARACTERS else str(self.facts.get("first_session_id", stem))

    def _cwd(self) -> str:
        """Where the session was started (F-150).

        The records' ``cwd`` drifts, and a fork's begin with its parent's: the folder's name, which cannot be decoded,
        tells which of them it is; failing that the first.
        """
        known = self.facts.get("cwds", [])
        own = next((cwd for cwd in known if slug(cwd) == self.path.parent.name), None)
        return own or (known[0] if known else unslugged(self.path.parent.name))

    def _title(self, turns: tuple[Turn, ...]) -> Masked:
        facts = self.facts
        by_agent = facts.get("aiTitle") or self._summary(turns)
        named = facts.get("customTitle") or facts.get("agentName") or ""
        return title_of(named, (turn.text for turn in turns if turn.prompt), by_agent=by_agent)

    def _names(self, turns: tuple[Turn, ...]) -> Iterator[str]:
        """All that it is or was called, also by summaries of what has been gone on from."""
        summaries = self.facts.get("summaries", {})
        yield from (str(summaries[turn.id]) for turn in turns if summaries and turn.id in summaries)
        yield from self.facts.get("names", ())

    def _summary(self, turns: tuple[Turn, ...]) -> str:
        """The summary of what is said last: one of an earlier leaf does not know what was asked since."""
        summaries = self.facts.get("summaries", {})
        for turn in reversed(turns) if summaries else ():
            if turn.id in summaries:
                return str(summaries[turn.id])
            if turn.prompt:
                break
        return ""

    def _origin(self) -> Origin:
        """Several signs, since each alone has been wrong: a team's name, who typed the prompts, a name given to it."""
        facts = self.facts
        if facts.get("teamName"):
            return "subagent"
        if facts.get("by_program") and not facts.get("by_hand") and not facts.get("customTitle"):
            return "automated"
        return "person"


def _is_last(interruption: object, turns: tuple[Turn, ...]) -> bool:
    """Whether the record of this id is there, and nothing was said or done after it."""
    after = takewhile(lambda turn: not turn.speaks, reversed(turns))
    return any(turn.id == interruption for turn in after)


def parent_of(record: dict[str, Any]) -> str | None:
    """The record before this one: after a compaction only the logical parent leads on to what was before."""
    parent = record.get("parentUuid") or record.get("logicalParentUuid")
    return intern(parent) if isinstance(parent, str) else None


def _is_of_a_machine(record: dict[str, Any]) -> bool:
    """Whether nobody typed this: a schedule, a background task, a hook or another agent has asked it.

    Claude Code itself takes for a person's what says so, or nothing, of its origin; a program's prompt is one as well.
    """
    origin = record.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    told = record.get("promptSource") == "system" or record.get("commandMode") == "task-notification"
    return told or bool(record.get("subtype")) or kind not in (None, "human", "sdk")


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
