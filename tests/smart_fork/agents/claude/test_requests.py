"""Claude Code 2.1.332 also logs what it sends to the model. Cuts remove these records, and no copy has them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt, NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.excise import Request, branch, check, cut, load_auto, rollback

FIXTURE = Path(__file__).parents[3] / "fixtures/claude/requests.jsonl"
REQUESTS = ("api-request", "api-request-blob")


@pytest.fixture
def log(home, repo) -> Path:
    """Return the path of a log with two steps; a request repeats the prompt of each."""
    lines = FIXTURE.read_text().replace("/home/ada/shop", str(repo)).splitlines()
    session = json.loads(lines[0])["sessionId"]
    second = {
        "role": "user",
        "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>\nstep walrus"}],
    }
    lines.append(json.dumps({"type": "api-request-blob", "sessionId": session, "hash": "0" * 64, "message": second}))
    path = home / f".claude/projects/shop/{session}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def types(path: Path) -> set[str]:
    return {json.loads(line)["type"] for line in path.read_bytes().splitlines()}


def turns_with(path: Path, word: str) -> tuple[str, ...]:
    return tuple(turn.id for turn in load_auto(path).turns if turn.key and word.encode() in turn.raw)


def test_requests_are_known_bookkeeping_and_no_messages(log):
    read = READERS["claude"].read(log)

    assert (27, 0) == (read.records, read.unknown)
    assert 8 == len(read.session.turns)
    assert {"system"} == {turn.role for turn in load_auto(log).turns if not turn.key}


@pytest.mark.parametrize("word", ["zebra", "walrus"])
@pytest.mark.slow
def test_a_cut_removes_every_request_and_can_be_undone(log, word):
    before = log.read_bytes()

    outcome = cut(Request(str(log), ids=turns_with(log, word)))

    assert word.encode() not in log.read_bytes()
    assert types(log).isdisjoint(REQUESTS)
    assert "api-request-shape" in types(log)
    assert check(str(log))["ok"]
    rollback(outcome["snapshot"], force=True)
    assert before == log.read_bytes()


def test_masked_secrets_are_masked_in_requests_as_well(log):
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    log.write_text(log.read_text().replace("step walrus", f"step {key}"))

    cut(Request(str(log), secrets=True))

    assert key not in log.read_text()
    assert "api-request-blob" in types(log)


def test_an_excised_branch_has_no_requests(log):
    made = branch(str(log), ids=turns_with(log, "zebra"))

    assert b"zebra" not in Path(made.path).read_bytes()
    assert types(Path(made.path)).isdisjoint(REQUESTS)


@pytest.mark.parametrize("whole", [True, False], ids=["at a message", "within a budget"])
def test_copies_of_some_turns_have_no_requests(log, home, whole):
    session = READERS["claude"].read(log).session
    new = NewSession("5b0c6f0e-3d0f-4f0a-9a43-0f2f6d1c7a11", None, datetime.now(UTC))
    agent = AGENTS.copier_of("claude")

    excerpt = Excerpt(frozenset(range(4)), 3, tokens=(1,) * len(session.turns))
    copy = agent.copy(session, 3, new) if whole else agent.copy(session, excerpt, new)

    lines = b"\n".join(copy)
    assert b"done zebra" in lines
    assert b"walrus" not in lines
    assert b"api-request" not in lines


def test_requests_are_not_shared(log):
    records = [json.loads(line) for line in log.read_bytes().splitlines()]

    shared = [one for one in map(AGENTS.converter_of("claude").sent, records) if one]

    assert {"user", "assistant"} == {one["type"] for one in shared}
