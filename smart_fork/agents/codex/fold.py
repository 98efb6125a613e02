"""What the records of one of Codex's rollouts add up to, and what a fork has from its parents'."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from sys import intern
from typing import Any

from indexer.masking import NOTHING, Masked, mask
from indexer.objects import NAME
from indexer.transcripts.actions import describe, describe_raw, edited_by, failure_of, read_by, still_running, writes
from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.boilerplate import strip_boilerplate, strip_recall
from indexer.transcripts.commands import command_of
from indexer.transcripts.deeds import Deeds
from indexer.transcripts.directories import Directories
from indexer.transcripts.lines import Line, LineReader, changed_at, first_lines, last_records, probe, resume
from indexer.transcripts.model import (
    Inferred,
    Origin,
    Proof,
    Role,
    Session,
    ToolCall,
    ToolResult,
    Turn,
    estimate_tokens,
)
from indexer.transcripts.model_names import shown, with_model
from indexer.transcripts.ours import is_ours, runs_ours
from indexer.transcripts.state import count, is_path, pack, utc
from indexer.transcripts.symbols import MAX_SYMBOLS, Symbols
from indexer.transcripts.titles import also_called, title_of, with_name
from indexer.transcripts.twice import EVENT, ITEM, roll_back, told_once
from smart_fork.agents import READERS
from smart_fork.agents.codex.base import base_of
from smart_fork.agents.codex.codec import CALLS, OUTPUTS, arguments_of, ordinal_of, text_of, unwrapped
from smart_fork.agents.codex.home import codex_home
from smart_fork.agents.codex.rollouts import id_in, is_moved
from smart_fork.agents.codex.thread_names import thread_name
from smart_fork.agents.depth import MAX_FORK_DEPTH

_OLD_CWD = re.compile(
    r"<environment_context>(?:(?!</environment_context>).)*?(?:<cwd>|Current working directory: )([^<\n]+)", re.DOTALL
)
#: How the answer of a call begins that was not carried out.
_NOT_RUN = ("failed in sandbox", "exec_command failed for", "exec command rejected")
#: A fork of an old version carries its parent's header second.
_HEADER_LINES = 2

#: Where the logs of a session are, the newest first.
Locate = Callable[[str], Sequence[Path]]


def read(path: Path, checkpoint: Checkpoint | None, locate: Locate, *, keep_raw: bool) -> ReadResult:
    """See `AgentAdapter.read`."""
    reader, kept = resume(path, None if keep_raw else checkpoint)
    fold = _Fold(path, kept, keep_raw=keep_raw)
    for line in reader:
        fold.feed(line)
    _inherit(fold, locate, ())
    # What was inherited is kept: the parent may be gone when this log has grown.
    state = fold.pack() if (fold.inherited or reader.worth_resuming) and not keep_raw else b""
    after = Checkpoint(reader.offset, reader.lines, probe(path, reader.offset), state)
    session, skipped = fold.session()
    return ReadResult(session, reader.odd or skipped, after, tuple(reader.broken), reader.bytes_read, kept is not None)


def read_subagent(path: Path) -> Session | None:
    """The conversation of a sub-agent, whose turns have their records; `None` where there is none.

    Raises:
        OSError: it cannot be read.
    """
    fold = _Fold(path, None, keep_raw=True)
    for line in LineReader(path):
        fold.feed(line)
    fold.facts["source"] = ""  # it is looked for as what it is
    return fold.session()[0]


def glance(path: Path, locate: Locate) -> Session | None:
    """See `AgentAdapter.glance`."""
    fold = _Fold(path, None, keep_raw=False)
    for line in first_lines(path):
        fold.feed(line)
    for record in last_records(path, (b'"thread_name_updated"',)):
        fold.note_name(record.get("payload"))
    _inherit(fold, locate, (), turns=False)
    session, _ = fold.session()
    return replace(session, last_activity=changed_at(path)) if session else None


def _inherit(fold: _Fold, locate: Locate, below: tuple[str, ...], *, turns: bool = True) -> None:
    """Give a fork what it has from its parent, through any number of levels: its family's root id, whether a person
    started it, and the `turns` that it shares.

    A parent that is not there may come back: it is looked for at the next reading again.
    """
    facts = fold.facts
    parent = facts.get("parent")
    if parent is None or "root" in facts or facts["source"] == "subagent":
        return
    below = (*below, fold.own_id())
    if parent in below or len(below) > MAX_FORK_DEPTH:
        return
    end = facts.get("base_end") if turns else None
    above = _parent_fold(next(iter(locate(parent)), None), end, keep_raw=fold.keep_raw)
    if above is None:
        return
    _inherit(above, locate, below, turns=end is not None)
    facts["root"] = above.root_id()
    facts["by_hand"] = above.origin() == "person"
    if end is not None:
        fold.inherit([turn for turn in above.all_turns() if int(turn.id) < end], above)
        facts["models"] = [*dict.fromkeys((*above.facts.get("models", ()), *facts.get("models", ())))]


def _parent_fold(path: Path | None, end: int | None, *, keep_raw: bool) -> _Fold | None:
    """What a parent was up to record `end`, where its fork left it; without it, what its first lines say of it."""
    if path is None:
        return None
    fold = _Fold(path, None, keep_raw=keep_raw)
    try:
        for line in LineReader(path):
            if line.number > _HEADER_LINES if end is None else ordinal_of(line) >= end:
                break
            fold.feed(line)
    except OSError:
        return None
    return fold


class _Fold:
    """What the records of one rollout add up to. Fed line by line; `state` can be kept and gone on with."""

    def __init__(self, path: Path, kept: tuple[dict[str, Any], list[Turn]] | None, *, keep_raw: bool) -> None:
        self.path = path
        self.keep_raw = keep_raw
        self.facts, turns = kept or ({}, [])
        own = self.facts.pop("inherited", 0)
        self.inherited, self.turns = turns[:own], turns[own:]
        self.symbols, self.wrote = Symbols(self.facts.pop("symbols", ())), Symbols(self.facts.pop("wrote", ()))
        self.ours: set[str] = set(self.facts.pop("ours", ()))
        self.deeds = Deeds(self.facts.pop("deeds", None), not_run=_NOT_RUN)
        self.directories = Directories(self.facts.pop("directories", None))

    def pack(self) -> bytes:
        parts = {"inherited": len(self.inherited), "symbols": list(self.symbols), "ours": sorted(self.ours)}
        parts |= {"deeds": self.deeds.kept(), "wrote": list(self.wrote)}
        parts["directories"] = self.directories.packed
        return pack(self.facts | parts, self.all_turns())

    def own_id(self) -> str:
        return id_in(self.path) or str(self.facts.get("id") or self.path.stem)

    def root_id(self) -> str:
        """Of a fork whose parent is gone, the parent: its siblings are still of one family."""
        return str(self.facts.get("root") or self.facts.get("parent") or self.own_id())

    def inherit(self, turns: list[Turn], above: _Fold) -> None:
        roll_back(turns, self.facts.pop("rolled_back", 0))
        self.inherited = turns
        self.symbols = Symbols(islice(chain(above.symbols, self.symbols), MAX_SYMBOLS))
        self.wrote = Symbols(islice(chain(above.wrote, self.wrote), MAX_SYMBOLS))

    def all_turns(self) -> list[Turn]:
        return self.inherited + self.turns

    def feed(self, line: Line) -> None:
        record = line.record
        payload = record.get("payload")
        kind = record.get("type")
        if not isinstance(payload, dict):  # no envelope: the header, or the item itself
            payload, kind = record, "response_item" if isinstance(kind, str) else "session_meta"
            if "record_type" in record or (kind == "session_meta" and "id" not in record):
                return
        moment = utc(record.get("timestamp"))
        if moment:
            facts = self.facts
            if moment < facts.setdefault("started", moment):
                facts["started"] = moment
            # A header's is the only time in old versions; and a name says nothing of when something was done.
            named = kind == "event_msg" and payload.get("type") == "thread_name_updated"
            if kind != "session_meta" and not named and moment > facts.setdefault("last", moment):
                facts["last"] = moment
        identity = str(ordinal_of(line))
        raw = line.raw if self.keep_raw else b""
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context":
            self._cwd(payload.get("cwd"))
            self.facts["models"] = with_model(self.facts.get("models", ()), payload.get("model"))
        elif kind == "compacted":
            self.facts["compactions"] = self.facts.get("compactions", 0) + 1
        elif kind == "response_item":
            self._item(payload, identity, moment, raw)
        elif kind == "event_msg":
            self._event(payload, identity, moment, raw)

    def _meta(self, meta: dict[str, Any]) -> None:
        facts = self.facts
        if "id" in facts:
            # Forks of old versions carry the source's own header second, and do not say otherwise whose fork they are.
            if isinstance(meta.get("id"), str) and meta["id"] != facts["id"]:
                facts.setdefault("parent", meta["id"])
            return
        facts["id"] = str(meta.get("id") or "")
        facts["version"] = str(meta.get("cli_version") or "")
        facts["originator"] = str(meta.get("originator") or "")
        source = meta.get("source")
        if isinstance(source, dict):  # {"custom": <name>}, or whose sub-agent it is
            source = source.get("custom", "subagent")
        facts["source"] = (
            "subagent" if meta.get("thread_source") == "subagent" else source if isinstance(source, str) else ""
        )
        self._cwd(meta.get("cwd"))
        git = meta.get("git")
        if isinstance(git, dict):
            if isinstance(git.get("branch"), str):
                facts["branch"] = git["branch"]
            if isinstance(git.get("commit_hash"), str) and NAME.fullmatch(git["commit_hash"]):
                facts["head"] = git["commit_hash"]
        if isinstance(meta.get("forked_from_id"), str):
            facts["parent"] = meta["forked_from_id"]
        if (base := base_of(meta)) and base.session_id:
            facts["parent"], facts["base_end"] = base.session_id, count(base.end)

    def _cwd(self, cwd: object, inferred_from: Inferred = "") -> None:
        facts = self.facts
        if is_path(cwd) and ("cwd" not in facts or (facts["inferred_from"] and not inferred_from)):
            facts["cwd"], facts["inferred_from"] = cwd, inferred_from

    def _item(self, item: dict[str, Any], identity: str, moment: str, raw: bytes) -> None:
        kind = item.get("type")
        call_id = intern(str(item.get("call_id") or item.get("id") or ""))
        if kind == "message":
            self._message(item, identity, moment, raw)
        elif kind in CALLS:
            name, arguments = intern(str(item.get("name") or kind)), arguments_of(item)
            if "cwd" not in self.facts:
                self.directories.note(name, arguments)
            namespace = str(item.get("namespace") or "")
            action = NOTHING if is_ours(name, namespace) else _action(name, arguments)
            ours, edits = is_ours(name, namespace) or runs_ours(arguments), edited_by(name, arguments)
            if ours or READERS.opens_a_session(action):
                self.ours.add(call_id)
            else:
                self.symbols.add_all(arguments)
                if writes(edits, arguments):
                    self.wrote.add_all(arguments)
            if not ours:
                self._begin(call_id, name, arguments)
            call = ToolCall(call_id, name, action, ours, edits, read_by(name, arguments))
            self._add(identity, "assistant", moment, raw, calls=(call,))
        elif kind in OUTPUTS:
            note, proof = NOTHING, Proof.NOTHING
            if call_id not in self.ours:
                text = unwrapped(text_of(item.get("output")))
                self.symbols.add(text)
                note = failure_of(text)
                proof = self._end(call_id, text)
            self._add(identity, "tool", moment, raw, results=(ToolResult(call_id, bool(note), note, proof),))

    def _begin(self, call_id: str, name: str, arguments: dict[str, Any] | str) -> None:
        if isinstance(arguments, str):
            return
        if name == "write_stdin":  # asks how a command that still runs has gone
            self.deeds.rename(f"session {arguments.get('session_id')}", call_id)
        else:
            self.deeds.begin(call_id, command_of(arguments))

    def _end(self, call_id: str, output: str) -> Proof:
        if call_id in self.deeds and (running := still_running(output)):
            self.deeds.rename(call_id, f"session {running}")
        return self.deeds.end(call_id, output)

    def _message(self, item: dict[str, Any], identity: str, moment: str, raw: bytes) -> None:
        text = text_of(item.get("content"))
        role = item.get("role")
        if role == "user" and _typed(item):
            said, text = text, strip_boilerplate(text)
            # What a person has pasted is none of it: what the agent says stands alone.
            if not text and "cwd" not in self.facts and (found := _OLD_CWD.search(said)):
                self._cwd(found[1].strip(), "environment_context")
            if text:
                self._add(identity, "user", moment, raw, text, prompt=True, group=ITEM)
        elif role == "assistant" and (text := strip_recall(text)):
            self._add(identity, "assistant", moment, raw, text, group=ITEM)

    def _event(self, event: dict[str, Any], identity: str, moment: str, raw: bytes) -> None:
        kind = event.get("type")
        if kind == "turn_aborted":
            self.facts["interrupted"] = True
        if kind in ("user_message", "agent_message"):
            said = event.get("message") if isinstance(event.get("message"), str) else event.get("text")
            text = said if isinstance(said, str) else ""
            user = kind == "user_message"
            text = strip_boilerplate(text) if user else strip_recall(text)
            if text:
                self._add(identity, "user" if user else "assistant", moment, raw, text, prompt=user, group=EVENT)
        elif kind == "thread_name_updated":
            self.note_name(event)
        elif kind == "token_count":
            self._tokens(event.get("info"))
        elif kind == "thread_rolled_back":
            missing = roll_back(self.turns, count(event.get("num_turns")))
            if self.inherited:
                roll_back(self.inherited, missing)
            elif missing:
                self.facts["rolled_back"] = self.facts.get("rolled_back", 0) + missing

    def note_name(self, event: object) -> None:
        """What a record says that the thread is called, if it does."""
        if isinstance(event, dict) and event.get("type") == "thread_name_updated":
            name = event.get("thread_name")
            if isinstance(name, str):
                self.facts["names"] = with_name(self.facts.get("names", ()), name)
            self.facts["name"] = name if isinstance(name, str) else self.facts.get("name", "")

    def _tokens(self, info: object) -> None:
        usage = info.get("last_token_usage") if isinstance(info, dict) else None
        total = count(usage.get("total_tokens")) if isinstance(usage, dict) else 0
        for back, turn in enumerate(reversed(self.turns[-2:]), start=1):
            # What was said stands there twice, and either copy may be the one that counts.
            if total and not turn.prompt and turn.text == self.turns[-1].text:
                self.turns[-back] = replace(turn, loaded=total)

    def _add(
        self, identity: str, role: Role, moment: str, raw: bytes, text: str = "", *,
        calls: tuple[ToolCall, ...] = (), results: tuple[ToolResult, ...] = (), prompt: bool = False, group: str = "",
    ) -> None:  # fmt: skip
        self.facts.pop("interrupted", None)
        last = self.turns[-1] if self.turns else None
        tokens = estimate_tokens(text, len(calls))
        # Some versions count between the two copies of what was said.
        loaded = last.loaded if last and text == last.text and not prompt else 0
        parent = last.id if last else None
        self.turns.append(
            Turn(identity, parent, role, moment, text, tokens, calls, results, prompt, group, raw, loaded)
        )

    def session(self) -> tuple[Session | None, str]:
        facts = self.facts
        if facts.get("source") == "subagent":
            return None, "a sub-agent's"
        turns = told_once(self.all_turns())
        if not any(turn.prompt for turn in turns):
            return None, "it has no prompt"
        cwd, inferred_from = self._where()
        name = thread_name(codex_home(), self.own_id()) or facts.get("name", "")
        title = title_of("", (turn.text for turn in turns if turn.prompt), by_agent=name)
        return Session(
            agent="codex",
            session_id=self.own_id(),
            source_path=self.path,
            turns=turns,
            cwd=cwd,
            git_branch=mask(facts.get("branch", "")),
            title=title,
            also_called=also_called(title, facts.get("names", ())),
            version=facts.get("version", ""),
            started=facts.get("started", ""),
            # Records of old versions have no times: the file's own is the best there is.
            last_activity=facts.get("last") or changed_at(self.path),
            origin=self.origin(),
            parent_id=facts.get("parent"),
            root_id=self.root_id(),
            compactions=facts.get("compactions", 0),
            symbols=tuple(self.symbols),
            wrote=tuple(self.wrote),
            copied=is_moved(self.path),
            interrupted="interrupted" in facts,
            inferred_from=inferred_from,
            head=facts.get("head", "") if not cwd or inferred_from == "commands" else "",
            begun_at=facts.get("head", ""),
            models=shown(facts.get("models", ())),
        ), ""

    def _where(self) -> tuple[str, Inferred]:
        """The directory, and what it was taken from where the log does not state it."""
        if "cwd" in self.facts:
            return self.facts["cwd"], self.facts["inferred_from"]
        agreed = self.directories.agreed()
        return agreed, "commands" if agreed else ""

    def origin(self) -> Origin:
        """By how it was started, or how the session was that it was forked from: forks inherit the ``originator``."""
        facts = self.facts
        automated = facts.get("source") in ("exec", "mcp") or (
            not facts.get("source") and "exec" in facts.get("originator", "")
        )
        return "automated" if automated and not facts.get("name") and not facts.get("by_hand") else "person"


def _typed(item: dict[str, Any]) -> bool:
    """Newer versions say of each part of a message what it is; injected context is not the person's."""
    about = item.get("internal_chat_message_metadata_passthrough")
    kinds = about.get("content_item_kinds") if isinstance(about, dict) else None
    return not isinstance(kinds, list) or any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)


def _action(name: str, arguments: dict[str, Any] | str) -> Masked:
    return describe(name, arguments) if isinstance(arguments, dict) else describe_raw(name, arguments)
