"""Tests of undoing a cut on its session's page, in all files that the cut has changed."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlencode

import pytest

from smart_fork.excise import Request, cut
from tests.smart_fork.service.test_page import Tags
from tests.smart_fork.session_family import ids_with, relatives

pytestmark = pytest.mark.slow


@pytest.fixture
def eight(world, shop) -> list[Path]:
    """Write a session, a copy of it, and six branches, and return the eight files."""
    return relatives(world, shop, 6)


@pytest.fixture
def three(world, shop) -> list[Path]:
    """Write a session, a copy of it, and one branch, and return the three files."""
    return relatives(world, shop, 1)


def cut_out(log: Path) -> None:
    cut(Request(log.stem, ids=ids_with(log, "swordfish")))


def form_of(served, log: Path) -> dict[str, str]:
    """Return the form on the page that undoes a cut; empty if there is none."""
    inside = re.search(r'<form class="undo".*?</form>', served.get(f"/session/claude/{log.stem}")[1], re.DOTALL)
    tags = Tags(inside[0]).found if inside else []
    return {str(attrs["name"]): str(attrs["value"]) for tag, attrs in tags if tag == "input"}


def send(served, form: dict[str, str]) -> tuple[int, str]:
    answer = served.answer("POST", "/undo", urlencode(form).encode(), Origin=f"http://127.0.0.1:{served.port}")
    return answer.status, answer.headers.get("Location") or answer.read().decode()


def test_the_page_s_undo_puts_back_all_files_of_a_cut(served, eight):
    before = [path.read_bytes() for path in eight]
    assert {} == form_of(served, eight[0])
    cut_out(eight[0])
    assert not any("swordfish" in path.read_text() for path in eight)
    assert "2 turns were cut out" in served.get(f"/session/claude/{eight[0].stem}")[1]
    assert "in 8 files" in re.sub(r"\s+", " ", served.get(f"/session/claude/{eight[0].stem}")[1])

    form = form_of(served, eight[0])
    status, place = send(served, form)

    assert (303, before) == (status, [path.read_bytes() for path in eight])
    shown = served.get(place)[1]
    assert "The cut is undone" in shown
    assert "8 files are as before the cut" in shown
    assert all(path.name in shown for path in eight)
    assert {} == form_of(served, eight[0])
    assert (303, place) == send(served, form)  # sent twice, done once


@pytest.mark.thorough
def test_a_branch_s_page_undoes_the_same_cut(served, three):
    before = [path.read_bytes() for path in three]
    cut_out(three[0])

    assert 303 == send(served, form_of(served, three[2]))[0]

    assert before == [path.read_bytes() for path in three]


@pytest.mark.thorough
def test_what_cannot_be_put_back_is_said(served, three):
    cut_out(three[0])
    three[2].unlink()

    shown = served.get(send(served, form_of(served, three[0]))[1])[1]

    assert "The cut is undone, but not everywhere" in shown
    assert "it no longer exists" in shown


def test_only_the_cut_that_the_page_has_shown_is_undone(served, three):
    cut_out(three[0])
    form = form_of(served, three[0])
    after = [path.read_bytes() for path in three]

    for wrong in ({"snapshot": "x/20260101T000000.000000Z"}, {"session": "another"}, {"form": "made.up"}):
        assert send(served, form | wrong)[0] in (400, 404)
    assert after == [path.read_bytes() for path in three]
    assert 404 == served.get(f"/forked/{form['form']}")[0]
    send(served, form)
    assert 404 == served.get(f"/forked/{form['form']}")[0]
