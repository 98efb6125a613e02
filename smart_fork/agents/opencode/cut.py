"""OpenCode's sessions as they are cut: rows of its database, a line for each message (see `rows`).

A call and its result are one part, so nothing has to go together. Nothing is cut while OpenCode has its database open:
it writes again what it has in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from sys import intern
from typing import Any

import orjson

from indexer.disk import DISK, Disk
from indexer.transcripts.model import Role
from indexer.transcripts.state import utc
from indexer.unchecked import dict_in, dicts_in, text_in
from smart_fork.agents.codec import only
from smart_fork.agents.cut_turns import turn_of
from smart_fork.agents.opencode import rows
from smart_fork.agents.opencode.codec import OpenCodeCodec, text_of
from smart_fork.agents.opencode.fold import begun_in, said_in, written
from smart_fork.agents.opencode.home import HOME
from smart_fork.cuts import titles
from smart_fork.cuts.cutter import Cutter
from smart_fork.cuts.edits import Edits, rewritten
from smart_fork.cuts.lines import preview
from smart_fork.cuts.model import Stamp, Transcript, TranscriptTurn
from smart_fork.errors import NotFound
from smart_fork.system.locks import locked_by

#: The bytes on which each connection to an SQLite database has a lock for as long as it is open.
LOCKED = 0x40000002, 510
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
CODEC = OpenCodeCodec()


class OpenCodeCutter(Cutter):
    """Sessions of OpenCode."""

    tool = "opencode"
    suffixes = ()

    def detect(self, path: Path) -> bool:
        return path.name.startswith("ses_") and path.parent.is_file()

    def load(self, path: Path, composer: str = "") -> Transcript:
        is_row = self.detect(path)
        lines = rows.lines_of(path) if is_row else list(_lines_in_file(path))
        turns = tuple(_turn(number, line) for number, line in enumerate(lines, start=1))
        return Transcript(
            self.tool, path, path.name, turns, stamp=rows.stamp_of_lines(path, lines) if is_row else super().stamp(path)
        )

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """Answers name the question before them."""
        asked = next((turn.id for turn in turns if turn.role == "user" and turn.id not in gone), "")
        found = {}
        for position, turn in enumerate(turns):
            if turn.id in gone:
                continue
            if turn.role == "user":
                asked = turn.id
            elif turn.parent_id in gone:
                found[position] = rewritten(turn.raw, partial(_with_parent, asked=asked))
        return found

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        """A title is made of the first question, and what the session has changed is noted beside questions."""
        first = next((turn for turn in session.turns if turn.prompt), None)
        said = {one for turn in session.turns if turn.id in gone for one in turn.says}
        next_of, after = dict[str, str](), ""
        for turn in reversed(session.turns):
            if turn.id in gone:
                next_of[turn.id] = after
            elif turn.parent_id is not None or turn.role == "user":
                after = turn.id
        found = {}
        for position, turn in enumerate(session.turns):
            if position and turn.role != "user":
                continue
            untitled = not position and gone and (not said.isdisjoint(turn.says) or (first and first.id in gone))
            raw = rewritten(turn.raw, partial(_without_repetitions, next_of=next_of, untitled=bool(untitled)))
            if gone and turn.id not in gone and raw != turn.raw:
                found[position] = raw
        return found

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """See `Cutter.beside`: outputs that are too long for a part, each in a file that the part names."""
        folder = HOME.folder() / "tool-output"
        parts = (part for turn in removed for part in dicts_in(orjson.loads(turn.raw).get("parts")))
        named = (dict_in(dict_in(part.get("state")).get("metadata")).get("outputPath") for part in parts)
        found = [Path(one) for one in named if isinstance(one, str)]
        return [one for one in found if one.parent == folder and one.is_file() and not one.is_symlink()]

    def writer_of(self, session: Transcript) -> str:
        """Whoever has the database open, in whichever session: OpenCode may write any of them again."""
        process = locked_by(session.source_path.parent, *LOCKED) if self.detect(session.source_path) else None
        return "" if process is None else f"process {process} has OpenCode's database open"

    def has(self, path: Path) -> bool:
        return rows.there(path) if self.detect(path) else super().has(path)

    def stamp(self, path: Path, disk: Disk = DISK) -> Stamp | None:
        if not self.detect(path):
            return super().stamp(path, disk)
        return rows.stamp_of_lines(path, rows.lines_of(path)) if rows.there(path) else None

    def content(self, path: Path) -> Iterator[bytes]:
        return (line + b"\n" for line in rows.lines_of(path)) if self.detect(path) else super().content(path)

    def begins_with(self, path: Path, before: Iterable[bytes]) -> bool:
        """See `Files.begins_with`. The first line, of the session itself, changes with each message."""
        if not self.detect(path):
            return super().begins_with(path, before)
        return set(b"".join(before).split(b"\n")[1:]) <= {*rows.lines_of(path), b""}

    def replace(self, path: Path, pieces: Iterable[bytes], expected: Stamp | None, disk: Disk = DISK) -> None:
        if not self.detect(path):
            super().replace(path, pieces, expected, disk)
            return
        rows.write(path, b"".join(pieces).split(b"\n"), expected)

    def remove(self, path: Path) -> None:
        if self.detect(path):
            rows.write(path, (), None)
        else:
            super().remove(path)

    def finish(self, path: Path) -> None:
        if self.detect(path):
            rows.overwrite(path)


def _lines_in_file(path: Path) -> Iterator[bytes]:
    """The lines of a session in a file of its own, such as a kept copy: only read, never written."""
    try:
        found = written(path, whole=True)
    except FileNotFoundError as error:
        raise NotFound(f"No such transcript: {path}") from error
    yield orjson.dumps({"session": {"row": found["info"]}, "events": []})
    for one in found["messages"]:
        yield orjson.dumps({**one, "info": {**one["info"], "row": only(one["info"], ("id",))}, "events": []})


def _turn(number: int, line: bytes) -> TranscriptTurn:
    record = orjson.loads(line)
    if "info" not in record:
        return _of_session(number, line, record)
    info, parts = record["info"], dicts_in(record["parts"])
    identity, said, item = str(info["row"].get("id")), text_of(parts), CODEC.decode({"parts": parts})
    compacts = info.get("summary") is True or any(part.get("type") == "compaction" for part in parts)
    role = _ROLES.get(text_in(info.get("role")), "system")
    turn = turn_of(
        identity,
        "system" if compacts else role,
        said,
        item,
        prompt=role == "user" and bool(said) and not compacts,
        says=(f"agent:{name}" for _, name in begun_in(parts)),
        parent_id=info["parentID"] if isinstance(info.get("parentID"), str) else None,
        timestamp=utc(dict_in(info.get("time")).get("created")),
        kept=line,
        meta={"compacts": True} if compacts else {},
        key=said_in(info, parts),
    )
    return replace(turn, tool_calls=(), tool_results=())  # they are one part: nothing has to go together


def _of_session(number: int, line: bytes, record: dict[str, Any]) -> TranscriptTurn:
    """The session's own line, which must stay; or that of a sub-agent, which goes with the call that began it."""
    row = record["session"]["row"]
    shown = preview(text_in(row.get("title")))
    if number > 1:
        return TranscriptTurn(intern(str(row["id"])), preview=shown, kept=line, repeats=(f"agent:{row['id']}",))
    says = titles.quoting(row.get("title"))
    return TranscriptTurn("line-1", preview=shown, kept=line, meta={"needed": "OpenCode"}, says=says)


def _with_parent(record: dict[str, Any], asked: str) -> bool:
    record["info"]["parentID"] = asked
    record["events"] = []
    return True


def _without_repetitions(record: dict[str, Any], next_of: Mapping[str, str], *, untitled: bool) -> bool:
    """Take out of a line what only sums up others; its events say the same once more."""
    if "info" in record:
        summary = record["info"].get("summary")
        if not isinstance(summary, dict) or not (summary.get("diffs") or summary.get("title") or summary.get("body")):
            return False
        record["info"]["summary"], record["events"] = {"diffs": []}, []
        return True
    row = record["session"]["row"]
    before = dict(row), record["events"]
    if row.get("summary_diffs"):
        row["summary_diffs"] = None
    back = orjson.loads(row.get("revert") or "{}")
    if text_in(dict_in(back).get("messageID")) in next_of:  # what a person has taken back begins with the next one
        first = next_of[back["messageID"]]
        row["revert"] = orjson.dumps({"messageID": first}).decode() if first else None
    if untitled:
        row["title"] = f"New session - {utc(row.get('time_created'))}"
    record["events"] = []
    return (row, record["events"]) != before
