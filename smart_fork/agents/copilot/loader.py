"""Copilot CLI's sessions as they are cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from indexer.transcripts.items import GivenBack
from indexer.transcripts.model import Role
from indexer.unchecked import dict_in, dicts_in, text_in
from smart_fork.agents.codec import Record
from smart_fork.agents.copilot.codec import ANSWERED, CopilotCodec, data_of, is_of_an_agent, requests_in
from smart_fork.agents.copilot.fold import is_typed
from smart_fork.agents.copilot.log import CopilotAdapter
from smart_fork.agents.tree_cut import COMPACTS, NOTHING, TreeLoader
from smart_fork.cuts import titles
from smart_fork.cuts.lines import RawLine

_ROLES: dict[object, Role] = {"user.message": "user", "assistant.message": "assistant", ANSWERED: "tool"}
#: Without the first record it does not find the session.
_NEEDED = {"needed": "Copilot CLI"}
#: Events that say how the session is kept. All others without a call of their own repeat something of their exchange.
_KEEPING = ("session.", "system.message", "assistant.turn_", "subagent.", "abort", *map(str, _ROLES))
#: The title of a session, where it or its fork says that it was forked.
_FORKED = re.compile(r'Forked (?:from|this session into) "(.*)" \([0-9a-f-]{36}\)', re.DOTALL)
#: Events of a compaction, with the whole conversation in them.
_ALL = "model."


class CopilotLoader(TreeLoader):
    """Reads ``events.jsonl``. An event repeats its call, the prompt that a hook got, or something of its exchange."""

    tool = "copilot"
    codec = CopilotCodec()
    identity, links = "id", ("parentId",)

    def __init__(self) -> None:
        self._said: list[str] = []  # the keys of all messages so far
        self._exchange = 0  # where those of the exchange begin
        self._agents: dict[str, str] = {}  # by sub-agent, the session's call that began it
        self._calls: dict[str, str] = {}  # the same by a sub-agent's call

    @staticmethod
    def begins(record: Record) -> bool:
        """See `TreeLoader.begins`."""
        return {"type", "id", "parentId"} <= record.keys() and isinstance(record.get("data"), dict)

    def session_id(self, line: RawLine) -> str:
        return CopilotAdapter().id_of(line.place.path)

    def role(self, record: Record, said: str, results: Sequence[GivenBack]) -> Role:
        return _ROLES.get(str(record.get("type")), "system")

    def is_typed(self, record: Record) -> bool:
        return not is_of_an_agent(record) and is_typed(data_of(record))

    def note(self, record: Record) -> str:
        kind, told = record.get("type"), data_of(record).get("message")
        return "" if str(kind) in _ROLES else " ".join(one for one in (kind, told) if isinstance(one, str))

    def meta(self, record: Record) -> Mapping[str, Any]:
        kind = record.get("type")
        return _NEEDED if kind == "session.start" else COMPACTS if kind == "session.compaction_complete" else NOTHING

    def copied(self, record: Record) -> str:
        given = dict_in(data_of(record).get("input"))
        return text_in(given.get("prompt", given.get("initialPrompt")))

    def repeats(self, record: Record) -> tuple[str, ...]:
        kind, data, agent = str(record.get("type")), data_of(record), record.get("agentId")
        if isinstance(agent, str):
            return self._of_agent(agent, data)
        if kind in _ROLES:
            if kind == "user.message" and is_typed(data):
                self._exchange = len(self._said)
            self._said.append(f"turn:{record.get('id')}")
            return ()
        if calls := tuple(f"call:{call}" for call in _calls_in(data)):
            return calls
        if kind.startswith(_ALL):
            return tuple(self._said)
        if kind.startswith(_KEEPING):
            forked = _FORKED.match(str(data.get("message") or "")) if data.get("infoType") == "fork" else None
            return titles.quoting(forked[1]) if forked else ()
        return tuple(self._said[self._exchange :])

    def _of_agent(self, agent: str, data: Mapping[str, Any]) -> tuple[str, ...]:
        """What a sub-agent says goes with the call of the session that began it."""
        if agent not in self._agents:
            begun = str(data.get("toolCallId") or data.get("parentToolCallId") or "")
            self._agents[agent] = self._calls.get(begun, begun)
        own = self._agents[agent]
        self._calls |= {str(one.get("toolCallId")): own for one in requests_in(data)}
        return (f"call:{own}",) if own else ()


def _calls_in(data: Mapping[str, Any]) -> Iterator[str]:
    """The calls that an event is about: its own, one that needs a permission, those that a hook is asked about."""
    asked, given = data.get("permissionRequest"), data.get("input")
    named = [one.get("toolCallId") for one in (data, dict_in(asked))]
    named += [one.get("id") for one in dicts_in(dict_in(given).get("toolCalls"))]
    return (one for one in named if isinstance(one, str) and one)
