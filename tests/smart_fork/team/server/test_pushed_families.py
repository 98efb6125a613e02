"""Random families with sessions that are pushed, forked by a teammate, continued there, and cut.

After the next run, the machine of the cut has no cut text, and each shared session that still has it is named. After
the withdrawal of these sessions, no byte of the server and of the teammate's machine has it. ``SMART_FORK_DRILLS=all``
makes 300 families, else a few.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from smart_fork.errors import SmartForkError
from smart_fork.excise import Request
from smart_fork.excise.cutting import cut
from smart_fork.excise.verification import check
from tests.smart_fork.commands import command_model  # noqa: F401 - a fixture
from tests.smart_fork.excise.test_families import MOMENTS, Family, Member, found_in, indexed, killed_at, next_run
from tests.smart_fork.forks import FakeProcesses
from tests.smart_fork.team.server.machines import TeamMachine
from tests.smart_fork.team.server.test_rewrite import dump
from tests.smart_fork.team.server.test_two_people import go_on
from tests.smart_fork.team.server.test_withdrawal import having
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.usefixtures("command_model", "no_waiting")
FAMILIES = full_or_sample(300, 6)
#: No mask takes it for a secret, so that it is pushed. Each family has its own: the server keeps those of all.
SECRET = "quokkaharbour"


@dataclass
class Team:
    """Two people, and the sessions that one has forked from the other."""

    alice: TeamMachine
    bob: TeamMachine
    server: Any
    chance: random.Random
    secret: str
    shared: dict[str, Member] = field(default_factory=dict)
    taken: list[tuple[str, str]] = field(default_factory=list)

    def pushed(self, family: Family) -> None:
        member = family.one()
        said = self.alice.do("team", "push", str(member.logs[0]), "--public", "--yes", "--json")
        if said.code == 0:
            self.shared[said.json["session_id"]] = member

    def forked(self) -> None:
        if not self.shared:
            return
        shared = self.chance.choice(list(self.shared))
        said = self.bob.do("team", "fork", shared, "--json")
        if said.code == 0:
            self.taken.append((self.shared[shared].agent, said.json["files"][0]))

    def gone_on(self) -> None:
        """Continue Bob's fork, and push it."""
        forks = [one for one in self.taken if one[0] in ("claude", "codex")]
        if not forks:
            return
        agent, log = self.chance.choice(forks)
        go_on(self.bob, log, agent, "and the tests", "They pass.")
        if self.chance.random() < 0.7:
            self.bob.do("team", "push", log, "--public", "--yes")

    def step(self, family: Family) -> None:
        what = self.chance.choice((self.pushed, self.pushed, self.forked, self.gone_on))
        what(family) if what == self.pushed else what()

    @property
    def holding(self) -> dict[str, Member]:
        """Return Alice's shared sessions that have the secret on the server."""
        return {one: member for one, member in self.shared.items() if self._has(one)}

    def _has(self, session_id: str) -> bool:
        return any(self.secret.encode() in record for record in self.server.stored(session_id))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(FAMILIES))
def test_what_is_cut_is_nowhere_once_the_shared_sessions_that_are_named_are_withdrawn(
    team, alice, bob, monkeypatch, seed
):
    monkeypatch.setattr("smart_fork.system.processes.Processes", FakeProcesses)
    chance = random.Random(seed)  # noqa: S311 - not a secret
    secret = f"{SECRET}{7000 + seed}"
    people = Team(alice, bob, team, chance, secret)
    with alice.here():
        family = Family(alice.world, alice.repository, chance, secret)
        family.begin(("claude", "codex")[seed % 2])
        people.pushed(family)
        for _ in range(chance.randint(3, 9)):
            if chance.random() < 0.5:
                people.step(family)
                continue
            with suppress(SmartForkError):
                family.step()
            if seed % 2 and chance.random() < 0.3:
                indexed()
        if not (choices := list(family.can_be_cut())):
            return  # it was lost
        target, turns = choices[0] if chance.random() < 0.8 else chance.choice(choices)
        request = Request(target.session_id, turns, force=True)

        left = None
        if chance.random() < 0.5:
            killed_at(round(2 ** chance.uniform(0, MOMENTS)), request, alice.home)
            next_run()
        if str(target.logs[0].resolve()) in family.files(target):
            left = {one.path for one in cut(request).left}
            next_run()

        found, have = check(target.session_id), family.files(target)
        named = {one.path for one in found.copies}
        assert have <= found_in(named)
        assert left is None or have <= found_in(left)
        below = {one for one, member in people.holding.items() if member.is_below(target) and not member.logs}
        below |= {one for one, member in people.holding.items() if cut_out_of(member, target, secret)}
        assert below <= {one.rpartition("/")[2].partition("?")[0] for one in named}
        assert found.ok is not bool(found.copies or found.remains or found.words_found or found.dangling)

    for one in people.shared:
        alice.do("team", "delete", one, "--everywhere", "--yes")
    bob.do("team", "sync")
    assert secret not in dump(team)
    assert [] == having(bob, secret)
    with alice.here():
        assert not any(one.path.startswith("http") for one in check(target.session_id).copies)


def cut_out_of(member: Member, target: Member, secret: str) -> bool:
    """Return True if a session made from another one has lost the secret by the cut."""
    logs = member.logs if member.is_below(target) else ()
    return bool(logs) and not any(secret.encode() in path.read_bytes() for path in logs)
