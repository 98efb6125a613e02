"""A session that is read in a real browser: where a link leads, which exchange is forked, what stands beside it."""

from __future__ import annotations

import pytest

from tests.e2e.browser import focused, violations
from tests.e2e.demo_sessions import TALL_ANSWER
from tests.e2e.page_fixtures import ANSWER, INTENT, search
from tests.smart_fork.forks import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("page")]

#: Whether the first line of the message that the address names is seen, with nothing above it.
SEEN = """() => {
  const line = document.querySelector(".message.asked .by");
  const { left, top } = line.getBoundingClientRect();
  return line.contains(document.elementFromPoint(left + 5, top + 5));
}"""
#: Which exchange the form forks after.
CHOSEN = "document.getElementById('at').selectedOptions[0].textContent.split(' ')[0]"
#: Words of a table that stand in more than one line, and how far it can be scrolled to the side.
BROKEN = """() => {
  const table = document.querySelector(".prose .table"), broken = [];
  for (const cell of table.querySelectorAll("th, td")) {
    const text = cell.firstChild;
    for (const { index, 0: word } of text.data.matchAll(/\\S+/g)) {
      const range = new Range();
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) broken.push(word);
    }
  }
  return [broken, table.scrollWidth > table.clientWidth, document.documentElement.scrollWidth > innerWidth];
}"""
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest.mark.parametrize("size", [WIDE, pytest.param(PHONE, marks=pytest.mark.thorough)])
def test_a_title_leads_to_the_answer_and_f_forks_there_also_where_things_move(opened, size):
    page = opened(reduced_motion="no-preference", viewport=size)
    search(page, "where does the marmalade needle hide")
    page.click(".hit a.row")
    page.wait_for_selector(".message.asked")
    eventually(lambda: page.evaluate(SEEN))

    page.keyboard.press("f")

    assert str(TALL_ANSWER) == page.evaluate(CHOSEN)


@pytest.mark.parametrize(
    ("place", "far"),
    [pytest.param(3, 4000, marks=pytest.mark.thorough), (30, 4000), pytest.param(5, 400, marks=pytest.mark.thorough)],
)
def test_f_forks_after_the_exchange_of_the_address_until_one_scrolls_by_hand(served, opened, place, far):
    page = opened(f"/session/claude/{served.session('tall')}#exchange-{place}", viewport=WIDE)

    page.keyboard.press("f")
    assert str(place) == page.evaluate(CHOSEN)
    page.evaluate("document.activeElement.blur()")
    page.mouse.move(600, 400)
    page.mouse.wheel(0, far)
    page.wait_for_selector(f"#exchange-{place}:not(.current)", state="attached")
    page.keyboard.press("f")

    assert str(place) != page.evaluate(CHOSEN)


def test_the_outline_and_the_keys_choose_the_exchange_that_they_lead_to_however_short_it_is(served, opened):
    page = opened(f"/session/claude/{served.session('tall')}", viewport=WIDE)
    short = 5  # nothing was done in it: the next ones are seen as well
    page.click(f".entry >> nth={short - 1}")
    page.keyboard.press("f")
    chosen = [page.evaluate(CHOSEN)]
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("]")
    page.keyboard.press("f")
    chosen.append(page.evaluate(CHOSEN))

    assert [str(short), str(short + 1)] == chosen


def test_on_a_phone_a_table_is_scrolled_and_no_word_of_it_is_broken(served, opened):
    page = opened(f"/session/claude/{served.session('tall')}?q=marmalade#exchange-{TALL_ANSWER}", viewport=PHONE)

    assert [[], True, False] == page.evaluate(BROKEN)


#: The list beside a session: what is above it, its titles, and which of them is read.
LISTED = """() => {
  const list = document.getElementById("sessions"), titles = [...list.querySelectorAll("li bdi")].map((one) => one.textContent);
  return [list.querySelector("h2").textContent, titles, list.querySelector("[aria-current] bdi")?.textContent];
}"""


def listed(page) -> list:
    page.wait_for_selector("#sessions li", state="attached")
    return page.evaluate(LISTED)


@pytest.mark.thorough
def test_the_list_that_led_to_a_session_stands_beside_it_and_leads_on(opened):
    page = opened(viewport=WIDE)
    search(page, INTENT)
    found = page.locator("#results a.row bdi").all_text_contents()[:10]
    page.click(".hit a.row")
    page.wait_for_selector(".message.asked")

    assert [f"Results for “{INTENT}”", found, ANSWER] == listed(page)
    page.keyboard.press("j")
    assert found[1] in focused(page)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"h1:has-text({found[1]!r})")
    assert [f"Results for “{INTENT}”", found, found[1]] == listed(page)
    page.click("#sessions h2 a")
    page.wait_for_selector(".hit")
    assert INTENT == page.input_value("#q")


@pytest.mark.thorough
def test_beside_a_session_that_no_list_led_to_stand_those_of_its_project(served, opened):
    page = opened(f"/session/claude/{served.session('retries')}", viewport=PHONE)
    assert not page.locator("#sessions li").count(), "nothing is asked for that is not seen"
    page.click(".ways >> text=Sessions")

    heading, titles, read = listed(page)

    assert ("Sessions", ANSWER) == (heading, read)
    assert "Count retries in the metrics" in titles
    assert "Memory leak in the websocket server" not in titles, "that is another project's"
    page.click("text=Close the list")
    assert page.is_visible("#conversation")


@pytest.mark.thorough
def test_ctrl_k_asks_from_everywhere(served, opened):
    page = opened("/workers", viewport=WIDE)
    for path in ("/index", "/sessions", "/families", f"/session/claude/{served.session('retries')}#prompt"):
        page.keyboard.press("Control+k")
        assert "quick-q" == focused(page)
        page.goto(page.watch.url + path)
    page.keyboard.press("Control+k")
    page.keyboard.insert_text(INTENT)
    page.wait_for_selector(f"#quick li:has-text({ANSWER!r})")
    assert [] == violations(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"h1:has-text({ANSWER!r})")
    page.wait_for_load_state()  # its scripts listen by then
    page.keyboard.press("Control+k")
    page.keyboard.insert_text(INTENT)
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=**")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+k")

    assert "q" == focused(page)
    assert INTENT == page.input_value("#q")
