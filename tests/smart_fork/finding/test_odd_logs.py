"""Tests of files that are named like logs and are none: little of them is read, and each is listed with its kind."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from indexer import safe_files
from indexer.transcripts import lines
from indexer.transcripts.lines import GAP_BYTES, GLANCE_GAP_BYTES, LineReader, first_lines
from smart_fork import doctor
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import NotFound
from smart_fork.finding import session_lookup
from smart_fork.finding.recent import list_recent
from smart_fork.system import call_context
from tests.indexer.transcripts.records import codex_path, id_of, meta
from tests.smart_fork.commands import command_model, run
from tests.smart_fork.world import WordsModel

__all__ = ["command_model", "run"]

HUGE = 3 << 30
SESSION = id_of(9)
#: Where a log of each agent that keeps one file a session lies, and how it is named.
PLACES: dict[str, str] = {
    "claude": f".claude/projects/-srv-shop/{SESSION}.jsonl",
    "codex": f".codex/sessions/2026/07/01/rollout-2026-07-01T10-00-00-{SESSION}.jsonl",
    "qwen": f".qwen/projects/-srv-shop/chats/{SESSION}.jsonl",
    "gemini": f".gemini/tmp/shop/chats/session-2026-07-01T10-00-{SESSION[:8]}.jsonl",
    "copilot": f".copilot/session-state/{SESSION}/events.jsonl",
}
#: How a file among the logs can be odd, and what is said of it.
ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "NULs without an end": (lambda path: sparse(path, HUGE), "no line break in 64 MiB"),
    "a few NULs": (lambda path: path.write_bytes(b"\0" * 5000), "only blanks and NUL bytes"),
    "line breaks": (lambda path: path.write_bytes(b"\n" * 300_000), "only blanks and NUL bytes"),
    "another language": (lambda path: path.write_bytes(b"no JSON\n" * 100), "no line is a valid record"),
    "a FIFO": (os.mkfifo, "a FIFO"),
    "a folder": (Path.mkdir, "a folder"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
    "a dangling link": (lambda path: path.symlink_to("gone"), "a broken link"),
}
odd = pytest.mark.parametrize("kind", ODD)


def sparse(path: Path, size: int) -> Path:
    """Create a file of this many NULs, which takes no space on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(size)
    return path


@pytest.fixture
def reads(monkeypatch) -> dict[str, int]:
    """Count the bytes that are read of each log."""
    counted: dict[str, int] = {}

    def opened(path):
        file = real(path)

        class Counting:
            def __getattr__(self, name):
                return getattr(file, name)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def _told(self, data):
                counted[str(path)] = counted.get(str(path), 0) + len(data)
                return data

            def read(self, size=-1):
                return self._told(file.read(size))

            def readline(self, size=-1):
                return self._told(file.readline(size))

        return Counting()

    real = safe_files.open_regular
    monkeypatch.setattr(lines, "open_regular", opened)
    return counted


def odd_log(home: Path, agent: str, kind: str) -> tuple[Path, str]:
    make, why = ODD[kind]
    path = home / PLACES[agent]
    path.parent.mkdir(parents=True)
    make(path)
    return path, why


def passed_over(agent: str = "all") -> dict[str, str]:
    return {one.path: one.reason for one in list_recent(agent, None, 20, everywhere=True).passed_over}


@pytest.mark.parametrize(
    ("agent", "kind"),
    [
        pytest.param(agent, kind, marks=() if agent == "claude" else pytest.mark.thorough)
        for agent, kind in product(PLACES, ODD)
    ],
)
def test_a_list_names_what_is_no_log_and_what_it_is(home, agent, kind):
    path, why = odd_log(home, agent, kind)

    assert {str(path): why} == {name: said.removeprefix("no log: ") for name, said in passed_over(agent).items()}


@pytest.mark.thorough
@pytest.mark.parametrize("agent", PLACES)
def test_a_list_reads_little_of_a_huge_log(home, agent, reads):
    path = sparse(home / PLACES[agent], HUGE)

    list_recent(agent, None, 20, everywhere=True)

    assert reads[str(path)] < GLANCE_GAP_BYTES + (2 << 20)


@pytest.mark.thorough
@pytest.mark.parametrize("agent", PLACES)
def test_reading_a_huge_log_comes_to_an_end_and_says_why(home, agent, reads):
    path = sparse(home / PLACES[agent], HUGE)

    result = READERS[agent].read(path)

    assert result.session is None
    assert "no log: no line break in 256 MiB" == result.skipped
    assert reads[str(path)] < GAP_BYTES + (2 << 20)
    with pytest.raises(NotFound, match="no line break"):
        session_lookup.read(session_lookup.Located(agent, SESSION, path))


@pytest.mark.thorough
def test_what_was_said_before_a_huge_hole_is_read(world, shop):
    session_id = world.claude(shop, "mend it", "done")
    sparse(world.log_of(session_id), HUGE)

    assert [session_id] == [one.session_id for one in list_recent("claude", str(shop), 20).sessions]
    assert ["mend it", "done"] == [turn.text for turn in session_lookup.read(session_lookup.locate(session_id)).turns]


@pytest.mark.thorough
def test_lines_that_are_no_records_are_not_read_for_ever(tmp_path, reads):
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"a":1}\n' + b"\n" * 200_000)

    assert [{"a": 1}] == [line.record for line in LineReader(log)]
    assert reads[str(log)] < 100_000
    log.write_bytes(b"\n" * 200_000 + b'{"a":1}\n')
    with pytest.raises(OSError, match="no log"):
        list(first_lines(log))
    assert reads[str(log)] < 200_000


def test_a_record_behind_a_line_that_is_too_long_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 12)
    monkeypatch.setattr(lines, "GLANCE_BYTES", 1 << 10)
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'"' + b"x" * (3 << 20) + b'"\n{"a":1}\n{"b":2}\n')

    assert [{"a": 1}] == [line.record for line in first_lines(log)]
    reader = LineReader(log)
    assert [{"a": 1}, {"b": 2}] == [line.record for line in reader]
    assert log.stat().st_size == reader.offset


def test_a_socket_among_the_logs_is_named(home, monkeypatch):
    folder = home / ".claude/projects/x"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)  # its name may not be long
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s.jsonl")

    assert {str(folder / "s.jsonl"): "a socket"} == passed_over()


def test_a_log_that_has_only_been_begun_is_not_odd(home):
    path = codex_path(home, SESSION)
    path.parent.mkdir(parents=True)
    path.write_bytes(json.dumps(meta(SESSION)).encode()[:40])
    (path.parent / f"rollout-2026-07-01T10-00-00-{id_of(8)}.jsonl").write_bytes(b"")

    assert {} == passed_over()


def test_who_may_not_ask_everything_is_told_no_paths(home, shop):
    odd_log(home, "claude", "a FIFO")
    token = call_context._allowed.set(call_context.permitted([str(shop)]))
    try:
        assert () == list_recent("all", str(shop), 20).passed_over
    finally:
        call_context._allowed.reset(token)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ODD)
def test_commands_name_what_is_no_log(home, run, kind):
    path, why = odd_log(home, "claude", kind)
    why = why.replace("64", "256")
    run("index", "run", "--no-vectors")

    for words in (["list"], ["find", "retry"], ["index", "run", "--no-vectors"], ["index", "status"]):
        named = json.loads(run(*words, "--json").out)["passed_over"]
        assert [str(path)] == [one["path"] for one in named]
        said = run(*words)
        assert f"{path}: " in said.err
        assert why in said.err or words == ["list"]
    (check,) = (one for one in doctor.run_checks(WordsModel()) if one.name == "odd logs")
    assert f"{path}: " in check.detail
    assert why in check.detail
    assert (False, True) == (check.ok, check.optional)


def test_where_all_is_well_nothing_is_said_of_it(run, world, shop):
    world.claude(shop, "mend it", "done")

    for words in (["list"], ["find", "mend it"]):
        assert "passed_over" not in json.loads(run(*words, "--json").out)
    assert [] == [one.name for one in doctor.run_checks(WordsModel()) if one.name == "odd logs"]


def test_whose_transcript_a_huge_file_is_is_looked_up_in_little_of_it(tmp_path, monkeypatch):
    from smart_fork.agents.excision import cutter as of_cuts

    taken = []
    real = of_cuts.open_regular
    path = sparse(tmp_path / "log.jsonl", HUGE)

    def opened(path):
        taken.append(real(path))
        return taken[-1]

    monkeypatch.setattr(of_cuts, "open_regular", opened)
    monkeypatch.setattr(of_cuts, "decode_line", lambda raw: (taken.append(len(raw)), ([], ""))[1])

    assert {} == of_cuts.first_record(path)
    assert [GLANCE_GAP_BYTES] == taken[1:]
