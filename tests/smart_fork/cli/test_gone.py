"""Prompts that Claude Code kept of sessions that it deleted: they are listed and found, but never forked."""

from __future__ import annotations

import json
import os

import pytest

from smart_fork.agents.claude import log_files
from smart_fork.errors import NotFound
from smart_fork.finding.session_lookup import locate
from smart_fork.workers.registry import Registry

RETRY, DONE = "add retry with backoff to the uploader", "The uploader retries five times"
GONE = "5f0c8b1e-0000-4000-8000-000000000001"
OTHER = "5f0c8b1e-0000-4000-8000-000000000002"


def keep(world, *lines: object) -> None:
    path = world.home / ".claude/history.jsonl"
    path.parent.mkdir(exist_ok=True)
    text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
    with path.open("a") as file:
        file.write(text)


def typed(text: str, project: object, session: str = GONE, moment: int = 1_767_225_600_000) -> dict:
    return {"display": text, "pastedContents": {}, "timestamp": moment, "project": str(project), "sessionId": session}


def gone(run, *command: str) -> list[dict]:
    return json.loads(run(*command, "--json").out).get("gone_prompts", [])


def test_they_are_listed_and_found_apart_from_sessions(run, world, shop):
    world.claude(shop, "draw the map", "drawn")
    keep(
        world,
        typed("add retry to the uploader with backoff", shop),
        typed("now the docs", shop, moment=1_767_225_700_000),
    )

    (listed,) = gone(run, "list")
    (found,) = gone(run, "find", RETRY)

    assert {
        "session_id": GONE, "agent_type": "claude", "project_path": str(shop), "prompted_at": "2026-01-01T00:01:40.000Z",
        "prompt": "now the docs", "prompts": 2,
    } == listed  # fmt: skip
    assert "add retry to the uploader with backoff" == found["prompt"]
    assert GONE not in {one["session_id"] for one in json.loads(run("list", "--json").out)["sessions"]}
    assert GONE not in {one["session_id"] for one in json.loads(run("find", RETRY, "--json").out)["results"]}
    for command in (("list",), ("find", RETRY)):
        done = run(*command)
        assert "Prompts of deleted sessions, which cannot be shown or forked:" in done.err
        assert "(2 prompts)" in done.out
        assert GONE[:8] not in done.out


def test_one_is_found_by_three_of_five_words(run, world, shop):
    world.claude(shop, "draw the map", "drawn")
    keep(world, typed("uploader retry backoff", shop), typed("uploader retry", shop, f"{GONE[:-1]}2"))

    assert [GONE] == [one["session_id"] for one in gone(run, "find", "uploader retry backoff jitter timeout")]


def test_the_newest_of_many_are_listed_the_newest_first(run, world, shop):
    world.claude(shop, "draw the map", "drawn")
    keep(
        world,
        *(typed(RETRY, shop, f"{GONE[:-1]}{number}", 1_767_225_600_000 + number) for number in (3, 1, 6, 2, 5, 4)),
    )

    assert [f"{GONE[:-1]}{number}" for number in (6, 5, 4, 3, 2)] == [one["session_id"] for one in gone(run, "list")]


def test_one_is_no_target(run, world, shop):
    world.claude(shop, "draw the map", "drawn")
    keep(world, typed(RETRY, shop))

    assert 0 != run("fork", GONE, "go on", "--dry-run").code
    with pytest.raises(NotFound):
        locate(GONE)


def test_known_and_forgotten_sessions_are_not_gone(run, world, shop):
    there = world.claude(shop, RETRY, DONE)
    indexed = world.claude(shop, f"{RETRY} again", DONE)
    forgotten = world.claude(shop, f"{RETRY} once more", DONE)
    world.find(RETRY, shop)
    run("forget", forgotten, "--yes")
    for one in (indexed, forgotten):
        world.log_of(one).unlink(missing_ok=True)
    new = world.claude(shop, f"{RETRY} now", DONE)
    keep(world, *(typed(RETRY, shop, one) for one in (there, indexed, forgotten, new)))

    assert [] == gone(run, "list") == gone(run, "find", RETRY)

    keep(world, typed(RETRY, shop))

    assert [GONE] == [one["session_id"] for one in gone(run, "list")]


def test_those_of_other_projects_are_not_told(run, world, shop):
    world.claude(shop, "draw the map", "drawn")
    other = world.repository("other")
    keep(world, typed(RETRY, other), typed(RETRY, shop / "src", f"{GONE[:-1]}2"))

    assert [f"{GONE[:-1]}2"] == [one["session_id"] for one in gone(run, "list")]
    assert 2 == len(gone(run, "list", "--all-projects")) == len(gone(run, "find", RETRY, "--all-projects"))
    assert [] == gone(run, "list", "--agent", "codex")


def test_secrets_and_escape_sequences_are_masked(run, world, shop):
    world.claude(shop, "draw the map", "drawn")
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    keep(world, typed(f"retry \x1b]0;owned\x07 with {secret} {'long ' * 200}", shop))

    for command in ("list", "find"):
        (one,) = gone(run, command, *(["retry"] if command == "find" else []))
        assert secret not in one["prompt"]
        assert "\x1b" not in one["prompt"]
        assert 200 >= len(one["prompt"])


@pytest.mark.parametrize(
    "line",
    [
        "", "{", "[]", '"sessionId":"5f0c8b1e"', '["sessionId":"5f0c8b1e-0000"]', f'["\\"sessionId\\":\\"{GONE}\\""]',
        typed("/clear", "/"), typed("  ", "/"), typed("x", "/") | {"sessionId": None},
        {"display": f'"sessionId":"{GONE}"', "project": "/"}, typed("x", "/") | {"project": "a\0b"},
        typed("x", "/") | {"display": 7}, {"display": "from an older version", "timestamp": 1, "project": "/"},
    ],
)  # fmt: skip
def test_what_is_no_prompt_of_a_session_says_nothing(run, world, shop, line):
    world.claude(shop, "draw the map", "drawn")
    keep(world, line, typed("the next line", shop))

    assert ["the next line"] == [one.text for one in log_files.kept_prompts(())]


def test_of_a_large_file_the_end_is_read_and_what_is_no_file_is_passed_over(run, world, shop, monkeypatch):
    world.claude(shop, "draw the map", "drawn")
    keep(world, typed("old " * 100, shop), typed("new", shop))
    monkeypatch.setattr(log_files, "MAX_BYTES", 300)

    assert ["new"] == [one["prompt"] for one in gone(run, "list")]

    (world.home / ".claude/history.jsonl").unlink()
    os.mkfifo(world.home / ".claude/history.jsonl")

    assert [] == gone(run, "list")


def test_a_prompt_with_few_of_the_words_is_not_found(run, world, shop):
    world.claude(shop, RETRY, DONE)
    keep(world, typed("draw the logo of the uploader", shop))

    assert [] == gone(run, "find", RETRY)


@pytest.mark.parametrize("known", ["running", "open", ""])
def test_a_session_that_runs_and_has_written_nothing_yet_is_not_gone(run, world, shop, known):
    world.claude(shop, "draw the map", "drawn")
    keep(world, typed(RETRY, shop))
    if known == "running":
        with Registry() as registry:
            worker = registry.add("claude", source_session_id=OTHER, place="process", cwd=shop)
            registry.set_session_id(worker.id, GONE)
    if known == "open":
        note = world.home / ".claude/sessions/4711.json"
        note.parent.mkdir()
        note.write_text(json.dumps({"pid": 4711, "sessionId": GONE}))

    assert [bool(not known)] * 2 == [bool(gone(run, "list")), bool(gone(run, "find", RETRY))]


@pytest.mark.parametrize("state", ["running", "ended"])
def test_a_fork_in_a_process_is_listed_also_where_only_a_program_has_typed_in_it(run, world, shop, state):
    hidden, fork = (
        world.claude(shop, words, "1", entrypoint="sdk-cli", promptSource="sdk", origin=None) for words in "ab"
    )
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=OTHER, place="process", cwd=shop)
        registry.set_session_id(worker.id, fork)
        registry.set_state(worker.id, state)

    assert [fork] == [one["session_id"] for one in json.loads(run("list", "--json").out)["sessions"]]
    assert hidden in run("list", "--include-automated", "--json").out
