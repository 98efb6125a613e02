"""The page in a real browser: the service's process, its index and its sessions are real, too."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from contextlib import suppress
from typing import Any

import psutil
import pytest

from smart_fork.page.renderer import prose
from tests.e2e.browser import chromium, focused, low_contrast, violations, visited
from tests.e2e.demo_sessions import FAMILY, LAST
from tests.e2e.page_fixtures import ANSWER, INTENT, search, settled
from tests.e2e.page_views import views
from tests.e2e.terminals import wait_until
from tests.smart_fork.forks import eventually
from tests.smart_fork.service.test_page_prose import ALLOWED, PIECES
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import EXHAUSTIVE
from tests.support.processes import kill_if_running

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("page")]

#: Of each text the elements, attributes and schemes of links that a browser sees in it.
ELEMENTS = """(texts) => texts.map((text) => [...new DOMParser().parseFromString(text, "text/html").body.querySelectorAll("*")]
  .flatMap((one) => [one.localName, ...[...one.attributes].map((its) => `${one.localName} ${its.name}`),
    ...(one.href === undefined ? [] : [`to ${one.protocol}`])]))"""


#: The last two are as much as is seen at 200 and 400 %; and in which of them letters alone are twice as large, too.
WIDTHS, LARGE = (1280, 900, 390, 640, 320), (1280, 900, 390)
#: Of which sizes of letters one had to scroll to the side to read a line.
TOO_WIDE = """(sizes) => {
  const all = document.documentElement;
  const wide = sizes.filter((size) => { all.style.fontSize = size; return all.scrollWidth > innerWidth; });
  all.style.fontSize = "";
  return wide;
}"""
#: What moves, or would where it changed; and results that are waited for.
MOVES = """[...document.querySelectorAll("*")].flatMap((one) => ["", "::before", "::after"].map((part) => getComputedStyle(one, part)))
  .filter((style) => style.animationName !== "none" || style.transitionDuration.split(", ").some((one) => parseFloat(one)))
  .map((style) => `${style.animationName} ${style.transitionDuration}`)"""
BUSY = "one => one.setAttribute('aria-busy', 'true')"
#: What can have the focus, and has no line around it then, or lies under something else or outside the window.
LOST_FOCUS = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && one.type !== "hidden" && !one.disabled)
  .filter((one) => {
    one.focus({ focusVisible: true });
    const style = getComputedStyle(one);
    const drawn = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    const seen = [...one.getClientRects()].some(({ left, top, width, height }) =>
      one.contains(document.elementFromPoint(left + width / 2, top + height / 2)));
    return document.activeElement !== one || !drawn || !seen;
  }).map((one) => one.outerHTML)"""


def test_without_the_token_the_page_says_how_to_get_in(served, opened):
    stranger = opened(storage_state=None)

    assert "smart-fork open" in stranger.inner_text("main")
    assert [] == violations(stranger)
    assert 401 == stranger.reload().status


@pytest.mark.parametrize("scripts", thorough_except_first([True, False]))
def test_a_file_lets_a_browser_in_once_and_leaves_nothing_in_its_history(served, opened, scripts):
    page = opened(storage_state=None, java_script_enabled=scripts)
    page.watch.seen.clear()
    way_in = served.way_in()
    page.goto(way_in)
    if not scripts:
        page.click("button")
    page.wait_for_url(f"{served.url}/")

    assert "Continue" in page.inner_text("main")
    assert [way_in] == [one.removeprefix("request to ") for one in page.watch.seen]
    page.watch.seen.clear()
    assert not [one for one in visited(page) if "code" in one]
    assert 200 == page.goto(f"{served.url}/").status
    (cookie,) = page.context.cookies()
    assert (True, "Strict", "/", -1) == (cookie["httpOnly"], cookie["sameSite"], cookie["path"], cookie["expires"])


@pytest.mark.thorough  # a rarer way in
def test_a_code_can_be_entered_by_hand_once(served, opened):
    code = json.loads(served.smart_fork("open", "--json"))["code"]
    page = opened("/open", storage_state=None)

    page.fill("#code", code)
    page.press("#code", "Enter")
    page.wait_for_url(f"{served.url}/")

    again = opened("/open", storage_state=None)
    again.fill("#code", code)
    again.press("#code", "Enter")
    assert "already used" in again.inner_text("main")


def test_a_real_browser_is_let_in_and_no_command_line_tells_the_code(served, tmp_path):
    """What every user of the machine can read, while the browser starts and after."""
    pages = served.demo.home / ".smart-fork" / "page"
    visits = pages / "visits.json"
    before = visits.read_bytes() if visits.exists() else None
    program = tmp_path / "browser"
    options = f"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir={tmp_path}/profile"
    program.write_text(f'#!/bin/sh\ncat {pages}/open-*.html > {tmp_path}/read\nexec {chromium()} {options} "$@"\n')
    program.chmod(0o755)
    command = [sys.executable, "-m", "smart_fork", "open"]
    lines: set[str] = set()
    with subprocess.Popen(command, env=served.env | {"BROWSER": f"{program} %s &"}, cwd=served.demo.home) as opening:
        try:
            let_in = lambda: lines.update(command_lines()) or (visits.exists() and before != visits.read_bytes())  # noqa: E731
            wait_until(let_in, "the browser to be let in")
        finally:
            for process in psutil.process_iter(["cmdline"]):
                if f"--user-data-dir={tmp_path}/profile" in (process.info["cmdline"] or ()):
                    kill_if_running(process)
            assert 0 == opening.wait(60)

    code = (tmp_path / "read").read_text().partition('name="code" value="')[2].partition('"')[0]
    assert code
    assert [line for line in lines if "open-" in line], "it was looked at while it ran"
    assert not [line for line in lines if code in line]
    assert [] == list(pages.glob("open-*"))


def command_lines() -> list[str]:
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]


def test_results_follow_the_typing_and_the_address_keeps_the_question(opened):
    page = opened()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/results" in request.url else None)

    page.locator("#q").press_sequentially(INTENT, delay=5)
    page.wait_for_url(f"**q={INTENT.replace(' ', '+')}**")
    settled(page)

    assert len(asked) < len(INTENT) / 2
    assert ANSWER in page.inner_text(".hit")
    assert "very likely" in page.inner_text(".hit .chance")
    assert page.inner_text("#results h2 >> nth=0") == page.inner_text("#said")
    assert "q=retry+with" in page.url
    assert ANSWER in opened(page.url.removeprefix(page.watch.url)).inner_text(".hit")

    page.go_back()
    page.wait_for_selector("text=Continue")
    assert "" == page.input_value("#q")
    page.go_forward()
    page.wait_for_selector(".hit")
    assert INTENT == page.input_value("#q")
    assert [] == violations(page)


@pytest.mark.thorough
@pytest.mark.parametrize("scripts", [True, False])
def test_a_question_in_other_words_is_kept_in_the_address(opened, scripts):
    page = opened(java_script_enabled=scripts, viewport={"width": 390, "height": 844})
    page.fill("#q", "hochladen")
    page.click("summary:has-text('Other phrasings')")
    page.get_by_label("The same intent in other words, one phrasing a line").fill(f"{INTENT}\n\nuploader backoff")
    page.press("#q", "Enter")
    page.wait_for_url("**also=uploader+backoff**")
    page.wait_for_load_state()
    settled(page)  # until then it shows what was found while it was being written

    assert ANSWER in page.inner_text(".hit")
    assert 2 == page.url.count("also=")
    assert f"{INTENT}\nuploader backoff" == opened(page.url.removeprefix(page.watch.url)).input_value("#also")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.thorough
def test_an_answer_that_comes_late_does_not_replace_a_newer_one(opened):
    page = opened()
    late: list[Any] = []
    page.route("**/results?q=zeppelin*", lambda route: late.insert(0, route))

    page.fill("#q", "zeppelin")
    eventually(lambda: page.evaluate("1") and late)
    assert "true" == page.get_attribute("#results", "aria-busy")
    search(page, INTENT)
    with suppress(Exception):  # the browser may have given it up
        late[0].fulfill(body="<h2 data-count>Too late</h2>")

    assert ANSWER in page.inner_text("#results")
    assert "Too late" not in page.inner_text("#results")


def test_a_service_that_is_gone_is_said(opened):
    page = opened()
    page.route("**/results?*", lambda route: route.abort())

    page.fill("#q", "x")
    page.wait_for_selector("#results .note")

    assert "smart-fork serve" in page.inner_text("#results")
    assert "smart-fork serve" in page.inner_text("#said")
    page.watch.seen.clear()  # the browser has said so, too


def test_without_scripts_it_is_a_page_of_forms_and_links(opened):
    page = opened(java_script_enabled=False)

    page.fill("#q", INTENT)
    page.press("#q", "Enter")
    assert "q=retry" in page.url
    page.wait_for_load_state()  # the style sheet is there then
    assert not any(one.is_visible() for one in page.locator(".copy").all())
    page.click("nav >> text=Workers")
    assert "Reload" in page.inner_text("main")
    page.go_back()
    page.click(".hit a.row")

    assert "#message-" in page.url
    page.wait_for_selector(".message.asked")
    page.wait_for_load_state()
    page.click(".ways a[href='#fork']") if page.is_visible(".ways") else None
    assert not any(one.is_visible() for one in page.locator(".leave .copy").all())
    page.click("aside summary")
    assert page.is_visible("#prompt")


def test_a_hit_leads_to_the_exchange_that_answers(opened):
    page = opened()
    search(page, "the same note is stored twice because the answer got lost")

    page.click(".hit a.row")
    page.wait_for_selector(".message.asked")

    number = re.search(r"#(message-\d+)$", page.url)
    assert number
    assert number[1] == focused(page)
    assert "stored twice" in page.inner_text(f"#{number[1]}")
    plain, marked = (
        page.eval_on_selector(one, "e => getComputedStyle(e).backgroundColor")
        for one in (".message:not(.asked)", ".asked")
    )
    assert plain != marked
    eventually(lambda: page.evaluate("document.activeElement.getBoundingClientRect().top < innerHeight"))
    page.click("#back")
    page.wait_for_selector(".hit")
    assert "stored twice" in page.input_value("#q").replace("is stored", "stored")


def test_a_session_is_read_by_its_exchanges(served, opened):
    """The outline leads to each of them, keys from one to the next, and what is not wanted can be switched off."""
    page = opened(
        f"/session/claude/{served.session('long')}?q=partitions+archive", viewport={"width": 1280, "height": 800}
    )

    assert [f"{year} Move the archive of year {year} into partitions." for year in (1, 2)] == [
        " ".join(text.split()) for text in page.locator("article h2").all_text_contents()
    ]
    assert {"You", "Claude Code"} == set(page.locator(".by b").all_text_contents())
    assert "SELECT count(*) FROM archive;" == page.locator("pre.code code").first.inner_text()
    assert 2 <= page.locator(".c-keyword").count()
    assert LAST in page.text_content("main")
    page.keyboard.press("]")
    page.wait_for_function("document.querySelector('.entry[aria-current] .place').textContent === '2'")
    page.keyboard.press("n")
    assert "1 of 2" == page.inner_text(".match-bar [data-at]")
    page.keyboard.press("N")
    assert "2 of 2" == page.inner_text(".match-bar [data-at]")
    page.uncheck("#show-steps")
    assert not page.locator(".did >> visible=true").count()
    page.fill("#within", "year 2")
    assert 1 == page.locator(".entry >> visible=true").count()
    assert [] == violations(page)


def test_what_the_agent_did_is_told_in_lines_edits_as_diffs_and_failures_show(served, opened):
    page = opened(f"/session/claude/{served.session('retries')}")
    failed = page.locator(".failed-step")

    assert "run" in failed.first.inner_text()
    assert "pytest -q tests/test_retry.py" in failed.first.inner_text()
    assert failed.first.locator("pre.output").is_visible()
    assert page.locator(".diff ins").count() > 5
    assert "added" in page.locator(".step-edit .plus").first.inner_text()
    assert "added: " in page.locator(".diff ins").first.text_content()
    assert str(served.demo.home) not in page.inner_text("main")
    assert {FAMILY[0].title, FAMILY[1].title} <= set(page.locator(".leave .left bdi").all_text_contents())
    step = page.locator(".step[id]").first.get_attribute("id")
    assert step
    deep = opened(f"/session/claude/{served.session('retries')}?at={step.removeprefix('message-')}#{step}")
    assert deep.locator(f"#{step}").is_visible()
    assert step == focused(deep)


def test_a_command_is_copied(served, opened):
    page = opened(f"/session/claude/{served.session('retries')}", permissions=["clipboard-read", "clipboard-write"])

    page.click(".copy")
    page.wait_for_selector("text=Copied")

    command = f"cd ~/repos/parcel && claude --resume {served.session('retries')} --fork-session"
    assert command == page.evaluate("navigator.clipboard.readText()")
    assert "Copied" == page.inner_text("#said")


def test_a_fork_is_started_once_and_by_nobody_else(served, opened):
    page = opened(f"/session/claude/{served.session('leak')}")
    page.locator(".fork-here").first.click()
    page.wait_for_selector("#prompt", state="visible")
    assert page.locator(".fork-here").first.get_attribute("data-fork") == page.input_value("#at")
    assert page.url.endswith("#prompt")
    page.wait_for_function("document.activeElement.id === 'prompt'")  # where the address ends, once it is all there
    page.fill("#prompt", "Now the downloader; --help $(id)")
    page.select_option("#place", "process")

    sent = page.evaluate("new URLSearchParams(new FormData(document.querySelector('form.fork'))).toString()")
    before = len(served.forks())
    page.dblclick("form.fork button")
    page.wait_for_selector("h1:not(:has(bdi))", timeout=60_000)
    assert "The fork is running" == page.inner_text("h1"), page.inner_text("main")
    page.reload()
    assert "The fork is running" == page.inner_text("h1")
    again = "body => fetch('/fork', { method: 'POST', body: new URLSearchParams(body) }).then(answer => answer.url)"
    assert page.url == page.evaluate(again, sent)
    started = [words for words in served.forks() if "Now the downloader; --help $(id)" in words]
    assert 1 == len(started) == len(served.forks()) - before

    evil = opened()
    body = f"<form method=post action={served.url}/fork><input name=session value={served.session('flaky-login')}><input name=prompt value=evil>"
    evil.route("http://evil.example/", lambda route: route.fulfill(body=body, content_type="text/html"))
    evil.goto("http://evil.example/")
    with evil.expect_response("**/fork") as refused:
        evil.evaluate("document.forms[0].submit()")
    assert 403 == refused.value.status
    assert 1 == len(served.forks()) - before
    assert ["request to http://evil.example/"] == evil.watch.seen
    evil.watch.seen.clear()
    served.smart_fork("stop", "--all")


def test_back_keeps_the_form_of_a_fork_and_what_was_written_into_it(served, opened):
    page = opened(f"/session/claude/{served.session('leak')}")
    page.locator(".fork-here").first.click()
    page.fill("#prompt", "Look at the timers first")
    page.select_option("#place", "process")
    page.check("[name=worktree]")
    page.click("aside >> text=Compare what it can load")
    page.wait_for_selector("h1:has-text('What the fork loads')")

    page.go_back()

    page.wait_for_selector("#prompt", state="visible")
    assert "Look at the timers first" == page.input_value("#prompt")
    assert "process" == page.input_value("#place")
    assert page.is_checked("[name=worktree]")


def test_after_a_fork_its_own_outcome_is_shown(served, opened):
    page = opened(f"/session/claude/{served.session('leak')}?fork=9#prompt")
    page.fill("#prompt", "Say what is to be done before the release")
    page.click("main .fork >> text=Start the fork")

    page.wait_for_selector("h1:has-text('The fork is running')")
    page.wait_for_selector(".worker.asks .question")
    forked = page.url
    page.click(".answer button >> nth=0")
    page.wait_for_url("**/workers?**")
    page.goto(forked)
    page.wait_for_selector(".worker .last:has-text('Uploaded 1.4.0')")
    assert [] == violations(page)
    served.smart_fork("stop", "--all")
    page.wait_for_selector("h1:has-text('The fork has ended')")


def test_where_nothing_is_a_page_says_so(opened):
    page = opened("/nothing/here")

    assert "There is no page at this address" == page.inner_text("h1")
    assert [] == violations(page)
    page.click("main a")
    page.wait_for_selector("#q")


def test_hostile_text_is_text(served, opened):
    page = opened("/families", viewport={"width": 800, "height": 600})
    hostile, fork = served.session("hostile"), served.session("hostile-fork")
    shown = (f"/session/claude/{hostile}", f"/session/claude/{fork}", f"/family/claude/{hostile}")
    for path in ("/families", "/?q=release+the+kraken", *shown):
        page.goto(served.url + path)

        assert '<script>alert("said")</script>' in page.text_content("main"), path
        assert page.locator("script").count() == page.locator("script[src^='/static/']").count()
        assert 0 == page.locator("main img, main iframe, [onload], [onerror], [onfocus]").count()
        assert not re.search("[\x1b\u202e]", page.content())
        hrefs = page.eval_on_selector_all("a[href]", "all => all.map(a => a.protocol)")
        assert {"http:"} == set(hrefs)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_scripts_in_a_page_are_refused_by_the_browser_as_well(opened):
    page = opened()

    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.pwned = 1'}))"
    )
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned = 2\"><p style=\"color:red\">')"
    )
    page.evaluate("fetch('https://evil.example/').catch(() => 0)")

    assert page.evaluate("window.pwned === undefined")
    said = " ".join(page.watch.seen)
    assert all(
        f"violation of {one}" in said
        for one in ("script-src-elem", "script-src-attr", "style-src-attr", "connect-src", "img-src")
    )
    assert "request to" not in said
    page.watch.seen.clear()


def test_it_is_said_what_everything_is(opened):
    page = opened()

    for role, name in (("search", None), ("banner", None), ("main", None), ("region", "Sessions")):
        assert page.get_by_role(role, name=name).is_visible()
    for role, name in (
        ("searchbox", "What do you want to do next?"),
        ("combobox", "Project"),
        ("combobox", "Agent"),
        ("button", "Find"),
    ):
        assert page.get_by_role(role, name=name).is_visible()
    assert "all 2" in page.get_by_role("combobox", name="Project").inner_text()
    assert re.fullmatch(r"\w{3} \d{1,2} \w{3} \d{4}, \d\d:\d\d", page.get_attribute("time >> nth=0", "title") or "")
    page.select_option("#agent", "codex")
    page.wait_for_url("**agent=codex*")
    settled(page)
    assert not page.locator(".agent.claude").count()


@pytest.mark.thorough
def test_every_view_is_for_everybody(served, opened):
    """In both schemes, at every width, with large letters, by keys, and without anything that moves.

    One window goes through all of them. axe-core looks once at each, in turn in one scheme and at one width of all, and
    with all drills in each, for colors as well.
    """
    page = opened(reduced_motion="no-preference")
    page.eval_on_selector("#results", BUSY)
    assert page.evaluate(MOVES), "for who has not said otherwise"
    page.emulate_media(reduced_motion="reduce")
    shades, ways = set(), [(scheme, width) for width in (1280, 900, 390) for scheme in ("light", "dark")]
    for number, view in enumerate(views(page, served)):
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert [] == page.evaluate(TOO_WIDE, ["100%", "200%"] if width in LARGE else ["100%"]), (view, width)
            for turn, way in enumerate(ways):
                if way[1] != width:
                    continue
                page.emulate_media(color_scheme=way[0])
                assert [] == low_contrast(page), (view, way)
                shades.add((way[0], page.eval_on_selector("body", "e => getComputedStyle(e).backgroundColor")))
                if EXHAUSTIVE or turn == number % len(ways):
                    assert [] == violations(page, contrast=EXHAUSTIVE), (view, way)
                    assert [] == page.evaluate(LOST_FOCUS), (view, way)
        page.locator("#results").evaluate_all(f"all => all.forEach({BUSY})")
        assert [] == page.evaluate(MOVES), view
    assert {("light", False), ("dark", True)} == {(scheme, shade.startswith("rgb(1")) for scheme, shade in shades}
    assert 2 == len(shades)
    served.smart_fork("stop", "--all")


@pytest.mark.thorough  # without a browser: the tests of prose
def test_a_browser_sees_no_element_that_is_not_ours_in_what_was_said(opened):
    chance = random.Random(91)  # noqa: S311 - it chooses texts
    texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 5))) for _ in range(1_000)]
    shown = [str(prose(text, ("retry",))).encode("utf-8", "replace").decode() for text in texts]
    seen = opened("/open").evaluate(ELEMENTS, shown)

    allowed = {*ALLOWED, *(f"{tag} {name}" for tag, names in ALLOWED.items() for name in names)}
    allowed |= {f"to {scheme}:" for scheme in ("http", "https", "mailto")}
    assert {} == {text: wrong for text, those in zip(texts, seen, strict=True) if (wrong := set(those) - allowed)}
