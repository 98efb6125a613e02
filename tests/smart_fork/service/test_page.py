"""Tests of the web page: search, reading, families, forks, and the headers of every answer."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from datetime import UTC, date, datetime, timedelta
from functools import partial
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from indexer.masking.alternate_readings import INVISIBLE
from indexer.session_work import Outcome
from indexer.store.base import Holding
from smart_fork.agents import AGENTS
from smart_fork.finding.index_refresh import Engine
from smart_fork.page.family_page import MIN_LENGTH, timeline
from smart_fork.page.fork_page import previewed
from smart_fork.page.search_page import activity
from smart_fork.page.worker_page import LIVE
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import eventually
from tests.smart_fork.searches import opened
from tests.smart_fork.session_family import a_relative
from tests.smart_fork.world import BrokenModel, Did
from tests.support.cases import parametrize_subtests, thorough_except_first

RETRY, DONE = "Add retry with backoff to the uploader", "The uploader retries five times now."
HOSTILE = '<script>alert(1)</script> "onmouseover=alert(2) & {{ 7 * 7 }} javascript:alert(3)'


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.mark.slow
def test_the_page_finds_sessions_as_the_command_line_does(served, world, shop):
    knows = world.claude(shop, RETRY, DONE)
    world.claude(shop, "Make the logo blue", "It is blue.")
    other = world.codex(world.repository("other"), RETRY, DONE)

    status, text = served.get("/", q="retry the uploader", project=str(shop))

    assert 200 == status
    assert knows in text
    assert f"index/claude/{knows}.md:11-15</bdi>" in text
    spoken = [
        " ".join(re.sub(r"<[^>]+>", "", one).split()) for one in re.findall(r"(?s)<blockquote.*?</blockquote>", text)
    ]
    assert [f"You: {RETRY}", f"Claude Code: {DONE}"] == spoken
    assert set(AGENTS.handed_to()) - {"claude"} == set(re.findall(r'<option value="(\w+)">[^<]*, handed over', text))
    assert other not in text
    assert other in served.get("/", q="retry the uploader")[1]
    assert knows not in served.get("/results", q="retry the uploader", agent="codex")[1]


def test_a_question_can_be_put_in_other_words_without_scripts(served, world, shop):
    """A form sends all lines of a field together; the address that is kept repeats the field for each line."""
    knows = world.claude(shop, RETRY, DONE)
    for number in range(4):
        world.claude(shop, f"Make the logo {number} blue", "It is blue.")
    asked = {"q": "hochladen", "project": str(shop), "also": " retry uploads \r\n\r\nbackoff of the uploader\n"}

    sent = served.answer("GET", f"/?{urlencode(asked)}")
    status, text = served.get(sent.headers["Location"])

    assert (303, 200) == (sent.status, status)
    assert ["retry uploads", "backoff of the uploader"] == parse_qs(urlsplit(sent.headers["Location"]).query)["also"]
    assert "retry uploads\nbackoff of the uploader</textarea>" in text
    assert knows == re.findall(r'href="/session/claude/([^"?#]*)', text)[0]
    assert "also" in [attrs.get("for") for tag, attrs in Tags(text).found if tag == "label"]
    assert any(tag == "details" and "open" in attrs for tag, attrs in Tags(text).found)


def test_a_field_that_was_left_empty_says_nothing(served, world, shop):
    world.claude(shop, RETRY, DONE)

    sent = served.answer("GET", "/?q=uploader&also=")

    assert (303, "/?q=uploader") == (sent.status, sent.headers["Location"])
    assert 200 == served.get("/results", q="uploader", also=" \n\t\n")[0]


@pytest.mark.parametrize(
    ("also", "told"),
    thorough_except_first(
        [
            ("word\n" * 1000, "also takes at most 8 texts, not 1000"),
            ("\n".join(["word"] * 9), "also takes at most 8 texts, not 9"),
            ("x" * 301, "also takes texts of at most 300 characters; number 1 has 301"),
        ]
    ),
)
def test_too_many_or_too_long_other_words_are_refused(served, also, told):
    for address in ("/", "/results"):
        status, text = served.get(address, q=RETRY, also=also)

        assert 400 == status
        assert told in text


def test_other_words_that_are_hostile_are_words(served, world, shop):
    knows = world.claude(shop, RETRY, DONE)
    also = [HOSTILE, "</textarea><script>alert(1)</script>", '" OR part: p1 NOT "', "\0\x1b[2J"]

    status, text = served.get(f"/?{urlencode({'q': RETRY, 'also': also}, doseq=True)}")

    assert 200 == status
    assert knows in text
    assert not [tag for tag, attrs in Tags(text).found if tag == "script" and "src" not in attrs]
    assert not [name for _, attrs in Tags(text).found for name in attrs if name.startswith("on") or name == "style"]


def test_the_page_says_who_said_it_and_that_a_project_is_inferred(served, world, shop):
    session_id = str(uuid.uuid4())
    records = [
        {"id": session_id, "timestamp": "2025-08-24T10:00:00.000Z", "git": {}},
        {"type": "message", "role": "user", "content": f"<environment_context><cwd>{shop}</cwd></environment_context>"},
        {"type": "message", "role": "user", "content": RETRY},
    ]
    log = world.home / f".codex/sessions/2025/08/24/rollout-2025-08-24T10-00-00-{session_id}.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    status, text = served.get("/", q="retry the uploader", project=str(shop))

    assert 200 == status
    assert "<span>project inferred from its environment context</span>" in text
    assert "<b>You:</b>" in text


def test_times_are_those_of_where_the_computer_is_now(served, world, shop, monkeypatch):
    """The service keeps running while the computer moves to another time zone."""
    world.claude(shop, RETRY, DONE)
    served.get("/", q="x")  # reads the logs
    shown = []
    for zone in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        shown.append(served.get("/")[1])
    monkeypatch.undo()
    time.tzset()

    assert shown[0] != shown[1]


def test_without_a_question_it_shows_the_latest_sessions_and_the_projects(served, world, shop):
    world.claude(shop, RETRY, DONE)
    served.get("/", q="x")  # reads the logs
    assert '<option value="/' not in served.get("/")[1], "there is nothing to choose"
    world.codex(world.repository("other"), RETRY, DONE)
    served.get("/", q="x")

    text = served.get("/")[1]

    assert "Continue" in text
    assert 1 == text.count('class="day"')
    assert RETRY in text
    assert f'<option value="{shop}">' in text
    assert "2 sessions" in text.partition("<footer")[2]


def test_the_first_screen_pictures_the_sessions_of_this_repository_by_week_and_outcome(
    served, world, shop, monkeypatch
):
    monkeypatch.setattr(type(world), "now", lambda _: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}.000Z")
    for number, how in enumerate(({}, {}, {"gitBranch": "main"})):
        world.claude(shop, f"{RETRY} {number}", DONE, **how)
    world.codex(shop, RETRY, DONE)
    world.claude(world.repository("other"), RETRY, DONE)
    served.get("/", q="x")  # reads the logs

    here, all_of_them = (served.get("/", project=project)[1] for project in (str(shop), "*"))

    assert [(3, 1), (4, 1)] == [
        tuple(map(int, re.findall(r'class="figure">(\d+)<', text))) for text in (here, all_of_them)
    ]
    assert "This repository: <bdi>shop</bdi>" in here
    assert "All projects" in all_of_them
    assert 2 == here.count('<rect class="open"')


def test_sessions_are_counted_in_the_week_they_were_used_last_and_older_ones_are_not():
    today = date(2026, 3, 31)
    held = [
        Holding("/shop", agent, (today - timedelta(days)).isoformat(), outcome, number, "")
        for agent, days, outcome, number in (
            ("codex", 0, Outcome.COMMITTED, 1), ("claude", 6, Outcome.TESTS_PASSED, 2), ("claude", 7, Outcome.FAILED, 1),
            ("claude", 83, Outcome.UNKNOWN, 4), ("claude", 84, Outcome.COMMITTED, 8),
        )
    ]  # fmt: skip

    found = activity([*held, Holding("/shop", "claude", "", Outcome.UNKNOWN, 1, "")], today)

    assert ["claude", "codex"] == list(found)
    assert {0: {"good": 2}, 1: {"bad": 1}, 11: {"open": 4}} == {
        week: dict(kinds) for week, kinds in enumerate(found["claude"]) if kinds
    }


def test_what_a_result_said_is_markdown_and_nothing_else(served, world, shop):
    world.claude(shop, RETRY, f"**Five** retries of `send` {HOSTILE} <b>now</b>: retry the uploader")

    text = served.get("/", q="retry the uploader", project=str(shop))[1]
    said = "".join(re.findall(r"(?s)<blockquote.*?</blockquote>", text))

    assert "<strong>Five</strong>" in said
    assert "<code>send</code>" in said
    assert {"blockquote", "b", "div", "p", "strong", "code", "mark"} >= {tag for tag, _ in Tags(said).found}


def test_people_get_a_page_where_nothing_is_and_programs_a_line(served):
    people = served.answer("GET", "/nothing", Accept="text/html,*/*")
    program = served.answer("GET", "/nothing")

    assert (404, 404) == (people.status, program.status)
    shown = people.read().decode()
    assert "There is no page at this address" in shown
    assert '<nav class="rail"' in shown
    assert b"Not Found" == program.read()


def test_a_session_can_be_read_and_forked_from_its_page(served, world, shop):
    knows = world.claude(shop, RETRY, DONE)

    status, text = served.get(f"/session/claude/{knows}")

    assert 200 == status
    assert RETRY in text
    assert DONE in text
    assert f"--resume {knows} --fork-session" in re.sub("<[^>]*>", "", text)
    assert 'action="/fork"' in text


def test_a_family_is_a_tree_on_a_time_line(served, world, shop):
    parent = world.claude(shop, RETRY, DONE)
    fork = world.fork_claude(parent, shop, HOSTILE, DONE)

    status, text = served.get(f"/family/claude/{fork}")

    tags = Tags(text).found
    assert 200 == status
    assert parent in text
    assert 2 == len([tag for tag, attrs in tags if tag == "path" and attrs.get("class") == "span"])
    assert not [name for _, attrs in tags for name in attrs if name.startswith("on") or name == "style"]
    assert 1 == sum("Return to the parent session" in served.get(f"/family/claude/{one}")[1] for one in (parent, fork))
    assert f"/family/claude/{fork}" in served.get(f"/session/claude/{fork}")[1]


def test_lines_begin_where_their_parents_are_left():
    family = [
        a_relative("a", parent=None, begun="2026-01-01T00:00:00Z", last_activity="2026-01-03T00:00:00Z"),
        a_relative("b", parent="a", begun="2026-01-02T00:00:00Z", last_activity="2026-01-02T00:00:01Z"),
        a_relative("c", parent="gone", started="odd"),
    ]

    (a, b, c), ticks = timeline(family)

    assert a.start < b.start < a.end
    assert MIN_LENGTH <= b.end - b.start < MIN_LENGTH + 1
    assert (None, b.start, None) == (a.above, b.above, c.above)
    assert ([b.start], [], []) == (a.below, b.below, c.below)
    assert a.until is None
    assert (a.start, a.end) == (c.start, c.end)
    assert ("2026-01-01", "2026-01-03") == (ticks[0][:10], ticks[-1][:10])
    assert ([], []) == timeline([])


def test_a_line_goes_through_the_rows_between_a_parent_and_its_fork():
    def one(name, parent, begun):
        return a_relative(name, parent=parent, begun=begun, last_activity=begun)

    family = [one("a", None, "2026-01-01"), one("b", "a", "2026-01-02"), one("c", "a", "2026-01-03")]

    (a, b, c), _ = timeline(family)

    assert [c.start] == b.passing
    assert c.start == a.until, "the fork was made when its parent had ended"


@parametrize_subtests(
    ("path", "status"),
    [
        ("/session/claude/0000-not-there-0000", 404),
        ("/session/codex/short", 400),
        ("/static/../page.py", 404),
        ("/static/nothing.js", 404),
        ("/nothing", 404),
    ],
)
def test_what_is_not_there_is_said(served, path, status):
    assert status == served.get(path)[0]


@pytest.mark.parametrize("at", thorough_except_first(["9" * 5000, "-1", "²", "1e3"]))
def test_what_is_no_number_of_a_message_is_said(served, world, shop, at):
    knows = world.claude(shop, RETRY, DONE)
    assert 400 == served.get(f"/session/claude/{knows}", at=at)[0]


def test_text_of_sessions_never_becomes_markup(served, world, shop):
    hostile = world.claude(shop, HOSTILE, HOSTILE, gitBranch=HOSTILE)
    for path, query in (
        (f"/session/claude/{hostile}", {}),
        ("/", {"q": HOSTILE}),
        ("/", {"q": "alert", "project": HOSTILE}),
    ):
        text = served.get(path, **query)[1]
        tags = Tags(text).found
        scripts = [attrs["src"].partition("?")[0] for tag, attrs in tags if tag == "script"]
        assert {"/static/page.js"} <= set(scripts) <= {"/static/page.js", "/static/session.js"}
        assert not [name for _, attrs in tags for name in attrs if name.startswith("on")]
    assert "{{ 7 * 7 }}" in served.get(f"/session/claude/{hostile}")[1]


def test_no_page_shows_what_steers_a_terminal_or_turns_text_around(served, world):
    """Directories, branches and titles can be any text. A form still sends a directory unchanged."""
    odd = "\x1b[31mred\u202egnp.exe\u2066\u200b"
    shop = world.repository(f"shop{odd}")
    knows = world.claude(shop, f"{RETRY} {odd}", f"{DONE} {odd}", gitBranch=f"main{odd}")
    world.worked(
        "claude",
        shop,
        f"> {RETRY}",
        Did("Edit", {"file_path": f"{shop}/a{odd}.py", "old_string": "a", "new_string": "b"}),
        DONE,
    )
    pages = [("/", {}), ("/", {"q": RETRY, "project": str(shop)}), ("/sessions", {"project": str(shop)}), ("/sessions", {}),
             (f"/session/claude/{knows}", {"project": str(shop)}), ("/workers", {}), ("/index", {})]  # fmt: skip

    shown = {(path, *query): served.get(path, **query)[1] for path, query in pages}

    assert all("gnp.exe" in text for page, text in shown.items() if page[0] not in ("/workers", "/index"))
    assert {page: [] for page in shown} == {page: INVISIBLE.findall(text) for page, text in shown.items()}
    kept = [
        attrs["value"]
        for tag, attrs in Tags(
            shown["/", "q", "project"].replace("&#27;", "\x1b")
        ).found  # as browsers do, and html.parser not
        if tag == "option" and "gnp" in (attrs["value"] or "")
    ]
    assert {str(shop)} == {*kept}


def test_a_browser_asks_once_for_a_style_sheet_and_again_for_another_version_of_it(served):
    (way,) = re.findall(r'<link rel="stylesheet" href="([^"]*)"', served.get("/")[1])
    this, other, bare = (served.answer("GET", one) for one in (way, way[:-1] + "x", way.partition("?")[0]))

    assert ["immutable" in one.headers["Cache-Control"] for one in (this, other, bare)] == [True, False, False]
    assert this.read() == other.read() == bare.read() != b""
    assert 200 == served.answer("GET", way, Cookie="").status


def test_every_page_forbids_scripts_and_frames_of_others_and_is_kept_by_nobody(served, world, shop):
    """The tested addresses are the application's own routes. Routes of forms are not opened by a link."""
    pages = [route for route in served.pages if route.path not in ("/static/{name}", LIVE)]
    starts = {route.path for route in pages} - {route.path for route in pages if "GET" in route.methods}

    for route in pages:
        answer = served.answer("GET", re.sub(r"{\w+}", "x", route.path))
        if route.path in starts:
            assert 405 == answer.status
            continue
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert ("no-store", "nosniff") == (answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"])

    assert {"/fork", "/preview", "/undo", "/note", "/worker", "/doctor"} == starts


def test_a_fork_needs_a_prompt_and_comes_from_our_own_page(served, world, shop):
    knows = world.claude(shop, RETRY, DONE)

    said = served.answer("POST", "/fork", f"session={knows}&prompt=+".encode())
    foreign = served.answer("POST", "/fork", f"session={knows}&prompt=go".encode(), Origin="http://evil.example")

    assert (400, True) == (said.status, b"This form has expired" in said.read())
    assert 403 == foreign.status
    form = served.form("/fork")
    empty = served.answer("POST", "/fork", f"form={form}&session={knows}&prompt=+".encode())
    assert (400, True) == (empty.status, b"The prompt is empty." in empty.read())
    unseen = served.answer("POST", "/fork", f"form={form}&session={knows}&prompt=%E2%80%8B".encode())
    assert (400, True) == (unseen.status, b"The prompt is empty." in unseen.read())
    assert 404 == served.get(f"/forked/{form}")[0]


def test_what_is_refused_is_answered_with_its_own_status(served, world, shop, monkeypatch):
    """Unknown sessions give 404, busy or unfinished ones 409, too many requests 429, and invalid requests 400."""
    knows = world.claude(shop, RETRY, DONE, "and the docs")
    monkeypatch.setenv("SMART_FORK_MAX_WORKERS", "0")

    def status(session: str, more: str = "") -> int:
        form = served.form("/fork")
        body = f"form={form}&session={session}&prompt=go+on&place=process{more}"
        return served.answer("POST", "/fork", body.encode()).status

    assert [404, 409, 429, 400] == [
        status("00000000-0000"), status(knows, "&at=2"), status(knows), status(knows, "&at=many"),
    ]  # fmt: skip


@pytest.mark.parametrize("answers", [True, False])
def test_the_page_of_a_fork_never_says_that_one_runs_which_has_ended(served, world, shop, answers):
    """A fork that ends immediately is shown as an error. The page of a started fork is read again."""
    knows = world.claude(shop, RETRY, DONE)
    program = ["#!/bin/sh", "echo 'Invalid API key'", "exit 3"]
    if answers:
        asked = (
            '{"type": "user", "timestamp": "2999-01-01T00:00:00.000Z", "message": {"role": "user", "content": "go"}}'
        )
        program[1:] = [f"echo '{asked}' > {world.log_of(knows).parent}/$5.jsonl", "read line < $0.pipe"]
    path = world.home / "bin/claude"
    path.write_text("\n".join(["#!/bin/sh", '[ "$1" = --help ] && echo --fork-session && exit', *program[1:], ""]))
    os.mkfifo(f"{path}.pipe")
    form = served.form("/fork")

    said = served.answer("POST", "/fork", f"form={form}&session={knows}&prompt=go+on&place=process".encode())

    text = said.read().decode()
    if not answers:
        assert 400 == said.status
        assert "claude ended before it took its prompt (exit status 3): Invalid API key" in text
        assert 404 == served.get(f"/forked/{form}")[0]
        return
    assert 303 == said.status, text
    assert "The fork is running" in served.get(f"/forked/{form}")[1]
    with open(f"{path}.pipe", "w") as pipe:  # noqa: PTH123
        pipe.write("end\n")
    eventually(lambda: "The fork has ended" in served.get(f"/forked/{form}")[1])


def test_a_browser_without_the_token_is_told_how_to_get_in(served):
    looking = served.answer("GET", "/", Cookie="", Accept="text/html,*/*")
    program = served.answer("GET", "/", Cookie="")

    assert 401 == looking.status == program.status
    assert "frame-ancestors 'none'" in looking.headers["Content-Security-Policy"]
    assert b"<h1>" in looking.read()
    assert program.read().startswith(b"the token is missing")


def test_what_keeps_a_search_from_its_best_is_said_above_what_it_finds(served, world, shop, monkeypatch):
    assert "No sessions yet" in served.get("/")[1]
    assert "Nothing found" in served.get("/", q="anything")[1]
    knows = world.claude(shop, RETRY, DONE)
    served.get("/", q=RETRY)
    monkeypatch.setattr(world, "model", BrokenModel())

    text = served.get("/", q=RETRY)[1]

    assert "Searched by words only" in text
    assert knows in text
    assert "smart-fork doctor" in text


def test_however_many_are_asked_for_so_many_are_shown(served, world, shop):
    for number in range(12):
        world.claude(shop, f"{RETRY} number {number}", DONE)

    def shown(**query):
        return sum(tag == "a" and attrs.get("class") == "row" and "#message-" in attrs["href"] for tag, attrs in Tags(served.get("/", q=RETRY, **query)[1]).found)  # fmt: skip

    assert (10, 12) == (shown(), shown(n="10000"))
    assert "Show up to 50" in served.get("/", q=RETRY)[1]


@pytest.mark.slow
def test_a_form_asks_for_exactly_what_the_command_line_asks_for(run, world):  # noqa: F811
    """For each way to fork, the page and the command line plan an equal command in an equal directory."""
    works = world.repository("works")
    knows = world.claude(works, RETRY, DONE, "and the docs", "Written.")
    told = {"brief": "yes"}
    for fields, words in (
        (told, ()), (told | {"at": "1", "place": "process"}, ("--at", "1", "--in", "process")),
        (told | {"worktree": "yes"}, ("--worktree",)), (told | {"as_agent": "codex"}, ("--as", "codex")),
        (told | {"budget": "match"}, ("--budget", "match")), (told | {"way": "--at match"}, ("--at", "match")),
        (told | {"way": "--budget match", "at": "1"}, ("--budget", "match", "--at", "1")),
        (told | {"way": "whole", "at": "1", "budget": "15k"}, ()),
    ):  # fmt: skip
        form = {"session": knows, "prompt": "retry the upload; --help", **fields}
        here = previewed(form, partial(opened, Engine(world.model)))["fork"].as_json()
        there = json.loads(run("fork", knows, *words, "--dry-run", "--json", "--", form["prompt"]).out)

        for key in ("command", "cwd", "place", "resume_session_id", "agent_type", "warnings"):
            new = f"{here.get('new_session_id')}|{there.get('new_session_id')}|{here['worker_id']}|{there['worker_id']}"
            assert re.sub(new, "…", str(here.get(key))) == re.sub(new, "…", str(there.get(key))), (fields, key)
