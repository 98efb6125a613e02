"""Conversion of OpenCode's messages for sharing, and documents for ``opencode import``.

Ids are not shared: a session gets new ids when it is written, in the order of the messages. The name of the model in a
person's message is not shared either. OpenCode would continue with that model, which another machine may not have, so
the written session gets a model of its machine (see `usual_model`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from indexer.json_values import dict_in, dicts_in, seconds_in, text_in
from indexer.transcripts.model import Session
from smart_fork.agents.copier import read_again
from smart_fork.agents.decoders import Record, only
from smart_fork.agents.opencode.session_reader import LEFT_OUT, OpenCodeCodec, conversation, document_at
from smart_fork.agents.portable_records import (
    NO_FIELDS,
    Converter,
    HomePlace,
    Image,
    TargetSession,
    Utterance,
    all_texts,
)
from smart_fork.errors import ForkRefused

UNKNOWN = {"providerID": "unknown", "modelID": "unknown"}
_AGENT = "build"
_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
#: The fields of a message and of its parts that hold ids or the model: they are not shared.
_OWN = frozenset({"id", "sessionID", "messageID", "parentID", "model"})
#: The shared fields of a message by its role, and of a part by its type.
_INFO: Mapping[str, Collection[str]] = MappingProxyType({
    "user": ("role", "agent"),
    "assistant": (
        "role", "agent", "mode", "path", "cost", "tokens", "modelID", "providerID", "finish", "summary", "error",
    ),
})  # fmt: skip
_PARTS: Mapping[str, Collection[str]] = MappingProxyType({
    "text": ("type", "text", "ignored", "time", "metadata"),
    "reasoning": ("type", "text", "time", "metadata"),
    "file": ("type", "mime", "filename", "url"),
    "tool": ("type", "callID", "tool", "state", "metadata"),
    "step-start": ("type",),
    "step-finish": ("type", "reason", "tokens", "cost"),
    "compaction": ("type", "auto", "overflow"),
})  # fmt: skip
_STATE = ("status", "input", "output", "title", "error", "raw", "time", "metadata", "attachments")
_OF_ERROR = ("message", "statusCode", "isRetryable", "providerID")
#: The shared fields of a tool's output for the screen. Whole files and a sub-agent's session are not shared.
_SHOWN = ("exit", "diff", "truncated", "description")
#: The fields with which a provider signs a part.
_SIGNED = ("itemId", "signature", "thoughtSignature", "reasoningEncryptedContent", "encrypted_content", "redactedData")


class OpenCodeConverter(OpenCodeCodec, Converter):
    """Converts OpenCode's messages for sharing with teammates."""

    taken = _OWN
    free = frozenset({"input", "output", "metadata"})
    thoughts = ("reasoning",)

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        """Yield the session's messages up to turn `end`, with only the fields that may be shared.

        Summaries that OpenCode adds to messages later, and its marks on pruned results, are not shared.
        """
        wanted = {turn.id for turn in session.turns[: None if end is None else end + 1]}
        said = list(conversation(document_of(session)))
        for number, (info, parts) in enumerate(said, start=1):
            if info.get("id") in wanted and (record := self.sent({"info": info, "parts": parts})):
                if end is not None and number == len(said) and _goes_on(info):
                    raise ForkRefused(
                        f"The last answer is not complete: {session.session_id}", "Try again after the answer."
                    )
                yield record

    def anew(self, records: Iterable[Record], becomes: TargetSession) -> Iterator[Record]:
        """Yield one document for ``opencode import``: a new session with these shared messages."""
        yield _document([self.incoming(one, becomes.place) for one in records], becomes)

    def log_of(self, said: Iterable[Utterance], becomes: TargetSession) -> Iterator[Record]:
        """Yield one document for ``opencode import``: a new session with these messages.

        Each message's time is later than the one before, because OpenCode sorts messages by time.
        """
        messages, moment = list[Record](), 0
        for one in said:
            moment = max(moment + 1, int((seconds_in(one.moment) or 0) * 1000))
            asked: Record = {"role": "user", "time": {"created": moment}, "agent": _AGENT}
            info = asked if one.user else _answered(moment, becomes.place.root)
            messages.append({"info": info, "parts": [{"type": "text", "text": one.text}]})
        yield _document(messages, becomes)

    def ids(self, record: Record) -> Iterator[str]:
        return iter(())

    def outgoing(self, record: Record, place: HomePlace) -> Record:
        return super().outgoing(self.sent(record) or record, place)

    def own_fields(self, record: Record) -> Record:
        parts = [only(part, _OWN) for part in dicts_in(record.get("parts")) if _part(part)]
        return {"info": only(dict_in(record.get("info")), _OWN), "parts": parts}

    def incoming(self, record: Record, place: HomePlace, own: Record = NO_FIELDS) -> Record:
        made = super().incoming(record, place)
        if own:
            parts = zip(dicts_in(made.get("parts")), own["parts"], strict=False)
            made |= {"info": dict_in(made.get("info")) | own["info"], "parts": [part | one for part, one in parts]}
        return made

    def sent(self, record: Record) -> Record | None:
        info = dict_in(record.get("info"))
        when, role = only(dict_in(info.get("time")), ("created", "completed")), text_in(info.get("role"))
        if role not in _INFO or type(when.get("created")) is not int:
            return None
        kept = {**only(info, _INFO[role]), "time": when}
        if path := dict_in(kept.get("path")):
            kept["path"] = only(path, ("cwd", "root"))
        if error := dict_in(kept.get("error")):
            kept["error"] = {"name": error.get("name"), "data": only(dict_in(error.get("data")), _OF_ERROR)}
        return {"info": kept, "parts": [one for part in dicts_in(record.get("parts")) if (one := _part(part))]}

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        return self.changed(record, lambda part: _hidden(part, mark) if str(part.get("callID")) in ids else part)

    def image(self, value: Record) -> Image | None:
        """Return the image in a part. For a result with several images: the first one's kind and the size of all."""
        if pictures := dicts_in(value.get("attachments")):
            size = sum(len(text_in(one.get("url"))) * 3 // 4 for one in pictures)
            rest = {name: one for name, one in value.items() if name != "attachments"}
            return Image(
                text_in(pictures[0].get("mime")) or "image", size,
                lambda note: rest | {"output": f"{text_in(rest.get('output'))}\n{note}".strip()},
            )  # fmt: skip
        if value.get("type") != "file" or not isinstance(url := value.get("url"), str):
            return None
        kind = text_in(value.get("mime")) or "image"
        return Image(kind, len(url) * 3 // 4, lambda note: {"type": "text", "text": note, "ignored": True})

    def changed(self, record: Record, change: Callable[[Record], Record | None]) -> Record:
        """Return a message with `change` applied to its parts. An empty message stays: others keep their numbers."""
        old = dicts_in(record.get("parts"))
        new = [one for part in old if (one := change(part)) is not None]
        return record if new == old else record | {"parts": new}

    def untied(self, record: Record) -> Record:
        """Return the message without signatures, which are valid for one account only."""

        def without(part: Record) -> Record:
            ours = only(dict_in(part.get("metadata")), (LEFT_OUT,))
            rest = {name: one for name, one in part.items() if name != "metadata"}
            return rest | ({"metadata": ours} if ours else {})

        return self.changed(record, without)


def document_of(session: Session) -> Record:
    """Return a session as a document, with all its texts in full length.

    Raises:
        NotFound: The session no longer exists.
    """
    with read_again(session.source_path):
        return document_at(session.source_path, whole=True)


def _part(part: Record) -> Record | None:
    """Return a part's fields that may be shared; `None` if OpenCode itself inserted it, such as a file's content."""
    kind = text_in(part.get("type"))
    if kind not in _PARTS or part.get("synthetic") is True:
        return None
    if kind == "file" and not text_in(part.get("url")).startswith("data:"):
        return None
    kept = only(part, _PARTS[kind])
    if "time" in kept:
        kept["time"] = only(dict_in(kept["time"]), ("start", "end"))
    if "state" in kept:
        kept["state"] = _state(dict_in(kept["state"]))
    if "metadata" in kept:
        signed = {name: only(dict_in(one), _SIGNED) for name, one in dict_in(kept.pop("metadata")).items()}
        signed = {name: one for name, one in signed.items() if one}
        if root := text_in(dict_in(dict_in(part["metadata"]).get(LEFT_OUT)).get("root")):
            signed[LEFT_OUT] = {"root": root}
        kept |= {"metadata": signed} if signed else {}
    return kept


def _state(state: Record) -> Record:
    """Return the fields of a call's state that may be shared, without OpenCode's later mark on pruned results."""
    kept = only(state, _STATE)
    for name, names in (("time", ("start", "end")), ("metadata", _SHOWN)):
        if name in kept:
            kept[name] = only(dict_in(kept[name]), names)
    if pictures := [one for one in map(_part, dicts_in(kept.pop("attachments", None))) if one]:
        kept["attachments"] = [one for one in pictures if one["type"] == "file"]
    return kept


def _hidden(part: Record, mark: str) -> Record:
    state = {name: one for name, one in dict_in(part.get("state")).items() if name != "attachments"}
    hide = ("input", "output", "title", "error", "raw", "metadata")
    return part | {"state": {name: all_texts(one, mark) if name in hide else one for name, one in state.items()}}


def _goes_on(info: Record) -> bool:
    return info.get("role") == "assistant" and "completed" not in dict_in(info.get("time")) and "error" not in info


def _document(messages: Iterable[Record], becomes: TargetSession) -> Record:
    """Return the document of a new session with these messages. They and their parts get new ids, in order."""
    asked, named, count = "", list[Record](), 0
    for number, one in enumerate(messages):
        info, identity = dict_in(one.get("info")), numbered_id("msg", number, f"{becomes.session_id} msg {number}")
        own = {"model": UNKNOWN} if info.get("role") == "user" else {"parentID": asked}
        asked = identity if info.get("role") == "user" else asked
        names, parts = {"sessionID": becomes.session_id, "messageID": identity}, list[Record]()
        for part in dicts_in(one.get("parts")):
            tagged = part | {"id": numbered_id("prt", count, f"{becomes.session_id} prt {count}")} | names
            if pictures := dicts_in(dict_in(part.get("state")).get("attachments")):
                shown = [picture | {"id": f"{tagged['id']}{at:04x}"} | names for at, picture in enumerate(pictures)]
                tagged["state"] = part["state"] | {"attachments": shown}
            parts.append(tagged)
            count += 1
        named.append({"info": info | own | {"id": identity, "sessionID": becomes.session_id}, "parts": parts})
    infos = [one["info"] for one in named]
    times = [dict_in(info.get("time")).get("created", 0) for info in infos] or [0]
    cwd = next((cwd for info in infos if (cwd := text_in(dict_in(info.get("path")).get("cwd")))), becomes.place.root)
    return {
        "info": {
            "id": becomes.session_id, "slug": "told", "title": "", "version": "0", "projectID": "", "directory": cwd,
            "time": {"created": times[0], "updated": times[-1]},
        },
        "messages": named,
    }  # fmt: skip


def _answered(moment: int, root: str) -> dict[str, Any]:
    return {
        "role": "assistant", "mode": _AGENT, "agent": _AGENT, "path": {"cwd": root, "root": root}, "cost": 0,
        "tokens": _NO_TOKENS, "time": {"created": moment, "completed": moment}, "finish": "stop", **UNKNOWN,
    }  # fmt: skip


def numbered_id(kind: str, number: int, source: str) -> str:
    """Return an id for a message or a part (`kind`) that sorts by `number`. A hash of `source` makes it unique."""
    return f"{kind}_{number:012x}{hashlib.blake2b(source.encode('utf-8', 'replace')).hexdigest()[:14]}"
