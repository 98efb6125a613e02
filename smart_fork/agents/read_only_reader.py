"""The log reader for agents that smart-fork only reads. A `ReadCodec` decodes each record to a header and an item."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson

from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.lines import Line
from indexer.transcripts.model import Origin, Role, Session, Turn
from indexer.transcripts.reader_state import count, is_path, utc
from indexer.transcripts.texts import last_names, masked_name, strip_boilerplate, strip_recall
from smart_fork.agents import AGENTS
from smart_fork.agents.decoders import Header, ReadCodec, Record
from smart_fork.agents.log_adapters import ReadAdapter
from smart_fork.agents.record_reader import Kept
from smart_fork.agents.tree import FolderlessTree

#: Where a record of the chain has the header and the record that it was made of.
_HEADER, _RECORD = "header", "record"
#: How the ids begin that records without one get. Those of two sessions are the same.
_NUMBERED = "record-"


class ReadTree(FolderlessTree):
    """A fold (reader) that builds a session from the headers and items that a `ReadCodec` finds in records.

    If a header names no parent, the record before it is the parent.
    """

    codec: ReadCodec
    session_logs = AGENTS.session_logs

    def __init__(self, adapter: ReadAdapter, path: Path, kept: Kept, *, keep_raw: bool) -> None:
        self.adapter, self.codec, self.agent = adapter, adapter.codec, adapter.name
        super().__init__(path, kept, keep_raw=keep_raw)

    def feed(self, line: Line) -> None:
        """Convert the record on a line to the form that `Tree` reads, and add it. Only count an unknown record."""
        header, facts = self.codec.header(line.record), self.facts
        facts["records"] = number = facts.get("records", 0) + 1
        if header is None:
            facts["unknown"] = facts.get("unknown", 0) + 1
            return
        said: Record = {
            "timestamp": header.moment, "cwd": header.cwd, "sessionId": header.session_id, "gitBranch": header.branch,
            "version": header.version, _HEADER: header, _RECORD: line.record,
        }  # fmt: skip
        if header.role or header.id:
            named = isinstance(header.id, str) and header.id != ""
            said["uuid"] = header.id if named else f"{_NUMBERED}{number}"
            said["parentUuid"] = facts.get("before") if header.parent == "" else header.parent
            facts["before"] = said["uuid"]
        super().feed(line._replace(record=said))

    def moment_of(self, record: Record) -> tuple[str, bool]:
        header = record.get(_HEADER) or self.codec.header(record)
        return (utc(header.moment), bool(header.role)) if header else ("", False)

    def note_title(self, record: Record) -> None:
        self._note(record[_HEADER])

    def _note(self, header: Header) -> None:
        facts = self.facts
        if isinstance(header.title, str) and header.title.strip():
            facts["title"], facts["named"] = masked_name(header.title.strip()), header.named
            facts["names"] = last_names(facts.get("names", ()), facts["title"])
        if isinstance(header.parent_session, str) and header.parent_session:
            facts.setdefault("parent", header.parent_session)
        if header.origin:
            facts["origin"] = header.origin
        if header.model:
            self.note_model(header.model)

    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        header: Header = record[_HEADER]
        facts = self.facts
        if header.compacts:
            self.note_compaction()
        if header.interrupts:
            facts["interrupted"] = identity
        if not header.role:
            return None
        item, role, prompt = self.codec.decode(record[_RECORD]), header.role, False
        text = strip_recall(item.text) if role == "assistant" else strip_boilerplate(item.text)
        who: Role = role
        if role != "assistant" and not (role == "user" and header.asked):
            text = ""
        if role == "user":
            prompt = bool(text) and not item.results
            who = "user" if text else "tool" if item.results else "system"
        return self.make(
            record, identity, line, who, text, calls=item.calls, results=item.results, prompt=prompt,
            group=header.group, loaded=count(header.loaded),
        )  # fmt: skip

    def session(self) -> tuple[Session | None, str]:
        """Return (session, ""), or (`None`, reason) if the log is no session. Read the files beside the log, too."""
        beside = self.adapter.beside(self.path)
        self._note(beside)
        if is_path(beside.cwd):
            self.facts["cwds"] = [beside.cwd, *self.facts.get("cwds", ())]
        if isinstance(beside.version, str):
            self.facts["version"] = beside.version
        return super().session()

    def twins(self) -> Iterable[Path]:
        """Return the paths of other logs of the session; none if records lack the ids by which logs are compared."""
        numbered = any(turn.id.startswith(_NUMBERED) for turn in self.chain.turns)
        return () if numbered else self.adapter.twins(self.path)

    def of_twin(self, path: Path) -> ReadTree:
        return ReadTree(self.adapter, path, None, keep_raw=self.keep_raw)

    def family(self, turns: tuple[Turn, ...]) -> str:
        found = super().family(turns)
        return self.own_id() if found.startswith(_NUMBERED) else found

    def given_name(self) -> str:
        return self.own_name(()) if self.facts.get("named") else ""

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        return str(self.facts.get("title", ""))

    def origin(self) -> Origin:
        found: Origin = self.facts.get("origin", "person")
        return found

    def guessed(self) -> str:
        return self.adapter.guessed(self.path)

    def own_id(self) -> str:
        return self.adapter.id_of(self.path)


def read_records(
    adapter: ReadAdapter, path: Path, records: Iterable[object], after: Checkpoint, *, keep_raw: bool = False
) -> ReadResult:
    """Read a session from `records` that are not lines of a file. The result gets the checkpoint `after`."""
    fold = ReadTree(adapter, path, None, keep_raw=keep_raw)
    for number, record in enumerate(records, 1):
        if isinstance(record, dict):
            fold.feed(Line(number, orjson.dumps(record) if keep_raw else b"", record))
    session, skipped = fold.session()
    known, unknown = fold.counts()
    return ReadResult(session, skipped, after, (), after.offset, records=known, unknown=unknown)
