"""Tests of the order of sessions that answer equally well, and of the words that describe it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from smart_fork.finding import fork_suitability
from smart_fork.finding.fork_suitability import close
from smart_fork.finding.hit import Drift, Price
from smart_fork.forking.search_and_fork import fitting
from smart_fork.system.processes import Processes
from tests.smart_fork.answers import a_hit, an_answer
from tests.smart_fork.world import Did, git
from tests.support.cases import parametrize_subtests

ASK, DONE = "> add retry to the uploader", "the uploader retries now"
COMMIT = Did("Bash", {"command": "git commit -m x"}, "[main 1a2b3c4] x")


STOPPED = "> [Request interrupted by user]"


def checked(said: str) -> Did:
    return Did("Bash", {"command": "pytest && git commit -m x; echo"}, said)


def edit(path) -> Did:
    return Did("Edit", {"file_path": str(path)})


def found(world, shop, **more) -> dict:
    return world.find("add retry to the uploader", shop, **more)


def test_of_equally_likely_sessions_the_better_to_fork_stands_first(world, shop):
    work = edit(shop / "a.py")
    ends = {
        "unknown": (checked("hello"), DONE), "abandoned": (checked("hello"), DONE, STOPPED),
        "failed": (checked("1 failed"), DONE), "committed": (checked("[main 1a2b3c4] x"), DONE),
        "tests_passed": (checked("5 passed"), DONE),
    }  # fmt: skip
    for end in ends.values():
        world.worked("claude", shop, ASK, work, *end)

    answer = found(world, shop)

    assert [hit["outcome"] for hit in answer["results"]] == [
        "committed", "tests_passed", "unknown", "failed", "abandoned"
    ]  # fmt: skip
    assert "order_notice" not in answer  # they have the same score
    assert [hit["rank"] for hit in answer["results"]] == [1, 2, 3, 4, 5]
    assert found(world, shop) == answer
    assert found(world, shop, limit=1)["results"][0]["session_id"] == answer["results"][0]["session_id"]


def test_where_a_lower_score_stands_above_a_higher_one_the_answer_says_why(world, shop, monkeypatch):
    monkeypatch.setattr(fork_suitability, "CLOSE", 0.3)
    monkeypatch.setattr(fork_suitability, "CLOSE_SHARE", 0.4)
    left = world.worked("claude", shop, ASK, checked("hello"), DONE, STOPPED)
    good = world.worked("claude", shop, ASK, checked("5 passed"), f"{DONE} now, and more")

    answer = found(world, shop)

    assert [hit["session_id"] for hit in answer["results"]] == [good, left]
    assert answer["results"][0]["score"] < answer["results"][1]["score"]
    assert "better outcome" in answer["order_notice"]


def test_a_session_that_is_likelier_by_more_stays_first_whatever_became_of_it(world, shop):
    world.worked("claude", shop, "> draw the logo", COMMIT, "drawn")
    likely = world.worked("claude", shop, ASK, edit(shop / "a.py"))

    answer = found(world, shop)

    assert answer["results"][0]["session_id"] == likely
    assert answer["results"][0]["outcome"] == "abandoned"
    assert "order_notice" not in answer


def test_of_equal_outcomes_the_one_of_whose_files_fewer_have_changed_stands_first(world, shop):
    drifted = world.worked("claude", shop, ASK, edit(shop / "a.py"), edit(shop / "c.py"), DONE)
    fresh = world.worked("claude", shop, ASK, edit(shop / "b.py"), edit(shop / "d.py"), DONE)
    (shop / "a.py").write_text("new")
    git(shop, "add", ".")
    git(shop, "commit", "-q", "-m", "Later")

    hits = {hit["session_id"]: hit for hit in found(world, shop)["results"]}

    assert next(iter(hits)) == fresh
    assert hits[fresh]["drift"] == {"files": 2, "changed": 0, "share": 0.0}
    assert hits[drifted]["drift"] == {"files": 2, "changed": 1, "share": 0.5}


def test_of_equally_good_sessions_the_cheaper_one_stands_first(world, shop):
    cheap = world.sized_claude(shop, (ASK[2:], DONE, 10_000))
    world.sized_claude(shop, (ASK[2:], DONE, 90_000))

    first = found(world, shop)["results"][0]

    assert first["session_id"] == cheap
    assert first["price"] == {"tokens": 10_000, "tokens_at_match": 10_000, "instructions": 9_987}


def test_git_is_asked_once_what_is_changed_and_once_what_has_changed_since_and_not_where_no_hit_has_edits(
    world, shop, monkeypatch
):
    asked = []
    run = Processes.run
    monkeypatch.setattr(Processes, "run", lambda self, argv, **how: asked.append(argv) or run(self, argv, **how))
    world.worked("claude", shop, ASK, DONE)

    assert found(world, shop)["results"][0]["drift"] is None
    assert not [argv for argv in asked if argv[0] == "git"]

    for name in ("a", "b", "c"):
        world.worked("claude", shop, ASK, edit(shop / name), DONE)
    found(world, shop)

    said = [set(argv) & {"config", "diff-index", "log"} for argv in asked if argv[0] == "git"]
    assert [{"config"}, {"diff-index"}, {"log"}] == said


def test_outside_git_and_without_git_nothing_is_known_of_changes(world, shop, monkeypatch, home):
    plain = home / "plain"
    plain.mkdir()
    world.worked("claude", plain, ASK, edit(plain / "a.py"), COMMIT, DONE)
    world.worked("claude", shop, ASK, edit(shop / "a.py"), DONE)

    assert (
        found(world, plain)["results"][0] | {"drift": None, "outcome": "committed"} == found(world, plain)["results"][0]
    )
    monkeypatch.setenv("PATH", str(home))
    assert found(world, shop)["results"][0]["drift"] is None


def test_in_all_projects_each_repository_is_asked(world, shop):
    other = world.repository("other")
    world.worked("claude", shop, ASK, edit(shop / "a.py"), DONE)
    world.worked("claude", other, ASK, edit(other / "a.py"), DONE)

    hits = world.find("add retry to the uploader", None, all_projects=True)["results"]

    assert [hit["drift"]["files"] for hit in hits] == [1, 1]


def test_the_floor_looks_at_scores_and_not_at_who_stands_first():
    found = an_answer(*(a_hit(score, str(score)) for score in (0.2, 0.51, 0.1)))

    assert [hit.score for hit in fitting(found, 1, None)[0]] == [0.51]
    with pytest.raises(Exception, match=r"is 0\.51, below 0\.60"):
        fitting(found, 1, 0.6)


@pytest.mark.parametrize(
    ("drift", "said"),
    [(None, []), ((1, 0), ["none of its 1 file changed since"]), ((7, 2), ["2 of its 7 files changed since (29 %)"])],
)
def test_what_became_of_a_session_is_said_in_words(drift, said):
    values = drift and Drift(*drift, share=drift[1] / drift[0])
    hit = a_hit(outcome="tests_passed", drift=values, price=Price(90_000, 1))

    assert hit.became_of == ["tests passed", *said]


def hit(score: float):
    return SimpleNamespace(score=score)


@parametrize_subtests(
    ("scores", "many"),
    [
        ((0.5, 0.451, 0.449), 2),
        ((0.9, 0.86, 0.84), 2),
        ((0.1, 0.086, 0.084), 2),
        ((0.06, 0.02), 1),
        ((0.2,) * 12, 10),
        ((0.0, 0.0), 2),
        ((), 0),
    ],
)
def test_about_as_likely_is_within_a_twentieth_or_of_a_low_chance_within_a_part_of_it(scores, many):
    assert close([hit(score) for score in scores]) == many
