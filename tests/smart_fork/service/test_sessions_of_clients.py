"""MCP sessions of clients: unknown ones, and those of clients that are gone."""

from __future__ import annotations

import json
from http.client import HTTPResponse

import pytest

from smart_fork.cli.service import app
from tests.smart_fork.forks import eventually

BEGINNING = {
    "method": "initialize",
    "id": 0,
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
LISTING = {"method": "tools/list", "id": 1, "params": {}}


@pytest.fixture
def one_at_a_time(monkeypatch):
    monkeypatch.setattr(app, "MAX_SESSIONS", 1)


@pytest.fixture
def soon_over(monkeypatch):
    monkeypatch.setattr(app, "SESSION_SECONDS", 0.2)


def post(served, message: dict, session: str = "") -> HTTPResponse:
    body = json.dumps({"jsonrpc": "2.0"} | message).encode()
    accepted = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    return served.answer("POST", "/mcp", body, **accepted, Mcp_Session_Id=session)


def begun(served) -> str:
    """Return the MCP session of a client that sends nothing more."""
    answer = post(served, BEGINNING)
    assert 200 == answer.status
    return answer.headers["mcp-session-id"]


def test_a_session_of_an_earlier_process_is_not_found_so_that_its_client_opens_another(served):
    """The agents need status 404 for that: see `tests/e2e/test_reconnecting.py`."""
    answer = post(served, LISTING, "0" * 32)

    said = json.loads(answer.read())
    assert (404, 1, "Session not found") == (answer.status, said["id"], said["error"]["message"])
    assert 200 == post(served, LISTING, begun(served)).status


def test_what_is_refused_without_a_session_or_a_known_version_has_the_id_of_its_request(served):
    for headers in ({}, {"Mcp_Session_Id": begun(served), "Mcp_Protocol_Version": "1"}, {"Accept": "text/plain"}):
        accepted = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"} | headers
        body = json.dumps({"jsonrpc": "2.0"} | LISTING | {"id": "x"}).encode()
        answer = served.answer("POST", "/mcp", body, **accepted)
        assert (True, "x") == (answer.status >= 400, json.loads(answer.read())["id"])


def test_sessions_are_limited_and_those_that_are_open_go_on(one_at_a_time, served):
    """Each MCP session holds its last answer in memory until it ends."""
    session = begun(served)

    assert 503 == post(served, BEGINNING).status
    assert 200 == post(served, LISTING, session).status
    assert 200 == served.answer("DELETE", "/mcp", Mcp_Session_Id=session).status
    begun(served)


def test_a_session_that_nobody_uses_ends_and_gives_way(one_at_a_time, soon_over, served):
    session = begun(served)

    eventually(lambda: post(served, BEGINNING).status == 200)
    assert 404 == post(served, LISTING, session).status
