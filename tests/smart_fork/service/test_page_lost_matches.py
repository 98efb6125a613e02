"""Tests of the page for sessions that the agent no longer loads completely."""

from __future__ import annotations

import re

from tests.smart_fork.forking.test_lost_matches import LATER, NOTES, SAID, SIGN, worked


def test_the_form_of_a_result_forks_at_the_match_and_says_why(served, world, shop):
    worked(world, shop, "compaction")

    text = served.get("/", q=SIGN, project=str(shop))[1]

    assert NOTES["compaction"] in text
    assert re.search(r'<option value="1" selected>the exchange that answers · about 21k tokens', text)


def test_a_session_is_marked_where_the_loaded_part_begins_and_a_gap_is_bridged_by_a_command_of_ours(
    served, world, shop
):
    session_id = worked(world, shop, "gap")

    text = served.get(f"/session/claude/{session_id}")[1]
    before, after = text.split("Its agent alone loads what follows.")

    assert "its agent alone loads 4 of 8 messages: a record was never written" in before
    assert SAID[1][1] in before.partition('id="conversation"')[2]
    assert LATER[0][1] in after
    assert f"smart-fork fork {session_id}" in text
    assert "--fork-session" not in text


def test_the_preview_says_which_way_carries_the_match(served, world, shop):
    session_id = worked(world, shop, "compaction")
    world.find(SIGN, shop)  # to compare makes no index
    form = served.form("/fork")
    body = f"form={form}&session={session_id}&prompt={SIGN.replace(' ', '+')}&place=process"

    text = served.answer("POST", "/preview", body.encode()).read().decode()

    assert "has forgotten the match" in text
    assert re.search(r"<code>--at match</code>[^<]*carries the match", text)
