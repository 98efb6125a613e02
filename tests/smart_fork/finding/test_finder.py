"""Tests of `find`: an intent and its best sessions, scopes, fallbacks, and sessions that are never found."""

from __future__ import annotations

import contextvars
import json
import math
import os
import shlex
import shutil
from pathlib import Path

import pytest

from indexer.embedder import DEFAULT_MODEL
from smart_fork.errors import Usage
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.query import MAX_CHARACTERS
from smart_fork.finding.request import FindRequest
from smart_fork.system import call_context
from smart_fork.workers.registry import Registry
from tests.smart_fork.finding.test_query import HOSTILE
from tests.smart_fork.searches import find
from tests.smart_fork.world import World, add_program, git

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"intent": "  \n"}, "^intent "),
        ({"intent": "\0"}, "^intent "),
        ({"intent": None}, "^intent "),
        ({"agent_type": "nobody"}, "agent_type must be 'claude', 'codex', "),
        ({"limit": 0}, "^limit "),
        ({"limit": 2.5}, "^limit "),
        ({"min_score": math.nan}, "min_score must be a finite number"),
        ({"min_score": math.inf}, "min_score must be a finite number"),
        ({"min_score": "0.5"}, "min_score must be a finite number"),
        ({"min_score": True}, "min_score must be a finite number"),
        ({"min_score": 1.01}, "min_score must be between 0 and 1, not 1.01"),
        ({"min_score": -0.1}, "min_score must be between 0 and 1, not -0.1"),
        ({"min_score": 10**400}, "min_score must be between 0 and 1"),
        ({"collection": "mine"}, "unknown collection: mine"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_read(home, wrong, text):
    """F-002…F-006, F-009."""
    with pytest.raises(Usage, match=text):
        FindRequest(**({"intent": RETRY} | wrong)).checked()
    assert not (home / ".smart-fork").exists()


@pytest.mark.parametrize("path", ["/no/such/place", "~nobody-here/x", "nul\0", "x" * 5000])
def test_a_project_that_is_not_there_is_an_error_not_everything(world, path):
    """F-076."""
    with pytest.raises(Usage, match=r"^project_path "):
        world.find(RETRY, path)


@pytest.mark.usefixtures("any_engine")
def test_no_value_is_the_default_everywhere(world, shop, monkeypatch):
    """F-007."""
    for number in range(7):
        world.claude(shop, f"{RETRY} number {number}", DONE)
    world.codex(shop, RETRY, DONE)
    monkeypatch.chdir(shop)

    nothing = dict.fromkeys(("agent_type", "limit", "collection", "min_score", "include_snippets"))
    answer = find(FindRequest(RETRY, **nothing), Engine(world.model)).as_json()

    assert answer["agent_type"] == "claude"
    assert answer["count"] == 5
    assert {hit["agent_type"] for hit in answer["results"]} == {"claude"}
    assert all(hit["snippet"] for hit in answer["results"])


def test_the_session_that_knows_comes_first_with_everything_needed_to_use_it(world, shop):
    """F-050, F-063, F-080, F-081, F-083."""
    world.claude(shop, "rename the logo", "Renamed")
    knows = world.claude(shop, RETRY, DONE, gitBranch="feature")

    answer = world.find("do the uploader's retry with backoff for downloads", shop, agent_type="claude")

    assert (answer["search_mode"], answer["fallback_used"], "search_error" in answer) == ("hybrid", False, False)
    assert answer["collections"] == ["claude-sessions"]
    assert [hit["rank"] for hit in answer["results"]] == [1, 2]
    best = answer["results"][0]
    assert best["session_id"] == knows
    assert best["working_directory"] == str(shop)
    assert best["repo_root"] == str(shop)
    assert best["git_branch"] == "feature"
    assert best["date"].endswith("Z")
    assert best["jsonl_path"] == str(world.log_of(knows))
    assert Path(best["source_path"]).is_file()
    assert "uploader" in best["snippet"]
    assert {"retry", "backoff", "uploader"} <= set(best["match"]["words"])
    assert (best["can_fork"], "warning" in best) == (True, False)
    assert best["fork_command"] == f"cd {shlex.quote(str(shop))} && claude --resume {knows} --fork-session"
    assert answer["index"]["complete"]


@pytest.mark.usefixtures("any_engine")
def test_many_matching_passages_of_a_session_are_one_result(world, shop):
    """F-037."""
    said = [words for number in range(30) for words in (f"{RETRY} {number}", f"{DONE} {number} " + "more " * 100)]
    world.claude(shop, *said)

    assert len(world.ids(RETRY, shop)) == 1


@pytest.mark.usefixtures("any_engine")
def test_equal_scores_are_ordered_by_date_then_id(world, shop):
    """F-038."""
    ids = [f"{digit}0000000-0000-4000-8000-000000000000" for digit in "312"]
    moment = "2026-03-01T00:00:00.000Z"
    for session_id in ids:
        world.claude(shop, RETRY, DONE, session_id=session_id, timestamp=moment)
    newest = world.claude(shop, RETRY, DONE, timestamp="2026-03-02T00:00:00.000Z")

    assert world.ids(RETRY, shop) == [newest, *sorted(ids)]


def test_min_score_leaves_out_what_is_below_it(world, shop):
    """F-040."""
    world.claude(shop, RETRY, DONE)
    world.claude(shop, "paint the logo blue", "It is blue now")
    scores = [hit["score"] for hit in world.find(RETRY, shop)["results"]]

    for least in (sum(scores) / 2, scores[0]):
        assert [hit["score"] for hit in world.find(RETRY, shop, min_score=least)["results"]] == scores[:1]
    assert world.find("bake bread", shop, min_score=1.0)["results"] == []


def test_a_score_is_explained_on_request(world, shop):
    world.claude(shop, RETRY, DONE)
    world.claude(shop, "rename the colours of the theme", "done")

    results = world.find(RETRY, shop, explain=True)["results"]

    for result in results:
        why = result["explain"]
        assert why["score"] == result["score"]
        assert why["score"] == pytest.approx(1 / (1 + math.exp(why["against"] - sum(why["points"].values()))), abs=0.02)
    assert results[0]["explain"]["points"]["title"] > 0
    assert "explain" not in world.find(RETRY, shop)["results"][0]


def test_where_nothing_fits_no_score_reaches_one_half(world, shop):
    for number in range(5):
        world.claude(shop, f"rename the colours of theme {number}", "done")

    assert max(hit["score"] for hit in world.find("why is the mail server unreachable", shop)["results"]) < 0.5


@pytest.mark.usefixtures("any_engine")
def test_snippets_are_left_out_on_request_and_nothing_else_is(world, shop):
    """F-041."""
    world.claude(shop, RETRY, DONE)
    with_snippet, without = (world.find(RETRY, shop, include_snippets=wanted)["results"][0] for wanted in (True, False))

    assert {key: value for key, value in with_snippet.items() if key not in ("snippet", "said_by")} == without


@pytest.mark.usefixtures("any_engine")
@pytest.mark.slow
def test_many_results_stay_small_enough_for_a_model(world, shop):
    """Agents cut a tool's answer at about 10 k tokens."""
    for number in range(60):
        world.claude(shop, f"{RETRY} {number} " + "and everything around it " * 30, DONE)

    answer = world.find(RETRY, shop, limit=50)

    assert answer["count"] == 50
    assert max(len(hit["snippet"]) for hit in answer["results"]) <= 200
    assert len(json.dumps(world.find(RETRY, shop)["results"])) < 12_000


@pytest.mark.usefixtures("any_engine")
class TestScope:
    """F-070…F-076, on real repositories and worktrees."""

    def test_a_look_alike_path_and_another_repository_are_outside(self, world, shop):
        inside = world.claude(shop, RETRY, DONE)
        world.claude(world.repository("shop-other"), RETRY, DONE)
        world.codex(world.repository("elsewhere"), RETRY, DONE)

        assert world.ids(RETRY, shop) == [inside]

    def test_sub_directories_and_all_worktrees_are_inside(self, world, shop):
        (shop / "api").mkdir()
        git(shop, "worktree", "add", "-q", str(shop / ".worktrees/x"))
        git(shop, "worktree", "add", "-q", str(world.home / "far"))
        places = [shop, shop / "api", shop / ".worktrees/x", world.home / "far"]
        ids = {world.claude(place, RETRY, DONE) for place in places}

        for place in places:
            assert set(world.ids(RETRY, place)) == ids

    def test_links_and_dots_are_resolved_on_both_sides(self, world, shop):
        (world.home / "link").symlink_to(shop)
        (shop / "out").symlink_to(world.repository("elsewhere"))
        linked = world.claude(world.home / "link", RETRY, DONE)
        world.claude(shop / "out", RETRY, DONE)

        assert world.ids(RETRY, f"{shop}/../shop/") == [linked]
        assert world.ids(RETRY, world.home / "link") == [linked]

    def test_outside_git_a_directory_holds_what_is_below_it(self, world, shop):
        notes = world.home / "notes"
        for name in ("a", "ab"):
            (notes / name).mkdir(parents=True)
        below = world.claude(notes / "a", RETRY, DONE)
        world.claude(notes / "ab", RETRY, DONE)

        assert world.ids(RETRY, notes / "a") == [below]
        assert len(world.ids(RETRY, notes)) == 2

    def test_a_session_without_a_directory_is_found_nowhere_but_everywhere(self, world, shop):
        lost = world.claude("", RETRY, DONE)

        assert world.ids(RETRY, shop) == []
        assert world.ids(RETRY, shop, all_projects=True) == [lost]

    def test_a_collection_does_not_widen_the_scope(self, world, shop):
        inside = world.codex(shop, RETRY, DONE)
        world.codex(world.repository("elsewhere"), RETRY, DONE)

        answer = world.find(RETRY, shop, agent_type="claude", collection="codex-sessions")

        assert [hit["session_id"] for hit in answer["results"]] == [inside]
        assert answer["agent_type"] == "codex"

    def test_a_tiny_repository_is_not_lost_among_many_sessions_of_others(self, world, shop):
        inside = world.claude(shop, "backoff somewhere", "yes")
        other = world.repository("huge")
        for _ in range(30):
            world.claude(other, RETRY, DONE)

        assert world.ids(RETRY, shop) == [inside]


@pytest.mark.usefixtures("any_engine")
class TestTheCaller:
    """Content of the calling session that must not be found."""

    def test_its_own_session_is_never_found(self, world, shop):
        asking = world.claude(shop, RETRY, DONE)
        other = world.claude(shop, RETRY + " twice", DONE)

        assert world.ids(RETRY, shop, caller_session_id=asking) == [other]

    def test_a_fork_finds_its_parent_only_for_what_that_did_after_the_fork(self, world, shop):
        parent = world.claude(shop, RETRY, DONE)
        fork = world.fork_claude(parent, shop, "now the docs", "written")
        assert world.ids(RETRY, shop, caller_session_id=fork) == []

        old = [json.loads(line) for line in world.log_of(parent).read_text().splitlines()]
        more = world.claude_records(parent, shop, "translate the invoices into Finnish", "Laskut on tehty")
        more[0]["parentUuid"] = old[-1]["uuid"]
        world.write_claude(parent, shop, more, "a")

        assert world.ids("Finnish invoices", shop, caller_session_id=fork) == [parent]
        assert "Finnish" in world.find("Finnish", shop, caller_session_id=fork)["results"][0]["snippet"]

    def test_workers_that_it_started_are_not_found(self, world, shop):
        asking = world.claude(shop, "coordinate", "yes")
        worker = world.claude(shop, RETRY, DONE)
        with Registry() as registry:
            started = registry.add(
                "claude",
                source_session_id=asking,
                session_id=worker,
                caller_session_id=asking,
                place="process",
                cwd=shop,
            )
            assert started.session_id == worker

        assert world.ids(RETRY, shop, caller_session_id=asking) == []
        assert worker in world.ids(RETRY, shop)

    def test_a_damaged_register_of_workers_does_not_stop_the_search(self, world, shop):
        other = world.claude(shop, RETRY, DONE)
        (world.home / ".smart-fork").mkdir()
        (world.home / ".smart-fork/workers.db").write_bytes(b"this is no database" * 100)

        assert world.ids(RETRY, shop, caller_session_id="someone") == [other]

    @pytest.mark.parametrize("any_engine", ["builtin"], indirect=True)  # it finds by words what has none of them
    def test_calls_of_our_own_tool_are_not_evidence(self, world, shop):
        session_id = world.claude(shop, "hello there", "hi")
        call = {"type": "tool_use", "id": "t1", "name": "mcp__smart-fork__smart_fork", "input": {"intent": "zanzibar"}}
        answer = [{"type": "tool_result", "tool_use_id": "t1", "content": "zanzibar zanzibar"}]
        more = world.claude_records(session_id, shop, "x", "y", "z")
        more[0]["parentUuid"] = json.loads(world.log_of(session_id).read_text().splitlines()[-1])["uuid"]
        more[1]["message"]["content"], more[2]["message"]["content"] = [call], answer
        world.write_claude(session_id, shop, more, "a")

        assert world.find("zanzibar", shop)["results"][0]["match"]["words"] == []

    def test_a_family_is_one_result_that_names_the_others(self, world, shop):
        parent = world.claude(shop, RETRY, DONE)
        fork = world.fork_claude(parent, shop, "now retry the downloader", "done as well")

        answer = world.find("retry the downloader", shop)

        assert [hit["session_id"] for hit in answer["results"]] == [fork]
        assert answer["results"][0]["lineage"]["others"] == [parent]
        assert answer["results"][0]["lineage"]["family_size"] == 2


@pytest.mark.usefixtures("any_engine")
class TestForkable:
    """F-061, F-062."""

    def warning(self, world: World, shop: Path, **more: object) -> str:
        hit = world.find(RETRY, shop, **more)["results"][0]
        assert not hit["can_fork"]
        return hit["warning"]

    def test_not_without_its_log(self, world, shop):
        world.log_of(world.claude(shop, RETRY, DONE))
        world.find(RETRY, shop)
        next(world.home.glob(".claude/projects/*/*.jsonl")).unlink()

        assert "deleted" in self.warning(world, shop)
        assert world.find(RETRY, shop)["results"][0]["jsonl_path"] is None

    def test_not_when_the_log_has_been_emptied(self, world, shop, monkeypatch):
        log = world.log_of(world.claude(shop, RETRY, DONE))
        world.find(RETRY, shop)
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")
        log.write_text("")

        assert "it has no prompt yet" in self.warning(world, shop)

    def test_not_a_sub_agents(self, world, shop):
        world.claude(shop, RETRY, DONE, teamName="reviewers")

        assert "sub-agent" in self.warning(world, shop, include_automated=True)

    def test_not_without_the_agents_program(self, world, shop):
        world.claude(shop, RETRY, DONE)
        (world.home / "bin/claude").unlink()

        assert "claude was not found" in self.warning(world, shop)

    def test_not_with_a_program_that_is_too_old(self, world, shop):
        world.codex(shop, RETRY, DONE)
        add_program(world.home / "bin", "codex", "Commands:\n  resume  Go on")

        assert "cannot fork" in self.warning(world, shop)

    def test_a_program_is_asked_once_for_each_version_of_it(self, world, shop, tmp_path, monkeypatch):
        world.claude(shop, RETRY, DONE)
        program = world.home / "bin/claude"
        program.write_text(f'#!/bin/sh\necho asked >> "{tmp_path}/asked"\necho --fork-session\n')
        for _ in range(2):
            monkeypatch.setattr("smart_fork.agents.programs._seen", {})  # as in another process
            assert world.find(RETRY, shop)["results"][0]["can_fork"]
        assert (tmp_path / "asked").read_text().split() == ["asked"]

        program.write_text("#!/bin/sh\necho nothing\n")
        os.utime(program, (1, 1))
        assert not world.find(RETRY, shop)["results"][0]["can_fork"]


def test_any_intent_is_answered(world, shop):
    """F-035."""
    world.claude(shop, RETRY, DONE)

    for intent in (*HOSTILE, "-rf /", "retry " * 20_000):
        answer = world.find(intent, shop)

        assert answer["search_mode"] == "hybrid", intent
        assert "search_error" not in answer, intent
        json.dumps(answer).encode()
        assert len(answer["query"]) <= MAX_CHARACTERS


@pytest.mark.usefixtures("any_engine")
def test_titles_and_snippets_cannot_steer_a_terminal_and_keep_no_secret(world, shop):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "kLmNoPqRsTuVwXyZ"
    world.claude(
        shop, f"use token {secret} \x1b]0;owned\x07 for retry", "\x1b[31mred\x9b0m retry", gitBranch="ma\x1bin"
    )

    text = json.dumps(world.find("retry", shop)["results"])

    assert secret not in text
    assert not any(sign in text for sign in ("\\u001b", "\\u0007", "\\u009b"))


@pytest.mark.usefixtures("any_engine")
def test_automated_sessions_are_hidden_unless_asked_for(world, shop):
    machine = world.claude(shop, RETRY, DONE, entrypoint="sdk-cli", promptSource="sdk", origin=None)

    assert world.ids(RETRY, shop) == []
    assert world.ids(RETRY, shop, include_automated=True) == [machine]


class TestOtherScripts:
    def test_it_is_said_where_the_default_model_hardly_helps(self, world, shop, monkeypatch):
        world.claude(shop, "повторять загрузку", "готово")
        monkeypatch.setattr(world.model, "model", f"{DEFAULT_MODEL}@1234", raising=False)

        assert "SMART_FORK_MODEL" in world.find("повторять загрузку", shop)["language_notice"]
        assert "in their language" in world.find("retry the upload", shop)["language_notice"]

    def test_over_sessions_in_another_script_it_says_to_ask_in_their_language(self, world, shop):
        world.model.model = f"{DEFAULT_MODEL}@0"
        world.claude(shop, "повторять загрузку файлов", "Загрузка теперь повторяется пять раз")
        world.claude(shop, "нарисовать логотип магазина", "Логотип нарисован")

        assert "in their language" in world.find("retry the upload", shop)["language_notice"]
        assert "language_notice" not in world.find("retry the upload", shop, also=["повторять загрузку"])

    def test_over_sessions_in_its_own_script_no_other_language_is_asked_for(self, world, shop):
        world.model.model = f"{DEFAULT_MODEL}@0"
        world.claude(shop, "повторять загрузку файлов", "Загрузка теперь повторяется пять раз")

        notice = world.find("повторять загрузку", shop)["language_notice"]

        assert "Say it in" not in notice
        assert "SMART_FORK_MODEL" in notice

    def test_over_english_sessions_it_says_to_ask_in_english(self, world, shop):
        world.model.model = f"{DEFAULT_MODEL}@0"
        world.claude(shop, RETRY, DONE)

        assert "Add English phrasings" in world.find("повторять загрузку", shop)["language_notice"]

    @pytest.mark.parametrize(
        ("theirs", "asked", "said"),
        [
            ("der Uploader gibt nach einem Fehler auf, und das ist nicht gut", "retry the upload", "in German"),
            ("the uploader gives up after one failure", "der Upload wird nicht wiederholt", "in English"),
            ("the uploader gives up after one failure", "uploader backoff", ""),
            ("the uploader gives up after one failure", "why does the uploader give up", ""),
        ],
    )
    def test_it_is_said_where_sessions_of_the_same_script_are_in_another_language(
        self, world, shop, theirs, asked, said
    ):
        world.model.model = f"{DEFAULT_MODEL}@0"
        world.claude(shop, theirs, "uploader")

        notice = world.find(asked, shop).get("language_notice", "")

        assert said in notice if said else not notice
        if said:
            assert "language_notice" not in world.find(asked, shop, also=[theirs])

    def test_another_model_may_know_it(self, world, shop):
        world.claude(shop, "повторять загрузку", "готово")

        assert "language_notice" not in world.find("повторять загрузку", shop)


def test_a_pointer_into_another_repository_finds_nothing_of_it_and_the_answer_says_why(world, shop):
    """Neither the index nor the logs reveal that repository, and work in the directory does not count as work in it."""
    secret = world.claude(shop, RETRY, DONE)
    forged = world.home / "forged"
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {shop}/.git\n")
    own = world.claude(forged, RETRY, DONE)

    assert ([own], [secret]) == (world.ids(RETRY, forged), world.ids(RETRY, shop))
    assert "does not point back" in world.find(RETRY, forged)["project_notice"]
    assert "project_notice" not in world.find(RETRY, shop)


def test_a_limited_caller_does_not_learn_where_a_pointer_leads(world, shop):
    forged = world.home / "forged"
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {shop}/.git\n")

    def ask() -> str:
        call_context.limit_to(call_context.permitted([str(forged)]))
        return world.find(RETRY, forged)["project_notice"]

    assert str(shop) not in contextvars.copy_context().run(ask)


def test_a_worktree_that_is_gone_before_anything_was_indexed_is_searched_with_its_repository(world, shop):
    git(shop, "worktree", "add", "-q", str(world.home / "gone"))
    session_id = world.claude(world.home / "gone", RETRY, DONE)
    shutil.rmtree(world.home / "gone")

    assert [session_id] == world.ids(RETRY, shop)
    assert [] == world.ids(RETRY, world.repository("elsewhere"))

    def permitted() -> bool:
        call_context.limit_to(call_context.permitted([str(shop)]))
        return call_context.permits(str(world.home / "gone"))

    assert contextvars.copy_context().run(permitted)
