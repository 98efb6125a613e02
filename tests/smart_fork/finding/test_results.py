"""How sessions are shown."""

from __future__ import annotations

import shlex

import pytest

from smart_fork.finding.results import MAX_NAMED, fork_command, title

SESSION = "60309e1e-0000-4000-8000-000000000001"


@pytest.mark.parametrize("cwd", ["/a b/$HOME", "/it's", "/-x", "/ü;id"])
def test_the_command_to_type_is_quoted(cwd):
    words = shlex.split(fork_command("claude", SESSION, cwd))

    assert words == ["cd", cwd, "&&", "claude", "--resume", SESSION, "--fork-session"]
    assert fork_command("codex", SESSION, "") == f"codex fork {SESSION}"


def test_a_title_is_masked_and_printable():
    assert title("\x1b[1mbold") == "[1mbold"
    assert "hunter2secret" not in title("clone https://me:hunter2secret@example.com/x.git")


def test_a_large_family_is_counted_and_not_listed(world, shop):
    parent = world.codex(shop, "add retry", "done")
    for number in range(MAX_NAMED + 3):
        world.codex(shop, f"add retry {number}", "done", forked_from_id=parent)

    lineage = world.find("add retry", shop)["results"][0]["lineage"]

    assert lineage["family_size"] == MAX_NAMED + 4
    assert len(lineage["others"]) == MAX_NAMED
    assert len(lineage["forks"]) <= MAX_NAMED


def test_a_result_says_which_exchange_answers_and_what_a_fork_there_loads(world, shop):
    world.sized_claude(
        shop, ("tidy up", "tidied", 20_000), ("add retry", "done", 50_000), ("new logo", "drawn", 90_000)
    )

    early, late = (world.find(intent, shop)["results"][0] for intent in ("add retry", "new logo"))

    assert early["token_estimate"] == 90_000
    assert [early["match"][key] for key in ("exchange", "ends_at_message", "token_estimate")] == [2, 3, 50_000]
    assert [late["match"][key] for key in ("exchange", "ends_at_message", "token_estimate")] == [3, None, 90_000]
