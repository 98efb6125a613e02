"""A log that grows step by step gives the index of a log that is read in one run."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.masking import Masks
from indexer.refresh import complete
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from indexer.transcripts import reader_state
from indexer.transcripts.model import Turn
from indexer.transcripts.reader_state import Warm, WarmTurns, pack, unpack
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import append, content, lines, moment, save, session_of
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

ONE = "11111111-1111-4111-8111-111111111111"
SAID = [
    "upload with retries",
    "done",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzzqqTTxx",
    "x\n\n\n\ny",
    "ä " * 700,
]


def claude_lines(draw) -> bytes:
    """Prompts, answers, calls with late or missing results, rewinds, a title, and lines that are no records."""
    records, known, open_calls = [], [None], []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["user", "user", "assistant", "assistant", "call", "result", "title", "broken"]))
        if kind == "broken":
            records.append(b"{torn")
            continue
        if kind == "title":
            records.append({"type": "custom-title", "customTitle": f"title {number}", "sessionId": ONE})
            continue
        text = draw(st.sampled_from(SAID))
        message = {"role": "assistant", "id": f"m{number}", "content": [{"type": "text", "text": text}]}
        if kind == "user":
            message = {"role": "user", "content": f"{text} {number}"}
        elif kind == "call":
            open_calls.append(f"c{number}")
            given = {"command": f"pytest test_{number}"}
            message["content"] = [{"type": "tool_use", "id": open_calls[-1], "name": "Bash", "input": given}]
        elif kind == "result":
            call = draw(st.sampled_from(open_calls or ["none"]))
            output = {
                "type": "tool_result",
                "tool_use_id": call,
                "is_error": True,
                "content": "Exit code 1\nno such file",
            }
            message = {"role": "user", "content": [output]}
        parent = draw(st.sampled_from([known[-1], known[-1], known[-1], draw(st.sampled_from(known))]))
        known.append(f"u{number}")
        records.append({
            "type": message["role"], "uuid": known[-1], "parentUuid": parent, "sessionId": ONE, "cwd": "/work/a",
            "timestamp": moment(number), "message": message,
        })  # fmt: skip
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in records)


def codex_lines(draw) -> bytes:
    """A header, then messages, calls, failed outputs, and prompts that are withdrawn."""
    meta = {"id": ONE, "timestamp": moment(0), "cwd": "/work/a", "originator": "codex-tui", "cli_version": "0.100.0"}
    records = [{"timestamp": moment(0), "type": "session_meta", "payload": meta}]
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["user", "assistant", "call", "output", "rollback"]))
        text = f"{draw(st.sampled_from(SAID))} {number}"
        payload = {
            "user": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
            "assistant": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
            "call": {
                "type": "function_call",
                "call_id": f"c{number // 2}",
                "name": "shell",
                "arguments": '{"cmd": "ls"}',
            },
            "output": {"type": "function_call_output", "call_id": f"c{number // 2}", "output": "Exit code: 1\nno"},
            "rollback": {"type": "thread_rolled_back", "num_turns": 1},
        }[kind]
        envelope = "event_msg" if kind == "rollback" else "response_item"
        records.append({"timestamp": moment(number), "type": envelope, "payload": payload})
    return lines(records)


@st.composite
def growing(draw):
    """A log's place and its bytes, in pieces cut anywhere."""
    if draw(st.booleans()):
        path, data = READERS["claude"].home() / "projects/-work-a" / f"{ONE}.jsonl", claude_lines(draw)
    else:
        name = f"rollout-2026-01-02T03-04-05-{ONE}.jsonl"
        path, data = READERS["codex"].home() / "sessions/2026/01/02" / name, codex_lines(draw)
    cuts = sorted(draw(st.sets(st.integers(1, len(data)), max_size=5)))
    ends = draw(st.sets(st.sampled_from([i + 1 for i, byte in enumerate(data) if byte == 10]), max_size=5))
    bounds = [0, *sorted({*cuts, *ends, len(data)})]
    return path, [data[start:end] for start, end in pairwise(bounds)]


def indexed() -> dict:
    """Return the content of the index after one more run over all logs."""
    store = Store(index_db())
    try:
        complete(store, READERS, None, patience=0.0)
    finally:
        store.close()
    return content(index_db())


@pytest.mark.parametrize("most", thorough_except_first([0, 1 << 20]), ids=["cold", "warm"])
def test_growing_in_any_steps_gives_the_index_of_reading_at_once(most, monkeypatch):
    """F-147, F-195: with and without the last packed turns in memory."""

    @settings(max_examples=full_or_sample(30, 12))
    @given(st.data())
    def check(data):
        with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", home)
            patch.setenv("SMART_FORK_HOME", f"{home}/grown")
            patch.setattr(reader_state, "_warm", Warm(most))
            path, pieces = data.draw(growing())
            path.parent.mkdir(parents=True)
            path.touch()
            for piece in pieces:
                append(path, piece)
                grown = indexed()
            patch.setenv("SMART_FORK_HOME", f"{home}/at-once")
            patch.setattr(reader_state, "_warm", Warm(0))
            assert grown == indexed()

    check()


def turns_of(number: int) -> list[Turn]:
    return [Turn(f"t{i}", None, "user", "", text=f"said {i}") for i in range(number)]


def test_of_a_log_that_has_grown_only_new_turns_are_packed_and_none_unpacked(monkeypatch):
    packed, unpacked = [], []
    to_row, from_row = reader_state.turn_to_row, reader_state.turn_from_row
    monkeypatch.setattr(reader_state, "turn_to_row", lambda turn: packed.append(turn.id) or to_row(turn))
    monkeypatch.setattr(reader_state, "turn_from_row", lambda row: unpacked.append(row) or from_row(row))
    _, turns = unpack(pack({}, {}, turns_of(3 * reader_state._BATCH)))
    packed.clear()
    kept = pack({"more": True}, {}, [*turns, Turn("new", None, "user", "")])

    assert (["new"], []) == (packed, unpacked)
    monkeypatch.setattr(reader_state, "_warm", Warm(0))
    assert ({"more": True}, [*turns_of(3 * reader_state._BATCH), Turn("new", None, "user", "")]) == unpack(kept)
    assert unpacked


def test_packed_turns_are_kept_up_to_a_size_those_of_the_oldest_log_go_first():
    one, two, three = ([Turn(f"{log}", None, "user", "")] for log in range(3))
    warm = Warm(most=20)
    for turns in (one, two, three):
        warm.remember(turns[0].id.encode(), [WarmTurns(tuple(turns), b"x" * 10)])

    assert [None, two, three] == [warm.recall(b"0"), warm.recall(b"1"), warm.recall(b"2")]


def test_what_a_log_had_before_does_not_count_when_it_has_grown():
    turns = [Turn("0", None, "user", "")]
    warm = Warm(most=20)
    for number in range(10):
        warm.remember(b"%d" % number, [WarmTurns(tuple(turns), b"x" * 10)])

    assert [None, turns] == [warm.recall(b"8"), warm.recall(b"9")]


def test_a_text_is_masked_once_and_the_oldest_is_let_go_of():
    asked = []
    masks = Masks(lambda text: asked.append(text) or text.upper(), most=4)

    assert ["AA", "AA", "BB", "CC", "CC", "AA"] == [masks(text) for text in ("aa", "aa", "bb", "cc", "cc", "aa")]
    assert ["aa", "bb", "cc", "aa"] == asked


def test_of_a_session_that_has_grown_only_new_places_are_written(tmp_path):
    store = Store(tmp_path / "index.db")
    said = [f"{number} " + "word " * 200 for number in range(40)]
    save(store, session_of(*said))
    log = []
    store.db.set_exec_trace(lambda _cursor, sql, values: log.append((sql, values)) or True)
    save(store, session_of(*said, "and one more"))
    store.close()

    placed = [values for sql, values in log if sql.startswith("INSERT OR REPLACE INTO placements")]
    assert len(placed) < 6
