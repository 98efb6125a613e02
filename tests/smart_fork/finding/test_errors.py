"""Tests of fixes: the actions that ended an error in earlier sessions, from real logs, within the repository."""

from __future__ import annotations

import io
import json

import pytest

from indexer.safe_files import index_db
from indexer.session_work import MAX_STEPS
from indexer.store.sqlite import Store
from smart_fork.errors import Usage
from smart_fork.finding.error_fixes import Signs
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.searches import opened
from tests.smart_fork.world import Did

PORT = "error: widgetBackend refused the handshake on port {}"
ERROR = PORT.format(99)


def bash(command: str, result: str = "ok", *, failed: bool = False) -> Did:
    return Did("Bash", {"command": command}, result, failed=failed)


def broke(command: str = "tool test", port: int = 1, *more: str) -> Did:
    return bash(command, "\n".join(["Exit code 1", PORT.format(port), *more]), failed=True)


def edited(name: str) -> Did:
    return Did("Edit", {"file_path": name, "old_string": "a", "new_string": "b"})


def asked(world, shop, error: str = ERROR, **more):
    with opened(Engine(world.model), shop, caller=more.pop("caller", None)) as library:
        return library.fix(FindRequest("", agent_type="all", error=error, **more))


def ended(world, shop, *steps: str | Did) -> tuple[str, ...]:
    world.worked("claude", shop, "> test the widget please", *steps)
    return next((one.ended_by for one in asked(world, shop).fixes), ())


def test_the_edit_before_the_command_ran_well_ended_it(world, shop):
    file = str(shop / "widget.py")

    assert ("edit widget.py",) == ended(world, shop, broke(), edited(file), bash("tool test"))


def test_a_command_that_changes_something_ended_it(world, shop):
    done = ended(
        world, shop, broke(), bash("ls -l"), bash("tool install backend"), bash("git status"), bash("tool test")
    )

    assert ("run tool install backend",) == done


def test_the_command_run_another_way_ended_it(world, shop):
    assert ("run tool test widgets",) == ended(
        world, shop, broke("wrapper tool test widgets"), bash("tool test widgets")
    )


def test_another_error_ends_it_as_well(world, shop):
    other = bash("tool test", "Exit code 1\nerror: chartBackend is unknown", failed=True)

    assert ("run tool install backend",) == ended(world, shop, broke(), bash("tool install backend"), other)


def test_the_last_time_counts(world, shop):
    done = ended(
        world, shop, broke(), bash("tool install old"), broke(port=2), bash("tool install new"), bash("tool test")
    )

    assert ("run tool install new",) == done


@pytest.mark.parametrize(
    "steps",
    [
        (broke(), bash("tool install backend")),
        (broke(), bash("tool test")),
        (broke(), bash("tool install backend"), bash("tool test | tail")),
        (broke(), bash("tool install backend"), bash("other test")),
        (broke(), bash("tool install backend"), *[bash("other test")] * MAX_STEPS, bash("tool test")),
        (bash("rg widget", "Exit code 2\n" + ERROR, failed=True), edited("a.py"), bash("rg widget")),
        (bash("tool test", "The user doesn't want to. " + ERROR, failed=True), edited("a.py"), bash("tool test")),
    ],
    ids=["never again", "by itself", "a hidden status", "another command", "too late", "a search", "not run"],
)
def test_nothing_is_said_to_have_ended_it(world, shop, steps):
    assert () == ended(world, shop, *steps)


def test_what_is_printed_when_all_is_well_is_no_error(world, shop):
    fails = bash("pytest", "Exit code 1\nerror: noisyWidget in a log\nE chartBackend is missing", failed=True)
    passes = bash("pytest", "error: noisyWidget in a log\n3 passed in 0.1s")
    world.worked("claude", shop, "> test", fails, edited("a.py"), passes)

    noise, error = asked(world, shop, "error: noisyWidget in a log"), asked(world, shop, "E chartBackend is missing")
    assert [(0, 0, 0), (1, 1, 1)] == [(one.lines, one.met, one.count) for one in (noise, error)]


def test_codex_sessions_are_asked_as_well(world, shop):
    failed = Did("shell_command", {"command": "tool test"}, f"Exit code: 1\nWall time: 1 s\nOutput:\n{PORT.format(3)}")
    install, again = (
        Did("shell_command", {"command": one}, "Exit code: 0\nWall time: 1 s\nOutput:\nok")
        for one in ("tool install x", "tool test")
    )
    session = world.worked("codex", shop, "> test the widget", failed, install, again, "Done.")

    (found,) = asked(world, shop).fixes

    assert (session, "codex", ("run tool install x",)) == (found.session_id, found.agent_type, found.ended_by)


def test_what_several_sessions_did_is_likelier_and_comes_first(world, shop):
    world.worked("claude", shop, "> test", broke(), edited("a.py"), bash("tool test"))
    for _ in range(2):
        world.worked("claude", shop, "> test again", broke(), bash("tool install backend"), bash("tool test"))

    found = asked(world, shop)

    assert [("run tool install backend",)] * 2 + [("edit a.py",)] == [one.ended_by for one in found.fixes]
    assert found.fixes[0].score > 0.8
    assert found.fixes[2].score < 0.5
    assert 3 == found.met


def test_a_part_of_the_lines_says_less(world, shop):
    world.worked("claude", shop, "> test", broke(), bash("tool install backend"), bash("tool test"))

    whole, part = (
        asked(world, shop, said).fixes[0].score
        for said in (ERROR, f"{ERROR}\nerror: chartBackend is gone\nerror: axisMaker is gone")
    )

    assert part < 0.5 < whole


def test_neither_the_caller_nor_its_forks_nor_another_repository_answers(world, shop):
    steps = ("> test", broke(), bash("tool install backend"), bash("tool test"), "Done.")
    session = world.worked("claude", shop, *steps)
    world.worked("claude", shop, "> go on", "yes", of=session)
    world.worked("claude", world.repository("other"), *steps)

    assert () == asked(world, shop, caller=session).fixes
    assert 1 == len(asked(world, shop).fixes)


def test_a_forgotten_session_leaves_no_error_behind(world, shop):
    session = world.worked("claude", shop, "> test", broke(), bash("tool install backend"), bash("tool test"))
    assert 1 == len(asked(world, shop).fixes)
    store = Store(index_db())
    blobs = [blob for row in store.db.execute("SELECT line, by FROM errors") for blob in row]
    store.forget_session("claude", session)
    assert store.erase()
    store.close()

    assert () == asked(world, shop).fixes
    assert 2 == len(blobs)
    assert not any(blob in path.read_bytes() for blob in blobs for path in index_db().parent.glob("index.db*"))


def test_a_turn_that_is_cut_out_leaves_no_error_behind(world, shop):
    session = world.worked("claude", shop, "> test", broke(), bash("tool install backend"), bash("tool test"), "Done.")
    assert 1 == len(asked(world, shop).fixes)
    store = Store(index_db())
    blobs = [blob for row in store.db.execute("SELECT line, by FROM errors") for blob in row]
    world.write_claude(session, shop, world.claude_records(session, shop, "paint the chart", "It is painted."))

    assert (0, ()) == ((found := asked(world, shop)).met, found.fixes)
    assert store.erase()
    store.close()
    assert not any(blob in path.read_bytes() for blob in blobs for path in index_db().parent.glob("index.db*"))


def test_a_session_that_is_read_on_knows_what_one_that_is_read_again_knows(world, shop):
    session = world.worked("claude", shop, "> test", broke(), "Hm.")
    assert (1, ()) == (asked(world, shop).met, asked(world, shop).fixes)
    begun = world.log_of(session).read_text()
    whole = world.worked("claude", shop, "> test", broke(), "Hm.", bash("tool install backend"), bash("tool test"))
    more = world.log_of(whole).read_text().replace(whole, session).splitlines(keepends=True)[len(begun.splitlines()) :]
    first = json.loads(more[0]) | {"parentUuid": json.loads(begun.splitlines()[-1])["uuid"]}
    with world.log_of(session).open("a") as file:
        file.writelines([json.dumps(first) + "\n", *more[1:]])

    assert 2 == len(asked(world, shop).fixes)


def test_the_command_says_what_ended_it(world, shop, run, monkeypatch):  # noqa: F811
    session = world.worked(
        "claude", shop, "> test the widget", broke(), bash("tool install backend"), bash("tool test")
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(PORT.format(7)))

    shown = run("fix")

    assert (0, f"smart-fork fork {session[:8]} starts an agent that knows it\n") == (shown.code, shown.err)
    assert "73 % test the widget" in shown.out
    assert "    ended by: run tool install backend\n" in shown.out


def test_the_command_forks_after_the_exchange_that_ended_it(world, shop, run, monkeypatch):  # noqa: F811
    steps = "> test the widget", broke(), bash("tool install backend"), bash("tool test"), "Works.", "> bye", "Bye."
    session = world.worked("claude", shop, *steps)
    monkeypatch.setattr("sys.stdin", io.StringIO(PORT.format(7)))

    assert f"smart-fork fork {session[:8]} --at 7 starts an agent that knows it\n" == run("fix").err


@pytest.mark.parametrize(
    ("said", "code", "sentence"),
    [
        ("", 2, "error: there is no error on standard input"),
        ("bash: rg: command not found", 3, "No line of this is one error's own."),
        ("error: axisMaker is gone", 3, "No session met this error."),
        (ERROR, 3, "1 session met this error, and none ended it."),
    ],
)
def test_the_command_says_why_it_has_no_answer(world, shop, run, monkeypatch, said, code, sentence):  # noqa: F811, PLR0917
    world.worked("claude", shop, "> test the widget", broke(), "Hm.")
    monkeypatch.setattr("sys.stdin", io.StringIO(said))

    shown = run("fix")

    assert code == shown.code
    assert sentence in shown.err


def test_an_error_is_needed(world, shop):
    with pytest.raises(Usage, match="no error"):
        asked(world, shop, " \n")


def test_the_more_speaks_for_it_the_likelier_it_is():
    signs = [Signs(0.2, 1), Signs(0.6, 1), Signs(1, 1), Signs(1, 2), Signs(1, 9)]

    assert sorted(signs, key=Signs.chance) == signs
    assert all(one._replace(edit=True).chance() < one.chance() for one in signs)
