"""Tests of messages to running workers, and to ended workers without a terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smart_fork.agents import AGENTS
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed, Usage
from smart_fork.system.processes import Running
from smart_fork.workers import messages
from smart_fork.workers.messages import message_worker, resume_plan, typed_text
from smart_fork.workers.registry import Registry, WorkerRecord
from tests.smart_fork import agent_screens
from tests.smart_fork.fake_tmux import LATEST, PANE, PID, Script, Stage
from tests.smart_fork.forks import NEW


@pytest.fixture
def stage(world, shop) -> Stage:
    """Return an idle worker that writes each submitted message to its log."""
    stage = Stage(world, shop, clock=Script())
    stage.asked("go")
    stage.said("Done")
    stage.terminal.on_key = lambda _key: stage.asked("typed", LATEST)
    return stage


def say(stage: Stage, text: str, **how: Any) -> dict:
    return message_worker(stage.id, text, around=stage.around, **how).as_json()


def test_it_is_pasted_and_sent_off(stage):
    told = say(stage, "and the tests")

    assert (["and the tests"], ["Enter"]) == (stage.terminal.pasted, stage.terminal.keys)
    assert ("typed", [], stage.id, stage.session, "working") == tuple(
        told[key] for key in ("how", "warnings", "worker_id", "session_id", "status")
    )


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("/exit", " /exit"),
        ("!rm -rf /", " !rm -rf /"),
        ("# note", " # note"),
        ("--help", " --help"),
        ("-x\nand more", " -x\nand more"),
        ("end the paste \x1b[201~\r/exit\r", "end the paste [201~\n/exit"),
        ("tab\there\r\nnext\x00\x9b", "tab\there\nnext"),
        ("a line that goes on \\", "a line that goes on \\ "),
        ("look at @src/a.py", "look at @src/a.py "),
        ("👩‍💻 codes on", " 👩‍💻 codes on"),
    ],
)
def test_whatever_it_is_it_is_words(text, typed):
    """No text is an agent's command or ends the paste, and Enter submits it."""
    assert typed == typed_text(text)


@pytest.mark.parametrize("text", ["", " \n", "\x00\x1b", "x" * 100_001])
def test_nothing_and_too_much_are_refused(stage, text):
    with pytest.raises(Usage):
        say(stage, text)
    assert [] == stage.terminal.pasted


def test_one_that_works_is_not_disturbed_unless_it_shall_take_it_up_later(stage):
    stage.asked("more", LATEST)

    with pytest.raises(ForkRefused, match="is working") as caught:
        say(stage, "hello")
    assert "--queue" in caught.value.hint
    assert [] == stage.terminal.pasted
    assert "queued" == say(stage, "hello", queue=True)["how"]
    assert ([" hello"], ["Enter"]) == (stage.terminal.pasted, stage.terminal.keys)


def test_an_agent_that_queues_messages_itself_is_asked_with_the_worker_s_session(stage, monkeypatch):
    asked = []
    queue = lambda _agent, session, text, _running: asked.append((session, text)) or ()  # noqa: E731
    monkeypatch.setattr(type(AGENTS["claude"].processes), "queue", queue)

    say(stage, "and the tests")

    assert [(stage.session, "and the tests")] == asked


def test_a_message_that_does_not_arrive_is_told(stage):
    stage.terminal.on_key = lambda _key: None

    told = say(stage, "hello")

    assert ["It is not in its log after 30 seconds. See: look here"] == told["warnings"]


def test_enter_waits_until_what_was_pasted_is_there(stage):
    stage.terminal.on_key = lambda _key: None
    load = stage.terminal.run

    def slow(argv, **more):
        before = stage.terminal.screen
        if "send-keys" in argv:
            assert before.endswith("hello there")
        done = load(argv, **more)
        if "load-buffer" in argv:
            later, stage.terminal.screen = stage.terminal.screen, before
            stage.clock.happens = [lambda: None, lambda: setattr(stage.terminal, "screen", later)]
        return done

    stage.terminal.run = slow
    say(stage, "hello there")

    assert ["Enter"] == stage.terminal.keys


def test_what_a_program_that_is_just_starting_throws_away_is_typed_again(stage):
    stage.terminal.lost = 1

    assert [] == say(stage, "hello there")["warnings"]
    assert (["hello there"] * 2, ["Enter"]) == (stage.terminal.pasted, stage.terminal.keys)


def test_what_never_appears_is_not_sent_off(stage):
    stage.terminal.lost = 99

    with pytest.raises(ProgramFailed, match="does not accept the typed text"):
        say(stage, "hello there")
    assert [] == stage.terminal.keys


@pytest.mark.parametrize("queue", [False, True])
def test_enter_is_pressed_again_while_the_words_still_stand_there(stage, queue):
    if queue:
        stage.asked("more", LATEST)
    arrived = stage.terminal.run

    def busy(argv, **more):
        if "send-keys" in argv and not stage.terminal.keys:
            stage.terminal.lost = 1
        return arrived(argv, **more)

    stage.terminal.run = busy
    assert [] == say(stage, "hello there", queue=queue)["warnings"]
    assert (["hello there"], ["Enter"] * 2) == (stage.terminal.pasted, stage.terminal.keys)


def test_enter_is_not_pressed_into_what_is_asked_meanwhile(stage):
    stage.terminal.on_key = lambda _key: setattr(stage.terminal, "screen", agent_screens.CLAUDE_PERMISSION)

    assert say(stage, "hello there")["warnings"]
    assert ["Enter"] == stage.terminal.keys


def test_a_question_is_shown_and_nothing_is_typed_into_it(stage):
    stage.asked("more", LATEST)
    stage.terminal.screen = agent_screens.CLAUDE_PERMISSION

    with pytest.raises(ForkRefused, match=r"touch /etc/made_by_me") as caught:
        say(stage, "1", queue=True)

    assert "--answer" in caught.value.hint
    assert ([], []) == (stage.terminal.pasted, stage.terminal.keys)


def test_an_answer_is_one_of_the_options(stage):
    stage.asked("more", LATEST)
    stage.terminal.screen = agent_screens.CLAUDE_PERMISSION
    stage.terminal.on_key = lambda _key: setattr(stage.terminal, "screen", agent_screens.CLAUDE_WORKING)

    for wrong in ("4", "yes", "1\n1", ""):
        with pytest.raises(Usage, match="It asks: Bash command"):
            say(stage, wrong, answer=True)
    with pytest.raises(ForkRefused, match="question has changed"):
        say(stage, "1", answer=True, meant=lambda asked: "made_by_me" not in asked)
    assert [] == stage.terminal.keys
    told = say(stage, " 1 ", answer=True, meant=lambda asked: "made_by_me" in asked)

    assert ("answered", [], None) == (told["how"], told["warnings"], told["waiting_for"])
    assert (["1"], []) == (stage.terminal.keys, stage.terminal.pasted)


def test_where_a_number_only_marks_an_option_enter_chooses_it(stage):
    stage.asked("more", LATEST)
    stage.terminal.screen = agent_screens.CODEX_TRUST
    keys = {"1": agent_screens.CODEX_TRUST, "Enter": agent_screens.CODEX_IDLE}
    stage.terminal.on_key = lambda key: setattr(stage.terminal, "screen", keys[key])

    assert [] == say(stage, "1", answer=True)["warnings"]
    assert ["1", "Enter"] == stage.terminal.keys


def test_a_number_that_does_not_arrive_chooses_nothing_else(stage):
    """Enter would otherwise accept what the person refused."""
    stage.asked("more", LATEST)
    stage.terminal.screen = agent_screens.CODEX_PERMISSION
    stage.terminal.lost = 1

    assert ["It still asks the same. See: look here"] == say(stage, "3", answer=True)["warnings"]
    assert ["3"] == stage.terminal.keys


def test_an_option_that_a_number_has_marked_is_chosen(stage):
    stage.asked("more", LATEST)
    stage.terminal.screen = agent_screens.CODEX_TRUST
    marked = agent_screens.CODEX_TRUST.replace("› 1.", "  1.").replace("  2.", "› 2.")
    keys = {"2": marked, "Enter": agent_screens.CODEX_IDLE}
    stage.terminal.on_key = lambda key: setattr(stage.terminal, "screen", keys[key])

    assert [] == say(stage, "2", answer=True)["warnings"]
    assert ["2", "Enter"] == stage.terminal.keys


def test_an_option_without_a_number_is_chosen_by_arrows(stage):
    stage.asked("more", LATEST)
    stage.terminal.screen = no = agent_screens.CLAUDE_TRUST_BY_ARROWS
    yes = no.replace(" ❯ No", "   No").replace("   Yes", " ❯ Yes")
    keys = {"Down": yes, "Enter": agent_screens.CLAUDE_IDLE}
    stage.terminal.on_key = lambda key: setattr(stage.terminal, "screen", keys[key])

    assert [] == say(stage, "2", answer=True)["warnings"]
    assert ["Down", "Enter"] == stage.terminal.keys


@pytest.mark.thorough
def test_an_option_that_no_arrow_reaches_is_not_chosen(stage):
    stage.asked("more", LATEST)
    stage.terminal.screen = agent_screens.CLAUDE_TRUST_BY_ARROWS
    stage.terminal.on_key = lambda _key: None

    assert ["It still asks the same. See: look here"] == say(stage, "2", answer=True)["warnings"]
    assert {"Down"} == set(stage.terminal.keys)


def test_an_answer_that_changes_nothing_is_told(stage):
    stage.asked("more", LATEST)
    stage.terminal.screen = agent_screens.CODEX_TRUST
    stage.terminal.on_key = lambda _key: None

    assert ["It still asks the same. See: look here"] == say(stage, "1", answer=True)["warnings"]


def test_where_nothing_is_asked_nothing_is_answered(stage):
    with pytest.raises(ForkRefused, match="has no question"):
        say(stage, "1", answer=True)
    assert [] == stage.terminal.keys


def test_a_terminal_that_has_ended_is_started_again_by_other_means(stage):
    stage.terminal.close()

    with pytest.raises(ForkRefused, match="has ended") as caught:
        say(stage, "hello")
    assert f"smart-fork resume {stage.session}" in caught.value.hint


@pytest.mark.parametrize("writes", [False, True])
def test_one_that_ends_on_a_message_is_an_error(stage, writes):
    """Causes: an error of its model, or a command of its own that ends it."""

    def end(_key: str) -> None:
        if writes:
            stage.asked("hello", LATEST)
        stage.terminal.living, stage.terminal.state = False, f"{PANE} {PID} 1 1"
        stage.terminal.screen = "No connection"

    stage.terminal.on_key = end

    with pytest.raises(ProgramFailed, match=f"{stage.id} ended on this message: No connection"):
        say(stage, "hello")

    assert stage.worker.state == "ended"
    assert stage.clock.slept < 1


def test_one_that_is_just_being_started_is_left_alone(stage):
    with Registry() as registry:
        registry.set_state(stage.id, "starting")

    with pytest.raises(ForkRefused, match="just being started"):
        say(stage, "hello")


@pytest.fixture
def headless(world, shop) -> Stage:
    """Return an ended worker without a terminal, which can be resumed."""
    stage = Stage(world, shop, "process")
    stage.asked("go")
    stage.said("Done")
    stage.terminal.living = False
    stage.terminal.on_start = lambda _call: stage.asked("more", LATEST)
    return stage


def test_without_a_terminal_the_same_session_is_taken_up_again_as_the_same_worker(headless):
    told = say(headless, "--help me\nplease")

    (call,) = headless.terminal.started
    program = str(headless.world.home / "bin/claude")
    assert (program, "--resume", headless.session, "-p", "--output-format", "json", "--", " --help me\nplease") == call["argv"]  # fmt: skip
    assert (headless.cwd, headless.id) == (call["cwd"], call["env"]["SMART_FORK_WORKER_ID"])
    assert ("resumed", "running", headless.id) == (told["how"], told["state"], told["worker_id"])
    worker = headless.worker
    assert (PID, call["argv"], headless.session) == (worker.pid, worker.command, worker.session_id)


def test_a_session_that_a_person_has_opened_since_is_not_taken_up_again(headless):
    headless.terminal.running = lambda: {77: Running(["claude", "--resume", headless.session], 1.0, 1)}

    with pytest.raises(ForkRefused, match="open elsewhere: process 77 has it open"):
        say(headless, "more")
    assert not headless.terminal.started


def test_one_that_is_just_ending_is_not_overtaken(headless):
    """Its hook may report the end before the process has ended."""
    with Registry() as registry:
        registry.set_state(headless.id, "ended")
    headless.terminal.living = True
    headless.clock.happens = [lambda: None, lambda: setattr(headless.terminal, "living", False)]
    headless.terminal.on_start = lambda _call: headless.asked(f"after {len(headless.clock.sleeps)}", LATEST)

    assert "resumed" == say(headless, "more")["how"]
    assert "after 2" == headless.records[-1]["message"]["content"]


def test_without_a_terminal_it_hears_nothing_while_it_works(headless):
    headless.terminal.living = True

    with pytest.raises(ForkRefused, match="before it ends") as caught:
        say(headless, "hello", queue=True)
    assert f"smart-fork wait {headless.id}" in caught.value.hint
    assert [] == headless.terminal.started


def test_one_that_cannot_go_on_has_ended(headless):
    headless.terminal.on_start = lambda _call: setattr(headless.terminal, "living", False)

    with pytest.raises(ProgramFailed, match="could not continue: Something went wrong"):
        say(headless, "hello")
    assert "ended" == headless.worker.state


def test_what_it_may_do_without_asking_stays(headless, shop):
    """A message grants no permission, and removes none."""
    flag = "--dangerously-skip-permissions"
    assert flag not in resume_plan(headless.worker, "claude", flag).argv[:-1]
    with Registry() as registry:
        worker = registry.add(
            "claude", source_session_id="x", session_id=NEW, place="process", cwd=shop,
            permission_mode="bypassPermissions", depth=3,
        )  # fmt: skip

    plan = resume_plan(worker, "claude", "hello")

    assert ("claude", "--resume", NEW, flag, "-p", "--output-format", "json", "--", " hello") == plan.argv
    assert {"SMART_FORK_DEPTH": "3", "SMART_FORK_WORKER_ID": worker.id} == plan.env


def test_one_that_goes_on_from_a_teammates_session_asks_when_it_is_taken_up_again(headless, shop):
    with Registry() as registry:
        worker = registry.add(
            "claude",
            source_session_id="x",
            session_id=NEW,
            place="process",
            cwd=shop,
            permission_mode=WorkerRecord.ASKED,
        )

    plan = resume_plan(worker, "claude", "hello")

    asking = ("--permission-mode", "default")
    assert ("claude", "--resume", NEW, *asking, "-p", "--output-format", "json", "--", " hello") == plan.argv


def test_codex_is_taken_up_again_in_its_directory(world, shop):
    session = world.codex(shop, "go", "Done")
    with Registry() as registry:
        worker = registry.add("codex", source_session_id="x", session_id=session, place="process", cwd=shop)

    assert ("codex", "exec", "-C", str(shop), "resume", session, "--", " more") == resume_plan(
        worker, "codex", "more"
    ).argv


def test_one_whose_session_is_not_known_cannot_be_taken_up_again(world, shop):
    with Registry() as registry:
        worker = registry.add("codex", source_session_id="x", place="process", cwd=shop)
    with pytest.raises(ForkRefused, match=f"The session of {worker.id} is not known"):
        resume_plan(worker, "codex", "more")


def test_two_who_talk_to_the_same_worker_take_turns(stage, monkeypatch):
    monkeypatch.setattr(messages, "TURN_SECONDS", 0.01)
    with messages._in_turn(stage.worker), pytest.raises(ForkRefused, match="Another process is talking"):
        say(stage, "hello")
    assert "typed" == say(stage, "hello")["how"]


def test_nobody_is_told_what_was_meant_for_another(stage):
    with pytest.raises(NotFound):
        message_worker("codex-1", "hello", around=stage.around)
    stage.terminal.worker_id = "claude-1"  # the process of that number is another one now

    with pytest.raises(ForkRefused, match="has ended"):
        say(stage, "hello")
    assert ([], []) == (stage.terminal.pasted, stage.terminal.keys)
    assert json.dumps(stage.worker.command) == '["claude"]'
