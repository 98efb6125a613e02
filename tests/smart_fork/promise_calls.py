"""Calls of the tools, one for each kind of thing that they say of themselves; `test_promises` has what they say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from smart_fork.agents import AGENTS
from smart_fork.cli.mcp_handshake import CATALOGUE
from smart_fork.finding.request import collections
from tests.smart_fork.answers import a_worker
from tests.smart_fork.finding.test_authorship import BODY, commit, git
from tests.smart_fork.promise_home import DONE, ERROR, PATCH, RETRY, Scene
from tests.smart_fork.world import Did


def finds_the_one_that_knows(s: Scene) -> None:
    for tool in ("smart_fork", "find_sessions"):
        best, *_ = s.ask(tool, intent=RETRY)["results"]
        assert (s.knows, True) == (best["session_id"], 0.5 < best["score"] <= 1)
        assert s.ask(tool, intent=RETRY)["results"] == s.ask(tool, intent=RETRY, project_path=str(s.shop))["results"]
        assert max([0.0, *(hit["score"] for hit in s.ask(tool, intent="asparagus sauce")["results"])]) < 0.3
    assert not s.scripted.ran()


def a_result_says_what_decides(s: Scene) -> None:
    s.ask(intent=RETRY)
    commit(s.shop, "upload.py", BODY + "\n\nMORE = 1\n", at=1_790_000_000)
    best = s.ask("smart_fork", intent=RETRY)["results"][0]
    assert {"retry", "uploads"} <= {*best["match"]["words"]}
    assert best["outcome"] in ("committed", "unknown")
    assert {"files": 1, "changed": 1} == best["drift"]
    assert 0 < best["match"]["token_estimate"] <= best["token_estimate"]
    assert s.fork(at="match")["price"]["tokens"] <= s.fork()["price"]["tokens"]
    assert "evidence" in s.ask("smart_fork", intent=RETRY)["notice"]


def phrasings_find_more(s: Scene) -> None:
    four = [RETRY, "uploads again", "backoff", "upload.py"]
    for tool in ("smart_fork", "find_sessions"):
        assert "`also`" in s.ask(tool, intent="zzz qqq")["next"]
        assert four == s.ask(tool, intent="once more", also=four, explain=True)["also"]
        assert s.knows == s.ids(tool, intent="once more", also=four)[0]
    assert "at most 8" in s.refused("find_sessions", intent="x", also=["x"] * 9)


def a_phrasing_says_what_it_is(s: Scene) -> None:
    told = s.ask("find_sessions", intent="finish it")["next"]
    assert all(word in told for word in ("git status", "git log -5"))
    assert s.knows == s.ids("find_sessions", intent="finish it", also=[RETRY])[0]


def an_intent_may_be_empty(s: Scene) -> None:
    for tool in ("smart_fork", "find_sessions"):
        for code in (
            {"lines": ["upload.py:4"]},
            {"files": ["upload.py"]},
            {"commit": "HEAD"},
            {"changes": PATCH},
            {"changes": True},
        ):
            assert [s.knows] == s.ids(tool, **code) == s.ids(tool, intent="", **code) == s.ids(tool, intent=" ", **code)
            assert s.ask(tool, **code)["results"][0]["wrote"]["lines"] > 0
        assert s.refused(tool).startswith("intent ")


def an_error_and_a_tag_are_asked_for(s: Scene) -> None:
    assert ["run pip install zeppelin"] == s.ask(error=ERROR)["fixes"][0]["ended_by"]
    assert [s.knows] == s.ids(tag="later") == s.ids(tag="later", intent=RETRY)
    assert [] == s.ids(tag="none", intent=RETRY)


def the_exchanges_of_one_session_are_asked_for(s: Scene) -> None:
    for own in (s.knows, s.knows[:8]):
        found = s.ask(intent="run it", session=own)
        assert (s.knows, 2, [2]) == (
            found["session_id"],
            found["total"],
            [one["exchange"] for one in found["exchanges"]][:1],
        )
    meta = {"threadId": s.world.codex(s.shop, "where is the header", "here")}
    found = s.ask(intent="header", session="self", client="codex-mcp-client", meta=meta)
    assert meta["threadId"] == found["session_id"]
    assert "which session asks" in s.refused("find_sessions", intent="x", session="self", client="nobody")


def agents_are_chosen(s: Scene) -> None:
    codex = s.world.codex(s.shop, f"{RETRY} in the downloader", DONE)
    for name in AGENTS.choices():
        assert name == s.ask(intent=RETRY, agent_type=name)["agent_type"]
    for tool in ("smart_fork", "find_sessions"):
        assert [codex] == s.ids(tool, intent=RETRY, client="codex-mcp-client")
        assert {codex, s.knows} <= {*s.ids(tool, intent=RETRY, agent_type="all")}
        assert s.other in s.ids(tool, intent="paint the header", client="codex-mcp-client")
    assert {"claude"} == {one["agent_type"] for one in s.ask("list_sessions", agent_type="claude")["sessions"]}
    assert {"claude", "codex"} == {one["agent_type"] for one in s.ask("list_sessions")["sessions"]}
    s.worker(agent_type="codex")
    assert [[], ["codex"]] == [
        [one["agent_type"] for one in s.ask("list_workers", agent_type=name)["workers"]] for name in ("claude", "codex")
    ]


def limits_hold(s: Scene) -> None:
    for tool in ("smart_fork", "find_sessions"):
        assert 1 == len(s.ids(tool, intent="the header uploads", limit=1))
        assert "at most 50" in s.refused(tool, intent="x", limit=51)
        assert s.ids(tool, intent="x", limit=50) is not None
        least = s.ask(tool, intent=RETRY)["results"][0]["score"]
        assert [s.knows] == s.ids(tool, intent=RETRY, min_score=least)
        assert "between 0 and 1" in s.refused(tool, intent="x", min_score=1.1)
        assert "snippet" not in s.ask(tool, intent=RETRY, include_snippets=False)["results"][0]
        assert "retry" in s.ask(tool, intent=RETRY)["results"][0]["snippet"]
        assert s.ask(tool, intent=RETRY, explain=True)["results"][0]["explain"]["points"]
    assert 1 == len(s.ask("list_sessions", limit=1)["sessions"])
    assert "at most 100" in s.refused("list_sessions", limit=101)


def another_project_is_asked(s: Scene) -> None:
    bank = s.world.repository("bank")
    there = s.world.claude(bank, RETRY, DONE)
    for path in (str(bank), "../bank"):
        for tool in ("smart_fork", "find_sessions"):
            assert [there] == s.ids(tool, intent=RETRY, project_path=path)
        assert [there] == [one["session_id"] for one in s.ask("list_sessions", project_path=path)["sessions"]]
    s.worker(project_path=str(bank))
    assert [0, 1, 1] == [
        len(s.ask("list_workers", **how)["workers"])
        for how in ({}, {"project_path": str(bank)}, {"all_projects": True})
    ]


def collections_are_those(s: Scene) -> None:
    assert "claude-sessions" in collections().values()
    for tool in ("smart_fork", "find_sessions"):
        assert s.knows in s.ids(tool, intent=RETRY, collection="claude-sessions")
        assert [] == s.ids(tool, intent=RETRY, collection="codex-sessions")


def the_team_is_asked_where_there_is_one(s: Scene) -> None:
    for tool in ("smart_fork", "find_sessions"):
        assert not [one for one in ({}, {"team": None}) if "team_error" in s.ask(tool, intent=RETRY, **one)]
        assert s.ask(tool, intent=RETRY, team=True)["team_error"]
    assert s.ask("list_sessions", team=True)["team_error"]


def it_forks_what_is_said(s: Scene) -> None:
    before = s.log()
    for how in ({"auto_fork": True}, {"fork_index": 0}, {"fork_session_id": s.knows}, {"fork_session_id": s.knows[:8]}):
        assert (
            s.knows
            == s.ask("smart_fork", intent=RETRY, dry_run=True, run_in="process", **how)["forked_session"][
                "resume_session_id"
            ]
        )
    assert "0.50" in s.ask("smart_fork", intent="asparagus sauce", auto_fork=True)["error"]
    assert "error" not in s.ask("smart_fork", intent="asparagus sauce", auto_fork=True, min_score=0, dry_run=True)
    assert not s.scripted.ran()
    made = s.fork(dry_run=False, prompt="do the rest", brief=False)
    words = s.said_to(made["worker_id"])
    assert ("do the rest", True) == (words[-1], s.knows in words and "--fork-session" in words)
    assert RETRY == s.said_to(s.fork(dry_run=False, brief=False)["worker_id"])[-1]
    assert before == s.log()


def it_says_what_to_do_next(s: Scene) -> None:
    told = s.ask("smart_fork", intent="asparagus sauce")
    assert "`also`" in told["next"]
    assert "next" not in s.ask("smart_fork", intent=RETRY)


def it_forks_at_a_message_and_within_a_budget(s: Scene) -> None:
    at = s.ask(intent=RETRY)["results"][0]["match"]
    assert s.fork(at=1)["price"]["tokens"] < s.fork()["price"]["tokens"]
    assert "exchange 1 of 2" in " ".join(s.fork(at="match")["warnings"])
    assert at["turn_index"] is not None
    for budget in ("30k", "match"):
        kept = s.fork(budget=budget, keep="1", drop="2")["selection"]["exchanges"]
        assert [1] == [one["number"] for one in kept]
    assert "needs a budget" in s.refused("smart_fork", intent=RETRY, fork_session_id=s.knows, drop="2")
    both = s.fork(budget="40k", merge=[s.other])
    assert [s.other] == [one["session_id"] for one in both["merged"]]
    ways = [way["option"] for way in s.fork()["ways"]]
    assert {"", "--budget match"} <= {*ways}
    assert not s.scripted.ran()


def it_runs_where_it_is_told(s: Scene) -> None:
    assert "process" == s.fork()["place"]
    made = s.fork(dry_run=False, worktree="mine", with_changes=True, brief=True)
    there = Path(made["cwd"])
    assert ("mine", True) == (there.name[:4], "range(6)" in (there / "upload.py").read_text())
    assert Path(s.fork(dry_run=False, worktree=True)["cwd"]) not in (s.shop, there)
    assert s.shop == Path(s.fork(dry_run=False)["cwd"])


def _changed(s: Scene) -> tuple[str, str]:
    """A session of a repository whose history is older, and where it worked; a file of it has changed since."""
    folder = s.world.home / "dated"
    folder.mkdir()
    git(folder, "init", "-qb", "main")
    commit(folder, "a.py", BODY, at=1_700_000_000)
    knows = s.world.worked("claude", folder, f"> {RETRY}", Did("Read", {"file_path": str(folder / "a.py")}, BODY), DONE)
    commit(folder, "a.py", BODY + "\n\nMORE = 1\n")
    return knows, str(folder)


def it_tells_what_has_changed(s: Scene) -> None:
    knows, folder = _changed(s)
    told = [
        s.said_to(s.fork(fork_session_id=knows, project_path=folder, dry_run=False, **how)["worker_id"])[-1]
        for how in ({}, {"brief": True}, {"brief": False})
    ]
    assert [True, True, False] == ["a.py" in one for one in told]
    assert (True, RETRY) == (told[0].endswith(RETRY), told[2])


def it_hands_over(s: Scene) -> None:
    assert "codex" == s.fork(as_agent="codex")["agent_type"]
    assert "codex" == s.branch(as_agent="codex")["agent_type"]
    assert "claude" == s.fork()["agent_type"]
    made = s.worker(fork_from=s.knows, agent_type="codex")
    assert ("codex", "claude") == (made["agent_type"], s.worker(fork_from=s.knows)["agent_type"])


def it_hands_over_secrets_only_on_request(s: Scene) -> None:
    token = "ghp_" + "a1B2c3" * 6
    has_one = s.world.claude(s.shop, f"use {token}", "used")
    fork = {"fork_session_id": has_one, "as_agent": "codex"}
    lost = [s.fork(**fork, unmasked=unmasked)["handed"]["lost"] for unmasked in (False, True)]
    assert [1, None] == [one.get("secrets") for one in lost]
    copies = [s.branch(session_id=has_one, as_agent="codex", **how)["path"] for how in ({}, {"unmasked": True})]
    assert [False, True] == [token in Path(path).read_text() for path in copies]
    s.worker(fork_from=has_one, agent_type="codex")
    s.worker(fork_from=has_one, agent_type="codex", unmasked=True)
    logs = [path.read_text() for path in (s.world.home / ".codex").rglob("*.jsonl")]
    assert (4, 2) == (len(logs), sum(token in one for one in logs))


def sessions_are_listed_and_read(s: Scene) -> None:
    robot = s.world.codex(s.shop, "count", "one", source="exec", originator="codex_exec", thread_source=None)
    shown = [
        [one["session_id"] for one in s.ask("list_sessions", include_automated=one)["sessions"]]
        for one in (False, True)
    ]
    assert ([s.other, s.knows], [robot, s.other, s.knows]) == tuple(shown)
    for own in (s.knows, s.knows[:8]):
        read = s.ask("read_session", session_id=own)
        assert ([0, 3, 4, 11], True) == (
            [one["number"] for one in read["messages"]],
            "evidence" in read["notice"],
        )
    at = s.ask(intent="run it")["results"][0]["match"]["turn_index"]
    assert at == s.ask("read_session", session_id=s.knows, at=at)["messages"][0]["number"]
    assert at - 1 == s.ask("read_session", session_id=s.knows, at=at, context=1)["messages"][0]["number"]
    long = s.world.claude(s.shop, "x" * 20_000, "y" * 20_000, "z")
    piece = s.ask("read_session", session_id=long)
    assert piece["next_at"] == s.ask("read_session", session_id=long, at=piece["next_at"])["messages"][0]["number"]
    made = s.worker(agent_type="codex")
    s.said_to(made["worker_id"])
    assert "paint it" in str(s.ask("read_session", session_id=made["worker_id"])["messages"])


def the_index_says_how_it_is(s: Scene) -> None:
    assert 0 == s.ask("index_status")["sessions"]
    s.ask(intent=RETRY)
    bad = s.world.home / ".claude/projects/-x/11111111-1111-4111-8111-111111111111.jsonl"
    bad.parent.mkdir(parents=True)
    bad.write_text('{"type": "user"\n')
    s.ask(intent=RETRY)
    state = s.ask("index_status")
    assert (2, True) == (state["sessions"], {"updated_at", "broken_logs"} <= state.keys())


def workers_are_started_together_or_not_at_all(s: Scene) -> None:
    fine = s.order()
    assert "project_path" in s.refused("spawn_workers", workers=[fine, {"prompt": "x"}])
    assert all(s.refused("spawn_workers", workers=some) for some in ([], [fine] * 5))
    assert not s.scripted.ran()
    made = s.ask(
        "spawn_workers", workers=[s.order(worktree=True, name="left"), s.order(worktree="named", agent_type="codex")]
    )["workers"]
    for one in made:
        assert {"worker_id", "cwd", "branch"} <= one.keys()
        assert s.shop != Path(one["cwd"])
        assert "paint it" == s.said_to(one["worker_id"])[-1]
    assert ["left", True] == [made[0]["name"], "named" in made[1]["cwd"]]
    assert made[0]["session_id"]
    assert {"running"} == {one["state"] for one in s.ask("list_workers")["workers"]}


def how_many_run_is_limited(s: Scene) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMART_FORK_MAX_WORKERS", "1")
        one, two = s.ask("spawn_workers", workers=[s.order(), s.order(prompt="more")])["workers"]
    assert (True, True) == ("worker_id" in one, "message" in two)


def a_worker_begins_with_what_it_is_told(s: Scene) -> None:
    assert {*AGENTS.startable()} == {*_schema()["agent_type"]["enum"]}
    forked = s.worker(fork_from=s.knows, at=1, brief=False)
    assert "It runs." not in s.log(forked["session_id"]).decode()
    within = s.worker(fork_from=s.knows, budget="match", keep="1", drop="2", prompt=RETRY, brief=False)
    assert (True, False) == (
        DONE in s.log(within["session_id"]).decode(),
        "It runs." in s.log(within["session_id"]).decode(),
    )
    before = s.log()
    s.said_to(s.worker(resume_session_id=s.other)["worker_id"])
    assert s.other.encode() in s.log(s.other)
    newest = s.worker(continue_session=True, fork_session=True)
    assert "--continue" in s.said_to(newest["worker_id"]) or "--fork-session" in s.said_to(newest["worker_id"])
    asked = s.worker(resume_session_id=s.knows, fork_session=True)
    assert "--fork-session" in s.said_to(asked["worker_id"])
    free = s.worker(skip_permissions=True)
    assert any("dangerously" in word for word in s.said_to(free["worker_id"]))
    assert before == s.log()


def a_worker_that_runs_is_not_resumed(s: Scene) -> None:
    made = s.worker(resume_session_id=s.other)
    s.said_to(made["worker_id"])
    assert s.other in s.refused("spawn_workers", workers=[s.order(resume_session_id=s.other)])
    assert 1 == len(s.scripted.ran())


def a_branch_is_a_session_of_its_own(s: Scene) -> None:
    before = s.log()
    made = s.branch(title="mine")
    assert ("mine" in made["title"], s.scripted.ran()) == (True, {})
    assert made["session_id"] in [one["session_id"] for one in s.ask("list_sessions")["sessions"]]
    assert s.fork(fork_session_id=made["session_id"])["resume_session_id"] == made["session_id"]
    short = s.branch(session_id=s.knows[:8], at=1)
    assert (True, False) == (
        DONE in s.log(made["session_id"]).decode(),
        "It runs." in s.log(short["session_id"]).decode(),
    )
    kept = s.branch(budget="match", intent=RETRY, keep="1", drop="2")["selection"]["exchanges"]
    assert [1] == [one["number"] for one in kept if one["kept"] != "nothing"]
    assert [1] == [
        one["number"]
        for one in s.branch(budget="30k", prompt=RETRY, drop="2")["selection"]["exchanges"]
        if one["kept"] != "nothing"
    ]
    assert RETRY in s.branch()["title"]
    bank = s.world.repository("bank")
    assert "does not belong" in s.refused("branch_session", session_id=s.knows, project_path=str(bank))
    assert str(bank) in s.log(s.branch(cwd=str(bank))["session_id"]).decode()
    assert before == s.log()


def a_branch_is_started_on_request(s: Scene) -> None:
    made = s.branch(start=True, prompt="go on", run_in="process")["started"]
    assert "go on" == s.said_to(made["worker_id"])[-1]
    assert "start: true" in s.refused("branch_session", session_id=s.knows, prompt="go on")


def a_session_that_is_being_written_is_not_branched(s: Scene) -> None:
    busy = s.world.claude(s.shop, "one", "two", "three")
    os.utime(s.world.log_of(busy))
    assert "in progress" in s.refused("branch_session", session_id=busy)
    assert s.branch(session_id=busy, at=1)["session_id"]


def a_family_is_told(s: Scene) -> None:
    child = s.branch(at=1)["session_id"]
    for own in (s.knows, child[:8]):
        told = s.ask("session_lineage", session_id=own)
        assert [s.knows, child] == [one["session_id"] for one in told["sessions"]]
    assert s.knows in json.dumps(told["sessions"][1])
    assert {"untrusted"} <= {*told["notice"].split()}


def workers_are_listed_and_read(s: Scene) -> None:
    made = s.worker(name="painter", agent_type="codex")
    s.said_to(made["worker_id"])
    assert [made["worker_id"]] == [one["worker_id"] for one in s.ask("list_workers")["workers"]]
    for name in (made["worker_id"], "painter"):
        read = s.ask("read_worker", worker=name, exchanges=1)
        assert "paint it" in str(read["messages"])
    assert "evidence" in read["notice"]
    assert s.refused("read_worker", worker="painter", exchanges=0)
    fork = s.fork(dry_run=False, prompt="only this", brief=False)
    s.said_to(fork["worker_id"])
    assert DONE not in str(s.ask("read_worker", worker=fork["worker_id"])["messages"])


def workers_are_waited_for_and_ended(s: Scene) -> None:
    one, two = (s.worker(prompt=prompt) for prompt in ("a", "b"))
    both = [one["worker_id"], two["worker_id"]]
    waited = s.ask("wait_workers", workers=both, timeout=0)
    assert (False, True) == (waited["done"], "untrusted" in waited["notice"])
    assert "at most 3600" in s.refused("wait_workers", workers=both, timeout=3601)
    logs = s.log(one["session_id"])
    (closed,) = s.ask("close_workers", workers=both[:1])["workers"]
    assert (True, logs) == (closed["closed"], s.log(one["session_id"]))
    assert s.ask("wait_workers", workers=both, any_of=True, timeout=60)["workers"]
    assert both[1:] == [each["worker_id"] for each in s.ask("list_workers")["workers"]]
    assert {*both} == {each["worker_id"] for each in s.ask("list_workers", include_closed=True)["workers"]}
    made = s.worker(worktree=True, prompt="c")
    s.said_to(made["worker_id"])
    (closed,) = s.ask("close_workers", workers=[made["worker_id"]], remove_worktree=True)["workers"]
    assert (True, False) == (closed["worktree_removed"], Path(made["cwd"]).exists())


def a_busy_worker_takes_no_message(s: Scene) -> None:
    made = s.worker()
    s.said_to(made["worker_id"])
    refused = s.refused("message_worker", worker=made["worker_id"], message="more")
    assert "takes no message" in refused or "is working" in refused
    assert s.refused("message_worker", worker=made["worker_id"], message="1", answer=True)
    assert s.refused("message_worker", worker=made["worker_id"], queue=True)


def it_tells_what_has_changed_to_a_worker(s: Scene) -> None:
    knows, folder = _changed(s)
    told = [
        s.said_to(s.worker(fork_from=knows, project_path=folder, **how)["worker_id"])[-1]
        for how in ({}, {"brief": False})
    ]
    assert (True, "paint it") == ("a.py" in told[0], told[1])


def a_question_of_a_worker_is_told(s: Scene) -> None:
    made = s.worker()
    with pytest.MonkeyPatch.context() as patch:
        asking = a_worker(made["worker_id"], state="running", waiting_for="May I?")
        patch.setattr("smart_fork.server.worker_tools.known_workers", lambda *_, **__: (asking,))
        told = s.ask("list_workers")
    assert ("May I?", True) == (told["workers"][0]["waiting_for"], "message_worker" in told["next"])


def workers_are_compared(s: Scene) -> None:
    made = s.ask("spawn_workers", workers=[s.order(worktree=True), s.order(worktree=True, agent_type="codex")])[
        "workers"
    ]
    (Path(made[0]["cwd"]) / "new.py").write_text("made = 1\n")
    ids = [one["worker_id"] for one in made]
    named = s.ask("compare_workers", workers=ids)
    assert [True, False] == ["new.py" in str(one) for one in named["workers"]]
    assert ["made = 1" in str(one) for one in (named, s.ask("compare_workers", workers=ids, diff=True))] == [
        False,
        True,
    ]
    assert {"answer", "state"} <= named["workers"][0].keys()
    assert "untrusted" in named["notice"]


def turns_are_cut_on_request(s: Scene) -> None:
    before = s.log()
    plan = s.ask("excise_session", session_id=s.knows[:8], turns="3-7", force=True)
    assert (before, True) == (s.log(), plan["next"].startswith("Nothing was cut"))
    assert s.ask("excise_session", path=str(s.world.log_of(s.knows)), turns="3-7")["next"].startswith("Nothing was cut")
    (first,) = [
        one["message_id"] for one in s.ask("read_session", session_id=s.knows)["messages"] if one["number"] == 0
    ]
    assert s.ask("excise_session", session_id=s.knows, ids=[first], force=True)["dry_run"]
    assert "dry_run" in s.ask("excise_session", session_id=s.knows, secrets=True)
    done = s.ask("excise_session", session_id=s.knows, turns="3-7", force=True, dry_run=False)
    assert (True, False) == (bool(done["snapshot"]), "zeppelin_uploader" in s.log().decode())
    assert "snapshot" in done["next"]
    busy = s.worker()
    s.said_to(busy["worker_id"])
    assert s.refused("excise_session", session_id=busy["session_id"], turns="0", dry_run=False, force=True)


def _schema() -> dict[str, Any]:
    tools = {tool["name"]: tool for tool in json.loads(Path(CATALOGUE).read_text())["tools"]}
    return dict(tools["spawn_workers"]["inputSchema"]["properties"]["workers"]["items"]["properties"])


def the_agents_are_those(s: Scene) -> None:
    assert AGENTS.titles(AGENTS.readable()) in json.loads(Path(CATALOGUE).read_text())["welcome"]["instructions"]
    finds_the_one_that_knows(s)
