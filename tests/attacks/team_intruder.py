"""Somebody with a token of a team's server, who sends anything with it: what others keep he neither sees nor changes.

Each call is made from a right one, with something in it that is forged, broken or somebody else's; the same seed makes
the same calls.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import re
import secrets
import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import zstandard

from smart_fork.sharing.canonical import digest_of_state, state_after
from smart_fork.team import wire
from tests.attacks.team_scene import Scene, push_of, record

SECONDS = 60.0
#: What stands in no answer, whatever was asked.
INSIDE = re.compile(r"Traceback|psycopg|pydantic|site-packages|\.py\b|SELECT |INSERT |postgres|/home/|/tmp/", re.ASCII)
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "X", "get")
TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u202e\u2028", "\x1b]0;t\x07", "\ufeff", "\uffff", "é" * 5000,
    "' OR 1=1 --", "'; drop table sessions; --", "\\'; select pg_sleep(9)--", "%s", "%(x)s", "{0}", "$1", "_", "%", "*",
    "../../etc/passwd", "/etc/passwd", "..%2f..%2f", "file:///etc/passwd", "C:\\x", "-1", "1e999", "9" * 5000, "NaN",
    "null", "true", "[]", "{}", "sft_" + "A" * 43, "sfi_" + "A" * 43, "sf1:" + "0" * 64, "0" * 64, "f" * 64,
    "00000000-0000-0000-0000-000000000000", "x" * 300_000, "((((((", "a & | !", "<->", ":*", "\\", '"', "\r\nX: y",
    "bypassPermissions", "infinity", "epoch", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "294277-01-01T00:00:00Z",
)  # fmt: skip
NUMBERS = (
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    1e308,
    -0.0,
    5e-324,
    float("nan"),
    float("inf"),
)


@dataclass
class Sent:
    """One call: who, what, with what, and what he may have of it."""

    who: str
    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    #: Whether it must not be done, whatever is in it.
    forbidden: bool = False


@dataclass
class Answer:
    """What came back; status 0 where the connection was closed without a word."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = ()


class Intruder:
    """One, with chance of his own."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self._scene, self._chance = scene, chance
        self._own: list[tuple[str, list[bytes]]] = []
        self._kinds: list[tuple[int, Callable[[], Sent]]] = [
            (16, self._push), (10, self._segment), (8, self._branch), (8, self._rewrite), (8, self._change),
            (10, self._have), (10, self._search), (10, self._ask), (12, self._strange), (3, self._login),
        ]  # fmt: skip

    def attack(self) -> tuple[str, int, str, str]:
        """The kind of the call, the status of its answer, what was wrong, and what was sent."""
        lot = self._chance.randrange(100)
        if lot < 5:
            return self._twins()
        if lot < 12:
            return self._raw()
        makes = [make for _, make in self._kinds]
        make = self._chance.choices(makes, [weight for weight, _ in self._kinds])[0]
        sent = make()
        answer = self._exchange(sent)
        shown = f"{sent.who} {sent.method} {sent.path[:200]} {sent.headers} {sent.body[:300]!r}"
        return make.__name__.strip("_"), answer.status, self._wrong(sent, answer), shown

    # What is sent

    def _push(self) -> Sent:
        records = [record(f"mine {self._chance.random()}") for _ in range(self._chance.choice([1, 2, 5]))]
        session = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        made, lot = (
            push_of(session, records, visibility=self._chance.choice(["public", "private"])),
            self._chance.random(),
        )
        stolen = self._chance.choice(["private", "foreign", "deleted", "public"])
        who, where = self._who(), self._chance.choice([self._scene.key] * 4 + [self._scene.other])
        forbidden = False
        if lot < 0.2:  # somebody else's session, as if one had seen it; an id is one project's
            where = self._scene.other if stolen == "foreign" else where
            count, digest = self._scene.heads[stolen]
            made |= {"id": self._scene.ids[stolen]} | self._chance.choice(
                [{}, {"base_count": count, "base_digest": digest}]
            )
            forbidden = True
        elif lot < 0.4:  # others' records by their hash
            made["segments"][0]["digest"] = self._scene.digests[stolen]
            made["segments"][0]["records"] = made["count"] = 6
            made["bodies"], forbidden = [], stolen != "public"
        elif lot < 0.5:
            made["digest"] = "sf1:" + secrets.token_hex(32)
            forbidden = True
        elif lot < 0.6:
            made["vectors"] = {"space": self._chance.choice(["light/1/384", "x", self._text()[:200]]), "vectors": [
                {"chunk": secrets.token_hex(32), "e": base64.b64encode(struct.pack("<e", self._chance.choice([0, 6e4]))
                 * self._chance.choice([1, 384, 5000])).decode()}
                for _ in range(self._chance.choice([1, 50]))]}  # fmt: skip
        elif lot < 0.85:
            made = self._broken(made)
        if lot >= 0.85 or (0.5 <= lot < 0.6):
            self._own.append((session, records))
        forbidden |= who != "writer" or where == self._scene.other
        return self._json(who, "POST", f"{self._below(where)}/push", made, forbidden=forbidden)

    def _segment(self) -> Sent:
        kind = self._chance.choice([*self._scene.digests, "hostile"])
        digest = self._scene.digests.get(kind) or self._in_address(300)
        where, who = self._chance.choice([self._scene.key, self._scene.key, self._scene.other]), self._who()
        path = f"{self._below(where)}/segments/{digest}"
        if self._chance.random() < 0.5:
            open_to = kind == "public" and where == self._scene.key and who in ("writer", "reader")
            return Sent(who, "GET", path, forbidden=not open_to)
        return Sent(who, "PUT", path, self._bomb(), {"Content-Type": self._chance.choice(
            ["application/zstd", "application/json", "", "multipart/form-data; boundary=x",
            "text/html; charset=\xff"])},
            forbidden=True)  # fmt: skip

    def _bomb(self) -> bytes:
        compressor = zstandard.ZstdCompressor(level=3)
        zeros = bytes(self._chance.choice([100, 9 << 20, 64 << 20]))
        return self._chance.choice([
            lambda: compressor.compress(zeros), lambda: compressor.compress(b"{}\n") * 2, lambda: b"",
            lambda: zstandard.ZstdCompressor(write_content_size=False).compress(zeros),
            lambda: compressor.compress(b'{"a":1}\n')[:-3], lambda: secrets.token_bytes(200),
            lambda: compressor.compress(b'{"b":1,"a":2}\n'), lambda: compressor.compress(b'{"a":1,"a":2}\n'),
            lambda: compressor.compress(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}\n"),
            lambda: compressor.compress(b'{"a":NaN}\n'), lambda: compressor.compress(b'{"a":"\xff"}\n'),
            lambda: compressor.compress(b'{"a":"\\ud800"}\n'),
            lambda: compressor.compress(b'{"a":' + b"9" * 5000 + b"}\n"),
            lambda: b"\x1f\x8b\x08\x00" + bytes(50), lambda: compressor.compress(b"[]\n"),
            lambda: compressor.compress(b"\n\n"),
        ])()  # fmt: skip

    def _branch(self) -> Sent:
        source, verb, who = (
            self._chance.choice(list(self._scene.ids)),
            self._chance.choice(["branch", "fork"]),
            self._who(),
        )
        made = {
            "verb": verb, "id": self._chance.choice([str(uuid.uuid4()), self._known()]),
            "source_id": self._scene.ids[source], "force": self._chance.random() < 0.5,
        }  # fmt: skip
        if self._chance.random() < 0.5:
            made["count"] = self._chance.choice([1, 3, 6, 7, *NUMBERS])
        where = self._chance.choice([self._scene.key] * 3 + [self._scene.other])
        allowed = who == "writer" and where == self._scene.key and source == "public" and verb == "fork"
        if self._chance.random() < 0.3:
            made = self._broken(made)
        return self._json(who, "POST", f"{self._below(where)}/branches", made, forbidden=not allowed)

    def _rewrite(self) -> Sent:
        if self._own and self._chance.random() < 0.3:
            session, records = self._chance.choice(self._own)
            olds = [digest_of_state(state_after([one]))[4:] for one in records]
        else:
            session, olds = self._chance.choice(list(self._scene.ids.values())), [secrets.token_hex(32)]
        made: dict[str, Any] = {
            "kind": self._chance.choice(["cut", "mask"]), "revision": self._chance.choice([0, 1, 2, *NUMBERS]),
            "edits": [{"old": old, "new": None} for old in olds] * self._chance.choice([1, 1, 2]),
        }  # fmt: skip
        made = self._broken(made) if self._chance.random() < 0.4 else made
        theirs = session in self._scene.ids.values()
        return self._json(
            self._who(), "POST", f"/v1/sessions/{session}/rewrites?{self._project()}", made, forbidden=theirs
        )

    def _change(self) -> Sent:
        session = self._chance.choice([*self._scene.ids.values(), *(one for one, _ in self._own[-3:])])
        theirs = session in self._scene.ids.values()
        if self._chance.random() < 0.3:
            more = self._chance.choice(["", "&everywhere=1", f"&everywhere={self._in_address(99)}"])
            return Sent(self._who(), "DELETE", f"/v1/sessions/{session}?{self._project()}{more}", forbidden=theirs)
        made = {"title": self._text(), "tags": [self._text()], "summary": self._text(), "visibility": "public"}
        made = {key: one for key, one in made.items() if self._chance.random() < 0.5}
        made = self._broken(made) if self._chance.random() < 0.4 else made
        return self._json(self._who(), "PATCH", f"/v1/sessions/{session}?{self._project()}", made, forbidden=theirs)

    def _have(self) -> Sent:
        made: Any = {"segments": list(self._scene.digests.values())}
        made = self._broken(made) if self._chance.random() < 0.6 else made
        return self._json(self._who(), "POST", f"{self._below(self._key())}/have", made)

    def _search(self) -> Sent:
        made: dict[str, Any] = {"question": self._text() or "x", "limit": self._chance.choice([1, 10, *NUMBERS])}
        if self._chance.random() < 0.4:
            made |= {"also": [self._text()], "without": [self._chance.choice([*self._scene.ids.values(), "x"])]}
        if self._chance.random() < 0.4:
            e = struct.pack("<384e", *[self._chance.choice([0.0, float("nan"), float("inf"), 6e4, 1e-7])] * 384)
            made |= {"space": "light/1/384", "e": [base64.b64encode(e).decode()] * self._chance.choice([1, 2, 9])}
        made = self._broken(made) if self._chance.random() < 0.3 else made
        who, where = self._who(), self._key()
        closed = who == "stranger" or where == self._scene.other
        return self._json(who, "POST", f"{self._below(where)}/search", made, forbidden=closed)

    def _ask(self) -> Sent:
        kind = self._chance.choice(list(self._scene.ids))
        text = self._in_address(300)
        who = self._who()
        open_to = kind == "public" and who in ("writer", "reader")
        path, forbidden = self._chance.choice([
            (f"/v1/sessions/{self._scene.ids[kind]}?{self._project()}&verb=show", not open_to),
            (f"/v1/sessions/{self._scene.ids[kind]}?{self._project()}&verb=pull", True),
            (f"/v1/sessions/{text}?{self._project()}", True),
            (f"{self._below(self._scene.other)}/sessions", True),
            (f"{self._below(self._scene.key)}/sessions?owner={text}&tag={text}&root={text}&id={text}",
            who == "stranger"),
            (f"{self._below(self._scene.key)}/sessions?limit={text}&page={text}", False),
            (f"{self._below(text)}/sessions", True), (f"/v1/changes?since={text}", False),
            (f"/v1/audit?session={text}", False), (f"/v1/audit?since={text}&page={text}", False),
            (f"/v1/audit?session={self._scene.ids['private']}", False), ("/v1/audit", False), ("/v1/changes", False),
        ])  # fmt: skip
        return Sent(who, "GET", path, forbidden=forbidden)

    def _strange(self) -> Sent:
        """Addresses, methods and headers that nobody has asked for."""
        text = self._in_address(2000, self._chance.choice(["", "/%"]))
        path = self._chance.choice([
            f"/{text}", f"/v1/{text}", f"/v1/sessions/{text}/rewrites", f"/v1/projects/{text}", "//",
            "/v1//hello", "/v1/hello/",
            f"/v1/projects/{self._scene.key}/../{self._scene.other}/sessions", f"/v1/projects/{text}/segments/{text}",
            "/v1/hello", "/healthz", f"{self._below(self._scene.key)}/push/", "/%2e%2e/%2e%2e/etc/passwd", "*",
            f"/v1/sessions/{self._scene.ids['private']}%00?{self._project()}", "/v1/projects//sessions",
        ])  # fmt: skip
        names = ["Content-Encoding", "Transfer-Encoding", "Expect", "Range", "Host", "Cookie", "Smart-Fork-Protocol",
                 "X-Forwarded-For", "Upgrade", "Connection", "X-HTTP-Method-Override", "Accept", "If-Match",
                 "Authorization"]  # fmt: skip
        value = self._chance.choice(
            ["gzip", "chunked", "100-continue", "bytes=0-", "websocket", "2", "1, 1", "x" * 9000, "Bearer"]
        )
        headers = {self._chance.choice(names): value}
        return Sent(self._chance.choice([self._who(), "nobody"]), self._chance.choice(VERBS), path or "/", b"", headers)

    def _login(self) -> Sent:
        made = {"invite": self._chance.choice(["sfi_" + "A" * 43, self._text()]), "machine": self._text() or "x"}
        if self._chance.random() < 0.5:
            made["token"] = self._chance.choice([self._scene.tokens["writer"][0], "sft_" + "A" * 43, self._text()])
        return self._json("nobody", "POST", "/v1/login", self._broken(made), forbidden=True)

    # How

    def _twins(self) -> tuple[str, int, str, str]:
        """What one may not know of is answered as what is not there."""
        who, kind = self._chance.choice(["writer", "reader", "stranger"]), self._chance.choice(["private", "deleted"])
        make = self._chance.choice([
            lambda one: Sent(who, "GET", f"/v1/sessions/{one}?project={self._scene.key}"),
            lambda one: Sent(who, "GET", f"/v1/sessions/{one}?project={self._scene.key}&verb=fork"),
            lambda one: Sent(who, "DELETE", f"/v1/sessions/{one}?project={self._scene.key}"),
            lambda one: Sent(who, "PATCH", f"/v1/sessions/{one}?project={self._scene.key}", b'{"title": "x"}'),
            lambda one: Sent(who, "POST", f"{self._below(self._scene.key)}/branches", json.dumps(
                {"verb": "fork", "id": str(uuid.uuid4()), "source_id": one}).encode()),
            lambda one: Sent(who, "POST", f"/v1/sessions/{one}/rewrites?project={self._scene.key}", json.dumps(
                {"kind": "cut", "revision": 0, "edits": [{"old": "0" * 64}]}).encode()),
        ])  # fmt: skip
        said = []
        for name in (kind, "missing"):
            one = self._scene.ids[name]
            answer = self._exchange(make(one))
            headers = sorted((key.lower(), value) for key, value in answer.headers if key.lower() != "date")
            said.append((answer.status, answer.body.replace(one.encode(), b"ID" * 18), headers))
        wrong = "" if said[0] == said[1] else f"not alike: {said}"
        if said[0][0] not in (403, 404, 429):
            wrong = wrong or f"{said[0][0]} for what cannot be had"
        return "twins", said[0][0], wrong, f"{who} {kind}"

    def _raw(self) -> tuple[str, int, str, str]:
        """What is no HTTP, or says something else than it is."""
        token = self._chance.choice(self._scene.tokens["writer"])
        head = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
        push = f"POST {self._below(self._scene.key)}/push HTTP/1.1\r\n{head}"
        sent = self._chance.choice([
            f"{push}Content-Length: 5\r\n\r\n{{}}".encode(), f"{push}Content-Length: -1\r\n\r\n".encode(),
            f"{push}Content-Length: {'9' * 5000}\r\n\r\n".encode(),
            f"{push}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}".encode(),
            f"{push}Transfer-Encoding: chunked\r\n\r\nZZ\r\n".encode(),
            f"{push}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx".encode(),
            f"{push}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode(),
            f"{push}X: {'y' * 200_000}\r\n\r\n".encode(), b"GET / HTTP/0.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00", b"\0" * 500,
            f"GET http://elsewhere/v1/hello HTTP/1.1\r\n{head}\r\n".encode(),
            f"GET /v1/hello HTTP/1.1\r\n{head}X:\0\r\n\r\n".encode(),
            f"GET /v1/hello HTTP/1.1\r\n{head}".encode() + b"X: \xff\xfe\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            f"GET /v1/audit HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\xff\r\n\r\n".encode("latin-1"),
            b"GET /v1/audit HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \0\r\n\r\n",
            f"GET /v1/sessions/\xff?project=\xff HTTP/1.1\r\n{head}\r\n".encode("latin-1"),
            f"GET /v1/hello HTTP/1.1\r\n{head}\r\n".encode() * 20,
            b"GET /v1/hello HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        ])  # fmt: skip
        address = urlsplit(self._scene.url)
        said = b""
        where = address.hostname or "", address.port or 80
        with closing(socket.create_connection(where, SECONDS)) as there, suppress(OSError):
            there.sendall(sent)
            there.shutdown(socket.SHUT_WR)
            while part := there.recv(1 << 16):
                said += part
        status = int(said[9:12]) if said[:5] == b"HTTP/" and said[9:12].isdigit() else 0
        wrong = f"status {status}" if status >= 500 else self._leaked(said)
        return "raw", status, wrong, repr(sent[:300])

    def _exchange(self, sent: Sent) -> Answer:
        address = urlsplit(self._scene.url)
        headers = {key: value for key, value in sent.headers.items() if value}
        if sent.who != "nobody" and "Authorization" not in headers:
            headers["Authorization"] = f"Bearer {self._chance.choice(self._scene.tokens[sent.who])}"
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=SECONDS)
        # What nobody would send is what this is for.
        connection._validate_path = str  # type: ignore[attr-defined]
        try:
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # what is too large is refused before it has been sent
                connection.request(
                    sent.method, sent.path, sent.body, {k: v.encode("latin-1", "replace") for k, v in headers.items()}
                )
            said = connection.getresponse()
            return Answer(said.status, said.read(), said.getheaders())
        except (http.client.HTTPException, ConnectionError):
            return Answer(0, b"")
        finally:
            connection.close()

    def _wrong(self, sent: Sent, answer: Answer) -> str:
        """What must not be; nothing where all is well."""
        if answer.status >= 500:
            return f"status {answer.status}"
        if not answer.status and sent.method in ("GET", "POST", "PUT", "PATCH", "DELETE") and not sent.headers:
            return "no answer"
        if leaked := self._leaked(answer.body):
            return leaked
        if answer.status >= 400 and sent.method != "HEAD" and answer.headers:
            try:
                wire.Failure.model_validate_json(answer.body)
            except ValueError:
                if b"Invalid HTTP request" not in answer.body:
                    return f"no sentence: {answer.body[:200]!r}"
        if sent.forbidden and 200 <= answer.status < 300:
            return f"it was done: {answer.status}"
        return ""

    def _leaked(self, body: bytes) -> str:
        text = body.decode("utf-8", "replace")
        if hidden := next((one for one in self._scene.hidden if one in text), ""):
            return f"it tells {hidden}"
        said = INSIDE.search(text)
        return f"it tells of the inside: {said[0]}" if said and not text.startswith('{"hits"') else ""

    # Values

    def _broken(self, made: Any) -> Any:
        """A right message with one or two things in it that are not."""
        for _ in range(self._chance.choice([1, 1, 2])):
            lot = self._chance.random()
            if lot < 0.15 or not made or not isinstance(made, dict):
                return self._anything()
            key = self._chance.choice(list(made))
            if lot < 0.3:
                made = {name: one for name, one in made.items() if name != key}
            elif lot < 0.4:
                made = made | {self._text()[:50]: self._anything()}
            elif lot < 0.6 and isinstance(made[key], list) and made[key] and isinstance(made[key][0], dict):
                made = made | {key: [self._broken(dict(made[key][0])), *made[key][1:]]}
            else:
                made = made | {key: self._anything()}
        return made

    def _anything(self) -> Any:
        deep: Any = "end"
        for _ in range(self._chance.choice([3, 90, 3000])):
            deep = [deep] if self._chance.random() < 0.5 else {"a": deep}
        return self._chance.choice([
            None, True, False, self._chance.choice(NUMBERS), self._text(), [], {}, [self._text()] * 60, deep,
            {self._text()[:99]: self._text()}, [[[]]] * 50, [None], self._known(),
        ])  # fmt: skip

    def _json(self, who: str, method: str, path: str, made: Any, *, forbidden: bool = False) -> Sent:
        try:
            text = json.dumps(made)
        except RecursionError:
            text = "[" * 100_000
        lot = self._chance.random()
        if lot < 0.04:  # a name that is there twice
            text = text[:-1] + "," + text[1:] if text.startswith("{") and len(text) > 2 else text
        elif lot < 0.07:
            text = text[: self._chance.randrange(len(text) + 1)]
        body = (
            text.encode()
            if lot < 0.95
            else self._chance.choice([text.encode("utf-16"), b"\xff" + text.encode(), b"\xef\xbb\xbf" + text.encode()])
        )
        kind = self._chance.choice(
            ["application/json"] * 6 + ["text/plain", "application/x-www-form-urlencoded", "x", "application/zstd"]
        )
        return Sent(who, method, path, body, {"Content-Type": kind}, forbidden=forbidden)

    def _text(self) -> str:
        lot = self._chance.random()
        if lot < 0.15:
            return self._chance.choice(TEXTS)[:1000] + self._chance.choice(TEXTS)[:1000]
        return self._chance.choice([self._known(), "retry"]) if lot < 0.25 else self._chance.choice(TEXTS)

    def _in_address(self, most: int, safe: str = "") -> str:
        return quote(self._text()[:most].encode("utf-8", "replace"), safe=safe)

    def _known(self) -> str:
        """The id of a session that nobody else can make, for there is one of that id."""
        return self._scene.ids[self._chance.choice(["public", "private", "deleted"])]

    def _who(self) -> str:
        return self._chance.choice(["writer"] * 6 + ["reader", "stranger"])

    def _key(self) -> str:
        return self._chance.choice([self._scene.key] * 3 + [self._scene.other])

    def _project(self) -> str:
        return f"project={quote(self._key(), safe='')}"

    def _below(self, key: str) -> str:
        return f"/v1/projects/{key}"
