"""The client: its requests, and the answers that it accepts."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from unittest.mock import Mock

import httpx2
import pytest

from indexer.environment import Setting
from smart_fork.errors import NotAuthenticated, ServerUnavailable, SmartForkError, Usage
from smart_fork.team import stored_logins
from smart_fork.team.client import Client, _exception_of
from smart_fork.team.stored_logins import Account, origin_of
from smart_fork.team.wire import PROTOCOL_HEADER, Hello, SessionChange, valid_message
from tests.smart_fork.team.server.machines import serving

HELLO = {"protocol": 1, "version": "0.1.0"}


class Scripted:
    """A server with scripted answers, which records the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], list[bytes]]] = []
        self.asked: list[dict[str, str]] = []

    async def __call__(self, scope, receive, send) -> None:
        self.asked.append({name.decode(): value.decode() for name, value in scope["headers"]})
        status, headers, parts = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def one_server():
    server = Scripted()
    with serving(server) as address:
        yield server, address


@pytest.fixture
def server(one_server):
    server, _ = one_server
    server.answers, server.asked = [(200, {}, [json.dumps(HELLO).encode()])], []
    return server


@pytest.fixture
def waited():
    return []


@pytest.fixture
def client(one_server, server, waited):
    with Client(Account(one_server[1], "alice", "sft_secret"), wait=waited.append) as client:
        yield client


def test_each_request_has_the_token_and_says_which_protocol(client, server):
    assert 1 == client.hello().protocol
    (asked,) = server.asked
    assert ("Bearer sft_secret", "1", "identity") == (
        asked["authorization"], asked[PROTOCOL_HEADER.lower()], asked["accept-encoding"]
    )  # fmt: skip


def test_what_is_sent_says_what_it_is(client, server):
    client.ask(Hello, "POST", "hello", valid_message(SessionChange, title="retry"))

    assert "application/json" == server.asked[-1]["content-type"]


def test_a_redirect_is_not_followed(client, server):
    server.answers = [(307, {"location": "https://elsewhere.example.org/v1/hello"}, [])]

    with pytest.raises(ServerUnavailable, match="which never gets the token"):
        client.hello()
    assert 1 == len(server.asked)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_what_fails_in_the_server_is_asked_twice_more(client, server, waited, status):
    """C-057."""
    good = server.answers[0]
    server.answers = [(status, {}, [b"?"]), (status, {}, [b"?"]), good]

    assert 1 == client.hello().protocol
    assert [0.1, 0.2] == waited


def test_a_server_that_always_fails_is_asked_three_times(client, server, waited):
    server.answers = [(500, {}, [b"?"])]

    with pytest.raises(ServerUnavailable):
        client.hello()
    assert (3, [0.1, 0.2]) == (len(server.asked), waited)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 426, 429])
def test_what_is_refused_is_asked_once(client, server, status):
    server.answers = [(status, {}, [b"?"])]

    with pytest.raises(SmartForkError):
        client.hello()
    assert 1 == len(server.asked)


def test_nobody_there_is_told_with_the_address(waited):
    nobody = Client(Account("http://127.0.0.1:1", "", ""), wait=waited.append)

    with nobody, pytest.raises(ServerUnavailable, match=r"The server does not answer: http://127\.0\.0\.1:1"):
        nobody.hello()
    assert [0.1, 0.2] == waited


@pytest.mark.parametrize(
    ("reason", "said", "hint"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "The certificate of https://a.example is not trusted", "SSL_CERT_FILE"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version", "https://a.example answers without TLS.", "http://127.0.0.1"),
    ],
)  # fmt: skip
def test_why_tls_is_not_spoken_is_told(monkeypatch, waited, reason, said, hint):
    client = Client(Account("https://a.example", "", ""), wait=waited.append)

    def refuse(*_given, **_more):
        raise httpx2.ConnectError(reason)

    monkeypatch.setattr(client._http, "stream", refuse)
    with client, pytest.raises(ServerUnavailable, match=said) as refused:
        client.hello()
    assert hint in refused.value.hint


def refused_with(monkeypatch, waited, origin, error):
    client = Client(Account(origin, "", ""), wait=waited.append)
    monkeypatch.setattr(client._http, "stream", Mock(side_effect=error))
    with client, pytest.raises(ServerUnavailable) as refused:
        client.hello()
    return refused.value


def test_a_server_that_speaks_no_plain_http_is_told_to(monkeypatch, waited):
    error = httpx2.RemoteProtocolError("illegal status line: bytearray(b'\\x15\\x03\\x03\\x00\\x02\\x022')")
    refused = refused_with(monkeypatch, waited, "http://127.0.0.1:1", error)

    assert "http://127.0.0.1:1 does not answer in plain HTTP." == refused.message
    assert "https://" in refused.hint


@pytest.mark.parametrize("origin", ["http://127.0.0.1:1", "https://forks.example.org"])
@pytest.mark.parametrize(
    "error",
    [
        httpx2.RemoteProtocolError("Server disconnected without sending a response."),
        httpx2.RemoteProtocolError("peer closed connection without sending complete message body"),
        httpx2.ReadError("[Errno 104] Connection reset by peer"),
        httpx2.WriteError("[Errno 32] Broken pipe"),
    ],
    ids=["no answer", "half an answer", "reset", "broken pipe"],
)
def test_a_connection_that_ends_is_told_as_that_with_the_command_again_as_the_next_step(
    monkeypatch, waited, origin, error
):
    refused = refused_with(monkeypatch, waited, origin, error)

    assert f"{origin} closed the connection before its answer was complete." == refused.message
    assert refused.hint.startswith("Run the command again")
    assert origin.startswith("http:") == ("certificate" in refused.hint)


@pytest.mark.parametrize("origin", ["https://127.0.0.1:1", "https://forks.example.org"])
def test_the_certificate_of_the_team_is_trusted_on_every_machine_where_it_is_named(monkeypatch, tmp_path, origin):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))

    with pytest.raises(Usage, match="SSL_CERT_FILE"):
        Client(Account(origin, "", ""))


def test_who_is_not_let_in_is_told_why_by_the_server(one_server, server):
    why = {"error": "not_authenticated", "message": "This invitation is not good.", "hint": "Ask for another one."}
    server.answers = [(401, {}, [json.dumps(why).encode()])]

    client = Client(Account(one_server[1], "", ""))
    with client, pytest.raises(NotAuthenticated, match="This invitation is not good") as refused:
        client.login("sfi_" + "x" * 43, "laptop")
    assert "Ask for another one." == refused.value.hint


def test_an_answer_without_an_end_is_not_read_to_it(client, server):
    server.answers = [(200, {}, [b" " * 100_000] * 20)]

    with pytest.raises(ServerUnavailable, match="longer than 1000000 bytes"):
        client.send("GET", "hello", most=1_000_000)


@pytest.mark.parametrize("begins", [b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n",
                                    b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n"])  # fmt: skip
def test_an_answer_that_comes_a_byte_at_a_time_is_waited_for_once_and_not_for_ever(monkeypatch, waited, begins):
    monkeypatch.setattr("smart_fork.team.client.ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def dribble():
            with listening.accept()[0] as asked, contextlib.suppress(OSError):
                asked.sendall(begins)
                asked.settimeout(0.01)
                while True:
                    with contextlib.suppress(TimeoutError):
                        if not asked.recv(9_999):
                            return
                    asked.sendall(b"a")

        thread = threading.Thread(target=dribble)
        thread.start()
        client = Client(Account(f"http://127.0.0.1:{listening.getsockname()[1]}", "", ""), wait=waited.append)
        with client, pytest.raises(ServerUnavailable, match="too slow"):
            client.hello()
        thread.join()
    assert [] == waited


def test_an_answer_that_would_unfold_is_not_unfolded(client, server):
    server.answers = [(200, {"content-encoding": "gzip"}, [b"\x1f\x8b"])]

    with pytest.raises(ServerUnavailable, match="Its answer is compressed, which was not allowed"):
        client.hello()


@pytest.mark.parametrize("said", [b"{}", b"[]", b"<html>", json.dumps(HELLO | {"more": 1}).encode()])
def test_an_answer_in_another_form_is_none(client, server, said):
    server.answers = [(200, {}, [said])]

    with pytest.raises(ServerUnavailable, match="not a team server, or it has another version"):
        client.hello()


def test_what_a_server_says_steers_no_terminal(client, server):
    failure = {"error": "usage", "message": "\x1b[31mred\x1b]0;title\x07", "hint": "a\x00b"}
    server.answers = [(400, {}, [json.dumps(failure).encode()])]

    with pytest.raises(Usage) as raised:
        client.hello()
    assert "\x1b" not in raised.value.message + raised.value.hint


def test_a_strange_address_or_one_that_others_can_read_is_refused():
    assert "https://forks.example.org" == origin_of("https://Forks.Example.org:443/")
    assert "http://localhost:8770" == origin_of("http://localhost:8770")
    assert "http://[::1]:8770" == origin_of("http://[::1]:8770/")
    for wrong in (
        "http://forks.example.org", "ftp://localhost", "forks.example.org", "https://a:b@forks.example.org",
        "https://forks.example.org/path", "https://forks.example.org?x", "http://localhost.example.org", "",
        "http://127.0.0.1.example.org", "https://[x", "https://forks.example.org:x",
    ):  # fmt: skip
        with pytest.raises(Usage):
            origin_of(wrong)


def test_a_token_is_for_its_own_origin_alone(monkeypatch):
    stored_logins.remember(Account("https://forks.example.org", "alice", "sft_one"))
    monkeypatch.setenv(Setting.TEAM_URL, "https://ci.example.org")
    monkeypatch.setenv(Setting.TEAM_TOKEN, "sft_two")

    assert "sft_one" == stored_logins.logged_in_account("https://forks.example.org").token
    assert "sft_two" == stored_logins.logged_in_account().token
    with pytest.raises(NotAuthenticated):
        stored_logins.logged_in_account("https://other.example.org")


def test_a_refused_token_of_the_environment_is_named(monkeypatch):
    assert "smart-fork team login" in str(_exception_of(401, b"", known=True))
    monkeypatch.setenv("SMART_FORK_TEAM_TOKEN", "another")
    refused = _exception_of(401, b"", known=True)

    assert isinstance(refused, NotAuthenticated)
    assert ("login" not in refused.message, "unset SMART_FORK_TEAM_TOKEN" in refused.hint) == (True, True)


def test_what_is_no_utf8_is_named_and_not_sent():
    client = Client(Account("http://127.0.0.1:1", "", ""), wait=lambda _: None)
    for ask in (lambda: client.page("acme/shop", tag="a\udcff"), lambda: client.session("acme/shop", "a\udcff")):
        with pytest.raises(Usage, match=r"a\?.* is not UTF-8, which the team server needs"):
            ask()
