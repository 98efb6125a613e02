"""Logs whose records were changed at random: no reader and no walk over records raises anything undocumented."""

from __future__ import annotations

import copy
import gc
import json
import random
import re
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from indexer.transcripts.lines import LineReader, as_read
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace, TargetSession
from smart_fork.errors import SmartForkError
from smart_fork.forking import handover_text
from tests.golden.fixtures import logs
from tests.indexer.transcripts.records import ASKED, DOCUMENTS, READ_LOGS, SESSION, lay_out, read_records
from tests.indexer.transcripts.test_hostile_logs import places, replaced, storable
from tests.smart_fork.agents.opencode import database
from tests.support.cases import thorough_except
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

#: Mutated records of all agents together.
RECORDS = full_or_sample(60_000, 2_000)
#: The bytes of a large log.
LARGE = 5 << 18
#: A document is parsed as a whole: the parser alone takes twelve times its size, and again if it has to be repaired.
DOCUMENT_TIMES = 30
HERE = HomePlace("/home/ada/shop", "/home/ada")
DEEP = "a deep value"
#: A part of nearly every id of a message or call.
_ID = re.compile(rb"(?<=-[0-9a-f]{12}-)[0-9a-f]{6}|(?<=-[0-9a-f]{4}-)[0-9a-f]{6}(?=[0-9a-f]{6}\b)")
VALUES: list[Any] = [
    None, True, False, 0, -1, 1 << 63, -(1 << 63), 1 << 200, 1e308, "", "x", "\0", "\ud83d", "/", "../..", "9" * 400,
    "2026-13-45T99:99:99Z", [], {}, [[]], [None], [{}], ["x", 1], {"": ""}, {"type": {}}, {"text": 3}, {"id": []}, DEEP,
]  # fmt: skip


def mutated(record: dict[str, Any], others: list[dict[str, Any]], rng: random.Random) -> list[bytes]:
    """Return the lines that replace a record, which is changed in one way."""
    there = [path for path in places(record) if path]
    path = rng.choice(there)
    way = rng.randrange(10)
    if way < 3:
        record = replaced(record, path, rng.choice(VALUES))
    elif way == 3:
        record = without(record, path)
    elif way == 4:  # a value of another place, or record: ids and parents are wrong, or form a circle
        other = rng.choice(others)
        record = replaced(record, path, value_at(other, rng.choice([one for one in places(other) if one])))
    elif way == 5:
        record = replaced(record, path, [value_at(record, path)] * rng.randrange(3))
    elif way == 6:
        field = next((name for name in ("parentUuid", "parentId") if name in record), path[0])
        record = record | {field: rng.choice(others).get("uuid" if field == "parentUuid" else "id", record)}
    line = json.dumps(record).replace(json.dumps(DEEP), rng.choice(["[", '{"x":']) * 3000).encode()
    if way == 7:
        return [line, line]
    if way == 8:
        return [line[: rng.randrange(len(line))]]
    if way == 9:
        at = rng.randrange(len(line))
        return [line[:at] + rng.choice([b"\xff", b"\xed\xa0\x80", b"\0", b"\\ud800", b"\r", b"}{"]) + line[at:]]
    return [line]


def without(value: Any, path: tuple[Any, ...]) -> Any:
    value = copy.copy(value)
    if len(path) > 1:
        value[path[0]] = without(value[path[0]], path[1:])
    else:
        del value[path[0]]
    return value


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


Write = Callable[[random.Random, int], int]


def of_lines(path: Path, fixtures: list[list[dict[str, Any]]]) -> Write:
    """Write a fixture with so many of its records mutated."""

    def write(rng: random.Random, most: int) -> int:
        records = rng.choice(fixtures)
        chosen = set(rng.sample(range(len(records)), min(most, len(records))))
        lines = [
            line
            for number, record in enumerate(records)
            for line in (mutated(record, records, rng) if number in chosen else [json.dumps(record).encode()])
        ]
        path.write_bytes(b"\n".join(lines) + rng.choice([b"\n", b""]))
        return len(chosen)

    return write


def parts(data: Any) -> list[dict[str, Any]]:
    """The objects in a row's data."""
    return data if isinstance(data, list) else [data]


def of_rows(path: Path, column: str, *tables: str) -> Write:
    """Write a database with so many rows of the session mutated."""
    source = path.parent
    with closing(sqlite3.connect(source)) as db:
        rows = [
            (table, row, json.loads(data))
            for table in tables
            for row, data in db.execute(f"SELECT rowid, {column} FROM {table} WHERE session_id = ?", (path.name,))  # noqa: S608
            if data != "[]"
        ]

    def put(db: sqlite3.Connection, table: str, row: int, data: object) -> None:
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (data, row))  # noqa: S608

    def write(rng: random.Random, most: int) -> int:
        chosen = rng.sample(rows, min(most, len(rows)))
        with closing(sqlite3.connect(source)) as db:
            for table, row, data in rows:
                put(db, table, row, json.dumps(data))
            for table, row, data in chosen:
                line = mutated(rng.choice(parts(data)), [one for _, _, value in rows for one in parts(value)], rng)[0]
                line = b"[%b]" % line if isinstance(data, list) else line
                put(db, table, row, rng.choice([line, line.decode("utf-8", "replace"), b"", 7]))
            db.commit()
        return len(chosen)

    return write


def laid_out(agent: str, home: Path) -> tuple[Path, Write]:
    """Return the path of a log, and the function that writes it."""
    if agent == "opencode":
        path = database.make() / database.TOOLS
        return path, of_rows(path, "data", "message", "part")
    if agent in READ_LOGS:
        (path,) = lay_out(agent)
        if agent == "goose":
            return path, of_rows(path, "content_json", "messages")
        return path, of_lines(path, [read_records(agent)])
    path = ASKED[agent](home, "one")
    fixtures = [[json.loads(line) for line in source.read_text().splitlines()] for _, source in logs(agent)]
    return path, of_lines(path, fixtures)


def records_in(path: Path, session: Session | None) -> Iterator[dict[str, Any]]:
    if path.is_file():
        yield from (line.record for line in LineReader(path))
    for turn in session.turns if session else ():
        yield from (record for _, record in as_read(turn.raw))


def walked(agent: Agent, path: Path) -> None:
    """Use a log in every way except starting its agent."""
    reader = READERS[agent.name]
    outcome = reader.read(path)
    assert reader.read(path, outcome.checkpoint).session == outcome.session
    session = reader.read(path, keep_raw=True).session
    for one in filter(None, (outcome.session, session)):
        storable(one)
    with suppress(OSError):
        reader.glance(path)
    with suppress(OSError):
        reader.is_copy(path)
    records = list(records_in(path, session))
    decoded(agent, records)
    followed(agent, path)
    if agent.converter:
        shared(agent, records)
    if session is not None:
        related(agent, session)


def decoded(agent: Agent, records: list[dict[str, Any]]) -> None:
    codec = agent.codec
    assert codec is not None
    for record in records:
        codec.decode(record)
        codec.thought(record)
        for walk in (codec.used, codec.gave, codec.calls):
            list(walk(record))


def followed(agent: Agent, path: Path) -> None:
    if (tail := agent.tail) is None:
        return
    with suppress(OSError):
        records = list(tail.records(path))
        assert tail.written(records) >= 0
        for record in (*records, *tail.backwards(path)):
            tail.sign(record)
            list(tail.steps(record, {}))


def shared(agent: Agent, records: list[dict[str, Any]]) -> None:
    converter = agent.converter
    assert converter is not None
    out = []
    for record in records:
        list(converter.ids(record))
        converter.without_thoughts(record, lambda _: True)
        converter.untied(record)
        converter.withheld(record, {"call"}, "gone")
        sent = converter.sent(record)
        if sent is not None:
            assert converter.sent(sent) == sent
            out.append(converter.outgoing(sent, HERE))
            converter.incoming(out[-1], HERE, converter.own_fields(sent))
        for others in (True, False):
            converter.arrived(record, others=others)
    list(converter.anew(out, TargetSession(SESSION, HERE)))


def related(agent: Agent, session: Session) -> None:
    codec, heads, subagents, converter, cutter = (
        agent.codec,
        agent.ancestry,
        agent.subagents,
        agent.converter,
        agent.cutter,
    )
    assert codec is not None
    codec.thoughts_between(session)
    with suppress(SmartForkError):
        handover_text.read_neutral(session)
    if heads:
        heads.family(session.session_id, "", {})
    for name in subagents.begun(session).values() if subagents else ():
        with suppress(OSError):
            subagents.read(session, name)
    with suppress(SmartForkError, OSError):
        list(converter.records_of(session) if converter else ())
    with suppress(SmartForkError, OSError):
        if cutter:
            loaded = cutter.load(session.source_path)
            cutter.without_repetitions(loaded, {turn.id for turn in loaded.turns})


@pytest.mark.parametrize("agent", thorough_except(READERS.names, "claude", "gemini", "goose"))
def test_whatever_becomes_of_its_records_a_log_is_read(home, agent):
    path, write = laid_out(agent, home)
    rng = random.Random(agent)  # noqa: S311 - the same each time
    done = number = 0
    while done < RECORDS // len(READERS.names):
        number += 1
        done += write(rng, rng.choice([1, 2, 5, 20]))
        try:
            walked(AGENTS[agent], path)
        except Exception as error:
            error.add_note(f"log {number} of {agent}: {path}")
            raise


def large(agent: str, home: Path) -> tuple[Path, int]:
    """Return a log of many mutated ones, each with other ids, and its size."""
    path, write = laid_out(agent, home)
    rng = random.Random(agent)  # noqa: S311 - the same each time
    logs: list[bytes] = []
    size = number = 0
    while size < LARGE:
        write(rng, 3)
        number += 1
        if agent in COPIES:
            size = copied(path, agent, f"{number:04}")
        else:
            logs.append(_ID.sub(f"{number:06x}".encode(), path.read_bytes()) + b"\n")
            size += len(logs[-1])
    if agent in DOCUMENTS:
        path.write_bytes(document_of(logs))
    elif logs:
        path.write_bytes(b"".join(logs))
    return path, path.stat().st_size if path.is_file() else size


def document_of(logs: list[bytes]) -> bytes:
    """Return one document with the messages of all that can be read."""
    messages: list[Any] = []
    for log in logs:
        with suppress(ValueError, RecursionError):
            found = json.loads(log)
            messages += found["messages"] if isinstance(found, dict) and isinstance(found.get("messages"), list) else []
    return json.dumps({"id": SESSION, "messages": messages}).encode()


#: How a session's own messages are copied, by agent.
COPIES = {
    "opencode": """
        INSERT INTO message SELECT id || '_' || ?1, session_id, time_created, time_updated, data FROM message
        WHERE session_id = ?2 AND id NOT GLOB '*_*_*';
        INSERT INTO part SELECT id || '_' || ?1, message_id || '_' || ?1, session_id, time_created, time_updated, data
        FROM part WHERE session_id = ?2 AND id NOT GLOB '*_*_*'
    """,
    "goose": """
        INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp)
        SELECT message_id || '_' || ?1, session_id, role, content_json, created_timestamp FROM messages
        WHERE session_id = ?2 AND message_id NOT GLOB '*_*'
    """,
}


def copied(path: Path, agent: str, suffix: str) -> int:
    """Add copies of a session's own messages to it. Return the size of the database."""
    with closing(sqlite3.connect(path.parent)) as db:
        for statement in COPIES[agent].split(";"):
            db.execute(statement, (suffix, path.name))
        db.commit()
    return path.parent.stat().st_size


def peak_of(read: Callable[[], Any]) -> int:
    """Return the largest number of bytes that it takes."""
    gc.collect()
    gc.freeze()  # cycles are collected as often as in a new process, whatever tests ran in this one
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.unfreeze()


@pytest.mark.thorough
@pytest.mark.parametrize("agent", READERS.names)
def test_a_large_mutated_log_takes_at_most_three_times_its_size(home, agent):
    path, size = large(agent, home)
    most = (DOCUMENT_TIMES if agent in DOCUMENTS else 3) * size
    outcome = READERS[agent].read(path)  # patterns that are compiled for the first such text are not memory for the log
    read = partial(READERS[agent].read, path)

    # One measurement is no proof: other threads of this process take memory too, and caches that tests have filled are emptied.
    assert peak_of(read) < most or peak_of(read) < most
    assert outcome.bytes_read == size or agent in COPIES
    assert outcome.session is not None
