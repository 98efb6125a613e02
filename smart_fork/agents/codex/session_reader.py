"""Reading of a Codex session: the records of its rollout (log), and those that a fork has from its parents."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.json_values import dict_in, dicts_in, text_in
from indexer.masking import mask, mask_once
from indexer.repositories import NAME
from indexer.transcripts.base import REWOUND
from indexer.transcripts.calls import CallRecorder, Directories
from indexer.transcripts.commands import is_ours
from indexer.transcripts.lines import Line, LineReader, first_lines
from indexer.transcripts.model import (
    GivenBack,
    Inferred,
    Origin,
    Proof,
    RecordSize,
    Resumed,
    Role,
    Turn,
    UsedTool,
    turn_of,
)
from indexer.transcripts.reader_state import count, is_path, pack, utc
from indexer.transcripts.texts import last_names, masked_name, strip_boilerplate, strip_recall
from smart_fork.agents import AGENTS, record_reader
from smart_fork.agents.codex import HOME
from smart_fork.agents.codex.codec import (
    CALLS,
    CODEC,
    OUTPUTS,
    base_of,
    ordinal_of,
    payload_of,
    roll_back,
    text_of,
    without_second_copies,
)
from smart_fork.agents.codex.log_files import thread_name, threads
from smart_fork.agents.codex.rollouts import find_rollout, id_in, is_moved, rollout_in
from smart_fork.agents.decoders import Record

if TYPE_CHECKING:
    from smart_fork.agents.codex.sent_records import RecordSizes

_OLD_CWD = re.compile(
    r"<environment_context>(?:(?!</environment_context>).)*?(?:<cwd>|Current working directory: )([^<\n]+)", re.DOTALL
)
#: The types of items.
_ITEMS = frozenset({
    *CALLS, *OUTPUTS, "message", "reasoning", "web_search_call", "image_generation_call", "ghost_snapshot",
    "compaction", "compaction_summary",
})  # fmt: skip
#: The roles of messages that a compaction leaves, the line before its summary, and the mark in a shortened text.
_SPEAKING = ("user", "assistant")
_SUMS_UP = re.compile(r"Another language model started to solve this problem[^\n]*\n")
_CUT = re.compile(r"\u2026\d+ tokens truncated\u2026")
#: The header of an output, which has the number of a command that still runs, is within this many characters.
_STILL_RUNNING = re.compile(r"^Process running with session ID (\d{1,18})$", re.MULTILINE)
_HEADER_CHARACTERS = 8000
#: The fields of a header that Codex needs to load a session.
_NEEDED_FIELDS = frozenset({"cwd", "originator", "cli_version"})
#: The lines that can have a header: a fork of an old version has its parent's header second.
_HEADER_LINES = 2


class _CodexCalls(CallRecorder):
    """Records Codex's tool calls and results. A running command has a number, by which later calls name it."""

    thorough = True

    def begin(self, made: UsedTool) -> None:
        if made.name == "write_stdin" and isinstance(made.given, dict):
            self.deeds.rename(f"session {made.given.get('session_id')}", made.id)
        else:
            super().begin(made)

    def end(self, back: GivenBack) -> Proof:
        """Note a result. Only an exit status proves that a command succeeded."""
        if back.id in self.deeds and (running := _still_running(back.output)):
            self.deeds.rename(back.id, f"session {running}")
        return self.deeds.end(back.id, back.output)


class CodexFold(record_reader.LineFold):
    """The fold (reader) of a rollout (log): it takes records, and builds the session from their facts and turns."""

    agent = "codex"
    known = frozenset({"session_meta", "turn_context", "compacted", "event_msg", "world_state", "token_usage_record"})
    codec, session_logs = CODEC, AGENTS.session_logs
    notes = _CodexCalls
    empty = "it has no prompt"
    naming = (b'"thread_name_updated"',)
    #: True if the rollout that this one continues was found.
    is_joined = False

    def is_known(self, record: Record) -> bool:
        """Return True if the type of the record, or of the item in it, is known, or lacking as in old logs' headers."""
        item = record.get("payload") if record.get("type") == "response_item" else record
        kind = item.get("type") if isinstance(item, dict) else None
        return str(kind) in _ITEMS or "record_type" in record or super().is_known(record) or "type" not in record

    def begin(self, turns: list[Turn]) -> None:
        own = self.facts.pop("inherited", 0)
        self.inherited, self.turns = turns[:own], turns[own:]
        self.directories = Directories(self.facts.pop("directories", None))
        self._measured: RecordSizes | None = None

    @property
    def measured(self) -> RecordSizes | None:
        """The collected sizes of the records; `None` unless sizes are measured."""
        if self._measured is None and self.sizes is not None:
            from smart_fork.agents.codex.sent_records import RecordSizes  # no other reading needs it

            self._measured = RecordSizes()
        return self._measured

    def sizes_of(self, turns: tuple[Turn, ...]) -> tuple[tuple[int, RecordSize], ...]:
        """Return (turn's number, size) for each record; empty if not measured, or if a continued rollout is missing."""
        is_whole = "base" not in self.facts or self.is_joined
        return tuple(self.measured.sizes(turns)) if self.measured and is_whole else ()

    def pack(self) -> bytes:
        parts = {"inherited": len(self.inherited), "directories": self.directories.packed}
        return pack(self.facts | parts, self.recorder.kept(), self.all_turns())

    def finish(self, *, turns: bool) -> bool:
        """Add facts, and with `turns` turns, from a fork's parents. Return True if there are added turns to save."""
        self.inherit((), turns=turns)
        return bool(self.inherited)

    def inherit(self, below: tuple[str, ...], *, turns: bool) -> None:
        """Take over the family's id, the origin and, with `turns`, shared turns from the logs of the session's parents.

        A rollout after a rewind takes over from the rollout before it in the same way. If a rollout is missing, the
        next reading looks for it again. `below` are the ids of the rollouts followed so far.
        """
        facts = self.facts
        named = facts.get("base") or facts.get("parent")
        if named is None or "root" in facts or facts["source"] == "subagent":
            return
        below = (*below, rollout_in(self.path) or self.own_id())
        if named in below or len(below) > AGENTS.MAX_FORK_DEPTH:
            return
        end = facts.get("base_end")
        path = find_rollout(named)
        rewound = path is not None and id_in(path) == self.own_id()
        above = self._parent_fold(path, end if turns or rewound else None, whole=turns)
        if above is None:
            return
        above.inherit(below, turns=turns and end is not None)
        if rewound:  # what the rollout before says of the session is true of it
            for name in above.facts.keys() & {"parent", "name", "names"}:
                facts.setdefault(name, above.facts[name])
            self.note_moment(above.facts.get("started", ""), done=False)
        elif facts.get("parent") in (None, named):
            facts["parent"] = above.own_id()
        facts["root"] = above.family()
        facts["by_hand"] = above.origin() == "person"
        if end is not None:
            facts["joined"] = above.can_load()
        if end is not None and (turns or rewound):
            self._share([turn for turn in above.all_turns() if int(turn.id) < end], above)

    def _parent_fold(self, path: Path | None, end: int | None, *, whole: bool) -> CodexFold | None:
        """Return a reader that has read the rollout at `path` up to record `end`; `None` if the file is unreadable.

        If `end` is `None`, it has read the header only. Unless `whole`, it reads no further than the file's beginning.
        """
        if path is None:
            return None
        above = CodexFold(path, None, keep_raw=self.keep_raw)
        above.recorder.names_code = self.recorder.names_code
        above.masks, above.sizes = self.masks, self.sizes
        lines = LineReader(path) if whole else first_lines(path)
        if self.masks and isinstance(lines, LineReader):
            lines.bound = None  # see `record_reader.read`
        try:
            for line in lines:
                if line.number > _HEADER_LINES if end is None else ordinal_of(line) >= end:
                    break
                above.feed(line)
        except OSError:
            return None
        return above

    def own_id(self) -> str:
        return id_in(self.path) or str(self.facts.get("id") or self.path.name.partition(".")[0])

    def family(self, turns: tuple[Turn, ...] = ()) -> str:
        """Return the id of the first session in the family; if a parent's log is gone, the parent's id."""
        return str(self.facts.get("root") or self.facts.get("parent") or self.own_id())

    def _share(self, turns: list[Turn], above: CodexFold) -> None:
        self.is_joined = "base" not in above.facts or above.is_joined
        if self.measured and above.measured:
            self.measured.prepend(above.measured, self.facts["base_end"])
        self.facts["compacted"] = [*above.facts.get("compacted", ()), *self.facts.get("compacted", ())]
        self._roll_back(turns, self.facts.pop("rolled_back", 0))
        self.inherited = turns
        self.facts["models"] = [*dict.fromkeys((*above.facts.get("models", ()), *self.facts.get("models", ())))]
        self.recorder.share(above.recorder)

    def all_turns(self) -> list[Turn]:
        return self.inherited + self.turns

    def feed(self, line: Line) -> None:
        record = line.record
        kind, payload = payload_of(record)
        if payload is record and ("record_type" in record or (kind == "session_meta" and "id" not in record)):
            return
        if self.measured:
            self.measured.add(line)
        moment, done = self.moment_of(record)
        self.note_moment(moment, done=done)
        at = ordinal_of(line)
        identity, raw = str(at), line.raw if self.keep_raw else b""
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context":
            self._cwd(payload.get("cwd"))
            self.note_model(payload.get("model"))
        elif kind == "compacted":
            self.note_compaction()
            compacted = at, self._messages_in(payload), at, self._summary_in(payload)
            self.facts["compacted"] = [*self.facts.get("compacted", ()), compacted]
        elif kind == "response_item":
            self._item(payload, identity, moment, raw)
        elif kind == "event_msg":
            self._event(payload, identity, moment, raw)

    def moment_of(self, record: Record) -> tuple[str, bool]:
        """Return a record's time, and True if it is activity, unlike headers and names."""
        kind, payload = payload_of(record)
        named = kind == "event_msg" and payload.get("type") == "thread_name_updated"
        return utc(record.get("timestamp")), kind != "session_meta" and not named

    def _meta(self, meta: dict[str, Any]) -> None:
        facts = self.facts
        if "id" in facts:
            # Forks of old versions carry the source's own header second, and do not say otherwise whose fork they are.
            if isinstance(meta.get("id"), str) and meta["id"] != facts["id"]:
                facts.setdefault("parent", meta["id"])
            return
        facts["id"], facts["headed"] = str(meta.get("id") or ""), meta.keys() >= _NEEDED_FIELDS
        facts["version"] = mask(str(meta.get("cli_version") or ""))
        facts["originator"] = str(meta.get("originator") or "")
        source = meta.get("source")
        if isinstance(source, dict):  # {"custom": <name>}, or whose sub-agent it is
            source = source.get("custom", "subagent")
        facts["source"] = "subagent" if meta.get("thread_source") == "subagent" else text_in(source)
        self._cwd(meta.get("cwd"))
        git = dict_in(meta.get("git"))
        for field, fact in (("branch", "gitBranch"), ("repository_url", "remote")):
            if isinstance(value := git.get(field), str):
                facts[fact] = mask(value)
        if isinstance(git.get("commit_hash"), str) and NAME.fullmatch(git["commit_hash"]):
            facts["head"] = git["commit_hash"]
        if isinstance(meta.get("forked_from_id"), str):
            facts["parent"] = meta["forked_from_id"]
        if (base := base_of(meta)) and base.rollout_id:
            facts["base"], facts["base_end"] = base.rollout_id, count(base.end)
            if rollout_in(self.path) == self.own_id():
                facts.setdefault("parent", base.rollout_id)

    def _cwd(self, cwd: object, inferred_from: Inferred = "") -> None:
        facts = self.facts
        self.stands_in(cwd)
        if is_path(cwd) and ("cwd" not in facts or (facts["inferred_from"] and not inferred_from)):
            facts["cwd"], facts["inferred_from"] = cwd, inferred_from

    def _item(self, item: dict[str, Any], identity: str, moment: str, raw: bytes) -> None:
        kind = item.get("type")
        if kind == "message":
            self._message(item, identity, moment, raw)
        elif kind in CALLS:
            [made] = CODEC.decode(item).calls
            if "cwd" not in self.facts:
                self.directories.note(made.name, made.given)
            ours = is_ours(made.name, str(item.get("namespace") or ""))
            self._add(identity, "assistant", moment, raw, tool_calls=(self.recorder.call(made, ours=ours),))
        elif kind in OUTPUTS:
            self._add(identity, "tool", moment, raw, tool_results=self.recorder.results(CODEC.decode(item).results))

    def _message(self, item: dict[str, Any], identity: str, moment: str, raw: bytes) -> None:
        text = text_of(item.get("content"))
        role = item.get("role")
        if role == "user" and _is_typed(item):
            said, text = text, strip_boilerplate(text)
            # What a person has pasted is none of it: what the agent says stands alone.
            if not text and "cwd" not in self.facts and (found := _OLD_CWD.search(said)):
                self._cwd(found[1].strip(), "environment_context")
            if text:
                self._add(identity, "user", moment, raw, text, prompt=True, group=Turn.ITEM)
        elif role == "assistant" and (text := strip_recall(text)):
            self._add(identity, "assistant", moment, raw, text, group=Turn.ITEM)

    def _event(self, event: dict[str, Any], identity: str, moment: str, raw: bytes) -> None:
        kind = event.get("type")
        if kind == "turn_aborted":
            self.facts["interrupted"] = True
        elif kind == "task_started":
            self.facts["began"] = int(identity)
        if kind in ("user_message", "agent_message"):
            text = text_in(event.get("message") if isinstance(event.get("message"), str) else event.get("text"))
            user = kind == "user_message"
            text = strip_boilerplate(text) if user else strip_recall(text)
            if text:
                self._add(identity, "user" if user else "assistant", moment, raw, text, prompt=user, group=Turn.EVENT)
        elif kind == "thread_name_updated":
            self.note_title({"payload": event})
        elif kind == "token_count":
            self._tokens(event.get("info"))
        elif kind == "thread_rolled_back":
            missing = self._roll_back(self.turns, count(event.get("num_turns")))
            if self.inherited:
                self._roll_back(self.inherited, missing)
            elif missing:
                self.facts["rolled_back"] = self.facts.get("rolled_back", 0) + missing

    def _roll_back(self, turns: list[Turn], prompts: int) -> int:
        """Remove the last prompts and all after them. Return how many of the prompts `turns` lacks."""
        before = list(turns)
        missing = roll_back(turns, prompts)
        if forgotten := before[len(turns) :]:
            first = int(forgotten[0].id)
            self.facts["compacted"] = [one for one in self.facts.get("compacted", ()) if one[2] < first]
        return missing

    def _note_prompt(self, prompt: int) -> None:
        """Note the record number of a prompt, so that rolling it back also undoes a compaction earlier in its turn."""
        began, compacted = self.facts.pop("began", None), self.facts.get("compacted", ())
        if began is not None and compacted and compacted[-1][0] > began:
            self.facts["compacted"] = [*compacted[:-1], (*compacted[-1][:2], prompt, compacted[-1][3])]

    def note_title(self, record: Record) -> None:
        event = dict_in(record.get("payload"))
        if event.get("type") == "thread_name_updated" and isinstance(name := event.get("thread_name"), str):
            self.facts["name"] = name = masked_name(name)
            self.facts["names"] = last_names(self.facts.get("names", ()), name)

    def _tokens(self, info: object) -> None:
        total = count(dict_in(dict_in(info).get("last_token_usage")).get("total_tokens"))
        for back, turn in enumerate(reversed(self.turns[-2:]), start=1):
            # What was said stands there twice, and either copy may be the one that counts.
            if total and not turn.prompt and turn.text == self.turns[-1].text:
                self.turns[-back] = replace(turn, loaded=total)

    def _add(self, identity: str, role: Role, moment: str, raw: bytes, text: str = "", **more: Any) -> None:
        self.facts.pop("interrupted", None)
        if more.get("prompt"):
            self._note_prompt(int(identity))
        last = self.turns[-1] if self.turns else None
        turn = self.said(turn_of(identity, last.id if last else None, role, moment, text, raw=raw, **more))
        if last and last.loaded and turn.text == last.text and not turn.prompt:
            turn = replace(turn, loaded=last.loaded)  # some versions count between the two copies of what was said
        self.turns.append(turn)

    def excluded(self) -> str:
        if self.facts.get("source") == "subagent":
            return "a sub-agent's"
        return "" if self.all_turns() or rollout_in(self.path) == id_in(self.path) else REWOUND

    def active(self) -> tuple[Turn, ...]:
        turns = list(without_second_copies(self.all_turns()))
        for last, _, _, left in self.facts.get("compacted", ()) if turns else ():
            said = {_digest(turn.role, turn.text) for turn in self.inherited}
            words = [text for digest, text in left if digest not in said]
            if words:
                at = next((at for at, turn in enumerate(turns) if int(turn.id) > last), len(turns) - 1)
                turns[at] = replace(turns[at], summary=mask_once("\n\n".join(words)))
        return tuple(turns)

    def can_load(self) -> bool:
        """Return True if Codex can load the session: no rollout, or field of the header that it needs, is missing."""
        return bool(self.facts.get("headed") and self.facts.get("joined", "base" not in self.facts))

    def resumed(self, turns: tuple[Turn, ...]) -> Resumed:
        """Return which turns Codex loads when it resumes: none if it cannot load the session.

        A compaction keeps the last prompts, in some versions final answers as well. Its summary is no turn.
        """
        if not self.can_load():
            return Resumed(len(turns), "gap")
        if not (compacted := self.facts.get("compacted")):
            return Resumed()
        last, messages, *_ = compacted[-1]
        start = next((at for at, turn in enumerate(turns) if int(turn.id) > last), len(turns))
        left, kept = Counter(messages), list[int]()
        for at in reversed(range(start)):
            if turns[at].text and left[told := _digest(turns[at].role, turns[at].text)]:
                left[told] -= 1
                kept.append(at)
        return Resumed(start, "compaction", tuple(reversed(kept)))

    def _messages_in(self, compacted: dict[str, Any]) -> list[str]:
        """Return the digests of the messages that a compaction kept, from the compaction's record."""
        items = dicts_in(compacted.get("replacement_history"))
        said = ((str(one.get("role")), _said(one)) for one in items if one.get("type") == "message")
        return [_digest(role, mask_once(text) if self.masks else text) for role, text in said if text]

    def _summary_in(self, compacted: dict[str, Any]) -> list[tuple[str, str]]:
        """Return (digest, text) for each message in a compaction's record that is no turn: these form its summary."""
        said = {_digest(turn.role, turn.text) for turn in self.turns}
        items = ((one.get("role"), _said(one)) for one in dicts_in(compacted.get("replacement_history")))
        texts = [("user", text_in(compacted.get("message"))), *items]
        masked = ((role, mask_once(text) if self.masks else text) for role, text in texts if role in _SPEAKING and text)
        found = {_digest(role, text): text for role, text in masked if not _CUT.search(text)}
        return [(digest, _SUMS_UP.sub("", text)) for digest, text in found.items() if digest not in said]

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        """Return the name that Codex gave the thread, from its database, its index of names, or the log."""
        home, own = HOME.of(self.path), self.own_id()
        known = threads(home).get(own)
        return (known and known.name) or thread_name(home, own) or self.facts.get("name", "")

    def own(self, turns: tuple[Turn, ...]) -> int:
        """Return the number of turns from the parent. Turns before a rewind are the session's own."""
        if not self.facts.get("parent") or rollout_in(self.path) != self.own_id():
            return 0
        return sum(int(turn.id) < self.facts.get("base_end", 0) for turn in turns)

    def is_copy(self) -> bool:
        return is_moved(self.path)

    def directory(self) -> tuple[str, Inferred]:
        if "cwd" in self.facts:
            return self.facts["cwd"], self.facts["inferred_from"]
        agreed = self.directories.agreed()
        return agreed, "commands" if agreed else ""

    def origin(self) -> Origin:
        """Return who started the session. A named session, or a fork of a person's session, counts as a person's."""
        facts = self.facts
        source = facts.get("source")
        automated = source in ("exec", "mcp") or (not source and "exec" in facts.get("originator", ""))
        return "automated" if automated and not facts.get("name") and not facts.get("by_hand") else "person"


def _digest(role: str, text: str) -> str:
    return blake2b(f"{role} {text}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def _said(message: dict[str, Any]) -> str:
    """Return the text of a person's or the model's message, without injected text."""
    text = text_of(message.get("content"))
    return strip_boilerplate(text) if message.get("role") == "user" else strip_recall(text)


def _is_typed(item: dict[str, Any]) -> bool:
    """Return True if a person typed the message. Newer versions mark injected context in each part."""
    kinds = dict_in(item.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds")
    return not isinstance(kinds, list) or any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)


def _still_running(output: str) -> str:
    """Return the number by which later calls name a running command, from its output; empty if the command ended."""
    found = _STILL_RUNNING.search(output[:_HEADER_CHARACTERS].partition("\nOutput:")[0])
    return found[1] if found else ""
