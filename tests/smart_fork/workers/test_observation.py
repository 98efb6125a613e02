"""Tests of a worker's observed activity, from its hooks, its log and its screen."""

from __future__ import annotations

import pytest

from indexer.json_values import seconds_in as moment
from smart_fork.agents.log_tail import Activity, Tail
from smart_fork.agents.qwen.runtime import QwenScreen
from smart_fork.workers import observation
from smart_fork.workers.liveness import BECOMING_SECONDS, STARTING_SECONDS
from smart_fork.workers.observation import Observation, WorkerReader, list_workers, read_worker
from smart_fork.workers.registry import Registry
from tests.smart_fork import agent_screens
from tests.smart_fork.fake_tmux import AT_START, LATER, LATEST, PANE, PID, STARTED, Stage


@pytest.fixture
def stage(world, shop) -> Stage:
    return Stage(world, shop)


def look(stage: Stage, watcher: WorkerReader | None = None) -> Observation:
    with Registry() as registry:
        return (watcher or WorkerReader(stage.around)).look(registry.get(stage.id), registry)


def test_a_parent_that_has_finished_does_not_make_its_fork_look_finished(stage):
    """F-105."""
    seen = look(stage)

    assert ("running", "working", AT_START) == (seen.state, seen.status, seen.last_activity)


def test_the_log_says_when_it_is_done(stage):
    stage.asked("go")
    assert "working" == look(stage).status
    stage.said("Done")

    seen = look(stage)

    assert ("idle", LATER, None, True) == (seen.status, seen.last_activity, seen.waiting_for, seen.settled)


def test_without_a_prompt_it_waits_for_a_person_to_begin(world, shop):
    stage = Stage(world, shop, prompt="")
    stage.terminal.screen = ""

    assert "working" == look(stage).status, "there is nothing on its screen yet"
    stage.terminal.screen = "  >_ OpenAI Codex\n\n› Ask Codex to do anything\n\n  gpt-5"
    assert "idle" == look(stage).status


def test_a_session_that_was_late_is_found_and_followed(world, shop):
    """R-024, R-043: Codex tells nobody its id, and may need longer than a start waits."""
    stage = Stage(world, shop)
    with Registry() as registry:
        worker = registry.add(
            "codex", source_session_id="", place="process", cwd=shop, prompt="go", kind="new", now=STARTED
        )
        registry.set_started(worker.id, command=("codex",), pid=PID, log=stage.log)
    stage.terminal.worker_id = worker.id
    (before,) = [one for one in list_workers(None, agent="codex", around=stage.around) if one.worker_id == worker.id]
    session = world.codex(shop, "go", "Gone", timestamp=LATER)

    (after,) = [one for one in list_workers(None, agent="codex", around=stage.around) if one.worker_id == worker.id]
    read = read_worker(worker.id, around=stage.around).as_json()

    assert (None, session, session) == (before.session_id, after.session_id, read["session_id"])
    assert ["go", "Gone"] == [message["text"] for message in read["messages"]]


@pytest.mark.parametrize(("status", "at", "expected"), [("idle", LATEST, "idle"), ("idle", AT_START, "working"), ("working", LATEST, "working")])  # fmt: skip
def test_hooks_count_unless_the_log_is_newer(stage, status, at, expected):
    stage.asked("go")
    stage.hooked(status, at=at)

    assert expected == look(stage).status


def test_a_hook_that_says_what_is_asked(stage):
    stage.asked("go")
    stage.hooked("waiting", "Claude needs your permission to use Bash")

    assert ("waiting", "Claude needs your permission to use Bash") == (look(stage).status, look(stage).waiting_for)
    stage.terminal.screen = agent_screens.CLAUDE_PERMISSION
    assert "touch /etc/made_by_me" in look(stage).waiting_for, "the screen says more"
    stage.terminal.screen = agent_screens.CLAUDE_WORKING
    assert ("working", None) == (look(stage).status, look(stage).waiting_for), (
        "it was answered, and what it asked for runs"
    )


@pytest.mark.parametrize(("after", "expected"), [(1.0, "working"), (10.0, "idle")])
def test_an_answer_that_was_broken_off_without_a_word_in_the_log_is_seen_on_the_screen(
    stage, monkeypatch, after, expected
):
    """Qwen Code leaves such logs."""
    stage.asked("go")
    stage.terminal.screen = "> Type your message"
    monkeypatch.setattr(observation.AGENTS, "screen_of", lambda _: QwenScreen())
    monkeypatch.setattr(stage.around.clock, "now", lambda: moment(LATER) + after)

    assert expected == look(stage).status


@pytest.mark.parametrize("prompt", ["go", ""])
def test_a_question_on_the_screen_is_what_it_waits_for(world, shop, prompt):
    stage = Stage(world, shop, prompt=prompt)
    stage.terminal.screen = agent_screens.CLAUDE_TRUST

    seen = look(stage)

    assert ("waiting", True, ("1", "2")) == (seen.status, seen.settled, seen.question.options)
    assert "trust" in seen.waiting_for


def test_secrets_in_a_question_are_masked(stage):
    stage.terminal.screen = agent_screens.CODEX_PERMISSION.replace("May I", "AKIAIOSFODNN7EXAMPLE ghp_" + "a1B2" * 9)

    assert "a1B2a1B2" not in look(stage).waiting_for


def test_one_that_is_done_is_not_asked_for_its_screen(stage):
    """Later input in its terminal is the person's own."""
    stage.asked("go")
    stage.said("Done")
    stage.terminal.screen = agent_screens.CLAUDE_TRUST

    assert "idle" == look(stage).status


def test_a_model_that_cannot_be_reached_needs_a_person(stage):
    stage.asked("go")
    stage.said("Not logged in · Please run /login", reason="stop_sequence")
    stage.records[-1]["isApiErrorMessage"] = True
    stage.write()

    assert "Not logged in · Please run /login" == look(stage).waiting_for


def test_a_text_is_the_last_word_when_nothing_follows_for_a_while(stage):
    stage.asked("go")
    stage.said("Done", reason=None)
    written = stage.log.stat().st_mtime

    stage.clock.time = written + 1
    assert "working" == look(stage).status
    stage.clock.time = written + observation.SETTLED_SECONDS
    assert "idle" == look(stage).status


def test_a_window_that_was_closed_is_noted_as_ended(stage):
    """R-042."""
    stage.terminal.close()

    seen = look(stage)

    assert ("ended", "Its window was closed.", True) == (seen.state, seen.said, seen.settled)
    assert "ended" == stage.worker.state


def test_one_that_was_started_again_meanwhile_is_not_noted_as_ended(stage):
    stage.terminal.close()
    with Registry() as registry:
        old = registry.get(stage.id)
        registry.set_started(stage.id, command=("claude",), terminal_id=PANE, pid=7)
        WorkerReader(stage.around).look(old, registry)

    assert "running" == stage.worker.state


def test_without_a_terminal_it_works_until_it_ends(world, shop):
    stage = Stage(world, shop, "process")
    stage.asked("go")
    stage.said("Done")

    assert ("running", "working") == (look(stage).state, look(stage).status)
    stage.terminal.living = False
    seen = look(stage)
    assert ("ended", "What it printed last") == (seen.state, seen.said)


def test_one_that_is_just_being_started_has_not_ended_before_it_was_given_up(stage):
    with Registry() as registry:
        begun = registry.add("claude", source_session_id="", place="tmux", cwd=stage.cwd, now=stage.clock.now())
        seen = WorkerReader(stage.around).look(begun, registry)
        stage.clock.time += STARTING_SECONDS + 1
        late = WorkerReader(stage.around).look(begun, registry)

    assert ("starting", "", "failed") == (seen.state, seen.status, late.state)


def test_a_terminal_that_is_just_becoming_the_agent_has_not_ended(world, shop):
    stage = Stage(world, shop, "here")
    stage.terminal.worker_id = "claude-1"  # whoever started the command that becomes it

    stage.clock.time = STARTED + 1
    assert "running" == look(stage).state
    stage.clock.time = STARTED + BECOMING_SECONDS
    assert "ended" == look(stage).state


def test_a_terminal_that_became_an_agent_which_has_ended_is_not_shown_as_running(world, shop):
    stage = Stage(world, shop, "here")
    stage.terminal.living = False
    stage.clock.time = STARTED + 1

    assert "ended" == look(stage).state


def test_a_place_that_is_not_known_here_is_listed_all_the_same(world, shop):
    """R-044."""
    assert "running" == look(Stage(world, shop, "moon")).state


def test_a_log_that_has_not_changed_is_not_read_again(stage, monkeypatch):
    read = []
    monkeypatch.setattr(Tail, "activity", lambda *about: read.append(about) or Activity("idle"))
    watcher = WorkerReader(stage.around)

    look(stage, watcher)
    look(stage, watcher)
    assert 1 == len(read)
    stage.asked("more")
    look(stage, watcher)
    assert 2 == len(read)


def test_a_log_that_is_gone_says_nothing(stage):
    watcher = WorkerReader(stage.around)
    look(stage, watcher)
    stage.log.unlink()

    assert "working" == look(stage, watcher).status
