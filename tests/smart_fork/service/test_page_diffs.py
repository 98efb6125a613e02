"""Tests of an edit's changes on the page, in every form in which agents record edits."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.page.agent_steps import MAX_CHARACTERS, MAX_LINES, compared, diffs_in, diffs_of
from smart_fork.page.conversation_page import reading
from tests.smart_fork.world import Did

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def told(given, patch=""):
    """Return the name, the kind of change, the counts and the signed lines of each changed file."""
    signs = {"same": " ", "added": "+", "removed": "-", "gap": "@"}
    return [
        (one.path, one.how, one.added, one.removed, [signs[line.kind] + line.text for line in one.lines])
        for one in diffs_of(given, patch)
    ]


@pytest.mark.parametrize(
    ("given", "patch", "expected"),
    [
        (
            {"file_path": "/a.py", "old_string": "a\nb\nc", "new_string": "a\nB\nc"}, "",
            [("/a.py", "edited", 1, 1, [" a", "-b", "+B", " c"])],
        ),
        (
            {"file_path": "/a.py", "old_string": "b", "new_string": "B"}, "@@ -7 +7 @@\n a\n-b\n+B\n\\ No newline at end",
            [("/a.py", "edited", 1, 1, ["@line 7", " a", "-b", "+B"])],
        ),
        (
            {"filePath": "a", "oldString": "x", "newString": ""}, "Index: a\n===\n--- a\n+++ a\n@@ -1,1 +0,0 @@\n-x\n",
            [("a", "edited", 0, 1, ["@line 0", "-x"])],
        ),
        (
            {"path": "a", "edits": [{"old_str": "1", "new_str": "2"}, {"old_str": "3", "new_str": "4"}]}, "",
            [("a", "edited", 2, 2, ["-1", "+2", "@", "-3", "+4"])],
        ),
        ({"file_path": "a", "content": "x\ny\n"}, "", [("a", "written", 2, 0, ["+x", "+y"])]),
        (
            "*** Begin Patch\n*** Add File: a\n+x\n*** Update File: b\n*** Move to: c\n@@ def f\n-y\n+z\n*** Delete File: d\n*** End Patch\n",
            "",
            [
                ("a", "added", 1, 0, ["+x"]),
                ("b", "moved to c, and edited", 1, 1, ["@def f", "-y", "+z"]),
                ("d", "deleted", 0, 0, []),
            ],
        ),
        ({"patchText": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}, "", [("a", "added", 1, 0, ["+x"])]),
        ({"command": ["apply_patch", "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"]}, "", [("a", "added", 1, 0, ["+x"])]),
        ({"file_path": "a", "old_string": 1, "edits": [None, {}], "content": None}, "", []),
        ("rm -rf /", "", []),
    ],
)  # fmt: skip
def test_edits_of_every_form_are_lines_that_were_added_and_removed(given, patch, expected):
    assert expected == told(given, patch)


def test_of_binary_and_huge_edits_the_lines_are_counted_and_a_long_one_is_cut():
    binary = diffs_of({"path": "a", "content": "GIF\0\n\0"})[0]
    huge = diffs_of({"path": "a", "old_string": "x\n" * MAX_CHARACTERS, "new_string": "y\n"})[0]
    many = compared("a", [("", "line\n" * (MAX_LINES + 7))])
    wide = compared("a", [("", "w" * 5_000)])

    assert ("a binary file", ()) == (binary.note, binary.lines)
    assert ("too large to be shown", 1, MAX_CHARACTERS, ()) == (huge.note, huge.added, huge.removed, huge.lines)
    assert (MAX_LINES, 7, MAX_LINES + 7) == (len(many.lines), many.hidden, many.added)
    assert len(wide.lines[0].text) < 500


@pytest.mark.parametrize(
    ("given", "patch"),
    [
        ({"path": "a", "content": f"token = {SECRET}\n"}, ""),
        ({"path": f"{SECRET}/a", "old_string": SECRET, "new_string": "x"}, ""),
        ({"path": "a", "old_string": "x", "new_string": "y"}, f"@@ -1 +1 @@\n-x\n+{SECRET}"),
        (f"*** Begin Patch\n*** Update File: a\n*** Move to: {SECRET}\n-token = {SECRET}\n*** End Patch", ""),
        ({"path": "a", "old_string": "x", "new_string": "y"}, "@@ -1 +1 @@\n+-----BEGIN RSA PRIVATE KEY-----\n-x\n+" + "MIIEpAIBAAKCAQEA7" * 4 + "\n+-----END RSA PRIVATE KEY-----"),
    ],
)  # fmt: skip
def test_no_secret_is_in_a_diff(given, patch):
    shown = str(told(given, patch))

    assert SECRET not in shown
    assert "MIIEpAIBAAKCAQEA7" not in shown
    assert "[REDACTED:" in shown


def test_a_patch_of_git_is_the_files_that_it_tells_of():
    """The files include renamed, binary and deleted ones, with any text in their lines."""
    patch = "\n".join((
        "diff --git a/a.py b/a.py", "index 1..2 100644", "--- a/a.py", "+++ b/a.py", "@@ -1,3 +1,3 @@ def f():", " same",
        "--- old", "+++ new", "@@ -9 +9 @@", "-x", "+<b>y",
        "diff --git a/old b/new", "similarity index 90%", "rename from old", "rename to new",
        "diff --git a/logo.png b/logo.png", "new file mode 100644", "Binary files /dev/null and b/logo.png differ",
        'diff --git "a/t\\303\\244.md" "b/t\\303\\244.md"', "deleted file mode 100644", '--- "a/t\\303\\244.md"', "+++ /dev/null",
        "@@ -1 +0,0 @@", f"-token = {SECRET}", "\\ No newline at end of file",
        "diff --git a/merged b/merged", "--- a/merged", "+++ b/merged", "@@ -1 +1,3 @@", "+<<<<<<< ours", " x", "+>>>>>>> theirs",
    ))  # fmt: skip

    found = diffs_in(patch)

    assert [
        ("a.py", "edited", 2, 2, ""), ("new", "moved", 0, 0, ""), ("logo.png", "added", 0, 0, "a binary file"),
        (r"t\303\244.md", "deleted", 0, 1, ""), ("merged", "edited", 2, 0, ""),
    ] == [(one.path, one.how, one.added, one.removed, one.note) for one in found]  # fmt: skip
    assert ["-- old", "x"] == [line.text for line in found[0].lines if line.kind == "removed"]
    assert SECRET not in str(found)
    assert (1, "what") == (len(diffs_in("+what\n-no patch")), diffs_in("+what\n-no patch")[0].lines[0].text)
    assert () == diffs_in("")


def test_marks_of_a_conflict_and_signs_for_a_terminal_are_text():
    (diff,) = diffs_of({"path": "a", "content": "<<<<<<< ours\n\x1b[31mred\u202e\n=======\n>>>>>>> theirs"})

    assert ["<<<<<<< ours", "[31mred", "=======", ">>>>>>> theirs"] == [line.text for line in diff.lines]


@pytest.mark.parametrize(
    ("agent", "fixture", "steps"),
    [
        ("qwen", "tools", {("edit", "uploader.py", 1), ("run", "git add . && git commit -m Retry", 0)}),
        ("gemini", "tools", {("run", "echo zebra; exit 3", 0)}),
        ("copilot", "tools", {("run", "cat retry.py; exit 3", 0), ("read", "retry.py", 0)}),
    ],
)  # fmt: skip
def test_steps_are_told_of_every_agent(agent, fixture, steps):
    session = READERS[agent].read(FIXTURES / agent / f"{fixture}.jsonl", keep_raw=True).session
    page = reading(session, codec=AGENTS[agent].codec, whole=True)
    shown = {
        (step.kind, step.line, step.added)
        for one in page.exchanges
        for message in one.messages
        for step in message.steps
    }

    assert steps <= shown


def test_each_of_a_family_says_what_it_has_for_itself_and_the_best_to_fork_is_marked(served, world, shop):
    def edited(*names):
        return Did(
            "apply_patch", "\n".join(("*** Begin Patch", *(f"*** Update File: {name}\n@@\n+x" for name in names)))
        )

    first = world.worked("codex", shop, "> Add a cache", edited("cache.py"), "It caches.")
    tested = Did("shell", {"command": ["bash", "-lc", "pytest"]}, "Exit code: 0\nOutput:\n5 passed in 0.1s")
    files = edited("<b>.py", "b.py", "c.py", "d.py")
    fork = world.worked("codex", shop, "> Make it larger <i>", files, tested, "It holds two.", of=first)
    deeper = world.worked("codex", shop, "> Drop it", "Gone.", of=fork)
    unasked = world.worked("codex", shop, of=first)

    def rows(of):
        text = served.get(f"/family/codex/{of}")[1]
        found = re.findall(r"<tr.*?</tr>", text.partition("<tbody")[2], re.DOTALL)
        return {
            one: next(row for row in found if f"/session/codex/{one}" in row) for one in (first, fork, deeper, unasked)
        }

    assert "the best of these" not in str(rows(first)), "nothing is known of it yet"
    served.get("/", q="cache")  # reads the logs
    shown = rows(first)
    names = {one: re.findall(r'<a class="row".*?<bdi>(.*?)</bdi>', row)[0] for one, row in shown.items()}

    assert names == {first: "Add a cache", fork: "Make it larger &lt;i&gt;", deeper: "Drop it", unasked: "Add a cache"}
    said = {one: re.sub(r"\s+", " ", re.sub("<[^>]*>", "", row)) for one, row in shown.items()}
    assert ("edited cache.py" in said[first], "edited since" in said[first]) == (True, False)
    assert "tests passed · edited since &lt;b&gt;.py, b.py, c.py and 1 more" in said[fork]
    assert ("edited" in said[deeper], "no prompts since" in said[unasked]) == (False, True)
    assert [fork] == [one for one, text in said.items() if "the best of these to fork" in text]


def test_two_of_a_family_are_compared_from_where_they_part(served, world, shop):
    first = world.worked("claude", shop, "> Add a cache", "It caches.")
    edit = Did("Edit", {"file_path": f"{shop}/a.py", "old_string": "size = 1", "new_string": "size = 2 # <b>"})
    fork = world.worked("claude", shop, "> Make it larger <i>", edit, "It holds two.", of=first)
    other = world.worked("claude", shop, "> Drop it", "Gone.", of=first)

    def compared_with(a, b):
        return served.get(f"/family/claude/{fork}", a=a, b=b)[1]

    text = compared_with(fork, other)
    assert "They share 1 exchange" in text
    assert all(
        words in text for words in ("Make it larger &lt;i&gt;", "Drop it", "by the first alone", "size = 2 # &lt;b&gt;")
    )
    assert ["It holds two.", "Gone."] == re.findall(r"(?:removed|added): </span>(It holds two\.|Gone\.)", text)
    assert "No exchange of its own." in compared_with(first, fork)
    assert all("Choose two different" in compared_with(*two) for two in ((fork, fork), (fork, "nobody")))
    assert "They share" not in served.get(f"/family/claude/{fork}")[1]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_all_that_came_back_from_a_step_is_a_link_away(served, world, shop, agent):
    came = "\n".join(["<b>first</b>", f"password = {SECRET}", *(f"line {number}" for number in range(40))])
    name, given = {"claude": ("Bash", "command"), "codex": ("exec_command", "cmd")}[agent]
    long, short = Did(name, {given: "make"}, came), Did(name, {given: "true"}, "ok")
    session = world.worked(agent, shop, "> Build it", long, short, "Built.")

    (way,) = re.findall(r'href="(/session/[^"]+/output/[^"]+)"', served.get(f"/session/{agent}/{session}")[1])
    status, text = served.get(way)
    start, _, call = way.rpartition("/")

    assert (200, 40) == (status, len(re.findall(r"^line \d", text, re.MULTILINE)))
    assert "&lt;b&gt;first&lt;/b&gt;" in text
    assert SECRET not in text
    assert [404, 404, 400, 400] == [
        served.get(one)[0] for one in (f"{start}/9", f"{start}9/{call}", f"{start}/%C2%B2", f"{start[:-1]}x/{call}")
    ]


@pytest.mark.parametrize("agent", ["claude", "codex", "qwen", "gemini", "copilot"])
def test_records_that_are_not_as_expected_are_left_out(agent):
    """In a log of a later version, or a hostile log, any value may stand in any place. The other records are still
    shown.
    """
    chance = random.Random(7)  # noqa: S311 - it chooses what is replaced
    work = AGENTS[agent].codec
    lines = [line for path in sorted((FIXTURES / agent).glob("*.jsonl")) for line in path.read_text().splitlines()]
    junk = (
        None,
        7,
        "",
        "*** Begin Patch\n*** Update File: \n@@",
        [],
        [None, [], {}],
        {},
        {"type": []},
        True,
        "@@ -1 +1 @@\n+",
    )
    for line in [line for line in lines if "tool" in line or "call" in line] * 20:
        record = json.loads(line)
        places = list(_places(record))
        for inside, name in chance.sample(places, min(2, len(places))):
            inside[name] = chance.choice(junk)
        given = {one.id: one for one in work.used(record)}
        back = {one.id: one for one in work.gave(record)}
        assert isinstance(work.thought(record), str)
        for one in given.values():
            assert all(
                isinstance(diff.path, str) for diff in diffs_of(one.given, next((it.patch for it in back.values()), ""))
            )


def _places(value):
    """Yield each place in a JSON value as its container and its key."""
    for name, inside in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, name
        if isinstance(inside, dict | list):
            yield from _places(inside)


def test_what_a_command_prints_as_a_secret_is_masked_wherever_the_page_shows_it(served, world, shop):
    answer = "Harbor" + "#4711x"
    session = world.worked(
        "claude", shop, "> Look", Did("Bash", {"command": "cat ~/.vault_pass"}, answer), f"It says {answer}",
        Did("Bash", {"command": "ls"}, f"{answer} is no file\n" * 40),
    )  # fmt: skip
    served.get("/", q="look")  # reads the log

    text = served.get(f"/session/claude/{session}")[1]
    outputs = [served.get(way)[1] for way in re.findall(r'href="(/session/[^"]+/output/[^"]+)"', text)]

    assert "It says [REDACTED:secret]" in text
    assert answer not in "".join((text, *outputs))
    assert outputs
