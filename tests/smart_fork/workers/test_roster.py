"""Tests of listing workers and of reading their messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexer.json_values import json_of
from indexer.project import project_of
from smart_fork.errors import NotFound, Usage
from smart_fork.workers.comparison import compare
from smart_fork.workers.observation import (
    ANSWERED_SECONDS,
    MESSAGE_CHARACTERS,
    READ_CHARACTERS,
    WorkerReader,
    list_workers,
    read_worker,
    wait_workers,
)
from smart_fork.workers.registry import Registry
from smart_fork.workers.termination import close_workers
from tests.smart_fork.fake_tmux import LATER, LATEST, PANE, PID, STARTED, USAGE, Stage


@pytest.fixture
def stage(world, shop) -> Stage:
    return Stage(world, shop)


def ids(stage: Stage, *where: object, **how: object) -> list[str | None]:
    project = where[0] if where else project_of(stage.cwd)
    return [one.worker_id for one in list_workers(project, around=stage.around, **how)]


def test_both_ids_and_what_it_does_are_told(stage):
    """R-004, R-067."""
    (one,) = json_of(list_workers(project_of(stage.cwd), around=stage.around))

    assert (stage.id, stage.session, "claude", "fixer", "go") == tuple(
        one[key] for key in ("worker_id", "session_id", "agent_type", "name", "prompt")
    )
    assert ("running", "working", PANE, "look here") == tuple(
        one[key] for key in ("state", "status", "terminal_id", "attach")
    )


def test_newest_first_of_the_project_and_all_its_worktrees(world, shop, stage):
    """R-067, R-068."""
    elsewhere = Stage(world, world.repository("depot"), pid=PID + 1)
    inside = Stage(world, shop / ".worktrees" / "fix", pid=PID + 2)
    stage.terminal.others = {PID + 1: elsewhere.id, PID + 2: inside.id}

    assert [inside.id, stage.id] == ids(stage, agent="claude")
    assert [inside.id, elsewhere.id, stage.id] == ids(stage, None)
    assert [] == ids(stage, agent="codex")
    with pytest.raises(Usage, match=r'agent_type must be .* not "nobody"'):
        ids(stage, agent="nobody")


def test_a_worker_of_an_agent_that_is_not_known_is_shown_as_what_it_is(stage):
    """Another version of smart-fork has started it; its log cannot be read."""
    with Registry() as registry:
        registry._db.execute("UPDATE workers SET agent = 'nobody' WHERE id = ?", (stage.id,))
    (one,) = json_of(list_workers(project_of(stage.cwd), around=stage.around))

    assert ("nobody", "running", "look here") == (one["agent_type"], one["state"], one["attach"])
    assert [] == ids(stage, agent="both")
    assert [] == read_worker(stage.id, around=stage.around).as_json()["messages"]
    (compared,) = compare([stage.id], stage.around.processes)
    assert "What nobody writes cannot be read" in compared.notes
    stage.terminal.close()
    assert [] == ids(stage)


def test_those_that_have_ended_are_shown_when_asked_for(stage):
    """R-045; one that is only now found to have ended is hidden too."""
    stage.terminal.close()

    assert [] == ids(stage)
    (one,) = json_of(list_workers(None, include_closed=True, around=stage.around))
    assert ("ended", None) == (one["state"], one["status"])


@pytest.mark.parametrize("noted", [True, False])
def test_a_fork_in_a_process_that_has_answered_is_shown_until_it_is_closed(world, shop, noted):
    """A process ends with its answer, which the person wants to see."""
    stage = Stage(world, shop, place="process")
    stage.terminal.close()
    if noted:
        with Registry() as registry:
            registry.set_state(stage.id, "ended", now=STARTED)

    (one,) = json_of(list_workers(project_of(stage.cwd), around=stage.around))
    assert (stage.id, "ended", stage.session) == (one["worker_id"], one["state"], one["session_id"])

    close_workers([stage.id], around=stage.around)
    assert [] == ids(stage)
    assert [stage.id] == ids(stage, include_closed=True)


@pytest.mark.parametrize("why", ["long ago", "failed", "no fork", "resumed"])
def test_what_has_ended_otherwise_in_a_process_is_hidden(world, shop, why):
    stage = Stage(world, shop, place="process")
    stage.terminal.close()
    with Registry() as registry:
        registry.set_state(stage.id, "failed" if why == "failed" else "ended", now=STARTED)
        if why == "no fork":
            registry._db.execute("UPDATE workers SET kind = 'new'")
        if why == "resumed":
            later = registry.add("claude", source_session_id=stage.session, place="tmux", cwd=shop, kind="resume")
            registry.set_session_id(later.id, stage.session)
            registry.set_state(later.id, "ended")
    if why == "long ago":
        stage.clock.time += ANSWERED_SECONDS

    assert [] == ids(stage)


def test_windows_that_somebody_else_opened_have_no_ids(stage, monkeypatch):
    """R-069."""
    rows = [f"\t{PANE}\t{PID}\tsmart-fork-shop\t{stage.cwd}\tfixer", f"\t%9\t8\tsmart-fork-shop\t{stage.cwd}\tmi\x1bne", "\t%10\t9\tmain\t/\tx"]  # fmt: skip
    run = stage.terminal.run

    def with_windows(argv, **more):
        done = run(argv, **more)
        return done if "list-panes" not in argv else type(done)(done.argv, 0, "\n".join(rows).encode(), b"")

    stage.terminal.run = with_windows
    (stage.world.home / "bin/tmux").write_text("")
    (stage.world.home / "bin/tmux").chmod(0o755)

    ours, other = json_of(list_workers(project_of(stage.cwd), around=stage.around))

    assert stage.id == ours["worker_id"]
    assert (None, None, "?", "%9", "mine") == tuple(
        other[key] for key in ("worker_id", "session_id", "agent_type", "terminal_id", "name")
    )
    assert "smart-fork-shop" in other["attach"]
    assert [stage.id] == ids(stage, agent="claude")


@pytest.mark.parametrize("reference", ["id", "session", "prefix", "name", "terminal"])
def test_every_way_of_naming_it_finds_it(stage, reference):
    """R-005."""
    names = {"id": stage.id, "session": stage.session, "prefix": stage.session[:8], "name": "fixer", "terminal": PANE}

    assert stage.id == read_worker(names[reference], around=stage.around).as_json()["worker_id"]


def test_only_its_own_words_are_read(stage):
    """F-105: numbered as in its session."""
    assert [] == read_worker(stage.id, around=stage.around).as_json()["messages"]
    stage.asked("go")
    stage.said("Done")

    read = read_worker(stage.id, around=stage.around).as_json()

    assert [(2, "user", "go"), (3, "assistant", "Done")] == [
        (m["number"], m["role"], m["text"]) for m in read["messages"]
    ]
    assert 0 == read["earlier"]


def test_what_its_first_answer_took_is_told_wherever_it_is_shown(stage):
    stage.asked("go")
    assert "first_answer" not in read_worker(stage.id, around=stage.around).as_json()
    stage.said("Done", id="one", usage=USAGE)
    stage.said("More", LATEST, id="two", usage=USAGE | {"output_tokens": 7})

    (listed,) = json_of(list_workers(project_of(stage.cwd), around=stage.around))
    waited = wait_workers([stage.id], around=stage.around).workers[0].as_json()
    read = read_worker(stage.id, around=stage.around).as_json()

    took = {"read_from_cache": 142_000, "written_to_cache": 1_100, "input": 4, "output": 20}
    assert [took] * 3 == [one["first_answer"] for one in (listed, waited, read)]


def test_a_worker_that_goes_on_with_the_session_of_another_has_a_first_answer_of_its_own(stage):
    stage.said("Done", id="one", usage=USAGE)
    with Registry() as registry:
        later = registry.add("claude", source_session_id=stage.session, place="tmux", cwd=stage.cwd, kind="resume", now=STARTED + 3_600)  # fmt: skip
        registry.set_session_id(later.id, stage.session)
        registry.set_session_id(stage.id, stage.session)
        both = [registry.get(stage.id), registry.get(later.id)]
        watch = WorkerReader(stage.around)
        tokens = [watch.look(replace(one, session_id=stage.session), registry).first_answer for one in both]

    assert [True, False] == [one is not None for one in tokens]


def test_the_last_exchanges_are_read(stage):
    for number in range(5):
        stage.asked(f"step {number}", LATER)
        stage.said(f"done {number}", LATEST)

    read = read_worker(stage.id, exchanges=2, around=stage.around).as_json()

    assert ["step 3", "done 3", "step 4", "done 4"] == [message["text"] for message in read["messages"]]
    assert 6 == read["earlier"]
    assert 10 == len(read_worker(stage.id, exchanges=99, around=stage.around).as_json()["messages"])
    with pytest.raises(Usage):
        read_worker(stage.id, exchanges=0, around=stage.around)


def test_what_is_read_is_bounded_and_without_secrets_or_control_characters(stage):
    secret = "ghp_" + "a1B2" * 9
    for _ in range(5):
        stage.asked("x" * 50_000)
    stage.asked(f"use {secret} \x1b[31mred")

    read = read_worker(stage.id, exchanges=9, around=stage.around).as_json()["messages"]

    assert sum(len(message["text"]) for message in read) < READ_CHARACTERS + 100
    assert all(len(message["text"]) < MESSAGE_CHARACTERS + 100 for message in read)
    assert secret not in read[-1]["text"]
    assert "\x1b" not in read[-1]["text"]


def test_what_codex_has_from_its_parent_is_not_its_own(world, shop):
    """F-105."""
    session = world.codex(shop, "what the parent was asked", "what the parent said")
    with Registry() as registry:
        worker = registry.add("codex", source_session_id="x", session_id=session, place="tmux", cwd=shop)

    assert [] == read_worker(worker.id).as_json()["messages"]


def test_a_worker_that_does_not_exist(home):
    with pytest.raises(NotFound, match="No such worker"):
        read_worker("claude-1")
