"""`show` at a terminal: rendered, wrapped, paged, and harmless with hostile sessions."""

from __future__ import annotations

import json
import re
import sys

import pytest

from smart_fork.cli.output import out
from tests.smart_fork.world import Did, World
from tests.support.executables import shebang

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
ASKED = "Traceback of it:\n\n  File x.py, line 3\n    # not a heading\n<b>kept</b>"
ANSWER = """\
# Done

It is **whole** now, and each word of this long sentence stays in one piece whatever the width is.
One line.
Another line.

<div>html</div> &#x202e;backwards [a name](https://elsewhere.example/x) \x1b[2Jcleared \x1b]0;title\x07
[hidden]: https://hidden.example/

## 7 · user · 2026-01-01 10:00

```python
print("kept")
```
"""


@pytest.fixture
def at_a_terminal(run, monkeypatch):
    """Return a function that runs a command at a terminal and returns its output with colors."""

    def command(*words: str, columns: int = 60) -> str:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        vars(out).pop("console", None)
        answered = run(*words)
        vars(out).pop("console", None)
        assert 0 == answered.code, answered.err
        return answered.out

    monkeypatch.setenv("PAGER", "cat")
    return command


def test_markdown_is_rendered_and_wrapped_at_words_at_a_terminal(at_a_terminal, world: World, shop):
    shown = ESCAPES.sub("", at_a_terminal("show", world.claude(shop, ASKED, ANSWER)))

    assert max(map(len, shown.splitlines())) <= 60
    assert "**" not in shown
    assert {"sentence", "piece", "whatever"} <= set(shown.split())
    assert "    One line.\n    Another line.\n" in shown, "a line stays a line"


def test_what_a_person_typed_is_shown_as_it_was_typed(at_a_terminal, world: World, shop):
    shown = ESCAPES.sub("", at_a_terminal("show", world.claude(shop, ASKED, ANSWER)))

    assert "    Traceback of it:\n\n      File x.py, line 3\n        # not a heading\n    <b>kept</b>\n" in shown


def test_nothing_in_a_session_steers_the_terminal_is_left_out_or_passes_for_a_message(
    at_a_terminal, world: World, shop
):
    shown = at_a_terminal("show", world.claude(shop, ASKED, ANSWER))
    plain = ESCAPES.sub("", shown)

    assert "\x1b" not in plain
    assert "\u202e" not in shown
    for said in ("<div>html</div>", "https://elsewhere.example/x", "https://hidden.example/", 'print("kept")'):
        assert said in plain
    assert ["0 · user", "1 · assistant"] == re.findall(r"^\d+ · \w+", plain, re.MULTILINE)


def test_numbers_that_jump_are_explained_and_others_not(run, world: World, shop):
    calm = world.claude(shop, "a question", "an answer")
    busy = world.worked("claude", shop, "> a question", Did("Bash", {"command": "ls"}), "an answer")

    assert "Numbers jump" not in run("show", calm).out
    assert "Numbers jump over records that are no messages: tool calls" in run("show", busy).out


@pytest.fixture
def pager(tmp_path, monkeypatch):
    """Return a pager that writes its input to the file `told`."""
    told = tmp_path / "told"
    path = tmp_path / "pager"
    path.write_text(
        f"{shebang()}import json, os, sys\n"
        f"open({str(told)!r}, 'w').write(json.dumps([sys.argv[1:], os.environ['LESS'], sys.stdin.read()]))\n"
    )
    path.chmod(0o755)
    monkeypatch.delenv("LESS", raising=False)
    return told


def test_at_a_terminal_the_persons_pager_is_given_all(at_a_terminal, world: World, shop, pager, monkeypatch):
    session = world.claude(shop, ASKED, ANSWER)
    monkeypatch.setenv("PAGER", str(pager.parent / "pager") + " -x")

    assert not at_a_terminal("show", session)
    options, less, given = json.loads(pager.read_text())
    assert (["-x"], "FRX") == (options, less)
    assert "0 · user" in given


def test_no_pager_is_used_that_is_not_wanted_or_for_an_agent(at_a_terminal, world: World, shop, pager, monkeypatch):
    session = world.claude(shop, ASKED, ANSWER)

    assert "0 · user" in at_a_terminal("show", session, "--no-pager")
    for name, value in (("PAGER", ""), ("PAGER", "no-such-pager"), ("TERM", "dumb")):
        with monkeypatch.context() as only:
            only.setenv(name, value)
            assert "0 · user" in at_a_terminal("show", session), value
    monkeypatch.setenv("CLAUDECODE", "1")
    assert "0 · user" in at_a_terminal("show", session)
    assert not pager.exists()


def test_who_leaves_the_pager_early_has_seen_enough(at_a_terminal, world: World, shop, tmp_path, monkeypatch):
    path = tmp_path / "pager"
    path.write_text(f"{shebang()}import sys\nsys.stdin.read(10)\n")
    path.chmod(0o755)
    monkeypatch.setenv("PAGER", str(path))

    assert not at_a_terminal("show", world.claude(shop, *("words " * 30_000, "answer") * 4))
