"""Somebody who tries the doors: with cookies, codes and tokens that are not for them, or are not good any more.

Each call has one right answer. What he has tried with is kept, for it must stand in no answer, log or command line.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from smart_fork.cli.service.app import PUBLIC
from smart_fork.page.sign_in import CODE_SECONDS, IDLE_SECONDS, MAX_AGE_SECONDS
from tests.attacks.home import Home

#: Of a flood: requests, and connections that are held open meanwhile.
REQUESTS, HELD = 250, 150
SECONDS = 60.0
VERBS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "X")


@dataclass
class Doors:
    """The service's addresses, as methods and paths: those for `programs` alone, and the `pages`."""

    programs: list[tuple[str, str]]
    pages: list[tuple[str, str]]


@dataclass
class Tried:
    """What was right in what was tried: `wrong` says what was not, `name` of what kind it was."""

    name: str
    sent: str
    wrong: str = ""


@dataclass
class Intruder:
    """One, with chance of his own."""

    home: Home
    doors: Doors
    chance: random.Random
    cookie: str = ""
    ended: list[str] = field(default_factory=list)
    codes: list[tuple[str, float]] = field(default_factory=list)
    _told: str = ""

    def attack(self) -> Tried:
        """One call."""
        tried = self._try()
        told, self._told = self._told, ""
        return Tried(tried.name, tried.sent, tried.wrong or told)

    def _try(self) -> Tried:
        lot = self.chance.randrange(100)
        kinds: list[tuple[int, Callable[[], Tried]]] = [
            (50, self._cookie_at_a_program), (65, self._cookie_at_a_page), (85, self._what_has_ended), (97, self._code),
            (99, self._health),
        ]  # fmt: skip
        return next((kind for limit, kind in kinds if lot < limit), self._foreign_origin)()

    def come_in(self) -> None:
        """Get a cookie that is good, as a browser does."""
        answer = self._enter(self._new_code())
        self.cookie = (answer.headers.get("Set-Cookie") or "").partition(";")[0]
        self._keep(self.cookie.partition("=")[2])

    def rotate(self) -> Iterator[Tried]:
        """Change the token beside all who ask; then nothing opens that did before."""
        code, token, cookie = self._new_code(), self.home.token, self.cookie
        done = _smart_fork(self.home, "service", "rotate", "--json")
        self.home.token = (self.home.state / "service-token").read_text(encoding="utf-8")
        self._keep(self.home.token)
        yield _same("rotate", done.stderr, done.returncode, right=0)
        self.ended += [f"Bearer {token}", cookie]
        for name, path, key in (
            ("token", "/status", {"Authorization": f"Bearer {token}"}),
            ("cookie", "/", {"Cookie": cookie}),
        ):
            yield _refused(f"rotate: the old {name}", "", self._ask("GET", path, **key))
        yield _refused("rotate: an old code", "", self._enter(code))
        yield _same("rotate: the new token", "", self._ask("GET", "/status", **self._token()).status, right=200)
        self.come_in()

    def flood(self) -> Iterator[Tried]:
        """Many without the token, and connections that hold on; beside them whoever has it is answered."""
        held = [self._held(number) for number in range(HELD)]
        threads = [threading.Thread(target=self._strangers, args=(REQUESTS // 3,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for path in ("/healthz", "/status", "/healthz", "/status"):
            yield _same(f"flood: {path}", "", self._ask("GET", path, **self._token()).status, right=200)
        said = _smart_fork(self.home, "status", "--json")
        yield _same("flood: smart-fork status", said.stdout, _runs(said), right=True)
        yield _same("flood: a browser comes in", "", self._enter(self._new_code()).status, right=200)
        for thread in threads:
            thread.join()
        for one in held:
            one.close()

    def other_family(self) -> Iterator[Tried]:
        """Nobody else can listen at another address of the same port."""
        if _can_listen("::1", 0):
            free = _can_listen("::1", self.home.port)
            yield _same("another address: localhost is nobody else's", "", free, right=False)

    def late(self) -> Iterator[Tried]:
        """Codes whose time is over by now."""
        for code, made in self.codes:
            if time.monotonic() - made > CODE_SECONDS + 1:
                yield _refused("code: late", code, self._enter(code))

    def _cookie_at_a_program(self) -> Tried:
        _, path = self.chance.choice(self.doors.programs)
        verb, address = self.chance.choice(VERBS), _filled(path) + self.chance.choice(["", "", "?q=x", "?"])
        answer = self._ask(verb, address, self.chance.choice([b"", b"{}", b"code=x"]), Cookie=self.cookie)
        right = (200, 405) if path in PUBLIC else (403,)
        return _same(f"cookie at {path}", f"{verb} {address} {answer.status}", answer.status in right, right=True)

    def _cookie_at_a_page(self) -> Tried:
        verb, path = self.chance.choice([one for one in self.doors.pages if one[1] != "/open"])
        answer = self._ask(verb, _filled(path), Cookie=f"{self.chance.choice(['', 'a=b; ', ';; '])}{self.cookie}")
        refused = answer.status in (401, 403) or answer.status >= 500
        return _same(f"cookie at {path}", f"{verb} {answer.status}", refused, right=False)

    def _what_has_ended(self) -> Tried:
        verb, path = self.chance.choice(
            [one for one in (*self.doors.pages, *self.doors.programs) if _needs_key(one[1])]
        )
        key = self.chance.choice([*self.ended, self.cookie[:-1], self.cookie.upper(), f"Bearer {self.cookie}"])
        name = "Authorization" if key.startswith("Bearer ") else "Cookie"
        return _refused("what has ended", f"{verb} {path} {key}", self._ask(verb, _filled(path), **{name: key}))

    def _code(self) -> Tried:
        code = self._new_code()
        self.codes.append((self._new_code(), time.monotonic()))
        wrong = [self._enter(other).status for other in (code[:-1], code.swapcase(), f"{code}x", "")]
        by_address = self._ask("GET", f"/open?code={code}").headers.get("Set-Cookie")
        by_cookie = self._ask("POST", "/code", Cookie=self.cookie).status
        once, twice = self._enter(code), self._enter(code)
        got = (wrong, by_address, by_cookie, once.status, twice.status, twice.headers.get("Set-Cookie"))
        return _same("code", code, got, right=([401] * 4, None, 403, 200, 401, None))

    def _health(self) -> Tried:
        return _same("/healthz", "", json.loads(self._ask("GET", "/healthz").text), right={"ok": True})

    def _foreign_origin(self) -> Tried:
        origin = self.chance.choice(
            ["http://evil.example", "null", "file://", f"http://127.0.0.1:{self.home.port + 1}"]
        )
        answer = self._ask("POST", "/fork", b"form=x", Cookie=self.cookie, Origin=origin)
        return _same("another page's form", origin, answer.status, right=403)

    def _new_code(self) -> str:
        answer = self._ask("POST", "/code", b"", **self._token())
        code: str = json.loads(answer.text)["code"]
        self._keep(code)
        return code

    def _enter(self, code: str) -> _Answer:
        return self._ask("POST", "/open", urlencode({"code": code}).encode(), Origin="null")

    def _token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.home.token}"}

    def _keep(self, secret: str) -> None:
        self.home.secrets.add(secret)

    def _ask(self, verb: str, address: str, body: bytes = b"", **headers: str) -> _Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.home.port, timeout=SECONDS)) as connection:
            connection.request(verb, address, body or None, headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        if address != "/code" and any(key in text for key in {self.home.token, *self.home.secrets}):
            self._told = f"{verb} {address} tells a key"
        return _Answer(answer.status, text, answer.headers)

    def _held(self, number: int) -> socket.socket:
        """A connection that begins a request and goes on with it never."""
        made = socket.create_connection(("127.0.0.1", self.home.port), timeout=SECONDS)
        head = f"POST /open HTTP/1.1\r\nHost: 127.0.0.1:{self.home.port}\r\nContent-Length: 50\r\n\r\nco".encode()
        with suppress(OSError):
            made.sendall(head[: (0, 10, len(head))[number % 3]])
        return made

    def _strangers(self, requests: int) -> None:
        for number in range(requests):
            with suppress(OSError, http.client.HTTPException):
                self._ask("GET", ("/mcp", "/open", "/healthz", "/static/page.css")[number % 4])


@dataclass
class _Answer:
    status: int
    text: str
    headers: Any


def ended_cookies(home: Home) -> list[str]:
    """Cookies that a service of before has left, none of which is good: idle too long, too old, of the future."""
    now, token = time.time(), home.token
    times = [(now - 5, now - IDLE_SECONDS - 5), (now - MAX_AGE_SECONDS - 5, now - 5), (now + 86_400, now + 86_400)]
    kept = {}
    for number, begun_and_used in enumerate(times):
        key = hashlib.blake2b(f"left-{number}".encode(), key=token.encode()[:64]).hexdigest()
        kept[key] = begun_and_used
    folder = home.state / "page"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "visits.json").write_text(json.dumps(kept), encoding="utf-8")
    return [f"left-{number}" for number in range(len(times))]


def _same(name: str, sent: str, got: Any, *, right: Any) -> Tried:
    return Tried(name, sent, "" if right == got else f"{got!r}, not {right!r}")


def _refused(name: str, sent: str, answer: _Answer) -> Tried:
    """Who has tried too often is told only that."""
    return _same(name, f"{sent} {answer.status}", answer.status in (401, 429), right=True)


def _runs(status: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(status.stdout)["service"]["running"] if status.returncode == 0 else status.stderr


def _needs_key(path: str) -> bool:
    return path not in PUBLIC and path != "/open" and not path.startswith("/static/")


def _filled(path: str) -> str:
    return re.sub(r"{\w+}", "x", path)


def _smart_fork(home: Home, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smart_fork", *words]
    return subprocess.run(
        command, env=home.environment() | more, cwd="/", capture_output=True, text=True, timeout=SECONDS, check=False
    )


def _can_listen(host: str, port: int) -> bool:
    try:
        with closing(socket.create_server((host, port), family=socket.AF_INET6)):
            return True
    except OSError:
        return False
