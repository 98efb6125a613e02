"""The metrics of a server, its log of requests, and tokens that expire and are renewed."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx2
import orjson
import pytest
from typer.testing import CliRunner

from smart_fork.team import project, stored_logins
from smart_fork.team.client import Client
from smart_fork.team.commands.team_group import app
from smart_fork.team.server import metrics
from smart_fork.team.server.metrics import LOW_DISK_BYTES, verb_of
from smart_fork.team.server.routes import ServerContext, application
from smart_fork.team.stored_logins import Account
from tests.smart_fork.team.server.conftest import copied
from tests.smart_fork.team.server.machines import serving
from tests.smart_fork.team.server.test_cluster import until
from tests.smart_fork.team.server.test_serve import Running

pytestmark = pytest.mark.xdist_group("team-servers")


def asked(address, path, token):
    return httpx2.get(f"{address}{path}", headers={"Authorization": f"Bearer {token}"})


def counts(text):
    """Return the number of answered requests for changes, by status."""
    found = re.findall(r'^smartfork_requests_total{status="(\d+)",verb="changes"} (\S+)$', text, re.MULTILINE)
    return Counter({int(status): int(float(number)) for status, number in found})


def gauge(text, name):
    return float(re.search(rf"^smartfork_{name} (\S+)$", text, re.MULTILINE)[1])


@pytest.mark.slow
def test_an_admin_sees_how_much_was_asked_and_how_much_there_is(team, address):
    team.add("root", admin=True)
    team.add("ann")

    def seen():
        answer = asked(address, "/metrics", team.tokens["root"])
        assert answer.headers["content-type"].startswith("text/plain")
        return answer.text

    before = counts(seen())
    asked(address, "/v1/changes", team.tokens["ann"])
    asked(address, "/v1/changes", "sft_wrong")

    # A request is counted when its answer was sent, which can be after it was read.
    assert until(lambda: counts(seen()) - before == {200: 1, 401: 1})
    text = seen()
    assert 'smartfork_request_seconds_count{verb="changes"}' in text
    assert min(gauge(text, name) for name in ("users", "projects", "database_bytes")) >= 1
    assert team.key not in text


def test_only_an_admin_sees_the_metrics(team, address):
    team.add("ann")
    assert [403, 401] == [asked(address, "/metrics", token).status_code for token in (team.tokens["ann"], "sft_no")]


@pytest.mark.parametrize(
    ("path", "verb"),
    [
        ("/v1/projects/github.com/acme/search/sessions", "sessions"),
        (f"/v1/projects/github.com/acme/shop/segments/{'a' * 64}", "segments"),
        ("/v1/sessions/0197f2c7-0000-7000-8000-000000000000/rewrites", "rewrites"),
        ("/healthz", "healthz"),
        ("/.env", "other"),
    ],
)
def test_a_request_is_named_without_what_it_is_about(path, verb):
    assert verb_of(path) == verb


def test_the_log_of_requests_says_who_asked_and_no_secret(team, address, caplog):
    team.add("ann")
    with caplog.at_level(logging.INFO, logger=metrics.requests.name):
        asked(address, "/v1/changes", team.tokens["ann"])
        httpx2.get(f"{address}/v1/login?{team.tokens['ann']}")

        known, stranger = until(lambda: len(caplog.messages) == 2 and caplog.messages)
    assert known.startswith("GET changes 200 ")
    assert known.endswith(f" ms {team.people['ann'].name}")
    assert stranger.startswith("GET login 405 ")
    assert team.tokens["ann"] not in caplog.text


def test_a_disk_that_is_nearly_full_is_told(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=LOW_DISK_BYTES - 1))
    with serving(application(ServerContext(pool, data=tmp_path))) as address:
        said = httpx2.get(f"{address}/healthz").text

    assert "The disk of the server is nearly full: 1999 MB are free\n" in said
    assert metrics.disk_warning(None) == ""
    assert metrics.free_bytes(Path("/no/such/folder")) is not None  # the fake one


@pytest.fixture
def expiring(pool):
    with serving(application(ServerContext(pool, token_lifetime=timedelta(days=30)))) as address:
        yield address


def logged_in(team, address):
    """Log a user in, and return the stored account."""
    from smart_fork.team.server import auth

    team.add("ann")
    with team.pool.transaction() as db:
        invitation = auth.invite(db, team.people["ann"].name)
    with Client(Account(address, "", "")) as client:
        said = client.login(invitation, "desktop", stored_logins.pending_token(address, invitation))
    stored_logins.remember(Account(address, said.user, said.token, stored_logins.renewal_after(said.expires_at)))
    return stored_logins.logged_in_account(address)


def test_a_token_is_renewed_after_half_of_its_life_and_the_old_one_ends_soon(team, expiring, monkeypatch):
    first = logged_in(team, expiring)
    with project.opened(expiring, team.key) as opened:
        assert opened.client.account == first

    now = first.renew_after
    monkeypatch.setattr("smart_fork.team.stored_logins.time.time", lambda: now)
    with project.opened(expiring, team.key) as opened:
        second = opened.client.account
        opened.client.page(team.key)
    assert second == stored_logins.logged_in_account(expiring)
    assert second.token != first.token
    rows = team.owned.execute(
        "SELECT t.expires_at - now() FROM tokens t JOIN users u ON u.id = t.user_id"
        " WHERE u.name = %s AND t.machine = 'desktop' ORDER BY t.id",
        (team.people["ann"].name,),
    ).fetchall()
    assert [[0, 0], [29, 23]] == [[left.days, left.seconds // 3600] for (left,) in rows]


def test_a_token_that_has_expired_is_refused(team, expiring):
    known = logged_in(team, expiring)
    team.owned.execute("UPDATE tokens SET expires_at = now() WHERE machine = 'desktop'")

    assert asked(expiring, "/v1/changes", known.token).status_code == 401


def test_a_renewal_that_fails_leaves_the_token_as_it_was(team, expiring, monkeypatch):
    first = logged_in(team, expiring)
    monkeypatch.setattr("smart_fork.team.stored_logins.time.time", lambda: first.renew_after)
    monkeypatch.setattr("smart_fork.team.server.auth.REPLACED_TOKEN_LIFETIME", "nonsense")

    with project.opened(expiring, team.key) as opened:
        opened.client.page(team.key)
    assert stored_logins.logged_in_account(expiring) == first


def test_without_a_lifetime_a_token_is_kept_as_before(team, address):
    assert logged_in(team, address).renew_after is None
    kept = orjson.loads(stored_logins._file().read_bytes())
    assert kept["servers"][address].keys() == {"user", "token"}


@pytest.mark.thorough
def test_two_workers_count_together_and_log_each_request(open_folder, made, installed):
    folder = copied(made, open_folder / "counted").folder
    running = Running(folder, installed, "--workers", "2", "--request-log", "--token-days", "1", start=subprocess.Popen)
    try:
        words = ["user", "add", "root", "--admin", "--data", str(folder), "--json"]
        invite = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).output)["invite"]
        with Client(Account(running.told["url"], "", "")) as client:
            said = client.login(invite, "laptop")
        assert said.expires_at is not None
        for _ in range(10):
            with Client(Account(running.told["url"], "root", said.token)) as client:
                client.changes(None)
        assert until(lambda: counts(asked(running.told["url"], "/metrics", said.token).text) == {200: 10})
        running.process.terminate()
        logged = running.process.stderr.read()
    finally:
        running.close()
    assert 10 == logged.count("GET changes 200")
    assert said.token not in logged
