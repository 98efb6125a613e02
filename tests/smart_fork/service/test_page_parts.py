"""Tests of the parts of the page: renderer, endpoints, conversation, family and time line."""

from __future__ import annotations

import errno
import html
import os
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import pytest

from indexer.transcripts.model import Session, ToolCall, ToolResult, Turn
from smart_fork.display_text import ago, tokens_about
from smart_fork.errors import ForkRefused, NotFound, Usage
from smart_fork.finding.ranking import percent
from smart_fork.page import renderer
from smart_fork.page.agent_steps import shorten_paths
from smart_fork.page.conversation_page import forks_by_exchange, reading
from smart_fork.page.endpoint_builder import Endpoints, PageStatus
from smart_fork.page.family_page import own_beginning, timeline
from smart_fork.page.forms import ALIKE_SECONDS, FORM_SECONDS, MAX_KEPT, PageForms
from smart_fork.page.renderer import chance, clock, day, exact, place, session_link, with_tilde
from smart_fork.page.session_page import AddressedSession
from tests.smart_fork.session_family import a_relative

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_a_page_is_of_the_version_that_runs_whatever_is_installed_meanwhile(monkeypatch):
    renderer._environment.cache.clear()  # as if none of them had been shown
    for opens in ("builtins.open", "io.open"):
        monkeypatch.setattr(opens, lambda *_, **__: pytest.fail("another version may lie there"))

    assert b"Sign in to see your sessions" in renderer.sign_in_page().body
    assert b"what is wrong" in renderer.problem(Usage("what is wrong")).body


@pytest.fixture
def in_zone(monkeypatch):
    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "moment"),
    [
        ("Asia/Tokyo", "9999-12-31T23:59:59Z"),
        ("America/New_York", "9999-12-31T23:59:59-05:00"),
        ("America/New_York", "0001-01-01T00:00:00Z"),
    ],
)
def test_a_time_of_a_log_that_is_in_no_calendar_here_is_left_out(in_zone, zone, moment):
    in_zone(zone)
    session = a_relative("a", begun=moment, started=moment, last_activity=moment)

    assert [""] * 4 == [how(moment) for how in (ago, exact, day, clock)]
    assert [] == timeline([session])[1]


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("2026-01-31T11:59:30Z", "just now"),
        ("2026-01-31T11:58:59Z", "1 minute ago"),
        ("2026-01-31T09:00:00Z", "3 hours ago"),
        ("2026-01-18T11:00:00Z", "13 days ago"),
        ("2026-01-10T12:00:00Z", "21 days ago"),
        ("2025-10-31T12:00:00", "3 months ago"),
        ("2023-01-31T12:00:00Z", "3 years ago"),
        ("2027-01-31T12:00:00Z", "just now"),
        ("odd", ""),
        (None, ""),
    ],
)
def test_times_are_told_as_people_tell_them(moment, said):
    assert said == ago(moment, NOW)
    assert bool(said) == bool(exact(moment))


def test_chances_sizes_and_places_are_told_as_people_tell_them(home):
    assert [("> 99 %", "very likely"), ("51 %", "likely"), ("< 1 %", "unlikely")] == [
        (percent(one), chance(one)) for one in (0.999, 0.51, 0.001)
    ]
    assert ["0", "850", "14k"] == [tokens_about(one) for one in (None, 850, 14_200)]
    assert ["~", "~/shop", f"{home}x", "/srv/\u202egnp".replace("\u202e", "")] == [
        place(one) for one in (str(home), f"{home}/shop", f"{home}x", "/srv/\u202egnp")
    ]
    assert "cd ~/shop && claude" == with_tilde(f"cd {home}/shop && claude")
    assert f"cd '{home}/a b' && claude" == with_tilde(f"cd '{home}/a b' && claude")
    assert "edit a.py ~/b.py" == shorten_paths(f"edit {home}/shop/a.py {home}/b.py", f"{home}/shop")


def test_addresses_are_made_of_hostile_ids_without_harm():
    one = AddressedSession("claude", "../../x?y#z")

    assert "/session/claude/..%2F..%2Fx%3Fy%23z?at=3#message-3" == session_link(one, 3)


FORK = "/fork"


@pytest.fixture
def forms(tmp_path) -> PageForms[int]:
    return PageForms(lambda: "secret", tmp_path / "forms")


def test_a_form_does_its_work_once_however_often_it_is_sent(forms):
    form, done, go = forms.new(FORK), [], threading.Event()

    def work() -> int:
        go.wait(120)
        done.append(1)
        return len(done)

    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(forms.send(FORK, form, work))) for _ in range(4)]
    for thread in threads:
        thread.start()
    with pytest.raises(NotFound):
        forms.result("unknown")
    go.set()
    for thread in threads:
        thread.join()

    assert ([1, 1, 1, 1], [1], 1) == (answers, done, forms.result(form))


def test_a_form_that_failed_is_sent_again_and_old_answers_are_forgotten(forms):
    form = forms.new(FORK)

    with pytest.raises(ZeroDivisionError):
        forms.send(FORK, form, lambda: 1 // 0)
    assert 1 == forms.send(FORK, form, lambda: 1)
    for _ in range(MAX_KEPT):
        forms.send(FORK, forms.new(FORK), lambda: 2)
    with pytest.raises(NotFound):
        forms.result(form)
    with pytest.raises(ForkRefused, match="already sent"):
        forms.send(FORK, form, lambda: pytest.fail("it was done again"))


def test_a_restart_does_nothing_again_also_where_it_came_in_the_middle_of_it(forms, tmp_path):
    done, failed, begun, unsent = (forms.new(FORK) for _ in range(4))

    def restarted() -> PageForms[int]:
        return PageForms(lambda: "secret", tmp_path / "forms")

    def in_the_middle() -> int:
        with pytest.raises(ForkRefused):
            restarted().send(FORK, begun, lambda: pytest.fail("it was done again"))
        return 1

    forms.send(FORK, done, lambda: 1)
    forms.send(FORK, begun, in_the_middle)
    with pytest.raises(ZeroDivisionError):
        forms.send(FORK, failed, lambda: 1 // 0)

    after = restarted()
    for one in (done, begun):
        with pytest.raises(ForkRefused):
            after.send(FORK, one, lambda: pytest.fail("it was done again"))
    assert [2, 2] == [after.send(FORK, one, lambda: 2) for one in (failed, unsent)]


def test_a_form_ends_when_nobody_is_let_in_any_more_who_was_shown_it_and_so_does_its_note(tmp_path):
    now = [1_000_000.0]
    forms: PageForms[int] = PageForms(lambda: "secret", tmp_path / "forms", lambda: now[0])
    sent, late = forms.new(FORK), forms.new(FORK)
    forms.send(FORK, sent, lambda: 1)
    (tmp_path / "forms/no-note").touch()
    now[0] += FORM_SECONDS
    forms = PageForms(lambda: "secret", tmp_path / "forms", lambda: now[0])

    for one in (sent, late):
        with pytest.raises(Usage, match="has expired"):
            forms.send(FORK, one, lambda: pytest.fail("it was done"))
    assert ["no-note"] == [one.name for one in (tmp_path / "forms").iterdir()]


def test_who_asks_for_the_same_from_another_window_is_given_what_the_first_one_was(tmp_path):
    now = [1_000_000.0]
    forms: PageForms[str] = PageForms(lambda: "secret", tmp_path / "forms", lambda: now[0])
    names = iter("abcdef")

    def sent(**asked: str) -> str:
        form = forms.new(FORK)
        answer = forms.send(FORK, form, lambda: next(names), alike=asked)
        assert answer == forms.result(form)
        return answer + ("'" if forms.twin(form) else "")

    assert ["a", "a'", "b", "b'"] == [sent(prompt=one) for one in ("go", "go", "stop", "stop")]
    assert ["c", "d"] == [sent(), sent()], "who asks for nothing asks for nothing that is the same"
    now[0] += ALIKE_SECONDS
    assert ["e", "e'"] == [sent(prompt="go"), sent(prompt="go")]


def test_what_has_failed_is_done_for_who_asks_for_the_same_after_it(forms):
    first, second = forms.new(FORK), forms.new(FORK)
    with pytest.raises(ZeroDivisionError):
        forms.send(FORK, first, lambda: 1 // 0, alike={"prompt": "go"})

    assert 1 == forms.send(FORK, second, lambda: 1, alike={"prompt": "go"})
    assert forms.twin(second) is None


@pytest.mark.parametrize(
    "form",
    ["", "x", "x.", ".", "ä.ö", "../../x.y", lambda folder: PageForms(lambda: "other", folder).new(FORK),
     lambda folder: PageForms(lambda: "secret", folder).new("/doctor")],
    ids=["empty", "x", "x.", "dot", "no ASCII", "path", "another's", "for something else"],
)  # fmt: skip
def test_a_form_that_is_not_ours_or_for_something_else_does_nothing(forms, tmp_path, form):
    name = form(tmp_path / "forms") if callable(form) else form

    with pytest.raises(Usage):
        forms.send(FORK, name, lambda: pytest.fail("it was done"))


def session(*turns: Turn) -> Session:
    return Session("claude", "60309e1e-0000-4000-8000-000000000001", Path("log"), turns, cwd="/srv/shop")


def turn(number: int, role: str, text: str = "", **more: object) -> Turn:
    return Turn(str(number), None, role, "2026-01-01T00:00:00Z", text, prompt=role == "user" and bool(text), **more)


def test_a_page_of_a_conversation_is_the_one_that_has_what_is_asked_for(monkeypatch):
    monkeypatch.setattr("smart_fork.page.conversation_page.PAGE_EXCHANGES", 1)
    call = ToolCall("c", "Edit", "edit /srv/shop/a.py", edits=("/srv/shop/a.py",))
    written = session(
        turn(0, "user", "first"),
        turn(1, "assistant", "I look"),
        turn(2, "assistant", tool_calls=(call,)),
        turn(3, "user", tool_results=(ToolResult("c", True, "exit 1"),)),
        turn(4, "assistant", "done"),
        turn(5, "user", "second"),
        turn(6, "assistant", "done, too"),
    )

    first, deep, last = reading(written), reading(written, 2), reading(written, 6)
    whole = reading(written, whole=True, words=("too", "second", "nowhere", "never"))
    shown = [next(iter(page.exchanges)).messages for page in (first, deep, last)]

    assert ([0, 1, 4], [0, 1, 4], [5, 6]) == tuple([one.number for one in messages] for messages in shown)
    assert [[False] * 3, [False, True, False], [False, True]] == [[one.asked for one in page] for page in shown]
    assert (1, 2, 5, None, 5) == (first.page, first.pages, first.count, first.previous, first.next_at)
    assert (0, None) == (last.previous, last.next_at)
    (step,) = shown[1][1].steps
    assert ("edit", "a.py", "exit 1", 2, True) == (step.kind, step.line, step.note, step.number, step.failed)
    assert [("first", 1, 1, 4, True), ("second", 0, 0, 6, False)] == [
        (one.question, one.edits, one.failed, one.point, one.here) for one in first.outline
    ]
    assert [written.loads()[4], written.loads()[6]] == [one.tokens for one in whole.outline]
    assert ([5], 2, 1) == ([one.number for one in whole.matching], len(whole.exchanges), whole.pages)
    assert (0, 1) == (len(reading(session()).exchanges), reading(session()).pages)
    with pytest.raises(NotFound):
        reading(written, 7)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ("a b | c d", "a b | c d", (4, 4)),
        ("a b | c d", "a b | c x", (2, 3)),
        ("a b | y d", "a b | c d", (2, 2)),
        ("a b | c d | e f", "a b | x z | c d", (4, 4)),
        ("a b | go", "a b | c d | go on", (2, 2)),
        ("a b | go x", "a b | c d | go on", (2, 2)),
        ("a b", "a b | c d", (2, 2)),
        ("z", "a b", (0, 0)),
    ],
    ids=["the same", "another answer", "another question", "one left out", "unanswered", "asked again", "less", "all"],
)
def test_what_a_session_has_for_itself_begins_where_it_says_what_the_other_does_not(own, other, expected):
    """Exchanges left out of a fork are no difference. A repeated prompt with another answer is a different exchange."""

    def said(words: str) -> Session:
        turns = [part.split() for part in words.split(" | ")]
        pairs = [(number, word) for part in turns for number, word in enumerate(part)]
        return session(*(turn(i, "assistant" if n else "user", word) for i, (n, word) in enumerate(pairs)))

    begun = own_beginning(said(own), said(other))

    assert expected == (begun.asked, begun.done)


def test_forks_stand_where_they_left():
    written = session(*(turn(i, role, "x") for i, role in enumerate(("user", "assistant") * 3)))
    fork, other, early = (a_relative(name) for name in "abc")

    assert {2: [fork, other], 0: [early]} == forks_by_exchange(reading(written), [(3, fork), (2, other), (1, early)])


def test_a_file_that_cannot_be_read_is_named_on_the_page_with_the_next_step(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "smart_fork.page.endpoint_builder.page_status", lambda *_: PageStatus(0, 0, 0, "", "ready", None)
    )

    def unreadable():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "x"))

    forms: PageForms[object] = PageForms(str, tmp_path / "forms")
    said = html.unescape(
        anyio.run(partial(Endpoints(forms, None, None).respond, "home.html", unreadable)).body.decode()
    )

    assert f"{tmp_path / 'x'}: Permission denied" in said
    assert f"Make {tmp_path} readable and writable for you." in said
