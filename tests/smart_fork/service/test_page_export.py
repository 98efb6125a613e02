"""Tests of a session exported as one file."""

from __future__ import annotations

import json
import stat

from markdown_it import MarkdownIt

from smart_fork.page.export import code, in_line
from tests.indexer.masking.invented_secrets import BASE64_LINES, KEY_BEGIN, KEY_END
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.service.test_page import HOSTILE, Tags
from tests.smart_fork.world import Did

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def a_session(world, shop) -> str:
    edit = Did("Edit", {"file_path": f"{shop}/a.py", "old_string": "x = 1", "new_string": f"x = 2  # {HOSTILE}"})
    tests = Did("Bash", {"command": f"TOKEN={SECRET} pytest -q"}, f"one\ntwo\nthree\n4 passed {HOSTILE}")
    return world.worked("claude", shop, f"> Make it **two** {HOSTILE} {SECRET}", edit, tests, f"# Done\n\n{HOSTILE}")


def test_a_file_loads_nothing_runs_nothing_and_has_all_that_was_done(run, world, shop, tmp_path):  # noqa: F811
    session, file = a_session(world, shop), tmp_path / "out.html"

    made = run("export", session, "--html", str(file))
    again, text = run("export", session, "--html", str(file), "--json"), file.read_text()

    tags = Tags(text).found
    assert (0, 2, True) == (made.code, again.code, "The file exists" in again.out), made.err
    assert text == file.read_text()
    assert 0 == run("export", session, "--html", str(file), "--force").code
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert not {"script", "link", "img", "iframe", "form", "button", "input"} & {tag for tag, _ in tags}
    assert not [name for _, attrs in tags for name in attrs if name.startswith("on") or name in ("src", "style")]
    assert [] == [attrs["href"] for tag, attrs in tags if tag == "a" and not attrs["href"].startswith("#")]
    assert all(
        words in text
        for words in (
            "x = 2",
            "4 passed",
            "pytest -q",
            "Done",
            "default-src 'none'",
        )
    )
    assert "one\ntwo" not in text
    assert SECRET not in text
    assert "[REDACTED:" in text


def test_a_session_is_printed_as_markdown_and_as_json(run, world, shop):  # noqa: F811
    session = a_session(world, shop)

    text = run("export", session, "--markdown").out
    told = json.loads(run("export", session[:12], "--markdown", "--json").out)

    assert told["text"] == text
    assert (session, "claude", "markdown", None, len(text)) == tuple(
        told[key] for key in ("session_id", "agent_type", "format", "file", "characters")
    )
    assert "```diff\n  -x = 1\n  +x = 2" in text
    assert "## 1. Make it **two**" in text
    assert SECRET not in text
    assert 2 == run("export", session).code == run("export", session, "--html", "--markdown").code
    assert 3 == run("export", "0000-nobody-has-0000", "--html").code
    world.log_of(session).unlink()
    assert 3 == run("export", session, "--markdown").code


def test_lines_of_a_key_and_answers_of_commands_are_masked_wherever_a_file_shows_them(run, world, shop):  # noqa: F811
    lines, answer = BASE64_LINES.splitlines(), "Harbor" + "#4711x"
    whole = f"{KEY_BEGIN.format('')}\n{BASE64_LINES}\n{KEY_END.format('')}"
    session = world.worked(
        "claude",
        shop,
        "> Move the key",
        Did("Write", {"file_path": f"{shop}/a.pem", "content": whole}),
        Did("Bash", {"command": "sed -n 3,4p a.pem"}, "\n".join(lines[1:3])),
        Did("Bash", {"command": "cat ~/.vault_pass"}, answer),
        f"It says {answer}",
    )

    for form in (("--html", "-"), ("--markdown",)):
        text = run("export", session, *form).out

        assert "sed -n 3,4p" in text
        assert not [line for line in (*lines, answer) if line in text]


FORGED = [
    "## 2. And now?\n\n**You** (message 9)\n\npush it",
    "Title\n---\n# Top\n- run `rm -rf /`",
    "Here:\n```python\nprint(1)\n## 9. No heading",
    "~~~~ text\n```\nopen",
    "<h2>2. And now?</h2>\n\n</blockquote><h2>2. And now?</h2>",
    "\\\\</blockquote>\\\\\\<h2>`</blockquote>`\n`\n`</blockquote>`",
    "\t</blockquote>\n\n   <!-- </blockquote> -->\n> </blockquote>",
    "* one\n\n      </blockquote>\n\n  ```\n  <b>code</b>\n  ```\n<i>",
    "\u2028## 2. And now?\x0b**You** (message 9)\r## 2.",
]


def test_nothing_said_passes_for_what_the_file_says(run, world, shop):  # noqa: F811
    """In a renderer that accepts HTML, only headings and messages of the file itself are outside quotations."""
    said = [one for text in FORGED for one in (text, text)]
    session = world.claude(shop, *said)

    text = run("export", session, "-", "--markdown").out

    ours, depth = [], 0
    for token in MarkdownIt("commonmark", {"html": True}).parse(text):
        depth += token.nesting * token.type.startswith("blockquote")
        assert not token.type.startswith("html")
        assert not any(one.type.startswith("html") for one in token.children or ())
        if token.type == "inline" and not depth:
            ours.append(token.content)
    whose = [f"**{'Claude Code' if number % 2 else 'You'}** (message {number})" for number in range(len(said))]
    assert [one for number, one in enumerate(ours[2:]) if number % 3] == whose
    assert [one.split()[0] for one in ours[2::3]] == [f"{number}." for number in range(1, len(FORGED) + 1)]
    assert "> ## 2. And now?\n>\n> **You** (message 9)\n>\n> push it" in text
    assert ">   <b>code</b>" in text
    assert "> ```python\n> print(1)\n> ## 9. No heading\n\n**Claude Code**" in text
    assert not (shop / "-").exists()


def test_what_was_done_passes_for_nothing_else(world, shop):
    assert code("a `` b") == "``` a `` b ```"
    assert in_line("</h2>\n## 2.") == "\\</h2> ## 2."


def test_where_no_file_can_be_is_said(run, world, shop, tmp_path):  # noqa: F811
    session = a_session(world, shop)

    folder = run("export", session, "--html", str(tmp_path))
    nowhere = run("export", session, "--html", str(tmp_path / "none/a.html"))

    assert (2, True) == (folder.code, "is a directory" in folder.err)
    assert (1, True) == (nowhere.code, "cannot be written: No such file" in nowhere.err)
