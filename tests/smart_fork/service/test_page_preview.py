"""Tests of the preview of a fork: its price, and the ways to choose from."""

from __future__ import annotations

import pytest

from smart_fork.agents.request_fields import Options
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import Budget, ForkRequest
from tests.smart_fork.service.test_page import DONE, RETRY, Tags
from tests.support.cases import thorough_except_first


@pytest.mark.slow
def test_a_preview_says_what_a_dry_run_says_and_exchanges_are_moved_over(served, world, shop):
    knows = world.claude(shop, RETRY, DONE, "and the docs", "Written.", "bye <b>now</b>", "Bye.")
    form = served.form("/fork")
    begun = f"form={form}&session={knows}&prompt=retry+for+the+upload&place=process"

    def preview(more: str) -> tuple[int, str]:
        answer = served.answer("POST", "/preview", f"{begun}{more}".encode())
        return answer.status, answer.read().decode()

    wanted, intent = Budget(Budget.MATCH, drop=frozenset({2})), "retry for the upload"
    asked = ForkRequest(knows, Options("go", place="process"), intent=intent, dry_run=True, budget=wanted)
    planned = fork_session(asked).selection

    status, text = preview("&budget=match&exchange-2=drop")

    assert (200, "nothing") == (status, planned.exchanges[1].kept)
    assert f"{planned.kept} of 3 exchanges" in text
    assert 'name="exchange-2" value="drop" checked' in text
    assert 'name="exchange-1" value="" checked' in text
    assert "bye" in text
    assert "<b>now" not in text
    assert f'name="form" value="{form}"' in text
    assert 404 == served.get(f"/forked/{form}")[0]
    assert "<code>--budget match</code>" in text
    status, text = preview("")
    assert (200, False) == (status, "of 3 exchanges" in text)
    assert 400 == preview("&as_agent=nobody")[0]
    page = served.get(f"/session/claude/{knows}")[1]
    assert '<option value="codex">Codex, handed over' in page
    assert '<option value="claude">' not in page
    assert 'name="as_agent" value="codex"' in preview("&as_agent=codex")[1]
    assert all(
        way in text for way in ("The whole session", "<code>--budget match</code>", "<code>--budget 30000</code>")
    )
    assert (400, True) == ((said := preview("&budget=match&exchange-9=keep"))[0], "no exchange 9" in said[1])
    assert 400 == preview("&budget=lots")[0]


def test_a_preview_of_a_hand_over_says_how_many_secrets_are_masked(served, world, shop):
    secret = "ghp_" + "a1B2" * 9
    knows = world.claude(shop, f"{RETRY} with {secret}", DONE)
    body = f"session={knows}&prompt=go+on&place=process&as_agent=codex"

    masked, whole = (
        served.answer("POST", "/preview", f"{body}{more}".encode()).read().decode() for more in ("", "&unmasked=yes")
    )

    assert "Masked secrets: 1" in masked
    assert 'name="unmasked" value="yes"' in whole
    assert "Masked secrets" not in whole


WAYS = ["whole", "--at match", "--budget match", "--budget 30000"]


@pytest.mark.parametrize("way", thorough_except_first(WAYS))
def test_each_way_is_a_button_that_chooses_it_whatever_was_chosen_before(served, world, shop, way):
    knows = world.claude(shop, RETRY, DONE, "and the docs", "Written.")
    served.get("/", q=RETRY)  # reads the logs
    body = f"session={knows}&prompt=retry+the+uploader&place=process&budget=15k&way={way}"

    answer = served.answer("POST", "/preview", body.encode())

    found = Tags(answer.read().decode()).found
    buttons = [attrs for tag, attrs in found if tag == "button" and attrs.get("name") == "way"]
    hidden = {attrs["name"]: attrs["value"] for tag, attrs in found if tag == "input" and attrs["type"] == "hidden"}
    assert WAYS == [one["value"] for one in buttons]
    assert [way] == [one["value"] for one in buttons if one.get("aria-current")]
    assert {"budget": hidden.get("budget", ""), "at": hidden.get("at", "")} == {
        "budget": way.partition("--budget ")[2],
        "at": way.partition("--at ")[2],
    }


@pytest.mark.parametrize("way", thorough_except_first(["--at nowhere", "--budget lots", "--at 99"]))
def test_a_way_that_does_not_exist_is_refused(served, world, shop, way):
    knows = world.claude(shop, RETRY, DONE)

    status = served.answer("POST", "/preview", f"session={knows}&prompt=go&way={way}".encode()).status

    assert status in (400, 404)
