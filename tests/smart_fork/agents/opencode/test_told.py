"""Tests of the model in sessions that are handed over to OpenCode."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.opencode.session_writer import usual_model
from smart_fork.agents.portable_records import HomePlace, Utterance
from smart_fork.errors import ForkRefused
from smart_fork.forking.handover_text import as_session
from tests.smart_fork.agents.opencode import database

SAID = [Utterance(True, "add retry", "2026-01-01T00:00:00Z"), Utterance(False, "it retries", "2026-01-01T00:00:00Z")]
NEW = "ses_00000000000000000000000001"


def copied(folder: Path) -> list[dict]:
    with as_session("opencode", SAID, HomePlace(str(folder), ""), source_id="x") as told:
        new = NewSession(NEW, folder, datetime.now(UTC))
        lines = list(AGENTS.copier_of("opencode").copy(told, len(told.turns) - 1, new))
    return [message["info"] for message in orjson.loads(b"".join(lines))["messages"]]


@pytest.fixture
def named(home):
    """Return a function that writes a model's name to one of the places where a person can set it."""

    def write(place: str, value: object) -> None:
        file = home / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value))

    return write


def test_the_model_that_a_person_has_named_is_asked_next(home, named):
    database.make()
    assert {"providerID": "mock", "modelID": "mock"} == usual_model(home)
    named(".local/state/opencode/model.json", {"recent": [1, {"providerID": "a", "modelID": "recent"}]})
    assert {"providerID": "a", "modelID": "recent"} == usual_model(home)
    named(".config/opencode/opencode.json", {"model": "b/all/of it"})
    assert {"providerID": "b", "modelID": "all/of it"} == usual_model(None)
    named("shop/opencode.json", {"model": "c/here"})

    asked, answered = copied(home / "shop")

    assert {"providerID": "c", "modelID": "here"} == asked["model"]
    assert asked["id"] == answered["parentID"]
    assert asked["time"]["created"] < answered["time"]["created"]


def test_without_any_it_is_not_told_but_said_what_to_do(home, named):
    named(".config/opencode/opencode.json", ["not an object"])
    named(".local/state/opencode/model.json", {"recent": "none"})

    with pytest.raises(ForkRefused, match="No model of OpenCode is known") as refused:
        copied(home)

    assert "Use OpenCode once" in refused.value.hint
