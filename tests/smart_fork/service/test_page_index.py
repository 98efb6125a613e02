"""Tests of the page's index, lists and families, of forgetting, cutting and undoing, and of the filters of results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from indexer.runs import Freshness, LastRun
from indexer.safe_files import state_home
from smart_fork.finding.hit import Drift, Explanation, Hit, Match
from smart_fork.page.search_page import age_of, chosen, facets, narrowed, reasons
from tests.smart_fork.service.test_page import DONE, HOSTILE, RETRY, Tags
from tests.smart_fork.session_family import ids_with, relatives

pytestmark = pytest.mark.slow


def send(served, path: str, **fields: str) -> tuple[int, str]:
    body = urlencode({"form": served.form(path), **fields}).encode()
    answer = served.answer("POST", path, body, Origin=f"http://127.0.0.1:{served.port}")
    return answer.status, answer.headers.get("Location") or answer.read().decode()


def test_a_session_is_forgotten_once_it_was_looked_at_and_comes_back_when_that_is_undone(served, world, shop):
    knows = world.claude(shop, f"{RETRY} {HOSTILE}", DONE)
    served.get("/", q=RETRY)
    asked = served.get("/forget", session=knows[:8])[1]
    assert "Forget this session?" in asked
    assert knows in asked
    assert ["/static/page.js"] == [
        attrs["src"].partition("?")[0] for tag, attrs in Tags(asked).found if tag == "script"
    ]
    form = served.form("/forget")
    assert 400 == send(served, "/forget", session=knows, form="made.up")[0]

    first, again = (send(served, "/forget", session=knows, form=form) for _ in range(2))

    assert first == again == (303, f"/removed/{form}")
    assert "It is forgotten" in served.get(first[1])[1]
    assert f"{knows}.jsonl" in served.get(first[1])[1]
    assert knows not in served.get("/", q=RETRY)[1]
    assert knows in served.get("/index")[1]
    back = send(served, "/forget", session=knows, do="undo")
    assert "It is indexed again" in served.get(back[1])[1]
    assert knows in served.get("/", q=RETRY)[1]
    assert 404 == served.get("/forget", session="00000000-not-there")[0]


def test_turns_are_cut_out_after_they_were_shown_and_the_index_page_undoes_it_in_all_files(served, world, shop):
    log, *others = relatives(world, shop, 1)
    before = [path.read_bytes() for path in (log, *others)]
    turn = next(number for number in range(40) if f'"{ids_with(log, "swordfish")[0]}"' in _line(log, number))
    number = re.findall(r"turn (\d+)", served.get("/excise", session=log.stem, turns=f"0-{turn}")[1])
    form = form_in(served.get("/excise", session=log.stem, turns=number[0])[1])
    assert number
    assert "swordfish" in served.get("/excise", session=log.stem, turns=f"0-{turn}")[1], "what goes is shown in words"
    assert before == [path.read_bytes() for path in (log, *others)]
    assert 400 == served.get("/excise", session=log.stem)[0]
    assert 404 == served.get("/excise", session=str(log), turns="1")[0]

    other = send(served, "/excise", session=log.stem, turns=number[-1], shown=form["shown"], force="yes")
    assert (409, before[0]) == (other[0], log.read_bytes()), "others than were shown"

    status, place = send(served, "/excise", **form, force="yes")

    assert 303 == status, place
    assert "It is cut out" in served.get(place)[1]
    after = log.read_bytes()
    assert after != before[0]
    assert place == send(served, "/excise", **form, force="yes")[1]
    second = send(served, "/excise", **form | {"form": served.form("/excise")}, force="yes")
    assert (409, after) == (second[0], log.read_bytes()), "the same numbers, from another window, are others by now"
    inside = re.search(r'<h2 id="undo">.*?<form.*?</form>', served.get("/index")[1], re.DOTALL)
    assert inside
    assert 303 == send(served, "/undo", **form_in(inside[0]))[0]
    assert before == [path.read_bytes() for path in (log, *others)]
    assert "No cuts yet." in served.get("/index")[1]


def form_in(text: str) -> dict[str, str]:
    """Return the default values of the forms in a text."""
    hidden = [attrs for tag, attrs in Tags(text).found if tag == "input" and attrs["type"] == "hidden"]
    return {str(one["name"]): str(one["value"]) for one in hidden}


def _line(log, number: int) -> str:
    return dict(enumerate(log.read_text().splitlines())).get(number, "")


def test_the_index_says_what_it_holds_and_checks_every_part_when_it_is_asked(served, world, shop):
    parent = world.claude(shop, RETRY, DONE)
    fork = world.fork_claude(parent, shop, HOSTILE, DONE)
    world.codex(world.repository("other"), RETRY, DONE)
    served.get("/", q=RETRY)
    (world.home / ".claude/projects/broken.jsonl").write_text("{broken\n")

    text = re.sub(r"\s+", " ", served.get("/index")[1])

    assert "<dt>Sessions</dt><dd>3</dd>" in text
    assert f"project={urlencode({'': str(shop)})[1:]}" in text
    assert "</span> 2</span>" in text
    assert {parent, fork} <= set(re.findall(r"/(?:family|session)/claude/([\w-]+)", served.get("/families")[1]))
    machine = world.claude(shop, "Review it", DONE, entrypoint="sdk-cli", promptSource="sdk", origin=None)
    listed = served.get("/sessions", project=str(shop))[1]
    assert (True, False) == (parent in listed, "/session/codex/" in listed)
    assert (False, True) == (machine in listed, "1 automated session is not listed" in listed)
    assert machine in served.get("/sessions", project=str(shop), automated="yes")[1]
    assert "/session/codex/" in served.get("/sessions", project="*")[1]
    state_home().chmod(0o755)
    checked = served.get(send(served, "/doctor")[1].partition("#")[0])[1]
    assert all(one in checked for one in ("Something does not work.", "others can look into", "Run `chmod 700"))
    assert "sqlite-vec" in checked


def test_the_index_says_what_the_service_has_read_last(served, world, shop):
    world.claude(shop, RETRY, DONE)
    served.get("/", q=RETRY)
    run = LastRun(started_at="2026-01-01T00:00:00Z", outcome="completed", logs=7, read=3)
    served.state = "ready", Freshness("idle", "", 2, run, replace(run, read=1), False, None, None, None)

    text = re.sub(r"\s+", " ", served.get("/index")[1])

    assert re.search("Last change seen .*: completed, 1 log read", text)
    assert "2 changed logs are in the queue" in text


def test_a_browser_asks_about_the_project_that_it_asked_about_before(served, world, shop):
    world.claude(shop, RETRY, DONE)
    cookie = served.cookie()

    def answer(path: str, more: str = ""):
        return served.answer("GET", path, Cookie=f"{cookie}{more}", Accept="text/html")

    kept = answer(f"/?{urlencode({'project': str(shop)})}").headers["Set-Cookie"]
    remembered = f"; {kept.partition(';')[0]}"
    assert all(one in kept for one in ("HttpOnly", "SameSite=strict"))
    assert f'<option value="{shop}" selected>'.encode() in answer("/", remembered).read()
    assert b" selected>" not in answer("/?project=*", remembered).read()
    assert "Max-Age=0" in answer("/?project=*", remembered).headers["Set-Cookie"]
    assert answer("/?project=/not/there").headers.get("Set-Cookie") is None
    assert b" selected>" not in answer("/", f"; {kept.partition('=')[0]}=%2Fnot%2Fthere%00").read()
    for project, scopes in ((str(shop), [kept.partition(";")[0]]), ("/not/there", []), (["odd"], [])):
        code = json.loads(served.answer("POST", "/code", json.dumps({"project": project}).encode()).read())["code"]
        opened = served.answer("POST", "/open", urlencode({"code": code}).encode(), Cookie="")
        assert scopes == [one.partition(";")[0] for one in opened.headers.get_all("Set-Cookie")[1:]]


HIT = Hit(rank=1, score=0.5, session_id="a", agent_type="claude", title="", working_directory="/x", source_path="/x.md")


@pytest.mark.parametrize(
    ("hit", "told"),
    [
        (HIT, []),
        (
            replace(HIT, match=Match(words=("retry",), similarity=0.7)),
            ["its words retry", "very near in meaning (0.70)"],
        ),
        (replace(HIT, drift=Drift(1, 0, 0.0)), ["1 file edited here"]),
        (
            replace(HIT, explain=Explanation({"title": 3.0, "session_words": 2.0}, 1.0, 0.5)),
            ["its words elsewhere in the session", "its title"],
        ),
    ],
)
def test_why_a_session_was_found_is_said_in_words(hit, told):
    assert told == list(reasons(hit))


def test_results_are_narrowed_by_what_they_differ_in():
    old, new = (
        replace(HIT, session_id=name, git_branch=name, outcome=outcome, last_activity=at)
        for name, outcome, at in (
            ("old", "failed", "2001-01-01T00:00:00Z"),
            ("new", "committed", "2999-01-01T00:00:00Z"),
        )
    )
    by = chosen({"branch": "new", "age": "nonsense", "q": "x"})

    assert {"branch": "new"} == by
    assert (new,) == narrowed([old, new], by)
    assert (new,) == narrowed([old, new], {"age": "365", "outcome": "committed"})
    assert (old,) == narrowed([old, new], {"age": "older"})
    assert ("older", "7", "older") == (age_of(old), age_of(new), age_of(HIT))
    assert ["Branch", "Age", "Outcome"] == [one.title for one in facets([old, new], {})]
    (branch,) = (one for one in facets([new], by) if one.without is not None)
    assert ({}, [("new", True)]) == (branch.without, [(one.title, one.chosen) for one in branch.choices])
    assert () == facets([new, new], {})
