"""`find` and `fork` say whether the model's cache still holds the context of a fork."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.smart_fork.cli.test_commands import DONE, RETRY
from tests.support.cases import parametrize_subtests

pytestmark = pytest.mark.slow

CACHED = "still cached for about 23 minutes"
SESSION = "60309e1e-0000-4000-8000-000000000001"
SENT = timedelta(minutes=37)
#: What Claude Code notes of the system prompt, which all forks get then.
SNAPSHOT = {"type": "prompt_snapshot", "systemPrompt": ["You are an agent."]}


def test_a_session_is_cached_as_long_as_its_log_says(run, world, shop):
    told, sent = {}, (datetime.now(UTC) - SENT).replace(microsecond=0)
    for name, usage in (("hour", {"ephemeral_1h_input_tokens": 9}), ("unsaid", {})):
        records = world.claude_records(name * 8, shop, f"{RETRY} {name}", DONE)
        for record in records:
            record["timestamp"] = sent.isoformat()
        records[1]["message"]["usage"] = {"input_tokens": 900, "cache_creation": usage}
        world.write_claude(name * 8, shop, records)

    done = run("find", RETRY, "--explain")
    for one in json.loads(run("find", RETRY, "--explain", "--json").out)["results"]:
        told[one["session_id"][:4]] = one["price"], one["explain"].get("cache")

    assert done.out.count("cached") == 1
    assert f"900 tokens ({CACHED})" in done.out
    assert "Its log says that the cache lives 1 hour; last request: 37 minutes ago" in done.out
    assert "lives" not in run("find", RETRY).out
    assert (900, 900) == tuple(told["unsa"][0][key] for key in ("tokens", "tokens_at_match"))
    assert ({"cached", "cached_until"} & told["unsa"][0].keys(), told["unsa"][1]) == (set(), None)
    price, why = told["hour"]
    assert price["cached"]
    assert f"{sent + timedelta(hours=1):%FT%T}.000Z" == price["cached_until"]
    assert {"seconds": 3600, "last_request": f"{sent:%FT%T}.000Z"} == why


def ago(time: timedelta) -> str:
    return (datetime.now(UTC) - time).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def written(world, shop: Path, *exchanges: timedelta, **more: object) -> list[dict]:
    """Write a session with exchanges of the given ages, of a few thousand tokens each. Its cache lives for an hour."""
    said = (
        word for number in range(len(exchanges)) for word in (f"{RETRY} {number} " + "x" * 4_000, f"{DONE} {number}")
    )
    records = world.claude_records(SESSION, shop, *said, **more)
    for number, record in enumerate(records):
        record["timestamp"] = ago(exchanges[number // 2])
        if number % 2:
            usage = {"input_tokens": 20_000 + 1_000 * number, "cache_creation": {"ephemeral_1h_input_tokens": 9}}
            record["message"] |= {"id": f"msg_{number}", "usage": usage}
    world.write_claude(SESSION, shop, records)
    return records


@pytest.mark.usefixtures("programs")
@parametrize_subtests(
    ("options", "is_cached"),
    [
        ((), True), (("--at", "3"), True), (("--at", "1"), True),
        (("--cwd", "depot"), False), (("--worktree",), False), (("--at", "1", "--worktree"), False),
        (("--as", "codex"), False),
        # What is kept of it begins as the session does, and otherwise.
        (("--budget", "30k", "--drop", "2"), True), (("--budget", "30k", "--drop", "1"), False),
    ],
)  # fmt: skip
def test_only_what_a_fork_shares_with_its_session_is_said_to_be_cached(run, world, shop, options, is_cached):
    written(world, shop, SENT, SENT, SENT)
    options = [str(world.repository("depot")) if one == "depot" else one for one in options]

    done, as_json = (run("fork", SESSION, *options, "--dry-run", *more, "--", "go on") for more in ((), ("--json",)))

    price = json.loads(as_json.out)["price"]
    assert (done.code, is_cached) == (0, "cached_until" in price), done.err
    partly = "--budget" in options
    assert price["cached"] == (is_cached and not partly)
    assert ("cached_tokens" in price) == (is_cached and partly)
    if partly:
        option = next(line for line in done.err.splitlines() if line.startswith("  --budget 30000"))
        assert option.endswith(f"another form, the first 21,000 {CACHED}" if is_cached else "another form, not cached")
    else:
        assert (CACHED in done.err) == is_cached


@pytest.mark.usefixtures("programs")
def test_where_the_log_has_the_system_prompt_forks_in_other_directories_share_it(run, world, shop):
    first, *rest = written(world, shop, SENT, SENT)
    snapshot = {**first, "type": "attachment", "uuid": "snapshot", "parentUuid": first["uuid"], "attachment": SNAPSHOT}
    del snapshot["message"]
    world.write_claude(SESSION, shop, [first, snapshot, {**rest[0], "parentUuid": "snapshot"}, *rest[1:]])

    for options in (("--worktree",), ("--cwd", str(world.repository("depot"))), ("--at", "1", "--worktree")):
        assert CACHED in run("fork", SESSION, *options, "--dry-run", "--", "go on").err


@pytest.mark.usefixtures("programs")
def test_across_a_gap_nothing_is_said_to_be_cached_and_before_it_what_was_sent_then(run, world, shop):
    records = written(world, shop, SENT, SENT, SENT - timedelta(minutes=9))
    records[4]["parentUuid"] = "never-written"
    world.write_claude(SESSION, shop, records)
    run("index", "run")

    whole, before = (run("fork", SESSION, *at, "--dry-run", "--", "go on").err for at in ((), ("--at", "1")))

    assert ("cached" in whole, "cached" in run("find", RETRY).out) == (False, False)
    assert [CACHED in line for line in before.splitlines() if line.startswith(("  whole", "  --at 1"))] == [False, True]


@pytest.mark.usefixtures("programs")
def test_what_was_sent_before_a_compaction_is_cached_from_then(run, world, shop):
    old = timedelta(minutes=90)
    records = written(world, shop, old, SENT, SENT)
    boundary = {**records[2], "type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None}
    summary = {**records[2], "uuid": "s", "parentUuid": "b", "isCompactSummary": True, "isMeta": True}
    world.write_claude(
        SESSION, shop, [*records[:2], boundary, summary, {**records[2], "parentUuid": "s"}, *records[3:]]
    )

    told = run("fork", SESSION, "--at", "1", "--dry-run", "--", "go on").err.splitlines()

    whole, at = (next(line for line in told if line.startswith(f"  {option}")) for option in ("whole", "--at 1"))
    assert (CACHED in whole, "used 1 hour ago, no longer cached" in at) == (True, True)
