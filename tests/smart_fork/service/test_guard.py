"""What the service refuses."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import closing

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from smart_fork.service import guard
from smart_fork.service.guard import Bucket, Guard

SECRET = "s3cret"


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


@pytest.fixture
def port():
    """A guarded service that gives back what it is sent."""
    listening = socket.create_server(("127.0.0.1", 0))
    number = listening.getsockname()[1]
    app = Starlette(routes=[Route(path, echo, methods=["GET", "POST"]) for path in ("/private", "/public")])
    guarded = Guard(app, secret=SECRET, hosts=[f"127.0.0.1:{number}", f"localhost:{number}"], public=["/public"])
    server = uvicorn.Server(uvicorn.Config(guarded, log_config=None, lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield number
    server.should_exit = True
    thread.join()


def ask(port: int, path: str = "/private", body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=90)) as connection:
        given = {"Authorization": f"Bearer {SECRET}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request("POST" if body else "GET", path, body or None, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_the_token_opens_what_is_not_public(port):
    assert (200, b"hello") == ask(port, body=b"hello")
    assert (200, b"") == ask(port, Authorization="", Cookie=f"other=1; {guard.COOKIE}={SECRET}")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {SECRET}x"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {SECRET}"},
        {"Authorization": "", "Cookie": f"{guard.COOKIE}=wrong"},
        {"Authorization": "", "Cookie": '"'},
    ],
)
def test_nothing_else_opens_it(port, headers):
    assert 401 == ask(port, **headers)[0]
    assert 200 == ask(port, "/public", **headers)[0]


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (421, {"Host": "evil.example"}),
        (421, {"Host": "127.0.0.1"}),
        (421, {"Host": "127.0.0.1.evil.example"}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "https://localhost"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
    ],
)
def test_other_pages_and_names_are_refused_with_the_token_and_on_public_paths_too(port, status, headers):
    """DNS rebinding: the name of the page is the attacker's, the address is ours."""
    for path in ("/private", "/public"):
        assert status == ask(port, path, **headers)[0]


def test_our_own_page_may_ask(port):
    assert 200 == ask(port, Origin=f"http://127.0.0.1:{port}", Sec_Fetch_Site="same-origin")[0]


def test_a_body_that_is_too_large_is_refused_whether_or_not_it_says_so(port):
    large = b"x" * (guard.MAX_BODY + 1)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=90)) as connection:
        connection.putrequest("POST", "/private")
        connection.putheader("Authorization", f"Bearer {SECRET}")
        connection.putheader("Content-Length", str(len(large)))
        connection.endheaders()
        assert 413 == connection.getresponse().status
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=90)) as connection:
        headers = {"Authorization": f"Bearer {SECRET}", "Transfer-Encoding": "chunked"}
        connection.request("POST", "/private", iter([large]), headers, encode_chunked=True)
        assert 413 == connection.getresponse().status


def test_a_client_that_sends_too_slowly_is_told_so(port, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=90)) as connection:
        connection.putrequest("POST", "/private")
        connection.putheader("Authorization", f"Bearer {SECRET}")
        connection.putheader("Content-Length", "10")
        connection.endheaders(b"only")
        assert 408 == connection.getresponse().status


def test_guessing_the_token_is_slowed_down_and_does_not_shut_out_who_has_it(port, monkeypatch):
    monkeypatch.setattr(guard, "WRONG_RATE", 0.0)
    found = [ask(port, Authorization="Bearer wrong")[0] for _ in range(int(guard.WRONG_BURST) + 5)]

    assert 429 == found[-1]
    assert 401 == found[0]
    assert 200 == ask(port)[0]


def test_a_bucket_lets_through_what_it_holds():
    bucket = Bucket(2, 0)
    assert [True, True, False] == [bucket.take() for _ in range(3)]


def test_a_refusal_is_logged_without_the_token(port, caplog):
    ask(port, Authorization="Bearer my-wrong-token")
    assert "token is missing or wrong" in caplog.text
    assert "my-wrong-token" not in caplog.text
