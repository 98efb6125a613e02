"""A client with a token that sends arbitrary data (`tests/attacks`)."""

from __future__ import annotations

import random

import pytest

from smart_fork.team.stored_logins import Account
from tests.attacks.team_intruder import Intruder
from tests.attacks.team_scene import lay_out, others

pytestmark = pytest.mark.thorough


def test_whatever_is_sent_nothing_of_others_is_seen_or_changed_and_nothing_fails(team, address):
    people = [team.add(name, role).id for name, role in (("alice", "writer"), ("rita", "reader"), ("stranger", None))]
    team.add("mallory")
    tokens = {
        who: [team.tokens[name]] for who, name in (("writer", "mallory"), ("reader", "rita"), ("stranger", "stranger"))
    }
    scene = lay_out(
        Account(address, team.people["alice"].name, team.tokens["alice"]), team.key, team.key + "/other", tokens
    )
    before = others(team.owned, people)
    one = Intruder(scene, random.Random(16))  # noqa: S311 - chance makes the same calls each time

    calls = [one.attack() for _ in range(300)]

    assert [] == [call for call in calls if call[2]]
    assert before == others(team.owned, people)
    statuses = {status for _, status, *_ in calls}
    assert {200, 201, 400, 401, 403, 404, 422} <= statuses
