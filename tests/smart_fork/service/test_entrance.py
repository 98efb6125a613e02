"""The sign-in of a browser: how long it lasts, and what it opens."""

from __future__ import annotations

import http.client
import re
import stat
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlencode

import orjson
import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service import token
from smart_fork.cli.service.app import PUBLIC, Entrance
from smart_fork.page.sign_in import (
    CODE_SECONDS,
    IDLE_SECONDS,
    MAX_AGE_SECONDS,
    MAX_CODES,
    MAX_VISITS,
    SLACK_SECONDS,
    SignInCodes,
    SignInCookies,
)
from smart_fork.page.worker_page import LIVE
from tests.smart_fork.forks import eventually

ADDRESS = "http://127.0.0.1:8766/"
HOUR, DAY = 3600.0, 86_400.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def entries(tmp_path, clock):
    return SignInCodes(tmp_path / "page", ADDRESS, clock)


def entered(served, code: str, **headers: str) -> http.client.HTTPResponse:
    """Send a code as a browser does."""
    return served.answer("POST", "/open", urlencode({"code": code}).encode(), **{"Cookie": ""} | headers)


def way_in(served) -> dict[str, str]:
    return orjson.loads(served.answer("POST", "/code").read())


def cookie_of(answer: http.client.HTTPResponse) -> str:
    return answer.headers["Set-Cookie"].partition(";")[0]


def test_the_file_that_lets_a_browser_in_is_its_owners_alone_and_sends_the_code(entries, tmp_path):
    entry = entries.new()

    assert 0o600 == stat.S_IMODE(entry.file.stat().st_mode)
    assert 0o700 == stat.S_IMODE(entry.file.parent.stat().st_mode)
    assert entry.code not in str(entry.file)
    text = entry.file.read_text()
    assert f'action="{ADDRESS}open"' in text
    assert 'method="post"' in text
    assert 1 == text.count(entry.code)
    assert [entry.file] == list((tmp_path / "page").iterdir()), "nothing is left of writing it"


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_a_folder_that_others_could_look_into_is_closed_first(entries, tmp_path, mode):
    (tmp_path / "page").mkdir()
    (tmp_path / "page").chmod(mode)

    assert 0o700 == stat.S_IMODE(entries.new().file.parent.stat().st_mode)


def test_a_folder_that_is_a_link_is_not_followed(entries, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/open-x.html").touch()
    (tmp_path / "page").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermissionError, match="not a folder of your own"):
        entries.new()
    entries.end()
    assert ["open-x.html"] == [file.name for file in (tmp_path / "elsewhere").iterdir()]


def test_a_file_that_another_service_has_deleted_meanwhile_does_not_keep_the_others_from_being_deleted(
    entries, monkeypatch
):
    entry = entries.new()
    monkeypatch.setattr(Path, "glob", lambda folder, _: [folder / "open-gone.html", entry.file])

    entries.end()

    assert not entry.file.exists()


def test_a_code_works_once_and_its_file_goes_with_it(entries):
    entry, other = entries.new(), entries.new()

    assert entries.use(entry.code)
    assert not entries.use(entry.code)
    assert not entry.file.exists()
    assert other.file.exists()
    assert not any(entries.use(code) for code in ("", other.code[:-1], other.code.upper(), str(other.file), "\ud800"))


def test_a_code_ends_after_a_minute_and_its_file_with_it(entries, clock):
    early, late = entries.new(), entries.new()
    clock.now += CODE_SECONDS - 1
    assert entries.use(early.code)
    clock.now += 1
    assert not entries.use(late.code)
    forgotten = entries.new()
    clock.now += CODE_SECONDS
    entries.sweep()
    assert not forgotten.file.exists()
    assert not late.file.exists()


def test_old_codes_give_way_to_many_new_ones(entries):
    many = [entries.new() for _ in range(MAX_CODES + 1)]

    assert not many[0].file.exists()
    assert [False, True] == [bool(entries.use(one.code)) for one in many[:2]]


def test_what_a_service_that_was_killed_has_left_is_cleared_away(entries, tmp_path):
    left = entries.new()
    (tmp_path / "page/.open-1.html.0123456789abcdef.tmp").touch()
    (tmp_path / "page/visits.json").touch()
    after = SignInCodes(tmp_path / "page", ADDRESS)
    after.end()

    assert ["visits.json"] == [file.name for file in (tmp_path / "page").iterdir()]
    assert not after.use(left.code)


def visits(tmp_path, clock, secret="a" * 64) -> SignInCookies:
    return SignInCookies("smart-fork-1", tmp_path / "page/visits.json", lambda: secret, clock)


def test_a_cookie_ends_when_it_is_not_used_for_half_a_day(tmp_path, clock):
    let_in = visits(tmp_path, clock)
    value = let_in.begin()
    for _ in range(3):
        clock.now += IDLE_SECONDS - 1
        assert let_in.good([value])
    clock.now += IDLE_SECONDS
    assert not let_in.good([value])
    clock.now -= IDLE_SECONDS
    assert not let_in.good([value]), "what has ended does not begin again"


def test_a_cookie_ends_after_a_month_however_much_it_is_used(tmp_path, clock):
    let_in = visits(tmp_path, clock)
    value, begun = let_in.begin(), clock.now
    used = 0
    while let_in.good([value]):
        used += 1
        clock.now += 6 * HOUR
    assert MAX_AGE_SECONDS == 30 * DAY == clock.now - begun
    assert 120 == used


def test_a_restart_takes_and_gives_no_cookie_any_time(tmp_path, clock):
    value = visits(tmp_path, clock).begin()
    clock.now += IDLE_SECONDS - 1
    assert visits(tmp_path, clock).good([value])
    clock.now += IDLE_SECONDS - 1
    again = visits(tmp_path, clock)
    assert again.good([value])
    clock.now += IDLE_SECONDS
    assert not visits(tmp_path, clock).good([value])


def test_what_is_kept_of_a_cookie_opens_nothing_and_is_private(tmp_path, clock):
    let_in = visits(tmp_path, clock)
    value = let_in.begin()
    file = tmp_path / "page/visits.json"
    text = file.read_text()

    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert value not in text
    assert not let_in.good([text, *orjson.loads(text)])


def test_with_another_token_no_cookie_is_good_after_a_restart_either(tmp_path, clock):
    value = visits(tmp_path, clock).begin()

    assert not visits(tmp_path, clock, "b" * 64).good([value])


@pytest.mark.parametrize("kept", ["", "{", "[]", "null", '{"a": 1}', '{"a": ["x", "y"]}', '{"a": [1]}'])
def test_damaged_notes_let_nobody_in(tmp_path, clock, kept):
    (tmp_path / "page").mkdir()
    (tmp_path / "page/visits.json").write_text(kept)
    let_in = visits(tmp_path, clock)

    assert not let_in.good(["a"])
    assert let_in.good([let_in.begin()])


def test_a_cookie_of_the_future_is_none(tmp_path, clock):
    """The clock was wrong, or the file is damaged."""
    let_in = visits(tmp_path, clock)
    value = let_in.begin()
    clock.now -= SLACK_SECONDS
    assert let_in.good([value])
    clock.now -= 1
    assert not let_in.good([value])


def test_of_too_many_browsers_the_one_that_was_away_longest_gives_way(tmp_path, clock):
    let_in = visits(tmp_path, clock)
    values = []
    for _ in range(MAX_VISITS + 1):
        values.append(let_in.begin())
        clock.now += 1
        let_in.good(values[:1])

    assert [True, False, True] == [let_in.good([value]) for value in (values[0], values[1], values[2])]


def test_who_cannot_be_written_down_is_let_in_all_the_same(tmp_path, clock, caplog):
    (tmp_path / "page").touch()
    let_in = visits(tmp_path, clock)

    assert let_in.good([let_in.begin()])
    assert "cannot be written down" in caplog.text


@pytest.mark.slow
def test_a_code_lets_a_browser_in_once(served):
    given = way_in(served)

    answer = entered(served, given["code"])

    assert 200 == answer.status
    assert b'http-equiv="refresh"' in answer.read()
    parts = {part.strip().lower() for part in answer.headers["Set-Cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} == parts
    assert served.secret not in answer.headers["Set-Cookie"], "browsers show cookies to every port of this machine"
    assert str(served.port) in cookie_of(answer), "two services on one machine have two"
    assert 200 == served.answer("GET", "/", Cookie=cookie_of(answer)).status
    assert 401 == entered(served, given["code"]).status
    assert "Set-Cookie" not in entered(served, given["code"]).headers
    assert 401 == served.answer("GET", "/", Cookie="").status


def test_the_file_is_what_a_browser_sends(served):
    given = way_in(served)
    text = (state_home() / "page").joinpath(given["file"]).read_text()
    (action,), (code,) = re.findall('action="([^"]*)"', text), re.findall('name="code" value="([^"]*)"', text)

    assert f"{given['page']}open" == action == f"http://127.0.0.1:{served.port}/open"
    assert 200 == entered(served, code, Origin="null", Sec_Fetch_Site="cross-site").status
    assert [] == list((state_home() / "page").glob("open*"))


def test_a_code_is_not_taken_from_an_address(served):
    """An address would stay in the browser's history."""
    code = way_in(served)["code"]
    answer = served.answer("GET", f"/open?code={code}", Cookie="")

    assert "Set-Cookie" not in answer.headers
    assert 401 == served.answer("POST", f"/open?code={code}", Cookie="").status
    assert 200 == entered(served, code).status


def test_a_browser_that_is_in_lets_no_others_in(served):
    """Otherwise its cookie would never expire."""
    assert 403 == served.answer("POST", "/code", Cookie=served.cookie()).status
    assert 401 == served.answer("POST", "/code", Cookie="").status


def test_a_way_in_that_cannot_be_made_is_said(served, tmp_path):
    page = state_home() / "page"
    page.rmdir() if page.exists() else None
    page.symlink_to(tmp_path)

    assert 503 == served.answer("POST", "/code").status


@pytest.mark.slow
def test_a_cookie_opens_every_page_and_nothing_else(served, world, shop):
    """The addresses come from the application, so that a new one is tested, too."""
    cookie = served.cookie()
    programs, pages = served.doors.programs, served.pages
    assert {
        "/mcp",
        "/recall",
        "/before-edit",
        "/after-failure",
        "/status",
        "/code",
        "/api/hooks/{agent}/{event}",
        *PUBLIC,
    } == {one.path for one in programs}
    for route in programs:
        address = re.sub(r"{\w+}", "x", route.path)
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            answer = served.answer(method, address, Cookie=cookie)
            assert (answer.status in (200, 405)) if route.path in PUBLIC else (403 == answer.status), (method, address)
    for route in pages:
        if route.path == LIVE:  # has no end
            continue
        address = re.sub(r"{\w+}", "x", route.path)
        for method in route.methods - {"HEAD"}:
            assert served.answer(method, address, Cookie=cookie).status not in (401, 403) or address == "/open"


def test_with_another_token_nothing_opens_that_opened_before(served):
    old, cookie, given = served.secret, served.cookie(), way_in(served)
    assert 200 == served.answer("GET", "/", Cookie=cookie).status
    with (
        closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)) as listening,
        closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)) as browser,
    ):
        browser.request("GET", LIVE, headers={"Cookie": cookie})
        events = browser.getresponse()
        assert b'"asks":0' in events.readline()
        session = served.answer("POST", "/mcp", INITIALIZE, Content_Type="application/json", Accept=BOTH)
        listening.request("GET", "/mcp", headers={
            "Authorization": f"Bearer {old}", "Accept": "text/event-stream", "Mcp-Session-Id": session.headers["mcp-session-id"],
        })  # fmt: skip
        stream = listening.getresponse()
        assert 200 == stream.status

        token.change()

        assert 401 == served.answer("GET", "/", Cookie=cookie).status
        assert 401 == served.answer("GET", "/status", Cookie="", Authorization=f"Bearer {old}").status
        with suppress(ConnectionError, http.client.HTTPException):
            assert b"" == stream.read(1), "it is cut off, and not only silent"
        with suppress(ConnectionError, http.client.HTTPException):
            events.read()  # comes to an end as well
    assert 401 == entered(served, given["code"]).status
    assert not (state_home() / given["file"]).exists()
    assert old != served.secret
    assert 200 == served.answer("GET", "/status").status
    assert 200 == entered(served, way_in(served)["code"]).status


BOTH = "application/json, text/event-stream"
INITIALIZE = orjson.dumps({
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
})  # fmt: skip


def test_the_file_of_a_code_that_nobody_used_is_taken_away_in_time(served, monkeypatch):
    monkeypatch.setattr("smart_fork.page.sign_in.CODE_SECONDS", 0.0)
    monkeypatch.setattr("smart_fork.page.routes.CODE_SECONDS", -1.0)
    given = way_in(served)

    assert eventually(lambda: not (state_home() / given["file"]).exists())
    assert 401 == entered(served, given["code"]).status


def test_an_entrance_lets_in_after_a_restart_whom_it_let_in_before(home):
    before = Entrance(state_home() / "page", "127.0.0.1:1")
    value = before.visits.begin()

    assert Entrance(state_home() / "page", "127.0.0.1:1").visits.good([value])
    assert time.time() - orjson.loads((state_home() / "page/visits.json").read_bytes()).popitem()[1][0] < HOUR
