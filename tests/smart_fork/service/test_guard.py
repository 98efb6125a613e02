"""The requests that the service refuses."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import closing, suppress

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from smart_fork.cli.service import request_guard, server
from smart_fork.cli.service.request_guard import Doors, Guard
from smart_fork.system.http_limits import Connection, TokenBucket
from tests.smart_fork.service.conftest import PromptServer

SECRET = "s3cret"
COOKIE = "smart-fork-1"


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


class LetIn:
    """A sign-in with one browser that has signed in."""

    name = COOKIE

    def good(self, values):
        return "let in" in values

    @property
    def visits(self):
        return self

    def sign_in_page(self):
        return PlainTextResponse("", 401)


@pytest.fixture
def port():
    """Run a guarded service that returns what it is sent."""
    listening = socket.create_server(("127.0.0.1", 0))
    number = listening.getsockname()[1]
    routes = [
        Route(path, echo, methods=["GET", "POST"]) for path in ("/private", "/public", "/always", "/enter", "/{a}/x")
    ]
    doors = Doors(always=["/always"], public=["/public", "/enter"], programs=routes[-1:], way_in="/enter")
    hosts = [f"127.0.0.1:{number}", f"localhost:{number}"]
    guarded = Guard(Starlette(routes=routes), token=lambda: SECRET, hosts=hosts, doors=doors, sign_in=LetIn())
    server = PromptServer(uvicorn.Config(guarded, log_config=None, lifespan="off", ws="none", http=Connection))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield number
    server.end()
    thread.join()


def ask(port: int, path: str = "/private", body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=90)) as connection:
        given = {"Authorization": f"Bearer {SECRET}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request("POST" if body else "GET", path, body or None, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_the_token_opens_what_is_not_public(port):
    assert (200, b"hello") == ask(port, body=b"hello")
    assert 200 == ask(port, "/mcp/x")[0]


def test_a_cookie_opens_the_page_and_nothing_that_is_for_programs(port):
    browser = {"Authorization": "", "Cookie": f"other=1; {COOKIE}=let in"}
    assert (200, b"") == ask(port, **browser)
    for address in ("/mcp/x", "/mcp%2fx", "/%6dcp/x", "/a/x?a=b"):
        assert 403 == ask(port, address, **browser)[0]
        assert 403 == ask(port, address, body=b"{}", **browser)[0]
    assert 404 == ask(port, "/mcp//x", **browser)[0], "nothing is there"
    assert 401 == ask(port, "/mcp/x", Authorization="Bearer wrong", Cookie=browser["Cookie"])[0]


@pytest.mark.parametrize("other", ['state={"a": 1}', "a b=c", "=", "a", "ä=1", ";;"])
def test_odd_cookies_of_programs_at_other_ports_keep_no_browser_out(port, other):
    """Browsers send the cookies of this machine to all of its ports."""
    for cookies in (
        f"{other}; {COOKIE}=let in",
        f"{COOKIE}=let in; {other}",
        f"{COOKIE}=x; {COOKIE}=let in; {COOKIE}=y",
    ):
        assert (200, b"") == ask(port, Authorization="", Cookie=cookies.encode().decode("latin-1"))


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {SECRET}x"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {SECRET}"},
        {"Authorization": "", "Cookie": f"{COOKIE}=wrong"},
        {"Authorization": "", "Cookie": f"{COOKIE}={SECRET}"},
        {"Authorization": "", "Cookie": "smart-fork=let in"},
        {"Authorization": "", "Cookie": f"{COOKIE.upper()}=let in"},
        {"Authorization": f"Bearer {SECRET[:3]}"},
        {"Authorization": f"Bearer {SECRET.upper()}"},
        {"Authorization": f"Bearer {SECRET},{SECRET}"},
        {"Authorization": "Bearer let in"},
        {"Authorization": f"Smart-Fork {SECRET}"},
        {"Authorization": "Smart-Fork"},
        {"Authorization": f"Smart-Fork {'0' * 64}"},
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
    """DNS rebinding: the page's name belongs to the attacker, and its address is the service's."""
    for path in ("/private", "/public", "/always", "/mcp/x"):
        assert status == ask(port, path, **headers)[0]


def test_our_own_page_may_ask(port):
    assert 200 == ask(port, Origin=f"http://127.0.0.1:{port}", Sec_Fetch_Site="same-origin")[0]


@pytest.mark.parametrize("origin", ["null", "file://"])
def test_a_file_of_ours_may_send_the_code_and_nothing_else(port, origin):
    """Any page can look like a file, in a frame without an origin. But such a page has no code to send."""
    of_a_file = {"Authorization": "", "Origin": origin, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"}
    assert (200, b"code") == ask(port, "/enter", b"code", **of_a_file)
    assert 403 == ask(port, "/enter", **of_a_file)[0]
    assert 403 == ask(port, "/private", b"code", **of_a_file)[0]
    assert 403 == ask(port, "/enter", b"code", **of_a_file | {"Sec_Fetch_Dest": "iframe"})[0]
    assert 403 == ask(port, "/enter", b"code", **of_a_file | {"Origin": "http://evil.example"})[0]
    assert 421 == ask(port, "/enter", b"code", **of_a_file | {"Host": "evil.example"})[0]
    assert 413 == ask(port, "/enter", b"code" * 10_000, **of_a_file)[0]


def test_a_body_that_is_too_large_is_refused_whether_or_not_it_says_so(port):
    large = b"x" * (request_guard.MAX_BODY + 1)
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
    monkeypatch.setattr(request_guard, "BODY_SECONDS", 0.1)
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=90)) as connection:
        connection.putrequest("POST", "/private")
        connection.putheader("Authorization", f"Bearer {SECRET}")
        connection.putheader("Content-Length", "10")
        connection.endheaders(b"only")
        assert 408 == connection.getresponse().status


def test_others_are_served_while_one_is_slow(port):
    with (
        socket.create_connection(("127.0.0.1", port), timeout=120) as slow,
        socket.create_connection(("127.0.0.1", port), timeout=120) as slower,
    ):
        slow.sendall(head(port, "Content-Length: 10", line="POST /private HTTP/1.1") + b"only")
        slower.sendall(b"GET /priv")
        assert [200] * 3 == [ask(port)[0] for _ in range(3)]
        slow.sendall(b" later")
        assert slow.recv(65536).startswith(b"HTTP/1.1 200")


def test_the_service_itself_is_guarded_so():
    assert Connection is server._config(Starlette()).http


def test_guessing_the_token_is_slowed_down_and_does_not_shut_out_who_has_it(port, monkeypatch):
    monkeypatch.setattr(request_guard, "WRONG_RATE", 0.0)
    found = [ask(port, Authorization="Bearer wrong")[0] for _ in range(int(request_guard.WRONG_BURST) + 5)]

    assert 429 == found[-1]
    assert 401 == found[0]
    assert 200 == ask(port)[0]


def test_a_bucket_lets_through_what_it_holds():
    bucket = TokenBucket(2, 0)
    assert [True, True, False] == [bucket.take() for _ in range(3)]


def test_a_refusal_is_logged_without_the_token(port, caplog):
    ask(port, Authorization="Bearer my-wrong-token")
    assert "token is missing or wrong" in caplog.text
    assert "my-wrong-token" not in caplog.text


def raw(port: int, *pieces: bytes) -> bytes:
    """Send raw bytes, and return everything until the service closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        for piece in pieces:
            connection.sendall(piece)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


def head(port: int, *lines: str, line: str = "GET /private HTTP/1.1", token: str = SECRET) -> bytes:
    given = (line, f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}", "Connection: close", *lines)
    return "".join(f"{one}\r\n" for one in given).encode() + b"\r\n"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_refusals_do_not_fill_the_log(monkeypatch, request, caplog):
    monkeypatch.setattr(request_guard, "LOGGED_BURST", 3.0)
    monkeypatch.setattr(request_guard, "LOGGED_RATE", 0.0)
    port = request.getfixturevalue("port")
    assert [401] * 9 == [ask(port, Authorization="")[0] for _ in range(9)]

    assert 3 == sum("refused" in record.getMessage() for record in caplog.records)


def test_the_token_is_not_taken_from_an_address(port):
    for path in (f"/private?token={SECRET}", f"/private?access_token={SECRET}", f"/private#{SECRET}"):
        assert 401 == ask(port, path, Authorization="")[0]


@pytest.mark.parametrize(
    ("expected", "lines"),
    [
        (400, ["Content-Length: 3", "Content-Length: 4"]),
        (400, ["Content-Length: 3, 4"]),
        (400, ["Content-Length: -1"]),
        (400, ["Content-Length: +3"]),
        (400, ["Content-Length: 0x3"]),
        (400, ["Content-Length: " + "9" * 5000]),
        (400, ["Content-Length: 99999999999999999999999"]),
        (413, ["Content-Length: 99999999999999999999"]),
        (400, ["Transfer-Encoding: gzip, chunked"]),
        (400, ["Transfer-Encoding : chunked"]),
        (400, ["Host: 127.0.0.1:1"]),
        (400, ["X: a\0b"]),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(port, expected, lines, caplog):
    answer = raw(port, head(port, *lines, line="POST /private HTTP/1.1"))

    assert expected == status(answer)
    assert "Traceback" not in caplog.text
    assert 200 == ask(port)[0]


def test_a_body_without_end_is_cut_off(port):
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(head(port, "Transfer-Encoding: chunked", line="POST /private HTTP/1.1"))
        answer = b""
        sent = 0
        with suppress(ConnectionError):
            for _ in range(1000):
                connection.sendall(piece)
                sent += 1
        with suppress(ConnectionError):
            answer = connection.recv(65536)
    assert sent < 1000
    assert not answer or 413 == status(answer)
    assert 200 == ask(port)[0]


def test_a_head_without_end_is_cut_off(port):
    with suppress(ConnectionError):
        assert 400 == status(raw(port, head(port)[:-2], *[b"X: " + b"a" * 10_000 + b"\r\n"] * 200))
    assert 200 == ask(port)[0]


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "PATCH", "BREW"])
def test_every_method_needs_the_token_and_none_answers_what_it_is_not_for(port, method):
    line = f"{method} /private HTTP/1.1"
    assert 401 == status(raw(port, head(port, line=line, token="no")))
    assert (200 if method == "HEAD" else 405) == status(raw(port, head(port, line=line)))


def test_a_connection_does_not_become_another_protocol(port):
    lines = ("Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13")
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(head(port, *lines).replace(b"Connection: close", b"Connection: Upgrade"))
        answer = connection.recv(4096)
    assert 200 == status(answer)
    assert b"upgrade" not in answer.lower()


def test_whoever_asks_nothing_is_sent_away(port, monkeypatch):
    """The request's head is slow or missing, also after an answer."""
    monkeypatch.setattr(Connection, "HEAD_SECONDS", 0.1)

    assert b"" == raw(port)
    assert b"" == raw(port, b"GET /private HT")
    assert b"" == raw(port, head(port)[:-4])
    again = raw(port, head(port).replace(b"close", b"keep-alive"), b"GET /priv")
    assert 1 == again.count(b"HTTP/1.1 200")


def test_connections_that_wait_give_way_to_those_that_ask(port, monkeypatch):
    monkeypatch.setattr(Connection, "MAX_CONNECTIONS", 3)
    idle = [socket.create_connection(("127.0.0.1", port), timeout=120) for _ in range(8)]

    assert [200] * 3 == [ask(port)[0] for _ in range(3)]
    assert b"" == idle[0].recv(1), "the oldest was sent away"
    for one in idle:
        one.close()


def test_connections_of_strangers_give_way_whatever_they_are_busy_with(port, monkeypatch):
    """Each stranger has begun a request that never ends. Clients with the token keep their connections and get new
    ones.
    """
    monkeypatch.setattr(Connection, "MAX_STRANGERS", 3)
    begun = head(port, "Content-Length: 10", line="POST /private HTTP/1.1").replace(b"Connection: close\r\n", b"")
    with socket.create_connection(("127.0.0.1", port), timeout=120) as known:
        known.sendall(begun + b"only")
        held = []
        for _ in range(8):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=120))
            held[-1].sendall(head(port, "Content-Length: 10", line="POST /enter HTTP/1.1", token="no") + b"co")
            assert 200 == ask(port)[0]
        with suppress(ConnectionError):
            assert b"" == held[0].recv(1), "the oldest was sent away"
        known.sendall(b" later")
        assert known.recv(65536).startswith(b"HTTP/1.1 200")
    for one in held:
        one.close()


def test_a_stranger_connects_anew_for_each_request_and_who_has_the_token_does_not(port):
    keep = (b"Connection: close", b"Connection: keep-alive")
    many = head(port, line="GET /always HTTP/1.1", token="no").replace(*keep) * 5
    assert 1 == raw(port, many).count(b"HTTP/1.1 200")
    assert 5 == raw(port, head(port).replace(*keep) * 4 + head(port)).count(b"HTTP/1.1 200")
    in_browser = head(port, f"Cookie: {COOKIE}=let in").replace(f"Authorization: Bearer {SECRET}\r\n".encode(), b"")
    assert 5 == raw(port, in_browser.replace(*keep) * 4 + in_browser).count(b"HTTP/1.1 200")


def test_strangers_cannot_use_up_what_those_with_the_token_may_ask(monkeypatch, request):
    monkeypatch.setattr(request_guard, "STRANGERS_BURST", 3.0)
    monkeypatch.setattr(request_guard, "STRANGERS_RATE", 0.0)
    port = request.getfixturevalue("port")

    assert [200, 200, 200, 429] == [ask(port, "/public", Authorization="")[0] for _ in range(4)]
    assert 200 == ask(port)[0]
    assert 200 == ask(port, "/always", Authorization="")[0], "who has the token says so only when he has been answered"


def test_secrets_are_compared_in_constant_time(port, monkeypatch):
    """The time of a comparison must not reveal how much of a secret was right."""
    compared = []
    real = request_guard.hmac.compare_digest
    monkeypatch.setattr(request_guard.hmac, "compare_digest", lambda *both: compared.append(both) or real(*both))

    ask(port, Authorization="Bearer wrong")

    assert 1 == len(compared)
