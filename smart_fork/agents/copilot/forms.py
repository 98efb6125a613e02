"""Copilot CLI's events as they are shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from uuid import UUID, uuid5

from indexer.transcripts.model import Session
from smart_fork.agents.codec import Record, only
from smart_fork.agents.copilot.codec import ANSWERED, THOUGHTS, CopilotCodec, data_of, is_of_an_agent, requests_in
from smart_fork.agents.copilot.copy import events
from smart_fork.agents.forms import Becomes, Forms, Identity, Image, Utterance, all_texts
from smart_fork.errors import ForkRefused

_ASKED, _SAID, _BEGUN = "user.message", "assistant.message", "tool.execution_start"
_USED = "session.usage_record"
#: What of each kind of event is shared. Not among them are the model's instructions, permissions, hooks, attachments,
#: what was said of the machine beside a prompt, and what sub-agents did.
_EVENTS = {
    _ASKED: frozenset({"content", "messageId", "source"}),
    _SAID: frozenset({"content", "messageId", "model", "toolRequests", "reasoningText", "reasoningOpaque"}),
    _BEGUN: frozenset({"toolCallId", "toolName", "arguments", "model"}),
    ANSWERED: frozenset({"toolCallId", "model", "success", "result", "error", "shellExecution"}),
    _USED: frozenset({"usage"}),
    "session.compaction_complete": frozenset({
        "success", "outcome", "summaryContent", "messagesRemoved", "preCompactionMessagesLength", "preCompactionTokens",
        "postCompactionTokens", "tokensRemoved",
    }),
    "abort": frozenset({"reason"}),
}  # fmt: skip
_OF_EVENT = frozenset({"type", "id", "timestamp", "data"})
_OF_REQUEST = frozenset({"toolCallId", "name", "arguments", "type"})
_OF_USAGE = frozenset({"model", "inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"})
_OF_RESULT = frozenset({"content", "detailedContent", "contents"})
_OF_ERROR = frozenset({"message", "code"})
_OF_SHELL = frozenset({"exitCode"})
#: The parts of an event of which less than all is shared.
_PARTS = {"usage": _OF_USAGE, "result": _OF_RESULT, "error": _OF_ERROR, "shellExecution": _OF_SHELL}
#: The events that nobody else has made are named in this space.
_MADE = UUID("3c8f1d52-0a4e-5b67-8d29-636f70696c6f")


class CopilotForms(CopilotCodec, Forms):
    """Events of Copilot CLI: their place in the chain is taken away, since they stand in a line."""

    taken = frozenset({"parentId"})
    identity = "id"
    thoughts = ()
    free = frozenset({"arguments", "result", "error"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        """See `Forms.records_of`. What was spent, and that a call has begun, stand before what they are of."""
        turns = session.turns[: None if end is None else end + 1]
        missing, last = {turn.id for turn in turns}, turns[-1].id if turns else ""
        calls: set[str] = set()
        spent: Record | None = None
        for _, record in events(session.source_path):
            kind, identity, data = record.get("type"), record.get("id"), data_of(record)
            if is_of_an_agent(record) or not isinstance(kind, str) or kind not in _EVENTS:
                continue
            if kind == _USED:
                spent = record
            elif kind == _BEGUN:
                if str(data.get("toolCallId")) in calls:
                    yield record
            elif isinstance(identity, str) and identity in missing:
                missing.discard(identity)
                calls.update(str(one.get("toolCallId")) for one in requests_in(data))
                if spent and kind == _SAID:
                    yield spent
                spent = None
                yield record
                if identity == last:
                    break
        if missing:
            raise ForkRefused(f"The log changed during reading: {session.source_path}", "Try again.")

    def anew(self, records: Iterable[Record], becomes: Becomes) -> Iterator[Record]:
        """A head, the events in one line of parents, and last the one that says whose they are."""
        parent: str | None = None
        for record in records:
            if parent is None:
                head = _head(becomes, str(record.get("timestamp") or ""))
                parent = str(head["id"])
                yield head
            yield self.incoming(record, Identity(becomes.place, {"parentId": parent}))
            identity = record.get("id")
            parent = identity if isinstance(identity, str) else parent
        if parent is not None and becomes.forked_from:
            said = f'Forked from "" ({becomes.forked_from}) as "" ({becomes.session_id}).'
            yield _event("session.info", {"infoType": "fork", "message": said}, becomes, "forked", parent=parent)

    def log_of(self, said: Iterable[Utterance], becomes: Becomes) -> Iterator[Record]:
        """A head, and an event for each thing that was said.

        Seen with 1.0.102: it sends what stands in ``content``, and does not load an answer without a ``messageId``; of
        the events around an answer it needs none.
        """
        utterances = list(said)
        event = _head(becomes, next((one.moment for one in utterances if one.moment), ""))
        yield event
        for number, one in enumerate(utterances, start=1):
            data: Record = {"content": one.text} if one.user else {"content": one.text, "toolRequests": []}
            kind = _ASKED if one.user else _SAID
            event = _event(kind, data, becomes, str(number), parent=event["id"], moment=one.moment)
            event["data"]["messageId"] = event["id"]
            yield event

    def sent(self, record: Record) -> Record | None:
        kind, data = record.get("type"), record.get("data")
        names = _EVENTS.get(kind) if isinstance(kind, str) else None
        if names is None or not isinstance(data, dict) or not isinstance(record.get("id"), str):
            return None
        if record.get("agentId") is not None:
            return None
        kept = only(record, _OF_EVENT)
        said = {name: _only(value, _PARTS.get(name)) for name, value in data.items() if name in names}
        if "toolRequests" in said:
            said["toolRequests"] = [_only(one, _OF_REQUEST) for one in requests_in(data)]
        return kept | {"data": said}

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        data = data_of(record)
        new = dict(data)
        if requests := requests_in(data):
            hidden = (str(one.get("toolCallId")) in ids for one in requests)
            new["toolRequests"] = [
                _without(one, mark) if gone else one for one, gone in zip(requests, hidden, strict=True)
            ]
        if str(data.get("toolCallId")) in ids:
            new = _without(new, mark)
            new |= {"result": {"content": mark}} if "result" in data else {}
            new |= {"error": {"message": mark}} if "error" in data else {}
        return record if new == data else record | {"data": new}

    def image(self, value: Record) -> Image | None:
        data = value.get("data")
        if value.get("type") not in ("image", "audio") or not isinstance(data, str):
            return None
        return Image(
            str(value.get("mimeType") or value["type"]), len(data) * 3 // 4, lambda note: {"type": "text", "text": note}
        )

    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        data = data_of(record)
        thought = {name: data[name] for name in THOUGHTS if name in data}
        if not thought or not of(thought):
            return record
        return record | {"data": {name: value for name, value in data.items() if name not in thought}}

    def _mapped(self, name: str, value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
        """What was thought may be signed as it is."""
        return value if name in THOUGHTS else super()._mapped(name, value, change, depth)


def _head(becomes: Becomes, moment: str) -> Record:
    data: Record = {
        "sessionId": becomes.session_id, "version": 1, "producer": "copilot-agent", "copilotVersion": "1.0.102",
        "startTime": moment, "context": {"cwd": becomes.place.root},
    }  # fmt: skip
    return _event("session.start", data, becomes, "0", moment=moment)


def _event(
    kind: str, data: Record, becomes: Becomes, name: str, *, parent: str | None = None, moment: str = ""
) -> Record:
    identity = str(uuid5(_MADE, f"{becomes.session_id} {name}"))
    return {"type": kind, "data": data, "id": identity, "timestamp": moment, "parentId": parent}


def _only(value: Any, names: Collection[str] | None) -> Any:
    if names is None or not isinstance(value, dict):
        return value
    return {name: part for name, part in value.items() if name in names}


def _without(call: Record, mark: str) -> Record:
    return call | {"arguments": all_texts(call["arguments"], mark)} if "arguments" in call else call
