"""Somebody with a token who sends anything: `benchmarks/attack.py --team` makes ten thousand such calls, this a few."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import pytest

from smart_fork.team.login import Account

pytestmark = pytest.mark.thorough

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"


@pytest.fixture
def intruder(monkeypatch):
    """The benchmark's own, and what he attacks."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("_team_intruder").Intruder, importlib.import_module("_team_scene")
    for name in ("_team_intruder", "_team_scene"):
        del sys.modules[name]


def test_whatever_is_sent_nothing_of_others_is_seen_or_changed_and_nothing_fails(team, address, intruder):
    who, scenes = intruder
    people = [team.add(name, role).id for name, role in (("alice", "writer"), ("rita", "reader"), ("stranger", None))]
    team.add("mallory")
    tokens = {
        who: [team.tokens[name]] for who, name in (("writer", "mallory"), ("reader", "rita"), ("stranger", "stranger"))
    }
    scene = scenes.lay_out(
        Account(address, team.people["alice"].name, team.tokens["alice"]), team.key, team.key + "/other", tokens
    )
    before = scenes.others(team.owned, people)
    one = who(scene, random.Random(16))  # noqa: S311 - chance makes the same calls each time

    calls = [one.attack() for _ in range(300)]

    assert [] == [call for call in calls if call[2]]
    assert before == scenes.others(team.owned, people)
    statuses = {status for _, status, *_ in calls}
    assert {200, 201, 400, 401, 403, 404, 422} <= statuses
