"""A database connection that is killed before each statement. Afterwards the old state or the new state is there."""

from __future__ import annotations

from hashlib import sha256
from itertools import count

import psycopg
import pytest

from smart_fork.team import wire
from smart_fork.team.server import withdrawal
from tests.smart_fork.team.server.team import new_id, push_of, record
from tests.support.exhaustive import full_or_sample

#: At every such statement: `SMART_FORK_DRILLS=all` kills at each.
EACH = full_or_sample(1, 4)
OLD = [record(number) for number in range(4)]
MORE = [record(number, "more") for number in range(2)]


class Killer:
    """A killer of the server's own connection before one of its statements."""

    def __init__(self, owned) -> None:
        self._owned, self._left = owned, 0

    def passed(self, connection, execute) -> None:
        if connection is not self._owned and self._left:
            self._left -= 1
            if not self._left:
                execute(self._owned, "SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))

    def at(self, moment, act) -> bool:
        """Run an action, and kill at a moment, counted from 1. Return True if the action ended before."""
        self._left = moment
        try:
            act()
        except psycopg.OperationalError:
            return False
        finally:
            ended, self._left = bool(self._left), 0
        return ended


@pytest.fixture
def killer(owned, monkeypatch):
    one, execute = Killer(owned), psycopg.Connection.execute

    def counted(self, *given, **more):
        one.passed(self, execute)
        return execute(self, *given, **more)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    return one


@pytest.fixture
def alice(team):
    return team.add("alice")


def test_a_push_is_there_as_a_whole_or_not_at_all_and_once_when_it_is_sent_again(team, alice, killer):
    for moment in count(1, EACH):
        session = new_id()
        for old, new in (([], OLD), (OLD, MORE)):
            wanted = push_of(session, old, new)
            ended = killer.at(moment, lambda wanted=wanted: team.push("alice", wanted))
            assert team.stored(session) in (old, [*old, *new])
            again = team.push("alice", wanted)
            assert [*old, *new] == team.stored(session)
            assert len(old) + len(new) == again.session.record_count
        if ended:
            break
    assert moment > 8


@pytest.mark.thorough
def test_a_branch_is_there_as_a_whole_or_not_at_all_and_once_when_it_is_asked_for_again(team, alice, killer):
    source = new_id()
    team.push("alice", push_of(source, [], OLD))
    for moment in count(1, EACH):
        child = new_id()
        ended = killer.at(moment, lambda child=child: team.branch("alice", source, id=child, count=3))
        assert team.stored(child) in ([], OLD[:3])
        again = team.branch("alice", source, id=child, count=3)
        assert (OLD[:3], 3) == (team.stored(child), again.session.record_count)
        if ended:
            break
    assert moment > 8


@pytest.mark.thorough
def test_a_withdrawal_is_there_in_all_sessions_or_in_none_and_is_done_when_it_is_sent_again(team, alice, killer):
    gone = sha256(OLD[1]).hexdigest()
    for moment in count(1, EACH):
        session = new_id()
        team.owned.execute("DELETE FROM tombstones WHERE digest = %s", (bytes.fromhex(gone),))
        team.push("alice", push_of(session, [], OLD))
        child = team.branch("alice", session).session.id
        wanted = wire.Rewrite(kind="cut", revision=1, edits=(wire.RecordEdit(old=gone),))
        ended = killer.at(
            moment,
            lambda wanted=wanted, session=session: withdrawal.rewrite(team.pool, team.key, alice, session, wanted),
        )
        left = [OLD[0], *OLD[2:]]
        assert team.stored(session) in (OLD, left)
        assert team.stored(session) == team.stored(child)
        withdrawal.rewrite(team.pool, team.key, alice, session, wanted)
        assert left == team.stored(session) == team.stored(child)
        if ended:
            break
    assert moment > 15
