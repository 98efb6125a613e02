"""Removal of turns from Copilot CLI's logs, from files beside them, and from its search database."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import orjson

from indexer.json_values import dict_in, dicts_in, text_in
from indexer.transcripts.model import Role
from smart_fork.agents.copilot import HOME
from smart_fork.agents.copilot.log_files import EVENTS, WORKSPACE, name_in
from smart_fork.agents.copilot.session_reader import ANSWERED, CODEC, data_of, is_prompt, is_typed, requests_in
from smart_fork.agents.decoders import Record
from smart_fork.agents.description import AgentDescription
from smart_fork.agents.excision import titles
from smart_fork.agents.excision.cutter import RawLine
from smart_fork.agents.excision.transcript import Transcript
from smart_fork.agents.foreign_database import erase
from smart_fork.agents.tree_cutter import COMPACTS, NOTHING, RecordFacts, TreeCutter, files_below

_ROLES: Mapping[str, Role] = {"user.message": "user", "assistant.message": "assistant", ANSWERED: "tool"}
#: Copilot CLI does not find a session without the first event.
_NEEDED = {"needed": "Copilot CLI"}
#: Events about the session itself. All other events without a call repeat something of their exchange.
_KEEPING = ("session.", "system.message", "assistant.turn_", "subagent.", "abort", *_ROLES)
#: The title of a session in the event that notes a fork.
_FORKED = re.compile(r'Forked (?:from|this session into) "(.*)" \([0-9a-f-]{36}\)', re.DOTALL)
#: The prefix of a compaction's events, which contain the whole conversation.
_ALL = "model."
#: The tables with texts of sessions in the database of Copilot CLI's own search.
_TABLES = """SELECT m.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c
    WHERE m.type = 'table' AND c.name = 'session_id' AND m.name <> 'assistant_usage_events'"""


def _calls_in(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of the calls in an event's data: the event's own, one that needs permission, and a hook's."""
    asked, given = data.get("permissionRequest"), data.get("input")
    named = [one.get("toolCallId") for one in (data, dict_in(asked))]
    named += [one.get("id") for one in dicts_in(dict_in(given).get("toolCalls"))]
    return (one for one in named if isinstance(one, str) and one)


_NAME = re.compile(rb"^name:.*\n(?:[ \t].*\n|\n)*", re.MULTILINE)


class CopilotCutter(TreeCutter):
    """Loads Copilot CLI's logs, ``events.jsonl``, so that turns can be removed.

    Further events may repeat a removed call, prompt or other part of an exchange; a cut removes these too.
    """

    codec = CODEC
    identity, links, roles = "id", ("parentId",), _ROLES
    histories, withdraws = ("command-history-state.json",), False

    def __init__(self, of: AgentDescription) -> None:
        super().__init__(of)
        self._said: list[str] = []  # the keys of all messages so far
        self._exchange = 0  # where those of the exchange begin
        self._agents: dict[str, str] = {}  # by sub-agent, the session's call that began it
        self._calls: dict[str, str] = {}  # the same by a sub-agent's call

    def begins(self, record: Record) -> bool:
        return {"type", "id", "parentId"} <= record.keys() and isinstance(record.get("data"), dict)

    def session_id(self, line: RawLine) -> str:
        return self.of.reader.id_of(line.place.path)

    def is_typed(self, record: Record) -> bool:
        return is_prompt(record)

    def about(self, record: Record) -> RecordFacts:
        kind, data = record.get("type"), data_of(record)
        words = () if str(kind) in _ROLES else (kind, data.get("message"))
        return RecordFacts(
            " ".join(one for one in words if isinstance(one, str)),
            _NEEDED if kind == "session.start" else COMPACTS if kind == "session.compaction_complete" else NOTHING,
            repeats=self._repeats(record),
        )

    def copied(self, record: Record) -> str:
        given = dict_in(data_of(record).get("input"))
        return text_in(given.get("prompt", given.get("initialPrompt")))

    def _repeats(self, record: Record) -> tuple[str, ...]:
        kind, data, agent = str(record.get("type")), data_of(record), record.get("agentId")
        if isinstance(agent, str):
            return self._starting_call_key(agent, data)
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
            return titles.mark_of_title(forked[1]) if forked else ()
        return tuple(self._said[self._exchange :])

    def _starting_call_key(self, agent: str, data: Mapping[str, Any]) -> tuple[str, ...]:
        """Return (key,) of the call that started a sub-agent: cutting the call removes its events. Empty if unknown."""
        if agent not in self._agents:
            begun = str(data.get("toolCallId") or data.get("parentToolCallId") or "")
            self._agents[agent] = self._calls.get(begun, begun)
        own = self._agents[agent]
        self._calls |= {str(one.get("toolCallId")): own for one in requests_in(data)}
        return (f"call:{own}",) if own else ()

    def files_of(self, path: Path) -> list[Path]:
        return [one for one in files_below(path.parent) if one != path] if path.name == EVENTS else []

    def revised(self, path: Path, keys: Collection[str]) -> dict[Path, bytes]:
        """Return new contents, by path, of ``workspace.yaml`` and the rewind points, without the prompts `keys`."""
        found = {}
        with suppress(OSError):
            workspace = path.with_name(WORKSPACE)
            before = workspace.read_bytes()
            name = name_in(before.decode("utf-8", "replace"))
            if (not name or not titles.marks(titles.mark_of_title(name)).isdisjoint(keys)) and _NAME.search(before):
                found[workspace] = _NAME.sub(b"", before)
        with suppress(OSError, ValueError, TypeError, KeyError):
            rewinds = path.parent / "rewind-file-snapshots/index.json"
            told = orjson.loads(rewinds.read_bytes())
            kept = [one for one in told["snapshots"] if one["eventId"] not in keys]
            if len(kept) < len(told["snapshots"]):
                found[rewinds] = orjson.dumps(told | {"snapshots": kept}, option=orjson.OPT_INDENT_2)
        return found

    def forget(self, session: Transcript) -> None:
        """Delete a session's texts from Copilot CLI's search database. The session can be resumed without them."""

        def change(db: apsw.Connection) -> None:
            for (table,) in db.execute(_TABLES).fetchall():
                db.execute(f'DELETE FROM "{table}" WHERE session_id = ?', (session.session_id,))  # noqa: S608 - its own
            db.execute("UPDATE sessions SET summary = NULL WHERE id = ?", (session.session_id,))

        erase(HOME.of(session.source_path) / "session-store.db", "Copilot CLI", change)
