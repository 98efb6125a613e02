"""``active``, ``read``, ``message``, ``wait``, ``close`` and ``stop``, and the tools of the same jobs."""

from __future__ import annotations

import json
import threading
from contextvars import copy_context
from functools import partial

import pytest

from smart_fork.server import worker_tools
from smart_fork.system.call_context import Cancelled, cancellable
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry
from tests.smart_fork import agent_screens
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.fake_tmux import LATER, LATEST, USAGE, Stage
from tests.smart_fork.mcp_client import answer, refusal
from tests.smart_fork.test_docs import assert_documented


@pytest.fixture
def stage(world, shop, monkeypatch) -> Stage:
    """A worker that is idle; whatever looks at workers looks at it."""
    stage = Stage(world, shop)
    stage.asked("go", LATER)
    stage.said("Done", LATER)
    stage.terminal.on_key = lambda _key: stage.asked("typed", LATEST)
    for name in ("run", "alive", "environment", "end"):
        monkeypatch.setattr(Processes, name, lambda _self, *about, name=name, **more: getattr(stage.terminal, name)(*about, **more))  # fmt: skip
    return stage


def begun(shown):
    """When the first worker of a list was started, as it says."""
    return shown[0].rpartition(" · ")[2]


class TestCommands:
    def test_active_says_both_ids_and_what_it_was_asked(self, stage, run):  # noqa: F811
        """R-067."""
        shown = run("active").out.splitlines()

        assert [
            f" 1. idle      fixer  {stage.id} · fork · {begun(shown)}",
            "    go",
            f"    session {stage.session}",
            "    look here",
        ] == shown
        assert shown == run("active", "-a").out.splitlines()
        assert f"    {stage.cwd}" in run("active", "-A").out.splitlines()

    def test_what_the_first_answer_took_is_said(self, stage, run):  # noqa: F811
        stage.said("Done", id="one", usage=USAGE)

        said = "idle · 143,124 tokens · first answer: read 142k from the cache, wrote 1.1k"

        assert f"{stage.id} ({stage.session}) {said}" in run("read", stage.id).err.splitlines()
        shown = run("active").out.splitlines()
        assert f" 1. idle      fixer  {stage.id} · fork · 143k tokens · {begun(shown)}" == shown[0]
        assert "    first answer: read 142k from the cache, wrote 1.1k" in shown
        assert f"{stage.id} ({stage.session}) {said}" in run("wait", stage.id).out.splitlines()
        assert (
            worker_tools.read_worker(stage.id).as_json()["first_answer"]["read_from_cache"]
            == USAGE["cache_read_input_tokens"]
        )
        assert worker_tools.list_workers(caller=None, all_projects=True).workers[0].first_answer

    def test_active_says_how_a_worker_was_started(self, stage, run):  # noqa: F811
        """B-044: a word that only another version knows reads as a fork."""
        for kind, said in {"branch": "branch", "resume": "resume", "hatched": "fork"}.items():
            with Registry() as registry:
                registry._set(stage.id, f"kind = '{kind}'")
            shown = run("active").out.splitlines()
            assert f" 1. idle      fixer  {stage.id} · {said} · {begun(shown)}" == shown[0]
            (told,) = json.loads(run("active", "--json").out)["workers"]
            assert said == told["kind"]

    def test_active_shows_what_is_asked(self, stage, run):  # noqa: F811
        stage.asked("more", LATEST)
        stage.terminal.screen = agent_screens.CLAUDE_PERMISSION

        assert "    │ Do you want to proceed?" in run("active").out.splitlines()

    def test_where_nothing_runs_it_says_so(self, run, shop):  # noqa: F811
        """R-067."""
        for words, said in (
            (["active"], "No worker is running in shop. --all-projects looks everywhere.\n"),
            (["active", "-A"], "No worker is running.\n"),
        ):
            done = run(*words)
            assert (0, said) == (done.code, done.out)
        assert {"count": 0, "workers": []} == json.loads(run("active", "--json").out)

    def test_only_those_of_an_agent(self, stage, run):  # noqa: F811
        """R-067."""
        assert stage.id not in run("active", "--adapter", "codex").out
        assert stage.id in run("active", "--agent", "claude").out
        assert 2 == run("active", "--agent", "nobody").code

    def test_read(self, stage, run):  # noqa: F811
        done = run("read", stage.session[:8], "-n", "1")

        assert "## 2 · user · " in done.out
        assert "Done" in done.out
        assert "parent" not in done.out
        assert stage.id in done.err
        assert 3 == run("read", "nobody").code

    def test_message(self, stage, run):  # noqa: F811
        done = run("message", stage.id, "--", "--and the tests")

        assert (0, ["--and the tests"]) == (done.code, [text.strip() for text in stage.terminal.pasted])
        assert done.out.startswith(f"Typed: {stage.id} ({stage.session}) working")
        assert 1 == run("message", stage.id, "more").code

    def test_wait(self, stage, run):  # noqa: F811
        done = run("wait", stage.id, stage.session)

        assert (0, "Done") == (done.code, done.out.splitlines()[1])
        stage.asked("more", LATEST)
        assert 1 == run("wait", stage.id, "--timeout", "0").code

    def test_close_and_stop(self, stage, run):  # noqa: F811
        assert f"{stage.id} ended\n" == run("close", stage.id).out
        again = run("close", stage.id)
        assert (0, f"{stage.id} was not changed: It had ended already\n") == (again.code, again.out)
        done = run("stop")
        assert (0, "", "Nothing runs here. --all looks everywhere.\n") == (done.code, done.out, done.err)

    def test_one_that_cannot_be_ended_is_an_error(self, stage, run):  # noqa: F811
        with Registry() as registry:
            registry.set_state(stage.id, "starting")

        done = run("close", stage.id, "--json")

        assert (1, True) == (done.code, json.loads(done.out)["workers"][0]["failed"])

    def test_stop_ends_what_runs(self, stage, run):  # noqa: F811
        assert f"{stage.id} ended\n" == run("stop").out
        assert {"workers": []} == json.loads(run("stop", "--all", "--json").out)

    def test_json(self, stage, run):  # noqa: F811
        def out(*words: str) -> dict:
            return json.loads(run(*words, "--json").out)

        assert_documented("active and list_workers", listed := out("active"))
        assert_documented("workers", listed["workers"][0])
        plain = set(listed["workers"][0])
        for heading, told in (
            ("read and read_worker", out("read", stage.id)),
            ("message and message_worker", out("message", stage.id, "more")),
        ):
            assert plain <= set(told)
            assert_documented(heading, {key: value for key, value in told.items() if key not in plain})
        stage.said("Done", LATEST)
        assert_documented("wait and wait_workers", waited := out("wait", stage.id))
        assert_documented("waited", {key: value for key, value in waited["workers"][0].items() if key not in plain})
        assert_documented("close, stop and close_workers", closed := out("close", stage.id))
        assert_documented("closed", closed["workers"][0])


class TestTools:
    def test_a_worker_is_listed_read_and_spoken_to(self, world, stage):
        listed = answer(world, "list_workers", project_path=str(stage.cwd))
        assert [(stage.id, stage.session, "idle")] == [
            (one["worker_id"], one["session_id"], one["status"]) for one in listed["workers"]
        ]
        assert 0 == answer(world, "list_workers", all_projects=True, agent_type="codex")["count"]

        read = answer(world, "read_worker", worker=stage.id)
        assert ["go", "Done"] == [message["text"] for message in read["messages"]]
        assert "untrusted" in read["notice"]

        told = answer(world, "message_worker", worker="fixer", message='{"json": "as it is"}')
        assert ("typed", ' {"json": "as it is"}') == (told["how"], stage.terminal.pasted[0])

    def test_what_is_asked_is_told_and_answered_only_on_purpose(self, world, stage):
        stage.asked("more", LATEST)
        stage.terminal.screen = agent_screens.CODEX_PERMISSION
        stage.terminal.on_key = lambda _key: setattr(stage.terminal, "screen", agent_screens.CODEX_IDLE)

        assert "touch /etc/made_by_me" in refusal(world, "message_worker", worker=stage.id, message="1")
        assert [] == stage.terminal.keys
        assert "answered" == answer(world, "message_worker", worker=stage.id, message="1", answer=True)["how"]

    def test_waiting_tells_how_far_it_is(self, world, stage, monkeypatch):
        monkeypatch.setattr(worker_tools, "BEAT_SECONDS", 0.0)
        told = []

        async def progress(done: float, of: float, words: str) -> None:
            told.append((done, of, words))

        stage.asked("more", LATEST)
        waited = answer(world, "wait_workers", workers=[stage.id], timeout=0.3, progress=progress)

        assert (False, "working") == (waited["done"], waited["workers"][0]["status"])
        assert {(0.3, "0 of 1 workers are done")} == {about[1:] for about in told}
        assert sorted(told) == told
        stage.said("Done", LATEST)
        waited = answer(world, "wait_workers", workers=[stage.id])
        assert (True, "Done") == (waited["done"], waited["workers"][0]["last_words"])

    def test_a_call_that_is_given_up_waits_no_longer(self, stage):
        given_up = threading.Event()
        stage.asked("more", LATEST)
        waiting = partial(worker_tools._wait, [stage.id], 3600, lambda *_: None, any_of=False)
        given_up.set()

        with pytest.raises(Cancelled):
            copy_context().run(cancellable, given_up, waiting)

    def test_workers_are_ended(self, world, stage):
        (closed,) = answer(world, "close_workers", workers=[stage.id])["workers"]

        assert (True, False) == (closed["closed"], "worktree_removed" in closed)
        assert "No such worker" in refusal(world, "close_workers", workers=["nobody"])
        assert "No worker is named" in refusal(world, "wait_workers", workers=[])
