"""The service tells a command what answers in a session, exactly as the command would find it, or nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import orjson
import pytest

from smart_fork import sessions
from smart_fork.budget.wanted import wanted_of
from smart_fork.copies.session_copy import last_branch_point
from smart_fork.forking.spending import Spending, chosen
from smart_fork.retrieval.exchange_evidence import ExchangeEvidence, PointParts, told
from smart_fork.retrieval.upkeep import Engine
from smart_fork.service import app, evidence
from smart_fork.service.address import Address, publish
from smart_fork.service.client import Service
from smart_fork.service.evidence import ServiceEvidence
from smart_fork.service.introduction import HEADER, introduction
from tests.smart_fork.world import BrokenModel, World

SUBJECTS = ("upload", "invoice", "logo", "password", "queue")
ASKED = ("who may sign in when the password has expired", ("retry the upload with backoff", "queue"))
ROW = [0, 0.5, 0.1, 1.0, 0.0, True]

NO_ANSWERS = (
    None,
    [],
    {},
    {"exchanges": []},
    {"exchanges": {"0": ROW[1:]}},
    {"exchanges": [ROW[:-1]]},
    {"exchanges": [ROW, ROW]},
    {"exchanges": [[-1, *ROW[1:]]]},
    {"exchanges": [[True, *ROW[1:]]]},
    {"exchanges": [["0", *ROW[1:]]]},
    {"exchanges": [[0, "1", *ROW[2:]]]},
    {"exchanges": [[0, float("nan"), *ROW[2:]]]},
    {"exchanges": [[0, 10**400, *ROW[2:]]]},
    {"exchanges": [ROW], "point": "0"},
    {"exchanges": [ROW], "point": -1},
)


def spoken(exchanges: int) -> list[str]:
    return [
        words
        for number in range(exchanges)
        for words in (
            f"Why does the {SUBJECTS[number % 5]} fail in step {number}?",
            f"Since {number} it waits for the {SUBJECTS[number * 7 % 5]}. " + "It tries again. " * (number % 4 * 9),
        )
    ]


@pytest.fixture
def announced(served, world: World, monkeypatch):
    """The service, where commands look for it, with the model that they have."""
    monkeypatch.setattr("indexer.models.configured_embedder", lambda **_: world.model)
    publish(Address("127.0.0.1", served.port, 1, version("smart-fork"), ""))
    return served


@pytest.fixture
def session(world: World, shop) -> str:
    return world.claude(shop, *spoken(12))


def told_of(session: str, intent: str = ASKED[0], also: tuple[str, ...] = ASKED[1]) -> ExchangeEvidence | None:
    return ServiceEvidence(session, intent, also).of(sessions.read(sessions.locate(session)))


def selection_of(session: str, budget: str, **by: Any) -> dict[str, Any]:
    read = sessions.read(sessions.locate(session))
    spending = Spending(wanted_of(budget), *ASKED, **by)  # type: ignore[arg-type]
    return chosen(read, last_branch_point(read), spending).selection.as_json()


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_what_is_kept_is_the_same_whoever_has_looked(announced, world, shop, agent):
    session = getattr(world, agent)(shop, *spoken(12))

    def nobody() -> Engine:
        pytest.fail("the service has told it")

    found = told_of(session)
    assert found is not None
    assert (True, 12) == (found.compared, len(found.parts))
    assert (
        Spending(wanted_of("1k"), *ASKED, Engine(world.model)).evidence(  # type: ignore[arg-type]
            sessions.read(sessions.locate(session))
        )
        == found
    )
    for budget in ("match", "1k", "2k"):
        alone = selection_of(session, budget, engine=Engine(world.model))
        asked = ServiceEvidence(session, *ASKED)
        assert alone == selection_of(session, budget, engine=nobody, told=asked.of)


def test_a_session_that_has_grown_is_read_before_it_is_told_of(announced, world, session):
    assert told_of(session) is not None
    path = world.log_of(session)
    more = path.read_text().replace("step 11", "step 12")
    path.write_text(more)

    found = told_of(session, "step 12")

    assert found == Spending(wanted_of("1k"), "step 12", ASKED[1], Engine(world.model)).evidence(  # type: ignore[arg-type]
        sessions.read(sessions.locate(session))
    )


def test_what_is_not_complete_is_not_told(announced, served, world, session, monkeypatch):
    read = sessions.read(sessions.locate(session))
    asked = ServiceEvidence(session, *ASKED)
    assert asked.of(sessions.read(sessions.locate(world.claude(read.cwd, "another", "one")))) is None
    assert ServiceEvidence("99999999-0000", *ASKED).of(read) is None

    monkeypatch.setenv("SMART_FORK_SERVICE", "false")
    assert told_of(session) is None
    monkeypatch.delenv("SMART_FORK_SERVICE")
    with monkeypatch.context() as patch:
        patch.setattr(app, "own_version", lambda: "0.0.1")
        assert told_of(session) is None
    with monkeypatch.context() as patch:
        patch.setattr("indexer.models.configured_embedder", lambda **_: type("Other", (), {"model": "other"}))
        assert told_of(session) is None
    with monkeypatch.context() as patch:
        patch.setattr("smart_fork.service.introduction.surroundings", iter(({"home": "a"}, {"home": "b"})).__next__)
        assert told_of(session) is None
    with monkeypatch.context() as patch:
        patch.setattr(type(world.model), "embed", BrokenModel.embed)
        assert told_of(session) is None
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "SECONDS", 0.0)
        assert told_of(session) is None
    assert told_of(session) is not None


def test_who_asks_for_something_else_is_refused(announced):
    said = {HEADER.replace("-", "_"): introduction(announced.secret)}
    right = orjson.dumps({"session": "60309e1e", "intent": "x", "also": []})
    more = orjson.dumps({"session": "60309e1e", "intent": "x", "also": [], "path": "/etc/passwd"})

    for body in (b"", b"[]", b"{}", more, right.replace(b'"x"', b'""'), right.replace(b'"x"', b"1")):
        assert 400 == announced.answer("POST", "/evidence", body, **said).status
    assert 503 == announced.answer("POST", "/evidence", right, **said).status
    assert 403 == announced.answer("POST", "/evidence", right).status
    assert 401 == announced.answer("POST", "/evidence", right, Authorization="Bearer x").status


def test_an_answer_that_is_none_is_not_taken_over(session, announced, monkeypatch):
    read = sessions.read(sessions.locate(session))
    of = {"of": [read.agent, read.session_id, read.cwd, len(read.turns)]}
    monkeypatch.setattr(Service, "evidence", lambda *_: of | {"exchanges": [ROW]})
    assert told_of(session) == told({"exchanges": [ROW]})
    for answer in NO_ANSWERS:
        with pytest.raises(ValueError, match="no "):
            told(answer)
        monkeypatch.setattr(Service, "evidence", lambda *_, one=answer: of | one if isinstance(one, dict) else one)
        assert told_of(session) is None


def test_an_answer_comes_back_as_it_was():
    found = ExchangeEvidence({3: PointParts(0.1 + 0.2, 1e-17, 1.0, 1 / 3, True), 0: PointParts(*ROW[1:])}, 3, "", True)
    assert found == told(orjson.loads(orjson.dumps(found.as_json())))


def test_a_command_of_which_the_service_tells_all_loads_nothing_that_looks_for_it(world, shop, request, monkeypatch):
    from indexer.models import configured_embedder

    world.model = configured_embedder()  # type: ignore[assignment]
    session = world.claude(shop, *spoken(6))
    world.find("upload", shop)
    served = request.getfixturevalue("served")
    publish(Address("127.0.0.1", served.port, 1, version("smart-fork"), ""))
    done = subprocess.run(
        [
            sys.executable, "-X", "importtime", "-m", "smart_fork", "branch", session, "--budget=match", "--json",
            "--intent", ASKED[0], *(word for one in ASKED[1] for word in ("--also", one)),
        ],
        capture_output=True, text=True, check=True, cwd=shop,
    )  # fmt: skip

    alone = selection_of(session, "match", engine=Engine(world.model))
    assert alone["exchanges"] == json.loads(done.stdout)["selection"]["exchanges"]
    imported = {line.split()[-1] for line in done.stderr.splitlines() if line}
    assert set() == {"numpy", "smart_fork.retrieval.evidence"} & imported
