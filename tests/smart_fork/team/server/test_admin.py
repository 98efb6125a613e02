"""Admins: their requests from any machine, refused for other users; and failed jobs."""

from __future__ import annotations

import pytest

from smart_fork.doctor import team_checks
from smart_fork.errors import NotAuthenticated, NotFound, Usage, WrongVerb
from smart_fork.team import client
from smart_fork.team.client import Client
from smart_fork.team.server.administration import carry_out
from smart_fork.team.server.database import Database
from smart_fork.team.server.jobs import MAX_ATTEMPTS, JobWorker, Kind
from smart_fork.team.server.postgres_process import JOBS
from smart_fork.team.stored_logins import Account, logged_in_account, remember
from smart_fork.team.wire import Administer
from tests.smart_fork.team.server.team import new_id, put


@pytest.fixture
def admin(team, address):
    team.add("root", admin=True)
    with Client(Account(address, "root", team.tokens["root"])) as client:
        yield client


@pytest.mark.slow
def test_an_admin_lets_people_in_from_anywhere_and_the_audit_says_so(team, admin, address):
    name = f"eve-{team.mark}"
    told = admin.administer(Administer(verb="add", name=name, project=team.key))
    assert (name, "member", "writer") == (told["user"], told["role"], told["project_role"])
    with Client(Account(address, "", "")) as stranger:
        token = stranger.login(told["invite"], "laptop").token
    with Client(Account(address, name, token)) as eve:
        assert () == eve.page(team.key).sessions
        admin.administer(Administer(verb="member", name=name, project=team.key, role="none"))
        with pytest.raises(NotFound):
            eve.page(team.key)
    [known] = [one for one in admin.administer(Administer(verb="tokens"))["tokens"] if one["user"] == name]
    admin.administer(Administer(verb="revoke", token=known["id"]))
    admin.administer(Administer(verb="disable", name=name))
    [user] = [one for one in admin.administer(Administer(verb="users"))["users"] if one["name"] == name]
    assert (True, {}) == (user["disabled"], user["projects"])

    with pytest.raises(Usage, match=f"team user enable {name}|is disabled") as refused:
        admin.administer(Administer(verb="invite", name=name))
    assert f"team user enable {name}" in refused.value.hint
    admin.administer(Administer(verb="enable", name=name))
    assert admin.administer(Administer(verb="invite", name=name))["invite"]
    with Client(Account(address, name, token)) as eve, pytest.raises(NotAuthenticated):
        eve.page(team.key)

    lines = [(one.actor, one.verb, one.details) for one in admin.audit(mine="1").lines][::-1]
    root = team.people["root"].name
    assert [
        (root, "admin_add", {"name": name, "project": team.key}),
        (root, "admin_member", {"name": name, "project": team.key, "role": "none"}),
        (root, "admin_revoke", {"token": known["id"]}),
        (root, "admin_disable", {"name": name}),
        (root, "admin_enable", {"name": name}),
        (root, "admin_invite", {"name": name}),
    ] == lines
    assert told["invite"] not in str(lines)
    with pytest.raises(Usage, match="already exists"):
        admin.administer(Administer(verb="add", name=name))


def test_what_is_done_on_the_server_s_machine_stands_in_the_audit_as_that(team, admin):
    name = f"joe-{team.mark}"
    with team.pool.transaction() as db:
        carry_out(db, Administer(verb="add", name=name))

    [line] = [one for one in admin.audit().lines if one.details == {"name": name}]
    assert ("on-the-server", "admin_add") == (line.actor, line.verb)
    with pytest.raises(Usage, match="is reserved for the server's own machine"):
        admin.administer(Administer(verb="add", name="on-the-server"))


@pytest.mark.parametrize(
    "verb", ["add", "invite", "users", "disable", "enable", "member", "tokens", "revoke", "jobs", "retry"]
)
def test_nobody_else_is_told_or_changes_anything(team, address, verb):
    team.add("alice", "maintainer")
    before = team.owned.execute("SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM audit)").fetchone()
    with (
        Client(Account(address, "alice", team.tokens["alice"])) as alice,
        pytest.raises(WrongVerb, match="not an admin's"),
    ):
        alice.administer(Administer(verb=verb, name="mallory", project=team.key, role="writer", token=1))
    assert before == team.owned.execute("SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM audit)").fetchone()


def test_an_admin_whose_token_may_only_write_is_none(team, address):
    root = team.add("root", admin=True)
    team.owned.execute("UPDATE tokens SET scope = 'write' WHERE user_id = %s", (root.id,))
    with (
        Client(Account(address, "root", team.tokens["root"])) as client,
        pytest.raises(WrongVerb, match="not an admin's"),
    ):
        client.administer(Administer(verb="users"))


def test_what_was_given_up_is_shown_and_tried_again(team, admin, database, base):
    def fails(*_about):
        raise ValueError("the disk is full")

    kind, session = f"test_{team.mark}", new_id()
    with team.pool.transaction() as db:
        put(db, kind, team.project("root").id, session)
    with Database(database.conninfo(JOBS, base), 2, JOBS) as pool:
        worker = JobWorker(pool, {kind: Kind(fails)})
        for _ in range(MAX_ATTEMPTS):
            team.owned.execute("UPDATE jobs SET run_after = now() WHERE kind = %s", (kind,))
            assert worker.run_next()
        assert not worker.run_next()

        [job] = [one for one in admin.administer(Administer(verb="jobs"))["jobs"] if one["kind"] == kind]
        assert (team.key, session, MAX_ATTEMPTS) == (job["project"], job["session_id"], job["attempts"])
        assert "ValueError: the disk is full" == job["error"]
        assert "failed jobs" in admin.send("GET", "../healthz").decode()

        assert 1 <= admin.administer(Administer(verb="retry"))["retried"]
        done = []
        assert JobWorker(pool, {kind: Kind(lambda _, *about: done.append(about))}).run_next()
    assert session == str(done[0][1])
    assert kind not in [one["kind"] for one in admin.administer(Administer(verb="jobs"))["jobs"]]


def test_the_command_asks_with_the_token_of_this_machine(team, alice):
    said = alice.do("team", "user", "list")
    assert (4, True) == (said.code, "not an admin's" in said.err)

    person = team.people["alice"]
    team.owned.execute("UPDATE users SET role = 'admin' WHERE id = %s", (person.id,))
    team.owned.execute("UPDATE tokens SET scope = 'admin' WHERE user_id = %s", (person.id,))
    assert person.name in [one["name"] for one in alice.team("user", "list")["users"]]
    invited = alice.team("user", "add", f"fred-{team.mark}", "--project", team.key)
    assert (team.key, "writer") == (invited["project"], invited["project_role"])
    assert isinstance(alice.team("jobs")["jobs"], list)
    assert "tried again" in alice.do("team", "jobs", "--retry").out


def test_an_admin_is_told_of_failed_jobs_by_status_and_doctor_and_nobody_else_is(team, alice, bob):
    session, command = new_id(), "smart-fork team jobs --retry"
    with team.pool.transaction() as db:
        put(db, f"test_{team.mark}", team.project("alice").id, session)
    given_up = "UPDATE jobs SET run_after = 'infinity', attempts = 8, error = 'OSError' WHERE session_id = %s"
    team.owned.execute(given_up, (session,))
    team.owned.execute("UPDATE users SET role = 'admin' WHERE id = %s", (team.people["alice"].id,))
    team.owned.execute("UPDATE tokens SET scope = 'admin' WHERE user_id = %s", (team.people["alice"].id,))
    try:
        seen = alice.team("status")["failed_jobs"]
        status, not_seen = alice.do("team", "status").err, bob.do("team", "status")
        with alice.here():
            (check,) = team_checks()
        with bob.here():
            (good,) = team_checks()
        doctor = alice.do("doctor").out
    finally:
        team.owned.execute("DELETE FROM jobs WHERE session_id = %s", (session,))
    (one,) = [one for one in seen if one["session_id"] == session]
    assert (team.key, 8, "OSError") == (one["project"], one["attempts"], one["error"])
    assert (True, False, 0) == (command in status, "given up" in not_seen.out + not_seen.err, not_seen.code)
    assert (False, True, True) == (check.ok, command in check.next_step, command in doctor)
    assert (True, "") == (good.ok, good.next_step)
    assert "failed_jobs" not in bob.team("status")
    with alice.here():
        remember(Account("http://127.0.0.1:9", logged_in_account().user, "sft_" + "x" * 43))  # nobody listens there
        (silent,) = team_checks()
    assert (False, True, client.NO_ANSWER) == (silent.ok, silent.optional, silent.detail)
