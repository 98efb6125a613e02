"""Tests of the search that the answers of `find` do not show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import apsw
import pytest

from indexer.project import project_of
from indexer.store.base import Scope
from smart_fork.finding.evidence import admitted, without_askers
from smart_fork.finding.index_access import opened
from smart_fork.finding.query import MAX_WORDS, STRANGE_DOUBT, Query, doubt_of
from smart_fork.finding.ranking import FIT_THRESHOLD
from smart_fork.finding.search import QuestionEmbeddings, embedded, search
from tests.smart_fork.world import Did, WordsModel, git
from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"


@pytest.fixture
def store(world, shop):
    for number in range(3):
        world.claude(shop, f"{RETRY} {number}", "done")
    world.find(RETRY, shop)
    with opened() as found:
        yield found


def ask(store, intent: str, embed=None, **more: object):
    model = WordsModel()
    scope = store.scope(None, ["claude", "codex"], automated=False)
    return search(
        store,
        Query(intent, scope, 5, everywhere=True, **more),
        embed or partial(embedded, model),
    )


def test_the_text_is_embedded_once_however_many_ways_are_tried(store):
    calls = []

    class Failing(WordsModel):
        def embed(self, texts: Sequence[str]) -> Any:
            calls.append(texts)
            raise RuntimeError

    meaning = QuestionEmbeddings(Failing(), (RETRY,))
    found = ask(store, RETRY, lambda _: meaning.of())

    assert calls == [(RETRY,)]
    assert found.mode == "lexical"
    assert found.error == "vector search failed: RuntimeError"
    assert found.error


def test_a_question_without_words_is_answered_by_meaning(store):
    assert len(ask(store, "🚀").hits) == 3


def test_hidden_sessions_are_left_out(store):
    hidden = {hit.session.session_id for hit in ask(store, RETRY).hits[:2]}

    assert len(ask(store, RETRY, hidden=frozenset(hidden)).hits) == 1


def test_a_session_without_a_directory_is_dropped_and_counted(store, world, shop):
    lost = "UPDATE sessions SET cwd = '' WHERE id = (SELECT min(id) FROM sessions)"
    store.db.execute(lost)
    scope = store.scope(None, ["claude"], automated=False)
    model = WordsModel()

    found = search(store, Query(RETRY, scope, 5), partial(embedded, model))

    assert (len(found.hits), found.dropped) == (2, 1)


def test_all_passages_of_a_session_count_not_only_those_among_the_nearest(store, world, shop, monkeypatch):
    talk = [
        part for number in range(6) for part in (f"{RETRY} again, now for case {number} " * 9, f"done {number} " * 40)
    ]
    knows = world.claude(shop, *talk)
    world.find(RETRY, shop)
    before = {hit.session.session_id: hit.why.points for hit in ask(store, RETRY).hits}

    monkeypatch.setattr("smart_fork.finding.evidence.NEAREST_CHUNKS", 1)
    after = {hit.session.session_id: hit.why.points for hit in ask(store, RETRY).hits}

    assert after[knows] == pytest.approx(before[knows])


def test_members_of_one_family_take_no_other_session_s_place_among_those_looked_at(world, shop, monkeypatch):
    for name in ("NEAREST_CHUNKS", "WORD_CHUNKS", "WORD_SESSIONS", "MAX_COVERED", "FULLY_COMPARED"):
        monkeypatch.setattr(f"smart_fork.finding.evidence.{name}", 2)
    best = world.claude(shop, RETRY, f"{RETRY}, done")
    other = world.claude(shop, "what of the uploader", "it has a retry")
    world.find(RETRY, shop)
    with opened() as store:
        alone = [hit.session.session_id for hit in ask(store, RETRY).hits]
    for number in range(3):
        world.fork_claude(best, shop, f"{RETRY} {number}", f"{RETRY}, done")
    world.find(RETRY, shop)
    with opened() as store:
        hits = ask(store, RETRY).hits

    assert [best, other] == alone
    assert [1, other] == [len(hits[1].family), hits[1].session.session_id]


def test_words_in_one_passage_speak_for_a_session(store):
    assert all(hit.why.points.passage_words > 0 for hit in ask(store, RETRY).hits)


def test_words_in_the_title_speak_for_a_session(world, shop):
    titled = world.claude(shop, "flaky login test", "it waits for the clock now")
    world.claude(shop, "have a look at the branch", "the flaky login test waits for the clock now")
    world.find("flaky login", shop)
    with opened() as store:
        hits = ask(store, "flaky login").hits

    assert hits[0].session.session_id == titled
    assert hits[0].why.points.title > hits[1].why.points.title == 0


def test_a_phrase_typed_as_one_word_is_found_as_a_phrase(world, shop):
    knows = world.claude(shop, "why does src/upload.py fail", "it has no retry")
    world.claude(shop, "upload the py files of src", "done")
    world.find("x", shop)
    with opened() as store:
        hits = ask(store, "src/upload.py").hits

    assert hits[0].session.session_id == knows


@pytest.mark.parametrize(
    ("typed", "found"), [("fetchUserBy", True), ("fetchUserByName", True), ("fet", False), ("erByName", False)]
)
def test_the_beginning_of_a_name_finds_it(world, shop, typed, found):
    world.claude(shop, "why is fetchUserByName slow", "it asks twice")
    world.find("x", shop)
    with opened() as store:
        hits = ask(store, typed, embed=lambda _: (_ for _ in ()).throw(RuntimeError)).hits

    assert bool(hits) is found


def test_the_words_of_a_sentence_are_no_beginnings(world, shop):
    world.claude(shop, "why is fetchUserByName slow", "it asks twice")
    world.find("x", shop)
    with opened() as store:
        assert not ask(store, "fetchUser elsewhere tomorrow", embed=lambda _: (_ for _ in ()).throw(RuntimeError)).hits


@pytest.mark.parametrize("named", thorough_except_first(["upload.py", "src/upload.py", "retryUpload"]))
def test_a_session_that_worked_on_what_is_named_is_found_before_one_that_was_shown_it(world, shop, named):
    edit = {"file_path": f"{shop}/src/upload.py", "old_string": "a", "new_string": "def retryUpload(): pass"}
    wrote = world.worked("claude", shop, "> mend the uploader", Did("Edit", edit), "done")
    show = Did("Read", {"file_path": f"{shop}/src/upload.py"}, "def retryUpload(): pass")
    world.worked("claude", shop, "> mend the uploader", show, "done")
    world.find("x", shop)
    with opened() as store:
        hits = ask(store, f"change {named} again").hits

    assert hits[0].session.session_id == wrote
    assert hits[0].why.points.work > hits[1].why.points.work == 0


def test_what_no_session_has_worked_on_speaks_for_none(store):
    assert {hit.why.points.work for hit in ask(store, f"{RETRY} in nowhere.py").hits} == {0}


def test_a_question_of_which_no_session_knows_a_name_scores_less_than_one_of_which_some_are_known(world, shop):
    edit = Did("Edit", {"file_path": f"{shop}/src/upload.py", "new_string": "def retryUpload(): pass"})
    world.worked("claude", shop, f"> {RETRY}", edit, "done")
    world.find("x", shop)

    def against(names: str, **more: object) -> float:
        return ask(store, f"{RETRY} {names}", **more).hits[0].why.against

    with opened() as store:
        known, one = against("upload.py retryUpload other.py"), against("other.py")
        strange, half = (
            against("nowhere.py noSuchThing other.py"),
            against("upload.py " + "n.py ".join("abcdef") + "n.py"),
        )
        again, said = against("nowhere.py noSuchThing other.py", also=("retry",)), against("", also=("retry",))

    assert known == pytest.approx(one, abs=0.1)
    assert strange == pytest.approx(known + STRANGE_DOUBT, abs=0.1)
    assert known + 0.5 < half < strange - 0.5
    assert again == pytest.approx(said, abs=0.1)


def test_a_rare_name_says_more_than_one_that_all_sessions_have_written(world, shop):
    def edited(name: str) -> str:
        steps = [Did("Edit", {"file_path": f"{shop}/{one}", "new_string": "x"}) for one in ("main.py", name)]
        return world.worked("claude", shop, "> mend it", *steps, "done")

    one, _ = edited("upload.py"), edited("other.py")
    world.find("x", shop)
    with opened() as store:
        points = {hit.session.session_id: hit.why.points.work for hit in ask(store, "mend main.py and upload.py").hits}

    assert points.pop(one) > 2 * max(points.values()) > 0


@pytest.mark.slow
def test_one_word_more_changes_a_score_little_however_long_the_question_is(store):
    def asked(words: int) -> float:
        return ask(store, " ".join([RETRY, *(f"word{number}" for number in range(words))])).hits[0].score

    scores = [asked(words) for words in range(36, MAX_WORDS + 3)]

    assert max(abs(before - after) for before, after in pairwise(scores)) < 0.1


def test_a_long_question_has_something_in_common_with_most_sessions(store, monkeypatch):
    words = [f"word{number}" for number in range(MAX_WORDS)]

    assert 0 == doubt_of(RETRY)
    assert 0 < doubt_of(" ".join(words[:32])) < doubt_of(" ".join(words)) == doubt_of(" ".join([*words, "more"]))
    doubted, short = (ask(store, asked).hits[0].score for asked in (" ".join([RETRY, *words]), RETRY))
    monkeypatch.setattr("smart_fork.finding.query.LONG_DOUBT", 0.0)
    assert doubted < ask(store, " ".join([RETRY, *words])).hits[0].score
    assert short == ask(store, RETRY).hits[0].score


def test_where_this_branch_is_asked_for_its_sessions_are_found_first(world, shop):
    git(shop, "checkout", "-q", "-b", "rounder-maps")
    for number in range(3):
        world.claude(shop, f"look at the comments of PR {number}", "all comments are answered", gitBranch="main")
    here = world.claude(shop, "draw the map rounder", "it is round", gitBranch="rounder-maps")

    assert world.ids("check the PR comments", shop)[0] == here
    assert world.ids("check the comments of PR 1", shop)[0] != here


def test_a_code_that_only_an_output_has_is_found_by_it_and_likely(world, shop):
    def printed(asked: str, output: str, said: str) -> str:
        return world.worked("claude", shop, f"> {asked}", Did("Bash", {"command": "make"}, result=output), said)

    for number in range(6):
        printed(f"draw logo {number} of the shop", "12 files", "It is drawn.")
    knows = printed("the till prints nothing", "starting\nERR_TILL_LOCKED head open\nend", "It prints now.")
    best = world.find("ERR_TILL_LOCKED", shop)["results"][0]

    assert knows == best["session_id"]
    assert best["score"] > FIT_THRESHOLD


def test_a_question_that_points_at_the_branch_asks_for_the_words_of_its_name(world, shop):
    for number in range(3):
        world.claude(shop, f"fix the failing test {number}", "it is green", gitBranch="main")
    knows = world.claude(shop, "draw the map rounder", "the map is round", gitBranch="wip")
    git(shop, "checkout", "-q", "-b", "ann/rounder-map")

    assert world.ids("fix the failing test", shop)[0] == knows
    assert world.ids("fix test 1", shop)[0] != knows


def test_a_question_that_points_at_the_branch_asks_for_the_subjects_of_its_commits(world, shop):
    for number in range(3):
        world.claude(shop, f"fix the failing test {number}", "it is green", gitBranch="main")
    knows = world.claude(shop, "draw the map rounder", "the map is round", gitBranch="main")
    (shop / "map.py").write_text("round\n")
    for branch in ("wip", "main"):
        git(shop, "checkout", "-q", "-B", branch)
        git(shop, "add", ".")
        if branch == "wip":
            assert world.ids("fix the failing test", shop)[0] != knows
            git(shop, "commit", "-q", "-m", "Draw the map rounder")
        assert (world.ids("fix the failing test", shop)[0] == knows) is (branch == "wip")


def test_the_address_of_a_pull_request_finds_no_other_one(world, shop):
    one, other = (
        world.claude(shop, f"review https://git.example/a/shop/pull/{number}", "it is good") for number in (12, 13)
    )

    assert [one, other] == world.ids("https://git.example/a/shop/pull/12", shop)[:2]
    found = world.find("https://git.example/a/shop/pull/14", shop, explain=True)["results"]
    assert {0} == {hit["explain"]["points"]["session_words"] for hit in found}


def test_damage_of_the_index_is_not_searched_around(store, monkeypatch):
    def damaged(*_: object, **__: object) -> None:
        raise apsw.CorruptError("malformed")

    monkeypatch.setattr("smart_fork.finding.search.gather", damaged)
    with pytest.raises(apsw.CorruptError):
        ask(store, RETRY)


def test_the_caller_is_never_found_by_its_row_or_by_its_id(store):
    """Neither by its words, its passages, the lines that it wrote, nor an error that it met."""
    one, *others = store.sessions(range(1, 4)).values()
    scope = store.scope(None, ["claude"], automated=False)

    for more in ({"caller": one}, {"hidden": frozenset({one.session_id})}):
        allowed, dropped = admitted((one, *others), Query(RETRY, scope, 5, everywhere=True, **more))
        assert ([other.row for other in others], 0) == ([*allowed], dropped)
        assert one.row not in [hit.session.row for hit in ask(store, RETRY, **more).hits]
    assert 3 == len(admitted((one, *others), Query(RETRY, scope, 5, everywhere=True))[0])


def test_who_wants_at_least_a_score_gets_those_that_are_shown_with_just_that(store):
    for hit in ask(store, RETRY).hits:
        shown = round(hit.score, 4)
        assert hit.session.row in [one.session.row for one in ask(store, RETRY, min_score=shown).hits]
        above = ask(store, RETRY, min_score=math.nextafter(shown, 2))
        assert hit.session.row not in [one.session.row for one in above.hits]


def test_a_limit_is_of_families_not_of_sessions(world, shop):
    first = world.claude(shop, RETRY, "done", "and the header", "painted")
    forks = [world.fork_claude(first, shop, f"and part {number}", "done") for number in range(3)]
    other = world.claude(shop, f"{RETRY} again", "done")

    found = world.find(RETRY, shop, limit=2)["results"]

    assert (2, True) == (len(found), other in [hit["session_id"] for hit in found])
    assert 1 == len({first, *forks} & {hit["session_id"] for hit in found})


def test_a_fork_that_only_asked_gives_way_to_the_member_that_it_came_from_also_in_a_large_family(world, shop):
    """Compared with the first session of its family the fork has more than a question; compared with its parent it
    does not.
    """
    first = world.claude(shop, "paint the header", "painted")
    middle = world.fork_claude(first, shop, RETRY, "The uploader retries now", "test the retry", "tested")
    asker = world.fork_claude(middle, shop, "how does the uploader retry with backoff")

    world.find(RETRY, shop)
    with opened() as store:
        rows = {row.row: row for row in (store.session("claude", one) for one in (first, middle, asker)) if row}
        left = {row.session_id for row in without_askers(store, rows, Query(RETRY, Scope(), 5)).values()}

    assert {first, middle} == left


def test_outside_of_git_a_session_beside_the_directory_that_is_asked_about_is_not_admitted(world):
    here, beside = world.home / "notes", world.home / "notes-2"
    for folder in (here, here / "below", beside):
        folder.mkdir()
        world.claude(folder, RETRY, "done")
    world.find(RETRY, here)
    with opened() as store:
        rows = store.sessions(range(1, 10)).values()
        scope = store.scope(project_of(here), ["claude"], automated=False)
        allowed, _ = admitted(rows, Query(RETRY, scope, 5))

    assert {str(here), str(here / "below")} == {row.cwd for row in allowed.values()}
    assert 2 == len(world.ids(RETRY, here))
