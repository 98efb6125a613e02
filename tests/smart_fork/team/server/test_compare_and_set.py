"""Compare and set against a model: whatever clients push in any order, a session equals the list of one client."""

from __future__ import annotations

import contextlib
import multiprocessing

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from smart_fork.errors import Conflict
from smart_fork.sharing.canonical import digest_of
from smart_fork.team.segments import unpack
from smart_fork.team.server import auth, segment_store, sessions
from smart_fork.team.server.database import Database
from smart_fork.team.server.push import check_bodies, push
from tests.smart_fork.team.server.team import new_id, push_of, record
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.thorough

ROUNDS, PUSHERS = 20, 16
MACHINES = st.integers(0, 2)


class Clients(RuleBasedStateMachine):
    """Three machines of one owner that push to one set of sessions. The model has a list for each session."""

    team = None

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, list[bytes]] = {}
        self.seen: list[dict[str, list[bytes]]] = [{}, {}, {}]
        self.lost: list[tuple[str, object, list[bytes]]] = []
        self.number = 0

    def fresh(self, count: int) -> list[bytes]:
        self.number += count
        return [record(self.number + step, "x" * 60_000 * (self.number % 3)) for step in range(count)]

    @rule(machine=MACHINES, count=st.integers(1, 4))
    def create(self, machine, count):
        session, records = new_id(), self.fresh(count)
        assert self.team.push("alice", push_of(session, [], records)).created
        self.model[session] = self.seen[machine][session] = records

    @precondition(lambda self: self.model)
    @rule(machine=MACHINES, which=st.integers(0, 9))
    def pull(self, machine, which):
        session = self.pick(which)
        self.seen[machine][session] = list(self.model[session])

    @precondition(lambda self: any(self.seen))
    @rule(machine=MACHINES, which=st.integers(0, 9), count=st.integers(1, 4), answered=st.booleans())
    def append(self, machine, which, count, answered):
        known = sorted(self.seen[machine])
        if not known:
            return
        session = known[which % len(known)]
        base, new = self.seen[machine][session], self.fresh(count)
        wanted = push_of(session, base, new)
        if base != self.model[session]:
            with pytest.raises(Conflict) as conflict:
                self.team.push("alice", wanted)
            now = self.model[session]
            assert (len(now), digest_of(now)) == (conflict.value.count, conflict.value.digest)
            return
        assert not self.team.push("alice", wanted).up_to_date
        self.model[session] = [*base, *new]
        if answered:
            self.seen[machine][session] = self.model[session]
        else:
            self.lost.append((session, wanted, self.model[session]))

    @precondition(lambda self: self.lost)
    @rule(which=st.integers(0, 9))
    def retry(self, which):
        session, wanted, then = self.lost[which % len(self.lost)]
        if self.model[session] == then:
            assert self.team.push("alice", wanted).up_to_date
        else:
            with pytest.raises(Conflict):
                self.team.push("alice", wanted)

    @precondition(lambda self: self.model)
    @rule(machine=MACHINES, which=st.integers(0, 9), at=st.integers(0, 20))
    def branch(self, machine, which, at):
        source = self.pick(which)
        count = 1 + at % len(self.model[source])
        child = self.team.branch("alice", source, count=count).session.id
        self.model[child] = self.seen[machine][child] = self.model[source][:count]

    @invariant()
    def what_is_stored_is_the_list(self):
        for session, records in self.model.items():
            assert records == self.team.stored(session)

    def pick(self, which: int) -> str:
        return sorted(self.model)[which % len(self.model)]


def test_whatever_clients_do_a_session_is_the_list(team):
    team.add("alice")
    machine = type("Machine", (Clients,), {"team": team})
    machine.TestCase.settings = settings(max_examples=full_or_sample(15, 5), stateful_step_count=20, deadline=None)
    machine.TestCase("runTest").runTest()


def pushing(conninfo, key, token, session, *, barrier, answers, number):
    """Push in a process of its own: in each round on the common base, when all processes are ready."""
    with Database(conninfo, 1) as pool:
        with pool.transaction() as db:
            person = auth.token_owner(db, token)
            project = auth.project(db, person, key)
        base = [record(0)]
        for step in range(ROUNDS):
            mine = record(step, f"of {number}")
            wanted = check_bodies(push_of(session, base, [mine]))
            barrier.wait(60)
            won = False
            with contextlib.suppress(Conflict):
                won = not push(pool, project, person, wanted).up_to_date
            answers.put((step, number, won))
            barrier.wait(60)
            with pool.transaction(person.id) as db:
                places = sessions.places(db, project.id, session)
                bodies = segment_store.bodies(db, project.id, (place.digest for place in places))
            base = [line for place in places for line in unpack(bodies[place.digest], place.digest)]


def test_of_sixteen_processes_on_one_base_one_wins(team, database, base):
    """C-055."""
    team.add("alice")
    session = new_id()
    team.push("alice", push_of(session, [], [record(0)]))
    spawned = multiprocessing.get_context("forkserver")
    spawned.set_forkserver_preload([__name__])  # else each of them imports all of it
    barrier, answers = spawned.Barrier(PUSHERS), spawned.Queue()
    given = (database.conninfo(database=base), team.key, team.tokens["alice"], session)
    named = {"barrier": barrier, "answers": answers}
    processes = [spawned.Process(target=pushing, args=given, kwargs=named | {"number": n}) for n in range(PUSHERS)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=120) for _ in range(ROUNDS * PUSHERS)]
    for process in processes:
        process.join(60)

    assert {0} == {process.exitcode for process in processes}
    winners = sorted((step, number) for step, number, won in told if won)
    assert list(range(ROUNDS)) == [step for step, _ in winners]
    assert [record(0), *(record(step, f"of {number}") for step, number in winners)] == team.stored(session)
