"""Tests that no chance is known while logs are unread: the session meant may be in one of them."""

from __future__ import annotations

import io

import pytest

from indexer.refresh import complete
from smart_fork.agents.log_readers import READERS
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.server.session_tools import after_search
from tests.smart_fork.answers import a_hit, an_answer
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import choosing
from tests.smart_fork.searches import find, find_and_fork
from tests.smart_fork.world import git

ASKED = "Add retry with exponential backoff to the uploader"
OTHERS = 19


@pytest.fixture
def partly(world, shop):
    """Write many sessions and index one that is not the newest."""
    world.claude(shop, ASKED, "The uploader retries five times.")
    world.ids(ASKED, shop)
    for number in range(OTHERS):
        world.claude(shop, f"Draw logo {number} of the shop", "It is drawn.")
    return shop


def ask(world, shop, **how):
    return find(FindRequest(ASKED, **how), Engine(world.model, read_seconds=-1, embed_seconds=0), shop)


def test_a_session_is_as_much_less_likely_as_logs_are_unread(world, partly):
    early = ask(world, partly)
    with opened() as store:
        complete(store, READERS, world.model, patience=0)
    late = ask(world, partly)

    assert early.index.unread_logs == OTHERS - 1
    assert f"{OTHERS - 1} of {OTHERS + 1} logs here are not read yet" in early.unread_notice
    assert early.results[0].score <= 2 / (OTHERS + 1) < 0.3 < late.results[0].score
    assert "" == late.unread_notice
    assert "unread_notice" not in late.as_json()


def test_a_project_with_nothing_unread_has_its_chances_whatever_others_have(world, partly, tmp_path):
    with opened() as store:
        complete(store, READERS, world.model, patience=0)
    for number in range(5):
        world.claude(tmp_path / "elsewhere", f"Something else {number}", "done")

    answer = ask(world, partly)

    assert (4, "") == (answer.index.unread_logs, answer.unread_notice)
    assert answer.results[0].score > 0.3


def test_who_asks_why_or_for_a_fix_learns_what_is_unread(world, partly, run, monkeypatch):  # noqa: F811
    (partly / "upload.py").write_text("retry()\n")
    git(partly, "add", "upload.py")
    git(partly, "-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "-m", "Retry")
    monkeypatch.setattr("sys.stdin", io.StringIO("error: axisMaker is gone"))
    monkeypatch.setattr(
        "smart_fork.finding.session_library.engine", lambda *_: Engine(world.model, read_seconds=-1, embed_seconds=0)
    )

    why, fix = run("why", "upload.py:1"), run("fix")

    for said in (why.err, fix.err):
        assert f"of {OTHERS + 1} logs here are not read yet: the session you mean may be among them." in said


def test_people_see_no_chance_and_what_to_do(world, partly, capsys):
    from smart_fork.cli.result_list import print_found

    print_found(ask(world, partly))
    said = capsys.readouterr()

    assert said.out.startswith("1  Add retry")
    assert "%" not in said.out
    assert "smart-fork index run, then ask again" in said.err
    assert "sure match" not in said.err


@pytest.mark.parametrize(
    ("notice", "step"),
    [("early_notice", "smart-fork index run, then ask again"), ("language_notice", "reads the best so far")],
)
def test_a_low_score_that_says_nothing_is_no_reason_for_a_new_session(capsys, notice, step):
    from smart_fork.cli.result_list import print_found

    for told, says_so in (({}, True), ({notice: "This is why."}, False)):
        print_found(an_answer(a_hit(0.04), project_path="/shop", **told))
        said = capsys.readouterr()
        assert ("no past one fits" in said.err, "%" in said.out, "sure match" in said.err) == (says_so,) * 3
        assert (step in said.err) is not says_so


def test_a_model_is_told_to_ask_again(world, partly):
    step = after_search(ask(world, partly, also=("backoff for uploads",)))

    assert "are not read yet" in step
    assert "Ask again then" in step
    assert "None fits" not in step


def test_nothing_is_forked_by_itself_and_the_answer_says_why(world, partly):
    engine = Engine(world.model, read_seconds=-1, embed_seconds=0)
    request = FindRequest(ASKED)

    answer = find_and_fork(request, engine, choosing(auto_fork=True), partly)

    assert answer.forked_session is None
    assert "Nothing was forked" in answer.error
    assert "are not read yet" in answer.error


def test_while_another_process_reads_what_is_unread_is_counted_too(world, partly, monkeypatch):
    from indexer.locks import IndexBusyError

    def busy(*_, **__):
        raise IndexBusyError("another process is indexing")

    monkeypatch.setattr("smart_fork.finding.index_refresh.read_changes", busy)

    answer = ask(world, partly)

    assert f"{OTHERS} of {OTHERS + 1} logs here are not read yet" in answer.unread_notice
    assert answer.results[0].score < 0.3


def test_an_answer_that_may_fit_says_how_sure_it_is_and_of_which_result(capsys):
    from smart_fork.cli.result_list import print_found

    print_found(an_answer(a_hit(0.34), project_path="/shop"))
    said = capsys.readouterr().err

    assert "34 % sure that it is result 1." in said
    assert "sure match" not in said
