"""Transcripts of the agents that checkpoints name, and where their logs are."""

from __future__ import annotations

import json

import pytest

from benchmarks.which_session.transcripts import log_of, transcripts
from smart_fork.agents.log_readers import READERS
from tests.benchmarks.which_session.repository import ROOT, Repository, at, session_id, time_of, typed

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs

CODEX = [
    {"timestamp": time_of(0), "type": "session_meta", "payload": {"id": session_id(1), "cwd": ROOT, "timestamp": time_of(0)}},
    {"timestamp": time_of(0), "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>\n<cwd>x</cwd>"}]}},
    {"timestamp": time_of(1), "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Lift the cargo"}]}},
    {"timestamp": time_of(2), "type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Lifted."}]}},
]  # fmt: skip
COPILOT = [
    {"timestamp": time_of(0), "type": "session.start", "id": "e0", "data": {"sessionId": session_id(1), "startTime": time_of(0), "context": {"cwd": ROOT}}},
    {"timestamp": time_of(1), "type": "user.message", "id": "e1", "parentId": "e0", "data": {"content": "Lift the cargo"}},
    {"timestamp": time_of(2), "type": "assistant.message", "id": "e2", "parentId": "e1", "data": {"content": "Lifted."}},
]  # fmt: skip
GEMINI = {
    "sessionId": session_id(1), "projectHash": "x", "startTime": time_of(0), "lastUpdated": time_of(2),
    "messages": [
        {"id": "1", "timestamp": time_of(1), "type": "user", "content": "Lift the cargo"},
        {"id": "2", "timestamp": time_of(2), "type": "gemini", "content": "Lifted."},
    ],
}  # fmt: skip
OPENCODE = {
    "info": {"id": "ses_1", "directory": ROOT, "title": "Cargo", "time": {"created": 1000 * at(0), "updated": 1000 * at(2)}},
    "messages": [
        {"info": {"id": f"msg_{n}", "role": role, "time": {"created": int(1000 * at(n))}, "path": {"cwd": ROOT}}, "parts": [{"id": f"prt_{n}", "type": "text", "text": text}]}
        for n, role, text in ((1, "user", "Lift the cargo"), (2, "assistant", "Lifted."), (8, "user", "And lower it"))
    ],
}  # fmt: skip


def known_of(tmp_path, agent: str, text: str):
    repository = Repository(tmp_path / "harbor")
    repository.commit(0, {"a.py": "x\n"}, 1)
    repository.keep(1, 1, [], ["a.py"], 5, agent=agent)
    repository._kept = {name: text if name.endswith("full.jsonl") else kept for name, kept in repository._kept.items()}
    return transcripts(repository.clone())


def records(*some) -> str:
    return "\n".join(map(json.dumps, some)) + "\n"


@pytest.mark.parametrize(
    ("agent", "text", "reader"),
    [
        ("Codex", records(*CODEX), "codex"),
        ("Gemini CLI", json.dumps(GEMINI), "gemini"),
        ("Copilot CLI", records(*COPILOT), "copilot"),
        ("OpenCode", json.dumps(OPENCODE, indent=2), "opencode"),
        ("Claude Code", records(typed(1, "Lift the cargo", uuid="u1", sessionId=session_id(1), cwd=ROOT)), "claude"),
    ],
)
def test_an_agents_transcript_becomes_a_log_that_its_reader_finds(tmp_path, monkeypatch, agent, text, reader):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    (transcript,) = known_of(tmp_path, agent, text).values()
    log = log_of(transcript, at(9), home, tmp_path / "clone")
    log.write()

    assert "Lift the cargo" == transcript.prompts[0].text
    assert at(1) == transcript.prompts[0].time
    (found,) = READERS[reader].discover()
    session = READERS[reader].read(found.path).session
    assert session_id(1) == session.session_id
    assert "Lift the cargo" in [turn.text for turn in session.turns if turn.prompt]


def test_a_session_of_opencode_grows_in_the_database_and_one_of_a_sub_agent_is_left_out(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    (transcript,) = known_of(tmp_path, "OpenCode", json.dumps(OPENCODE)).values()
    for minute in (3, 9):
        log_of(transcript, at(minute), home, tmp_path / "clone").write()
        (found,) = READERS["opencode"].discover()
        session = READERS["opencode"].read(found.path).session

        assert str(tmp_path / "clone") == session.cwd
        assert (1 if minute == 3 else 2) == sum(turn.prompt for turn in session.turns)

    text = json.dumps(OPENCODE).replace("msg_8", "msg_1").replace("prt_8", "prt_1")  # ids that looked like secrets
    (tmp_path / "redacted").mkdir()
    (transcript,) = known_of(tmp_path / "redacted", "OpenCode", text).values()
    assert ["Lift the cargo", "And lower it"] == [one.text for one in transcript.prompts]

    below = {**OPENCODE, "info": OPENCODE["info"] | {"parentID": "ses_0"}}
    (tmp_path / "other").mkdir()
    assert {} == known_of(tmp_path / "other", "OpenCode", json.dumps(below))


@pytest.mark.parametrize("agent", ["", "claude-code", "Claude Code"])
def test_checkpoints_that_name_no_agent_are_of_the_first_one(tmp_path, agent):
    (transcript,) = known_of(tmp_path, agent, records(typed(1, "Lift the cargo"))).values()

    assert "Lift the cargo" == transcript.prompts[0].text


def test_nothing_of_a_log_is_there_before_it_began(tmp_path):
    (transcript,) = known_of(tmp_path, "Claude Code", records(typed(1, "Lift the cargo"))).values()

    assert log_of(transcript, at(1), tmp_path, tmp_path / "clone") is None


@pytest.mark.parametrize("text", ["", "no json\n[1]\n", "{}", '{"type": "user", "timestamp": 5}'])
@pytest.mark.parametrize("agent", ["Claude Code", "Codex", "Gemini CLI", "Copilot CLI", "One that nobody knows"])
def test_what_is_no_transcript_is_left_out(tmp_path, agent, text):
    assert {} == known_of(tmp_path, agent, text)


def test_a_session_id_that_could_leave_its_folder_is_left_out(tmp_path):
    repository = Repository(tmp_path / "harbor")
    repository.keep(1, 1, [typed(1, "Lift the cargo")], ["a.py"], 5)
    repository._kept = {name: text.replace(session_id(1), "../../elsewhere") for name, text in repository._kept.items()}
    repository.commit(0, {"a.py": "x\n"}, 1)

    assert {} == transcripts(repository.clone())
