"""The audit log, and the lines that each user sees."""

from __future__ import annotations

import pytest

from smart_fork.team.server import audit_log, withdrawal
from tests.smart_fork.team.server.team import new_id, push_of, record

pytestmark = pytest.mark.slow

RECORDS = [record(number) for number in range(5)]


@pytest.fixture
def busy(team):
    """Alice has pushed two sessions; Bob has forked the public one; Carol has done nothing."""
    for name in ("alice", "bob", "carol"):
        team.add(name)
    team.add("max", "maintainer")
    team.add("root", None, admin=True)
    team.public, team.private = new_id(), new_id()
    team.push("alice", push_of(team.public, [], RECORDS, visibility="public"))
    team.push("alice", push_of(team.private, [], RECORDS))
    team.fork = team.branch("bob", team.public, verb="fork").session.id
    return team


def seen(team, who, **asked):
    with team.pool.transaction(team.people[who].id) as db:
        found = audit_log.page(db, team.people[who], audit_log.AuditFilters(**asked))
    return [(line.actor.split("-")[0], line.verb, line.session_id) for line in found.lines if line.project == team.key]


def test_one_sees_what_he_did_and_what_was_done_with_his_sessions(busy):
    pushed = [("alice", "push", busy.private), ("alice", "push", busy.public)]
    forked = ("bob", "fork", busy.public)

    assert [forked, *pushed] == seen(busy, "alice")
    assert pushed == seen(busy, "alice", mine=True)
    assert [forked] == seen(busy, "bob")
    assert [] == seen(busy, "carol")


def test_a_maintainer_sees_his_project_and_an_admin_everything(busy):
    everything = [("bob", "fork", busy.public), ("alice", "push", busy.private), ("alice", "push", busy.public)]

    assert everything == seen(busy, "max") == seen(busy, "root")
    assert everything[1:2] == seen(busy, "max", session=busy.private)


def test_a_withdrawal_stands_in_it_with_figures_and_no_words(busy):
    withdrawal.delete_everywhere(busy.pool, busy.key, busy.people["alice"], busy.public)

    with busy.pool.transaction(busy.people["alice"].id) as db:
        line = audit_log.page(db, busy.people["alice"], audit_log.AuditFilters()).lines[0]
    assert ("delete_everywhere", busy.public, {"records": 5}) == (line.verb, line.session_id, line.details)


def test_it_is_read_in_pages(busy, monkeypatch):
    monkeypatch.setattr(audit_log, "PAGE_LINES", 2)
    with busy.pool.transaction(busy.people["alice"].id) as db:
        first = audit_log.page(db, busy.people["alice"], audit_log.AuditFilters())
        rest = audit_log.page(db, busy.people["alice"], audit_log.AuditFilters(page=first.next_page))
    assert (2, 1, None) == (len(first.lines), len(rest.lines), rest.next_page)
