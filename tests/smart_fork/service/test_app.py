"""The answers of the service."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from smart_fork.cli.service import app
from smart_fork.cli.service.client import find_service
from smart_fork.cli.service.instance import Address, publish
from smart_fork.page import routes
from smart_fork.page.sign_in import SignIn
from smart_fork.system.version import own_version
from smart_fork.workers.registry import Registry
from tests.smart_fork.tool_server import create_server


def test_our_own_programs_find_the_service_and_what_it_says_of_itself(served):
    served.announce()
    found = find_service()

    assert (own_version(), "idle") == (found.status.version, found.status.indexing["state"])
    assert found.health()
    assert served.entrance.entries.use(found.way_in().code)


def test_whoever_has_no_token_is_told_that_it_lives_and_nothing_is_started(served):
    served.broken = True
    for headers in ({"Cookie": ""}, {"Cookie": served.cookie()}, {"Cookie": "", "Authorization": "Bearer x"}):
        answer = served.answer("GET", "/healthz", **headers)
        assert (200, {"ok": True}) == (answer.status, json.loads(answer.read()))
    assert [] == served.asked


def test_it_is_well_as_long_as_a_real_question_is_answered(served):
    assert 200 == served.answer("GET", "/healthz").status
    served.broken = True
    answer = served.answer("GET", "/healthz")
    assert (503, {"ok": False, "problem": "RuntimeError", "indexing": "ok"}) == (
        answer.status,
        json.loads(answer.read()),
    )


def test_others_may_ask_under_the_name_by_which_they_reach_it(world, tmp_path):
    """The guard knows the service's names: a service for other machines has more than those of loopback."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    body["params"] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    page = routes.Page(
        lambda: None,
        SignIn(tmp_path, "x", str),
    )
    served, _ = app.application(create_server(world.model), page, world.model, lambda: None, dict)
    with TestClient(served, base_url="http://192.168.1.5:8766") as client:
        answer = client.post("/mcp", json=body, headers={"Accept": "application/json, text/event-stream"})

    assert 200 == answer.status_code


def test_a_hook_that_is_posted_is_noted_of_the_worker_whose_session_it_is(served, home):
    """R-020, R-022, R-026: a hook of a session without a worker changes nothing."""
    session = "60309e1e-0000-4000-8000-000000000001"
    with Registry() as registry:
        worker = registry.add("claude", source_session_id="", session_id=session, place="tmux", cwd=home)

    def post(event: str, agent: str = "claude", **body: str) -> tuple[int, object]:
        answer = served.answer("POST", f"/api/hooks/{agent}/{event}", json.dumps(body).encode())
        return answer.status, json.loads(answer.read()).get("worker_id")

    for _ in range(2):
        assert (200, worker.id) == post("user-prompt-submit", session_id=session, cwd=str(home))
        with Registry() as registry:
            assert "working" == registry.get(worker.id).status
    assert (200, None) == post("session-start", session_id=session.replace("6", "7"), cwd=str(home))
    assert (200, None) == post("session-start")
    assert (200, None) == post("session-start", session_id="../../etc/passwd")
    assert 400 == post("session-start", agent="nobody", session_id=session)[0]
    assert 400 == served.answer("POST", "/api/hooks/claude/stop", b"[]").status
    with Registry() as registry:
        assert [worker.id] == [one.id for one in registry.workers()]


def test_a_service_of_another_version_is_found_and_says_which(served, monkeypatch):
    served.announce()
    monkeypatch.setattr(app, "own_version", lambda: "0.0.1")
    assert "0.0.1" == find_service().status.version


def test_the_service_can_be_left_out(served, monkeypatch):
    served.announce()
    monkeypatch.setenv("SMART_FORK_SERVICE", "off")
    assert find_service() is None


@pytest.mark.parametrize("path", ["", "/nowhere/service.sock"])
def test_nobody_listens_where_one_was_announced(home, path):
    publish(Address("127.0.0.1", 1, 1, "1", "", path))
    assert find_service() is None
