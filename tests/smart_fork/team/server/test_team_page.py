"""The team's sessions on a person's page: found, listed, read and forked as by the command line."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from starlette.applications import Starlette

from smart_fork.cli.service.app import Entrance
from smart_fork.errors import ForkRefused
from smart_fork.finding.index_refresh import Engine
from smart_fork.page import routes
from smart_fork.team import facade
from tests.e2e.browser import Watch, browser, chromium, low_contrast, violations, window
from tests.smart_fork.searches import opened
from tests.smart_fork.team.server.machines import serving
from tests.smart_fork.team.server.shared_sessions import INVOICES, UPLOADER, index_all

pytestmark = pytest.mark.slow

QUESTION = "retry with backoff in the uploader"
HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> \x1b[2J {{ 7 * 7 }} ghp_" + "a1B2" * 9
SAID = (INVOICES[0], HOSTILE, *UPLOADER, "and the docs", "Done.")


@pytest.fixture
def hers(alice, team, monkeypatch):
    """A session of Alice that all members of the project may read and find."""
    monkeypatch.setattr(facade, "VECTOR_SECONDS", 60.0)
    log = alice.world.claude(alice.repository, *SAID)
    edit(alice.world.log_of(log), f"{alice.repository}/docs.md")
    think(alice.world.log_of(log))
    pushed = alice.team("push", log, "--yes", "--public")["session_id"]
    index_all(team)
    return pushed


def edit(log: Path, file: str) -> None:
    """Let the agent edit a file before its last answer."""
    *before, last = map(json.loads, log.read_text().splitlines())
    given = {"file_path": file, "old_string": "once", "new_string": f"five times {HOSTILE}"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Edit", "input": given}
    done = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "The file has been updated."}
    for kind, block in (("assistant", call), ("user", done)):
        made = before[-1] | {"type": kind, "uuid": str(uuid.uuid4()), "parentUuid": before[-1]["uuid"]}
        before.append(made | {"message": {"role": kind, "content": [block]}, "origin": None, "promptSource": None})
    last["parentUuid"] = before[-1]["uuid"]
    log.write_text("".join(json.dumps(record) + "\n" for record in [*before, last]))


def think(log: Path) -> None:
    """Let the agent think before each answer, in a separate record."""
    written = []
    for record in map(json.loads, log.read_text().splitlines()):
        if record["type"] == "assistant":
            said = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]
            written.append(record | {"uuid": str(uuid.uuid4()), "message": {"role": "assistant", "content": said}})
            record["parentUuid"] = written[-1]["uuid"]
        written.append(record)
    log.write_text("".join(json.dumps(record) + "\n" for record in written))


@pytest.fixture
def page(bob, tmp_path, monkeypatch) -> Iterator[str]:
    """The address of Bob's page."""
    entrance = Entrance(tmp_path / "page", "127.0.0.1:1")
    shown = routes.Page(
        partial(opened, Engine(bob.world.model)),
        entrance,
    )
    with bob.here(), serving(Starlette(routes=shown.routes())) as url:
        monkeypatch.chdir(tmp_path)  # a service stands in no project
        yield url


def ask(address: str, sent: dict[str, str] | None = None) -> tuple[int, str]:
    try:
        with urlopen(address, urlencode(sent).encode() if sent else None) as answer:  # noqa: S310 - our own
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def form_of(text: str) -> dict[str, str]:
    """Return the fields of the first form that forks, as shown, except the fields that choose."""
    (inside, *_) = re.findall(r'<form class="fork".*?</form>', text, re.DOTALL)
    given = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', inside))
    given |= dict(re.findall(r'name="(\w+)" value="([^"]*)" checked', inside))
    return {name: unescape(value) for name, value in given.items()}


def look_at(program: str, page: str, address: str) -> None:
    """Check in a real browser that a teammate's text is inert, and readable in both color schemes and on a phone."""
    watch = Watch(page)
    with browser(program) as one, window(one, viewport={"width": 390, "height": 800}) as context:
        watch.over(context)
        shown = context.new_page()
        shown.goto(address)
        shown.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        for scheme in ("light", "dark"):
            shown.emulate_media(color_scheme=scheme)
            assert [] == low_contrast(shown)
        assert [] == violations(shown)
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert shown.locator(".diff ins").is_visible()
        assert "<script>alert(1)</script>" in shown.inner_text(".diff ins")
        assert 0 == shown.locator("main img, main script").count()
    assert [] == watch.seen, "nothing ran, and nothing was asked of elsewhere"


def copies(machine):
    return list(machine.home.glob(".claude/projects/*/*.jsonl"))


def message_classes(text: str, number: int) -> list[str]:
    return re.findall(rf'id="message-{number}" class="([^"]*)"', text)[0].split()


def test_what_a_teammate_shares_is_listed_found_and_read_before_anything_of_it_is_here(alice, bob, hers, page, team):
    project, owner = str(bob.repository), team.people["alice"].name

    listed = ask(f"{page}/sessions?{urlencode({'project': project})}")[1]
    found = ask(f"{page}/?{urlencode({'q': QUESTION, 'project': project})}")[1]
    (way,) = re.findall(r'<h3><a class="row" href="([^"]*)"', found)
    status, text = ask(page + unescape(way).partition("#")[0])

    assert (f'href="/shared/claude/{hers}?' in listed, f"of <bdi>{owner}</bdi>" in listed) == (True, True)
    assert f"shared by <bdi>{owner}</bdi>" in found
    assert way.startswith(f"/shared/claude/{hers}?")
    (hit,) = bob.do("find", QUESTION, "--team", "--json").json["results"]
    number, exchange = hit["match"]["turn_index"], hit["match"]["exchange"]
    answers = text.partition(f'id="exchange-{exchange}"')[2].partition("</article>")[0]
    assert (200, True, True) == (status, "twice as long after each failure" in answers, "<mark>" in answers)
    message = answers.partition(f'id="message-{number}"')[2].partition('id="message-')[0]
    by = {"user": owner, "assistant": "Claude Code"}[hit["match"]["role"]]
    assert f"<b>{by}</b>" in message, "a message is found by the number that it is read by"
    assert f"at={number}" in way
    assert way.endswith(f"#message-{number}")
    assert "asked" in message_classes(text, number), "the page that has it, of a session of many pages, too"
    assert 3 == text.count('<article class="exchange"')
    assert (f"shared by <bdi>{owner}</bdi>" in text, f"<b>{owner}</b>" in text, "<b>You</b>" in text) == (
        True,
        True,
        False,
    )
    assert {"/static/page.js", "/static/session.js"} == set(re.findall(r'<script src="([^"?]*)\?v=\w+"', text))
    assert (2, 0, False, False) == (text.count("<script"), text.count("<img"), "\x1b" in text, "a1B2a1B2" in text)
    assert ("{{ 7 * 7 }}" in text, "[REDACTED:" in text) == (True, True)
    (diff,) = re.findall(r'<figure class="diff">.*?</figure>', text, re.DOTALL)
    assert ("removed: </span>once" in diff, "five times" in diff) == (True, True), "edits are diffs"
    assert ("step-thought" in text, "/output/" in text) == (False, False), "thoughts are not shared"
    if program := chromium():
        look_at(program, page, page + unescape(way).partition("#")[0])
    assert [] == copies(bob), "to read it writes nothing"
    assert 404 == ask(f"{page}/shared/codex/{hers}?{urlencode({'project': project})}")[0]
    for said in ("", "?project=%00", "?project=%2Fnot%2Fthere"):
        assert 400 == ask(f"{page}/shared/claude/{hers}{said}")[0], "nobody said of which project"
    alice.team("privacy", hers, "--private")
    assert 404 == ask(page + unescape(way).partition("#")[0])[0], "its server is asked each time"


def test_a_fork_of_a_teammate_s_session_from_the_page_is_that_of_the_command_line(bob, hers, page, monkeypatch):
    begun = []

    def launch(prepared, **more):
        spec, point = prepared.spec, prepared.spec.content.point
        said = [turn.text for _, turn in spec.source.messages]
        content = replace(spec.content, point=None)
        begun.append((replace(spec, source=None, content=content), point and point.index, said, spec.source.cwd, more))
        raise ForkRefused("So far")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", launch)
    project = {"project": str(bob.repository)}
    card = form_of(ask(f"{page}/?{urlencode({'q': QUESTION, **project})}")[1])
    read = form_of(ask(f"{page}/shared/claude/{hers}?{urlencode(project)}")[1])
    for form, more in ((card, {}), (read, {}), (read, {"at": "3"})):
        assert 409 == ask(f"{page}/fork", {**form, "prompt": "do the same", **more})[0]
    assert 400 == ask(f"{page}/fork", {**read, "prompt": "do the same", "project": "\0"})[0]
    for more in ((), (), ("--at", "3")):
        assert 1 == bob.do("fork", hers, "do the same", *more).code

    assert begun[:3] == begun[3:]
    assert [None, None, 3] == [point for _, point, *_ in begun[:3]]
    assert all(said[2:4] == [*UPLOADER] and cwd == str(bob.repository) for _, _, said, cwd, _ in begun)
    assert [] == copies(bob), "what was not started leaves no copy"


@pytest.mark.thorough
def test_a_session_that_its_owner_goes_on_with_says_so_to_who_reads_it(alice, bob, hers, page):
    project = {"project": str(bob.repository)}
    way = f"{page}/shared/claude/{hers}?{urlencode(project)}"
    text = ask(way)[1]
    (asks,), (look,) = re.findall(r'data-ask="([^"]*)"', text), re.findall(r'<a href="([^"]*)#more">Check', text)
    nothing = ask(page + unescape(asks))
    (log,) = copies(alice)
    last = json.loads(log.read_text().splitlines()[-1])
    more = alice.world.claude_records(log.stem, alice.repository, "And the changelog?", "Written.")
    more[0]["parentUuid"] = last["uuid"]
    alice.world.write_claude(log.stem, alice.repository, more, "a")
    alice.team("push", log.stem, "--yes", "--public")

    told, now = ask(page + unescape(asks))[1], ask(page + unescape(look))[1]

    assert (204, "") == nothing
    assert "2 new messages" in told
    assert f'href="{look}#more"' in told
    before, _, after = now.partition('id="more"')
    assert ("Written." in text + before, "Written." in after, "New messages: 2 messages" in after) == (
        False,
        True,
        True,
    )
    assert 'name="seen"' not in text, "a fork is of a copy, which has ids of its own"
    assert 400 == ask(f"{page}/shared/claude/{hers}/since?{urlencode({**project, 'mark': 'x'})}")[0]
