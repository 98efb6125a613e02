"""Tests of sessions as results show them."""

from __future__ import annotations

import shlex
import uuid
from pathlib import Path

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


def summed_up(world, shop, *said: str) -> str:
    """Write a session that continues after a compaction; only the summary names the narwhal cache."""
    session = str(uuid.uuid4())
    summary = world.claude_records(session, shop, "The narwhal cache was chosen.", isCompactSummary=True)
    rest = world.claude_records(session, shop, *said)
    for first in rest[:1]:
        first["parentUuid"] = summary[0]["uuid"]
    world.write_claude(session, shop, summary + rest)
    return session


def test_a_session_is_found_by_the_words_of_its_summary_and_what_is_quoted_was_said_in_it(world, shop):
    for other in ("paint the bikeshed", "water the plants", "feed the llamas"):
        world.claude(shop, other, "done")
    session = summed_up(world, shop, "Now move on to the mailer", "Signed, the mailer is.")

    hit = world.find("which narwhal cache was chosen, and when was it chosen", shop)["results"][0]

    assert session == hit["session_id"]
    assert 0 < hit["score"] < 0.6, "no passage says it"
    assert hit["snippet"] in ("Now move on to the mailer", "Signed, the mailer is.")
    assert [] == hit["match"]["words"]
    assert "narwhal" in Path(hit["source_path"]).read_text(), "the export has what it was found by"


def test_where_meaning_fails_what_only_a_summary_says_finds_a_session_without_a_passage(world, shop, monkeypatch):
    session = summed_up(world, shop, "Now move on to the mailer", "Signed, the mailer is.")
    world.find("mailer", shop)
    monkeypatch.setattr(world.model, "embed", lambda _: 1 / 0)

    answer = world.find("narwhal cache", shop)

    assert "lexical" == answer["search_mode"]
    assert [(session, None, "")] == [
        (hit["session_id"], hit["match"]["turn_index"], hit["snippet"]) for hit in answer["results"]
    ]
