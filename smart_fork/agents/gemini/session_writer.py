"""Writing of Gemini CLI's sessions: copies for forks, and conversion of its messages for sharing.

A copy has a header and messages under their own ids, in a file named after the whole new id. Gemini CLI's description
of the workspace is left out, since the process that resumes the copy adds its own. A tool's result is copied once, in
its call, even if a message has it as well.

Messages are shared in the order in which they were first written, each in its last version. A compression (older
messages replaced by a summary) is shared as the log has it: a list of the messages that remained, at the same position.
So the records that were shared before stay the beginning, even though a compression gives messages new ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from uuid import UUID, uuid4, uuid5

import orjson

from indexer.json_values import dict_in, dicts_in
from indexer.transcripts.model import Session, UsedTool
from smart_fork.agents.copier import Copier, Copy, Entry, LiveRecord, NewSession, read_again
from smart_fork.agents.decoders import Record, aside, only
from smart_fork.agents.gemini.home import CHATS, digest, project_for, write_root
from smart_fork.agents.gemini.log_files import new_name
from smart_fork.agents.gemini.messages import CODEC, GeminiCodec, Memory, is_context, parts_of, said_in, signature_of
from smart_fork.agents.gemini.session_reader import LoggedMessage, answered_calls, for_copy, log_records
from smart_fork.agents.portable_records import (
    SHARED,
    PartConverter,
    TargetSession,
    Utterance,
    all_texts,
    unsigned,
    withheld,
)
from smart_fork.errors import ForkRefused


class Replay:
    """The messages that Gemini CLI loads from a log, and those that it loaded before each compression."""

    def __init__(self, log: Path) -> None:
        """Read all records of `log`.

        Raises:
            NotFound: The log no longer exists.
        """
        memory, kept = Memory(), dict[str, LoggedMessage]()
        #: The remembered messages before each compression, and now.
        self._states: list[dict[str, LoggedMessage]] = []
        with read_again(log):
            for record in log_records(log, whole=True):
                before = {one: kept[one] for one in memory.now} if "$set" in record else {}
                compressions = memory.compactions
                kept |= {one.id: LoggedMessage.of(one, kept) for one in memory.apply(record)}
                if memory.compactions > compressions:
                    self._states.append(before)
        self._states.append({one: kept[one] for one in memory.now})
        #: All messages by their ids, the compressed messages first.
        self.all = {one: kept[one] for one in memory.past} | self._states[-1]
        self.given_back = answered_calls(one.record for one in self.all.values())

    def up_to(self, identity: str) -> list[Record]:
        """Return the messages up to the one with this id, as Gemini CLI had them then; empty if the id is unknown."""
        for messages in reversed(self._states):
            if identity in messages:
                names = list(messages)
                return [messages[one].record for one in names[: names.index(identity) + 1]]
        return []


class GeminiCopy(Copy):
    """A copy of one session, with the messages that Gemini CLI would load from its log."""

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """Write the copy's directory into ``.project_root`` of its folder, unless that names one already."""
        if self._new.cwd is not None:
            created += write_root(target.parent.parent, self._new.cwd)
        return []

    def header(self) -> Iterator[bytes]:
        """Yield the first record, with the source session in ``forkedFrom``, which Gemini CLI ignores and keeps."""
        moment = self._new.moment
        cwd = str(self._new.cwd.resolve()) if self._new.cwd else self._source.cwd
        named = {"summary": self._new.title} if self._new.title else {}
        yield orjson.dumps({
            "sessionId": self._new.id, "projectHash": digest(cwd), "startTime": moment, "lastUpdated": moment,
            "kind": "main", **named,
            "forkedFrom": {"sessionId": self._source.session_id, "root": self._source.root_id},
        })  # fmt: skip

    def up_to(self, end: int) -> Iterator[Entry]:
        """Return the messages that Gemini CLI would have loaded when turn `end` was the last one."""
        messages = Replay(self._source.source_path).up_to(self._source.turns[end].id)
        if not messages:
            raise ForkRefused(f"The session changed during reading: {self._source.session_id}", "Try again.")
        known = answered_calls(messages)
        return ((b"", kept) for message in messages if (kept := for_copy(message, known)))

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """Yield a message as a line. If turns are left out, drop the token counts, which would be wrong."""
        yield orjson.dumps({name: value for name, value in entry[1].items() if name != "tokens" or not self._excerpt})

    def summary(self, entry: Entry) -> Iterator[bytes]:
        yield from self.line(said_in(entry[1]), entry)

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        moment = before[1].get("timestamp")
        yield orjson.dumps(
            {"id": str(uuid4()), "timestamp": moment, "type": "user", "content": [{"text": aside(text)}]}
        )


class GeminiCopier(Copier):
    """The copier of Gemini CLI's sessions, for forks."""

    codec, copies = CODEC, GeminiCopy

    def place(self, source: Path, new: NewSession) -> Path:
        folder = project_for(new.cwd) / CHATS if new.cwd else source.resolve().parent
        return folder / new_name(new.id, new.now)

    def live(self, session: Session) -> Iterator[LiveRecord]:
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        replay = Replay(session.source_path)
        for identity, kept in replay.all.items():
            if identity in places and (record := for_copy(kept.record, replay.given_back)):
                yield self.sized(places[identity], (b"", record), sums_up=kept.sums_up)


#: The shared fields of a message, of its calls and of its thoughts.
_FIELDS = frozenset(
    {"id", "timestamp", "type", "content", "displayContent", "thoughts", "tokens", "model", "toolCalls"}
)
_OF_CALL = frozenset({
    "id", "name", "args", "result", "status", "timestamp", "resultDisplay", "description", "displayName",
    "renderOutputAsMarkdown",
})  # fmt: skip
_OF_THOUGHT = frozenset({"subject", "description", "timestamp"})
_KINDS = ("user", "gemini")
#: The namespace for the ids of messages in handed-over sessions.
_MADE = UUID("5b0d6a3e-8f0c-5a41-9c57-67656d696e69")


class GeminiConverter(GeminiCodec, PartConverter):
    """Converts Gemini CLI's records for sharing with teammates."""

    taken = frozenset({"sessionId", "projectHash", "forkedFrom"})
    free = frozenset({"args", "result", "response", "resultDisplay"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        wanted = {turn.id for turn in session.turns[: None if end is None else end + 1]}
        return _SharedLog(session).records(wanted)

    def anew(self, records: Iterable[Record], becomes: TargetSession) -> Iterator[Record]:
        for number, record in enumerate(records):
            made = self.incoming(record, becomes.place)
            if number == 0:
                moment = next((str(one.get("timestamp") or "") for one in _messages(made)), "")
                origin = {"forkedFrom": {"sessionId": becomes.forked_from}} if becomes.forked_from else {}
                yield _head(becomes, moment, moment) | origin
            yield made

    def log_of(self, said: Iterable[Utterance], becomes: TargetSession) -> Iterator[Record]:
        """Yield the log of a new session: a header, a description of the workspace, and the messages."""
        utterances = list(said)
        first, last = (next((one.moment for one in some if one.moment), "") for some in (utterances, utterances[::-1]))
        yield _head(becomes, first, last)
        workspace = f"<session_context>\n- **Workspace Directories:**\n  - {becomes.place.root}\n</session_context>"
        for number, one in enumerate((Utterance(user=True, text=workspace, moment=first), *utterances)):
            yield {
                "id": str(uuid5(_MADE, f"{becomes.session_id} {number}")), "timestamp": one.moment,
                "type": "user" if one.user else "gemini", "content": [{"text": one.text}],
            }  # fmt: skip

    def ids(self, record: Record) -> Iterator[str]:
        return (one["id"] for one in _messages(record) if isinstance(one.get("id"), str))

    def sent(self, record: Record) -> Record | None:
        if "$set" not in record:
            return _sent(record)
        messages = [one for message in _messages(record) if (one := _sent(message))]
        return {"$set": {"messages": messages}} if messages else None

    def calls(self, record: Record) -> Iterator[UsedTool]:
        for message in _messages(record):
            yield from self.decode(message).calls

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        return _with_changed(record, lambda message: _withheld(message, ids, mark)) or record

    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        def without(message: Record) -> Record:
            told, new = message.get("thoughts"), dict(message)
            if isinstance(told, list):
                new["thoughts"] = [one for one in told if not (isinstance(one, dict) and of(one))]
            if isinstance(content := message.get("content"), list):
                new["content"] = [part for part in dicts_in(content) if not (self._is_thought(part) and of(part))]
            return new

        return _with_changed(record, without)

    def untied(self, record: Record) -> Record | None:
        """Return the record without signatures, which are valid for one account; `None` without messages."""

        def without(message: Record) -> Record:
            if not isinstance(content := message.get("content"), list):
                return message
            return message | {"content": [unsigned(part) for part in content if isinstance(part, dict)]}

        return _with_changed(record, without)


class _SharedLog:
    """The shareable records of one log: messages, and lists in which a compression gave messages new ids."""

    def __init__(self, session: Session) -> None:
        self._events: list[Record] = []
        self._places: dict[str, int] = {}
        self._became: dict[str, str] = {}
        memory = Memory()
        with read_again(session.source_path):
            for record in log_records(session.source_path):
                self._take(memory, record)
        self._left = {*memory.past, *memory.now}
        self._given_back = answered_calls(message for event in self._events for message in _messages(event))

    def _take(self, memory: Memory, record: Record) -> None:
        before = memory.compactions
        told = [one for one in memory.apply(record) if signature_of(one.record) and not is_context(one.record)]
        renamed = {one.again: one.id for one in told if one.again and one.again != one.id}
        if "id" not in record and (renamed or memory.compactions > before):
            self._became |= renamed
            self._places |= {one.id: len(self._events) for one in told if one.id not in self._places}
            self._events.append({"$set": {"messages": [one.record for one in told]}})
            return
        for one in told:
            if one.id not in self._places:
                self._places[one.id] = len(self._events)
                self._events.append(one.record)
            elif one.way == "said" and "$set" not in self._events[self._places[one.id]]:
                self._events[self._places[one.id]] = one.record

    def records(self, wanted: Collection[str]) -> Iterator[Record]:
        """Yield the records up to the last message in `wanted`, without messages that a rewind removed."""
        last = max((place for one, place in self._places.items() if one in wanted), default=-1)
        for event in self._events[: last + 1]:
            if "$set" not in event:
                if self._stays(event["id"]) and for_copy(event, self._given_back):
                    yield event
            elif left := [one for one in event["$set"]["messages"] if self._stays(one["id"])]:
                yield {"$set": {"messages": left}}

    def _stays(self, identity: str) -> bool:
        seen: set[str] = set()
        while identity not in self._left and identity in self._became and identity not in seen:
            seen.add(identity)
            identity = self._became[identity]
        return identity in self._left


def _head(becomes: TargetSession, first: str, last: str) -> Record:
    return {
        "sessionId": becomes.session_id, "projectHash": digest(becomes.place.root), "startTime": first,
        "lastUpdated": last, "kind": "main",
    }  # fmt: skip


def _messages(record: Record) -> list[Record]:
    """Return the messages in a record's ``$set`` list, or the record itself if it has no list."""
    if "$set" not in record:
        return [record]
    return dicts_in(dict_in(record["$set"]).get("messages"))


def _with_changed(record: Record, change: Callable[[Record], Record]) -> Record | None:
    """Return a record with `change` applied to its messages; `None` if no message is left."""
    old = _messages(record)
    new = [change(message) for message in old]
    if new == old:
        return record
    new = [message for message in new if signature_of(message)]
    if "$set" in record:
        return {"$set": {"messages": new}} if new else None
    return new[0] if new else None


def _sent(message: Record) -> Record | None:
    if message.get("type") not in _KINDS or not isinstance(message.get("id"), str) or is_context(message):
        return None
    kept = only(message, _FIELDS)
    for name in ("content", "displayContent"):
        if name in kept and not isinstance(kept[name], str):
            kept[name] = [part for one in parts_of(kept[name]) if (part := only(one, SHARED))]
    for name, names in (("toolCalls", _OF_CALL), ("thoughts", _OF_THOUGHT)):
        if name in kept:
            kept[name] = [only(one, names) for one in dicts_in(kept[name])]
    return kept if signature_of(kept) else None


def _withheld(message: Record, ids: Collection[str], mark: str) -> Record:
    new = dict(message)
    if isinstance(told := message.get("toolCalls"), list):
        new["toolCalls"] = [
            _hidden(one, mark) if isinstance(one, dict) and str(one.get("id")) in ids else one for one in told
        ]
    if isinstance(content := message.get("content"), list):
        new["content"] = [withheld(one, ids, mark) if isinstance(one, dict) else one for one in content]
    return new


def _hidden(call: Record, mark: str) -> Record:
    new = {name: all_texts(value, mark) if name == "args" else value for name, value in call.items()}
    if isinstance(call.get("result"), list):
        answer = {"id": call.get("id"), "name": call.get("name"), "response": {"output": mark}}
        new["result"] = [{"functionResponse": answer}]
    return new | {name: mark for name in ("resultDisplay", "description") if name in call}
