"""A session that goes on while somebody reads it, in a real browser."""

from __future__ import annotations

import json

import pytest

from tests.e2e.browser import low_contrast

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("page")]


@pytest.mark.parametrize("scripts", [True, False])
def test_a_session_that_goes_on_while_it_is_read_says_so_and_leaves_what_is_read_alone(served, opened, scripts):
    one = served.session("hostile-fork")
    page = opened(f"/session/claude/{one}", java_script_enabled=scripts)
    before = page.text_content("#conversation") if scripts else ""
    (log,) = (served.demo.home / ".claude/projects").rglob(f"{one}.jsonl")
    records = [record for line in log.read_text().splitlines() if "uuid" in (record := json.loads(line))]
    said = next(record for record in reversed(records) if record["type"] == "assistant")
    new = said | {"uuid": f"more-{scripts}", "parentUuid": records[-1]["uuid"]}
    new["message"] = said["message"] | {"content": [{"type": "text", "text": f"Later, with scripts {scripts}."}]}
    with log.open("a") as file:
        file.write(json.dumps(new) + "\n")

    if scripts:
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_selector("#since a")
        assert "1 new message" in page.inner_text("#since")
        assert before in page.text_content("#conversation")
        assert [] == low_contrast(page)
    page.click("#since a" if scripts else ".look a")
    page.wait_for_selector("#more")

    assert page.url.endswith("#more")
    assert f"Later, with scripts {scripts}." in page.text_content("article >> nth=-1")
    assert page.locator("#more").is_visible()
