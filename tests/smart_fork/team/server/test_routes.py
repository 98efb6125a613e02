"""The server's answers, and the users who get them."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import psycopg
import pytest
from starlette.testclient import TestClient

from smart_fork.sharing import canonical
from smart_fork.sharing.canonical import encode
from smart_fork.system.http_limits import TokenBucket
from smart_fork.team import wire
from smart_fork.team.server import auth
from smart_fork.team.server.request_handling import REPORTED_ERRORS
from smart_fork.team.server.routes import ServerContext, application
from tests.smart_fork.team.server.team import new_id, push_of, record
from tests.support.cases import parametrize_subtests, thorough_except_first

RECORDS = [record(number) for number in range(10)]
MORE = [record(number, "more") for number in range(3)]
PEOPLE = ("nobody", "stranger", "member", "owner", "admin")
KINDS = ("private", "public", "deleted", "missing")


@pytest.fixture
def client(team):
    for name in ("member", "owner"):
        team.add(name)
    team.add("stranger", None)
    team.add("admin", None, admin=True)
    app = application(ServerContext(team.pool))
    app.wrong = TokenBucket(10_000, 1)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def ask(client, team):
    def asked(who, method, path, body=None, **options):
        headers = dict(options.pop("headers", {}))
        if who != "nobody":
            headers["Authorization"] = f"Bearer {team.tokens[who]}"
        content = body.model_dump_json() if isinstance(body, canonical.WireModel) else body
        if isinstance(content, dict):
            content = json.dumps(content)
        return client.request(method, path, content=content, headers=headers, **options)

    return asked


@pytest.fixture
def below(team):
    return f"/v1/projects/{team.key}"


def made(team, kind):
    """Return a session of the owner in the given state."""
    session = new_id()
    if kind != "missing":
        team.push("owner", push_of(session, [], RECORDS, visibility="private" if kind == "private" else "public"))
    if kind == "deleted":
        team.owned.execute("UPDATE sessions SET deleted_at = now() WHERE id = %s", (session,))
    return session


def endpoints(team, session):
    """All routes with a session, and a body for each."""
    key, below = team.key, f"/v1/projects/{team.key}"
    yield "show", "GET", f"/v1/sessions/{session}?project={key}", None
    yield "pull", "GET", f"/v1/sessions/{session}?project={key}&verb=pull", None
    yield "describe", "PATCH", f"/v1/sessions/{session}?project={key}", {"title": "New"}
    yield "publish", "PATCH", f"/v1/sessions/{session}?project={key}", {"visibility": "public"}
    yield "push", "POST", f"{below}/push", push_of(session, RECORDS, MORE)
    yield "branch", "POST", f"{below}/branches", {"verb": "branch", "id": new_id(), "source_id": session}
    yield "fork", "POST", f"{below}/branches", {"verb": "fork", "id": new_id(), "source_id": session}
    yield "delete", "DELETE", f"/v1/sessions/{session}?project={key}", None


#: What is answered to whom about a session that is readable to him, and not his; all else is 404, or 401 for nobody.
TO_MEMBERS = {
    "show": 200,
    "pull": 404,
    "describe": 403,
    "publish": 403,
    "push": 404,
    "branch": 403,
    "fork": 201,
    "delete": 403,
}
TO_OWNERS = {
    "show": 200,
    "pull": 200,
    "describe": 200,
    "publish": 200,
    "push": 200,
    "branch": 201,
    "fork": 403,
    "delete": 204,
}


def expected(who, kind, verb):
    if who == "nobody":
        return 401
    if who == "owner" and kind in ("private", "public"):
        return TO_OWNERS[verb]
    if who == "member" and kind == "public":
        return TO_MEMBERS[verb]
    if (who, kind, verb) == ("owner", "deleted", "delete"):
        return 204  # who asks again, since an answer was lost, has what he wants
    return 404


@pytest.mark.parametrize("who", PEOPLE)
@parametrize_subtests("kind", KINDS)
def test_who_may_do_what_with_which_session(team, ask, who, kind):
    """C-010: with requests that no command of the client makes."""
    session = made(team, kind)
    answers = {verb: ask(who, method, path, body) for verb, method, path, body in endpoints(team, session)}

    assert {verb: expected(who, kind, verb) for verb in answers} == {
        verb: answer.status_code for verb, answer in answers.items()
    }
    if who != "owner":
        stored = RECORDS if kind != "missing" else []
        assert stored == team.stored(session)


@pytest.mark.parametrize("who", thorough_except_first(["member", "stranger", "admin"]))
def test_what_somebody_may_not_know_of_is_answered_as_what_is_not_there(team, ask, who):
    sessions = {kind: made(team, kind) for kind in ("private", "deleted", "missing")}
    for number in range(8):
        answers = set()
        for session in sessions.values():
            _, method, path, body = list(endpoints(team, session))[number]
            answer = ask(who, method, path, body)
            headers = tuple(sorted((name, value) for name, value in answer.headers.items()))
            answers.add((answer.status_code, answer.content.replace(session.encode(), b"ID" * 18), headers))
        assert 1 == len(answers)
        assert {404} == {status for status, *_ in answers}


def test_another_project_does_not_have_the_session(team, ask):
    session = made(team, "public")
    other = ask("owner", "GET", f"/v1/sessions/{session}?project={team.key}/other")
    none = ask("owner", "GET", f"/v1/sessions/{new_id()}?project={team.key}")

    assert 404 == other.status_code == none.status_code
    assert other.json()["hint"] == none.json()["hint"]


@pytest.mark.parametrize("who", PEOPLE)
def test_the_list_has_what_one_may_read(team, ask, below, who):
    made(team, "deleted")
    private, public = made(team, "private"), made(team, "public")
    answer = ask(who, "GET", f"{below}/sessions")

    assert {"nobody": 401, "stranger": 404, "admin": 404}.get(who, 200) == answer.status_code
    if answer.status_code == 200:
        ids = [one["id"] for one in answer.json()["sessions"]]
        assert ([public, private] if who == "owner" else [public]) == ids


def test_the_list_is_read_page_by_page(team, ask, below):
    sessions = [made(team, "public") for _ in range(5)]
    seen, bookmark = [], ""
    while bookmark is not None:
        page = ask("member", "GET", f"{below}/sessions?limit=2" + (f"&page={bookmark}" if bookmark else "")).json()
        seen += [one["id"] for one in page["sessions"]]
        bookmark = page["next_page"]

    assert sessions[::-1] == seen


@parametrize_subtests("query", ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=²", "page=x", "page=MTIz"])
def test_a_page_that_is_none_is_refused(ask, below, query):
    assert 400 == ask("member", "GET", f"{below}/sessions?{query}").status_code


@pytest.mark.parametrize("who", PEOPLE)
@parametrize_subtests("kind", ["private", "public"])
def test_segments_are_told_of_and_given_to_whom_may_read_them(team, ask, below, who, kind):
    session = new_id()
    wanted = push_of(session, [], RECORDS, visibility=kind)
    team.push("owner", wanted)
    digest = wanted.segments[0].digest
    may = who == "owner" or (who == "member" and kind == "public")
    have = ask(who, "POST", f"{below}/have", {"segments": [digest, "0" * 64]})
    got = ask(who, "GET", f"{below}/segments/{digest}")
    none = ask(who, "GET", f"{below}/segments/{'0' * 64}")

    if who == "nobody":
        assert [401] * 3 == [have.status_code, got.status_code, none.status_code]
        return
    assert {"present": [digest] if may else []} == have.json()
    assert (200, wanted.bodies[0].body) == (got.status_code, got.content) if may else (404 == got.status_code)
    if not may:
        assert got.content.replace(digest.encode(), b"0" * 64) == none.content


def test_a_session_is_pushed_segment_by_segment(team, ask, below):
    session = new_id()
    wanted = push_of(session, [], RECORDS)
    body = wanted.bodies[0]
    bare = wanted.model_copy(update={"bodies": ()})

    assert 422 == ask("owner", "POST", f"{below}/push", bare).status_code
    for _ in range(2):
        assert 204 == ask("owner", "PUT", f"{below}/segments/{body.digest}", body.body).status_code
    assert 422 == ask("member", "POST", f"{below}/push", bare).status_code  # what others sent is not his
    first = ask("owner", "POST", f"{below}/push", bare)
    again = ask("owner", "POST", f"{below}/push", bare)

    assert (201, True, False) == (first.status_code, first.json()["created"], first.json()["up_to_date"])
    assert (200, False, True) == (again.status_code, again.json()["created"], again.json()["up_to_date"])
    assert RECORDS == team.stored(session)


@parametrize_subtests(
    "change",
    [{"permissionMode": "bypassPermissions"}, {"type": "file-history-snapshot"}, {"uuid": None}, {"sessionId": "x"}],
)
def test_records_that_their_agent_would_not_read_again_are_refused(team, ask, below, change):
    session = new_id()
    bad = encode(json.loads(RECORDS[3]) | change)
    answer = ask("owner", "POST", f"{below}/push", push_of(session, [], [*RECORDS[:3], bad]))

    assert (422, "unshareable") == (answer.status_code, answer.json()["error"])
    assert "Record 4" in answer.json()["message"]
    assert [] == team.stored(session)


def test_an_answer_that_belongs_to_what_was_pushed_before_is_read_together_with_it(team, ask, below):
    session = made(team, "private")
    said = {"role": "assistant", "id": "m", "content": [{"type": "text", "text": "done"}]}
    answer = encode({"type": "assistant", "uuid": "a1", "timestamp": "2026-07-01T10:00:00.000Z", "message": said})

    assert 200 == ask("owner", "POST", f"{below}/push", push_of(session, RECORDS, [answer])).status_code
    assert [*RECORDS, answer] == team.stored(session)


def test_a_segment_that_is_another_one_is_refused(ask, below):
    body = push_of(new_id(), [], RECORDS).bodies[0].body

    assert 422 == ask("owner", "PUT", f"{below}/segments/{'0' * 64}", body).status_code
    assert 404 == ask("owner", "PUT", f"{below}/segments/..", body).status_code


def test_who_has_not_seen_the_newest_gets_what_it_is(team, ask, below):
    session = made(team, "private")
    team.push("owner", push_of(session, RECORDS, MORE))
    answer = ask("owner", "POST", f"{below}/push", push_of(session, RECORDS, [record(99)]))

    assert 409 == answer.status_code
    assert ("conflict", 13) == (answer.json()["error"], answer.json()["count"])
    assert "The remote session has advanced (10 -> 13 records)." == answer.json()["message"]


def test_the_first_push_makes_the_project(team, ask):
    key = team.key + "/new"
    assert 201 == ask("owner", "POST", f"/v1/projects/{key}/push", push_of(new_id(), [], RECORDS)).status_code
    assert 404 == ask("member", "POST", f"/v1/projects/{key}/push", push_of(new_id(), [], RECORDS)).status_code


def test_a_person_logs_in_with_an_invitation_and_out_again(team, client):
    with team.pool.transaction() as db:
        invitation = auth.invite(db, team.people["member"].name)
    said = client.post("/v1/login", json={"invite": invitation, "machine": "laptop"})
    bearer = {"Authorization": f"Bearer {said.json()['token']}"}
    path = f"/v1/projects/{team.key}/sessions"

    assert (200, team.people["member"].name) == (said.status_code, said.json()["user"])
    assert 401 == client.post("/v1/login", json={"invite": invitation, "machine": "laptop"}).status_code
    assert 200 == client.get(path, headers=bearer).status_code
    assert 204 == client.post("/v1/logout", headers=bearer).status_code
    assert 401 == client.get(path, headers=bearer).status_code


def test_a_token_that_may_read_changes_nothing(team, ask, below):
    session = made(team, "private")
    team.owned.execute("UPDATE tokens SET scope = 'read' WHERE id = %s", (team.people["owner"].token,))
    answers = {
        verb: ask("owner", method, path, body).status_code for verb, method, path, body in endpoints(team, session)
    }

    assert {verb: 200 if verb in ("show", "pull") else 403 for verb in answers} == answers
    assert 403 == ask("owner", "PUT", f"{below}/segments/{'0' * 64}", b"x").status_code


def test_everybody_is_told_what_the_server_is(client):
    said = client.get("/v1/hello")

    assert (200, "1", 1) == (said.status_code, said.headers["smart-fork-protocol"], said.json()["protocol"])
    assert wire.Hello.model_validate_json(said.content)
    assert "ok\n" == client.get("/healthz").text


def test_another_version_of_the_protocol_is_refused(ask, below):
    answer = ask("owner", "GET", f"{below}/sessions", headers={"Smart-Fork-Protocol": "2"})

    assert (426, "protocol") == (answer.status_code, answer.json()["error"])


WRONG = {
    b"": "The request is not JSON.",
    b"nonsense": "The request is not JSON.",
    b"[]": "The request has an invalid value.",
    b'{"segments": 1}': "segments has an invalid value.",
    b'{"segments": [], "evil": 1}': "evil is unknown in this version of the protocol.",
    b"{}": "segments is missing.",
    b'{"segments": ["x"]}': "segments.0 has an invalid value.",
}


@parametrize_subtests(("body", "sentence"), WRONG.items())
def test_what_is_wrong_with_a_request_is_said_in_a_sentence(ask, below, body, sentence):
    answer = ask("owner", "POST", f"{below}/have", body)

    assert (400, "usage", sentence) == (answer.status_code, answer.json()["error"], answer.json()["message"])


#: No UTF-8, half of a character, NUL, a mark of the order of bytes, and what no parser of numbers or depths should meet.
HOSTILE = (
    b"\xff\xfe", b'{"\xff": 1}', b'{"title": "\xed\xa0\x80"}', rb'{"title": "\ud800"}', rb'{"\udc00": 1}', rb'{"\u0000": 1}',
    b"\0", b'{"verb": "add\0"}', b"\xef\xbb\xbf{}", b"[" * 4000, b'{"a":' * 800, b"NaN", b"1e999", b"9" * 4000, b'"', b"-",
)  # fmt: skip


@pytest.mark.parametrize("who", thorough_except_first(["owner", "nobody", "admin"]))
@pytest.mark.slow
def test_a_body_that_is_no_message_is_refused_at_every_address(team, ask, client, who):
    session, key, below = made(team, "public"), team.key, f"/v1/projects/{team.key}"
    known = [
        ("PATCH", f"/v1/sessions/{session}?project={key}"), ("POST", f"/v1/sessions/{session}/rewrites?project={key}"),
        *(("POST", f"{below}/{name}") for name in ("have", "search", "push", "branches")), ("POST", "/v1/admin"),
    ]  # fmt: skip
    posts = {route.path for route in client.app.app.app.routes if route.methods & {"POST", "PATCH"}}
    assert len(posts) == len(known) + 3  # and login, and logout and token, which read nothing

    said = {
        (method, path, body): ask(who, method, path, body)
        for method, path in ([] if who == "nobody" else known) + [("POST", "/v1/login")]
        for body in HOSTILE
    }

    allowed = {(400, "usage"), *([(403, "forbidden")] if who == "owner" else [])}  # an owner is no admin
    assert {} == {
        one: answer.content
        for one, answer in said.items()
        if (answer.status_code, answer.json()["error"]) not in allowed
    }
    assert all("rror" not in answer.json()["message"] for answer in said.values())


def test_a_body_that_is_too_large_is_refused(ask, below):
    answer = ask("owner", "POST", f"{below}/have", b"x" * (1024 * 1024 + 1))

    assert (413, "too_large") == (answer.status_code, answer.json()["error"])


def test_requests_and_bytes_of_a_token_are_counted(team, monkeypatch):
    monkeypatch.setattr(canonical, "LIMITS", canonical.Limits(requests_a_minute=3, bytes_an_hour=20))
    team.add("owner")
    bearer = {"Authorization": f"Bearer {team.tokens['owner']}"}
    path = f"/v1/projects/{team.key}"
    with TestClient(application(ServerContext(team.pool))) as client:
        large = client.post(f"{path}/have", content=b"x" * 21, headers=bearer)
        few = [client.get(f"{path}/sessions", headers=bearer).status_code for _ in range(3)]

    assert (429, "too_often") == (large.status_code, large.json()["error"])
    assert [200, 200, 429] == few


def test_strangers_who_guess_are_answered_less_often_and_keep_nobody_out(team):
    team.add("owner")
    app = application(ServerContext(team.pool))
    app.app.wrong = TokenBucket(2, 0)
    path = f"/v1/projects/{team.key}/sessions"
    with TestClient(app) as client:
        guesses = [client.get(path, headers={"Authorization": "Bearer sft_x"}).status_code for _ in range(3)]
        known = client.get(path, headers={"Authorization": f"Bearer {team.tokens['owner']}"})

    assert [401, 401, 429] == guesses
    assert 200 == known.status_code


@parametrize_subtests(
    "path",
    ["/", "/v1", "/v2/hello", "/v1/projects/x/push/", "/v1/sessions", "/v1/projects/../../etc/passwd", "/v1/users"],
)
def test_there_is_nothing_at_other_addresses(ask, path):
    assert ask("owner", "GET", path).status_code in (404, 405)
    assert 401 == ask("nobody", "GET", path).status_code


def test_a_key_that_is_none_is_refused(ask):
    assert 400 == ask("owner", "GET", "/v1/projects/a%00b/sessions").status_code
    assert 400 == ask("owner", "GET", f"/v1/sessions/{new_id()}").status_code


def test_what_was_done_is_in_the_audit(team, ask):
    session = made(team, "public")
    ask("owner", "GET", f"/v1/sessions/{session}?project={team.key}&verb=pull")
    ask("owner", "DELETE", f"/v1/sessions/{session}?project={team.key}")
    lines = team.owned.execute("SELECT actor, verb FROM audit WHERE session_id = %s ORDER BY id", (session,)).fetchall()

    owner = team.people["owner"].id
    assert [(owner, "push"), (owner, "pull"), (owner, "delete")] == lines


def test_each_error_of_ours_has_a_code(ask):
    assert {401, 403, 404, 408, 409, 413, 422, 426, 429} <= {
        kind.http_status for told in REPORTED_ERRORS for kind in (told, *told.__subclasses__())
    }


def test_a_database_that_is_away_is_said(team, ask, monkeypatch):
    def away(*given):
        raise psycopg.OperationalError("connection is bad")

    monkeypatch.setattr(auth, "project", away)
    answer = ask("owner", "GET", f"/v1/projects/{team.key}/sessions")
    assert (503, "unavailable") == (answer.status_code, answer.json()["error"])


def test_its_health_is_told_in_time_while_the_database_lets_everybody_wait(monkeypatch):
    answered = threading.Event()

    @contextmanager
    def transaction(*given):
        answered.wait(20)
        yield

    monkeypatch.setattr("smart_fork.team.server.routes.HEALTH_SECONDS", 0.01)
    with TestClient(
        application(ServerContext(SimpleNamespace(transaction=transaction))), raise_server_exceptions=False
    ) as client:
        try:
            said = client.get("/healthz")
            assert (503, "unavailable") == (said.status_code, said.json()["error"])
        finally:
            answered.set()


def test_a_fault_of_ours_tells_nothing_of_the_inside(team, ask, monkeypatch):
    def broken(*given):
        raise RuntimeError("secret")

    monkeypatch.setattr(auth, "project", broken)
    answer = ask("owner", "GET", f"/v1/projects/{team.key}/sessions")
    assert (500, "failed") == (answer.status_code, answer.json()["error"])
    assert b"secret" not in answer.content
