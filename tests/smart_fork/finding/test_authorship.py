"""Tests from a line of code to the session that wrote it: with real git, and sessions as their agents write them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from indexer.transcripts.actions import lines_by
from indexer.transcripts.line_hashes import comparable_lines, hashing_lines, line_hashes
from smart_fork.errors import NotFound, Usage
from smart_fork.finding.code_lines import touched_by
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.world import Did
from tests.support.cases import parametrize_subtests, thorough_except_first

#: All sessions of the world are before this time, in seconds.
LATER = 1_780_000_000
BODY = """def upload(path, retries=5):
    for attempt in range(retries):
        try:
            return send(path, attempt)
        except ConnectionError:
            wait_before_retry(attempt)
    raise UploadFailed(path)
"""
FIRST, SLOWLY = "def upload(path, retries=5):", "def upload(path, retries=7, slowly=True):"


def git(folder: Path, *words: str, at: int = LATER, author: str = "Ann <ann@example.org>", given: str = "") -> str:
    name, _, mail = author.partition(" <")
    told = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail.rstrip(">"), "GIT_COMMITTER_DATE": f"@{at} +0000"}
    env = os.environ | told | {"GIT_AUTHOR_DATE": f"@{at} +0000"}
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, env=env, text=True, input=given)
    return done.stdout


def commit(folder: Path, name: str, text: str, message: str = "Work", **how) -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.encode())
    git(folder, "--literal-pathspecs", "add", "--", name)
    git(folder, "commit", "-q", "-m", message, **how)
    return git(folder, "rev-parse", "HEAD").strip()


def wrote(world, shop: Path, name: str = "upload.py", text: str = BODY, agent: str = "claude") -> str:
    """Write a session that does something else first and then writes a file."""
    done = Did("Write", {"file_path": str(shop / name), "content": text})
    if agent == "codex":
        added = "".join(f"+{line}\n" for line in text.splitlines())
        done = Did("apply_patch", f"*** Begin Patch\n*** Add File: {name}\n{added}*** End Patch\n")
    return world.worked(agent, shop, "> hello there", "hi", "> retry the upload five times", done, "Done.")


def ask(world, shop: Path, **code) -> dict:
    return world.find("", shop, agent_type="all", **code)


def by(world, shop: Path, *lines: str) -> list[str]:
    return [hit["session_id"] for hit in ask(world, shop, lines=lines)["results"]]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_line_leads_to_the_session_and_exchange_that_wrote_it(world, shop, agent):
    session = wrote(world, shop, agent=agent)
    name = commit(shop, "upload.py", BODY)

    answer = ask(world, shop, lines=["upload.py:2-3"])

    (hit,) = answer["results"]
    assert hit["session_id"] == session
    assert hit["wrote"] == {
        "share": 1.0, "lines": 2, "of": 2, "exchange": 2, "asked": "retry the upload five times", "commits": [name],
    }  # fmt: skip
    assert answer["code"] == {"lines": 2, "unknown": 0}
    assert answer["search_mode"] == "lines"


def test_a_fork_is_suggested_at_the_exchange(world, shop):
    session = wrote(world, shop)
    world.worked("claude", shop, "> hello", "hi")
    commit(shop, "upload.py", BODY)

    (hit,) = ask(world, shop, lines=["upload.py:2"])["results"]

    assert hit["match"]["exchange"] == 2
    assert hit["session_id"] == session


def test_lines_that_a_person_wrote_are_nobodys(world, shop):
    wrote(world, shop)
    commit(shop, "upload.py", BODY)
    commit(shop, "upload.py", BODY + "\n\ndef by_hand(argument):\n    return argument + 1\n", at=LATER + 100)

    answer = ask(world, shop, lines=["upload.py:10-11"])

    assert answer["results"] == []
    assert answer["code"] == {"lines": 2, "unknown": 2}


def test_a_bracket_is_whose_the_lines_around_it_are(world, shop):
    text = "const retries = {\n  first: backoff(100),\n};\n"
    session = wrote(world, shop, "a.js", text)
    commit(shop, "a.js", text)

    assert by(world, shop, "a.js:3") == [session]


def test_a_bracket_between_a_session_and_a_person_is_nobodys(world, shop):
    text = "const retries = {\n  first: backoff(100),\n"
    wrote(world, shop, "a.js", text)
    commit(shop, "a.js", text + "};\n// written by hand, below it\nconst other = byHand();\n")

    assert by(world, shop, "a.js:3") == []


def test_an_edit_after_the_commit_did_not_write_it(world, shop):
    commit(shop, "upload.py", BODY, at=1_700_000_000)
    wrote(world, shop)

    assert by(world, shop, "upload.py:2") == []


def test_a_line_is_followed_through_a_rename_and_a_formatter(world, shop):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)
    git(shop, "mv", "upload.py", "sender.py")
    git(shop, "commit", "-q", "-m", "Rename", at=LATER + 50)
    commit(shop, "sender.py", BODY.replace("    ", "\t"), "Tabs", at=LATER + 100)

    assert by(world, shop, "sender.py:2") == [session]


def test_windows_line_ends_and_quotation_marks_do_not_hide_a_line(world, shop):
    session = wrote(world, shop, "a.js", "const first = 'one and two';\nconst second = backoff('three');\n")
    commit(shop, "a.js", 'const first = "one and two",\r\nconst second = backoff("three")\r\n')

    assert by(world, shop, "a.js:1-2") == [session]


def test_a_squash_of_two_sessions_has_both_with_their_shares(world, shop):
    other = BODY.replace("upload", "download").replace("path", "target").replace("attempt", "number")
    first, second = wrote(world, shop), wrote(world, shop, text=other)
    commit(shop, "upload.py", BODY + "\n\n" + other)

    hits = ask(world, shop, files=["upload.py"])["results"]

    assert {hit["session_id"]: hit["wrote"]["lines"] for hit in hits} == {first: 7, second: 7}


@pytest.mark.parametrize("name", thorough_except_first(["sub/ä'\"$(x).py", "-x", "a b.py", ":(top)x", "a:3"]))
def test_odd_names_of_files_are_only_names(world, shop, name):
    session = wrote(world, shop, name)
    commit(shop, name, BODY)

    assert by(world, shop, f"{name}:2") == [session]
    assert [hit["session_id"] for hit in ask(world, shop, files=[name])["results"]] == [session]


def test_a_name_with_a_line_end_is_nobodys(world, shop):
    wrote(world, shop, "a\nb.py")
    commit(shop, "a\nb.py", BODY)

    assert by(world, shop, "a\nb.py:2") == []


def test_a_commit_and_a_pull_request_lead_to_their_sessions(world, shop):
    session = wrote(world, shop)
    git(shop, "checkout", "-q", "-b", "topic")
    name = commit(shop, "upload.py", BODY)
    git(shop, "update-ref", "refs/pull/7/head", "HEAD")
    git(shop, "checkout", "-q", "main")

    assert [hit["session_id"] for hit in ask(world, shop, commit=name)["results"]] == [session]
    assert [hit["session_id"] for hit in ask(world, shop, pull=7)["results"]] == [session]
    git(shop, "merge", "-q", "--no-ff", "-m", "Merge", "topic", at=LATER + 100)
    assert [hit["session_id"] for hit in ask(world, shop, pull=7)["results"]] == [session]
    with pytest.raises(NotFound, match="pull request 8 is not in this repository"):
        ask(world, shop, pull=8)


def test_uncommitted_changes_and_a_patch_lead_to_who_wrote_what_they_touch(world, shop):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)
    (shop / "upload.py").write_text(BODY.replace("wait_before_retry(attempt)", "pass"))

    assert [hit["session_id"] for hit in ask(world, shop, changes=True)["results"]] == [session]
    patch = git(shop, "diff")
    git(shop, "checkout", "-q", ".")
    assert ask(world, shop, changes=True)["results"] == []
    assert [hit["session_id"] for hit in ask(world, shop, changes=patch)["results"]] == [session]


def test_a_patch_touches_the_old_lines_that_it_removes_and_the_one_above_what_it_adds():
    patch = b"--- a/old.py\n+++ b/new.py\n@@ -3,2 +3 @@\n-one\n-two\n+both\n@@ -9,0 +9 @@\n+more\n"

    assert [("old.py", at, at) for at in (3, 4, 4, 9)] == [(one.name, one.first, one.last) for one in touched_by(patch)]


def test_lines_that_are_not_committed_are_found_by_what_sessions_wrote(world, shop):
    session = wrote(world, shop)
    commit(shop, "upload.py", "import something\n")
    (shop / "upload.py").write_text("import something\n" + BODY)

    assert by(world, shop, "upload.py:3-4") == [session]


def test_a_programs_commit_is_nobodys(world, shop):
    wrote(world, shop)
    commit(shop, "upload.py", BODY, author="renovate[bot] <29139614+renovate[bot]@users.noreply.github.com>")

    assert by(world, shop, "upload.py:2") == []


def test_words_beside_lines_order_the_sessions_that_wrote_them(world, shop):
    session = wrote(world, shop)
    world.claude(shop, "retry the upload five times", "Another one that wrote nothing.")
    commit(shop, "upload.py", BODY)

    answer = world.find("retry the upload", shop, agent_type="all", lines=["upload.py:2"])

    assert [hit["session_id"] for hit in answer["results"]] == [session]


def test_a_trailer_names_the_session_whatever_its_edits_say(world, shop):
    first, second = wrote(world, shop), wrote(world, shop)
    commit(shop, "upload.py", BODY, f"Retry\n\nClaude-Session: {first}")

    assert by(world, shop, "upload.py:2") == [first]
    assert second not in by(world, shop, "upload.py:1-7")


@pytest.mark.parametrize(
    "wrong", thorough_except_first(["upload.py", "upload.py:0", "upload.py:5-2", ":3", "upload.py:x"])
)
def test_what_is_no_line_is_refused(world, shop, wrong):
    commit(shop, "upload.py", BODY)

    with pytest.raises(Usage):
        by(world, shop, wrong)


@pytest.mark.parametrize("wrong", ["nothing.py:1", "upload.py:99"])
def test_a_line_that_is_not_there_is_an_error(world, shop, wrong):
    commit(shop, "upload.py", BODY)

    with pytest.raises(NotFound):
        by(world, shop, wrong)


def test_a_file_outside_of_the_repository_is_refused(world, shop):
    with pytest.raises(Usage, match="is not in the repository"):
        by(world, shop, "../other.py:1")


@pytest.mark.parametrize("wrong", ["--output=x", "HEAD..", "no-such"])
def test_a_commit_is_never_an_option(world, shop, wrong):
    with pytest.raises(NotFound, match="no such commit"):
        ask(world, shop, commit=wrong)
    assert not (shop / "x").exists()


def test_nothing_of_a_repository_is_run(world, shop, tmp_path):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)
    trap = tmp_path / "ran"
    (shop / ".gitattributes").write_text("*.py diff=trap filter=trap\n")
    for name in ("diff.trap.textconv", "filter.trap.clean", "filter.trap.smudge", "core.fsmonitor", "diff.external"):
        git(shop, "config", name, f"touch '{trap}'; cat")

    assert by(world, shop, "upload.py:2") == [session]
    ask(world, shop, changes=True)
    ask(world, shop, commit="HEAD")

    assert not trap.exists()


def test_a_forgotten_session_leaves_no_line_behind(world, shop):
    session = wrote(world, shop)
    commit(shop, "upload.py", BODY)
    assert by(world, shop, "upload.py:2") == [session]
    store = Store(index_db())
    (blob,) = [lines for (lines,) in store.db.execute("SELECT lines FROM authored")]
    store.forget_session("claude", session)
    assert store.erase()
    store.close()

    assert by(world, shop, "upload.py:2") == []
    assert all(blob not in path.read_bytes() for path in index_db().parent.glob("index.db*"))


def test_why_has_each_change_with_the_prompt_that_caused_it(world, shop, run):  # noqa: F811
    first = wrote(world, shop)
    one = commit(shop, "upload.py", BODY, "Retry")
    edit = {"file_path": str(shop / "upload.py"), "old_string": FIRST, "new_string": SLOWLY}
    second = world.worked("claude", shop, "> seven times, and slowly", Did("Edit", edit), "Done.")
    text = BODY.replace(FIRST, SLOWLY)
    two = commit(shop, "upload.py", text, "Slowly", at=LATER + 50)
    by_hand = commit(shop, "upload.py", text.replace("slowly=True", "slowly=by_hand()"), "By hand", at=LATER + 100)

    told = json.loads(run("why", "upload.py:1", "--json").out)

    changes = [(one["commit"], one["session_id"], one["asked"]) for one in told["changes"]]
    assert changes == [
        (by_hand, None, None), (two, second, "seven times, and slowly"), (one, first, "retry the upload five times"),
    ]  # fmt: skip
    lines = run("why", "upload.py:1").out.splitlines()
    assert [line.split()[1] for line in lines] == [by_hand[:8], two[:8], one[:8]]
    assert "no session is known: By hand" in lines[0]


def test_why_of_a_file_has_each_of_its_commits_beside_the_session_that_made_it(world, shop, run):  # noqa: F811
    first = wrote(world, shop)
    one = commit(shop, "upload.py", BODY, "Retry")
    by_hand = commit(shop, "upload.py", BODY + "print('by hand, and nothing else')\n", "By hand", at=LATER + 10)
    git(shop, "mv", "upload.py", "sender.py")
    git(shop, "commit", "-q", "-m", "Rename", at=LATER + 20)
    edit = {"file_path": str(shop / "sender.py"), "old_string": FIRST, "new_string": SLOWLY}
    second = world.worked("claude", shop, "> seven times, and slowly", Did("Edit", edit), "Done.")
    text = BODY.replace(FIRST, SLOWLY) + "print('by hand, and nothing else')\n"
    commit(shop, "other.py", "print('another file')\n", "Another", at=LATER + 25)
    two = commit(shop, "sender.py", text + "\n\nanother_call(by_hand)\n", "Slowly", at=LATER + 30)
    removed = commit(shop, "sender.py", BODY.replace(FIRST, SLOWLY), "Remove", at=LATER + 40)

    told = json.loads(run("why", "sender.py", "--json").out)

    assert [(one["subject"], one["session_id"], one["exchange"], one["lines"], one["of"]) for one in told["changes"]] == [
        ("Remove", None, None, None, None), ("Slowly", second, 1, 1, 2), ("Rename", None, None, None, None),
        ("By hand", None, None, None, None), ("Retry", first, 2, 7, 7),
    ]  # fmt: skip
    assert "more" not in told
    assert [told["changes"][at]["commit"] for at in (0, 1, 3, 4)] == [removed, two, by_hand, one]
    lines = run("why", "sender.py", "--limit", "2")
    assert [line.split()[1] for line in lines.out.splitlines()] == [removed[:8], two[:8]]
    assert "no session is known: Remove" in lines.out
    assert "1 of 2 lines" in lines.out
    assert "seven times, and slowly" in lines.out
    assert "3 more: --limit 5" in lines.err


def test_why_of_a_file_begins_with_what_is_not_committed(world, shop, run):  # noqa: F811
    session = wrote(world, shop)
    commit(shop, "upload.py", "import something\n", at=1_700_000_000)
    (shop / "upload.py").write_text("import something\n" + BODY)

    told = json.loads(run("why", "upload.py", "--json").out)

    assert [(one["commit"] == "", one["session_id"]) for one in told["changes"]] == [(True, session), (False, None)]


@pytest.mark.parametrize("wrong", ["nothing.py", "../other.py", "--output=x", "upload.py:x", "", "a\0b"])
def test_why_of_what_is_no_file_is_an_error(world, shop, run, wrong):  # noqa: F811
    commit(shop, "upload.py", BODY)

    told = run("why", "--", wrong)

    assert told.code != 0
    assert "Traceback" not in told.err
    assert not (shop / "x").exists()


@pytest.mark.parametrize("name", thorough_except_first(["-x", "a b.py", "sub/ä'\"$(x).py", ":(top)x"]))
def test_why_of_a_file_with_an_odd_name(world, shop, run, name):  # noqa: F811
    session = wrote(world, shop, name)
    commit(shop, name, BODY)

    (change,) = json.loads(run("why", "--json", "--", name).out)["changes"]

    assert change["session_id"] == session


def test_the_command_says_what_no_session_wrote(world, shop, run):  # noqa: F811
    wrote(world, shop)
    commit(shop, "other.py", "print('written by hand')\n")

    found = run("find", "--line", "other.py:1")

    assert found.code == 3
    assert "No session is known to have written this." in found.err


def test_the_command_names_the_share_and_the_fork(world, shop, run):  # noqa: F811
    session = wrote(world, shop)
    name = commit(shop, "upload.py", BODY + "print('by hand, and nothing else')\n")

    found = run("find", "--file", "upload.py")

    assert found.code == 0
    assert f"wrote 7 of 8 lines, most of them in exchange 2, commit {name[:8]}" in found.out
    assert "No session is known to have written 1 of 8 lines." in found.err
    assert session[:8] in found.err


@parametrize_subtests(
    ("name", "given"),
    [
        ("Edit", {"file_path": "/a", "old_string": "the old line", "new_string": "the old line\nthe new line\n"}),
        ("MultiEdit", {"file_path": "/a", "edits": [{"old_string": "", "new_string": "the new line"}]}),
        ("Edit", {"filePath": "/a", "oldString": "", "newString": "the new line"}),
        ("create_file", {"path": "/a", "file_text": "the new line"}),
        ("Edit", {"path": "/a", "old_str": "", "new_str": "  the  new line,"}),
        (
            "apply_patch",
            {"patchText": "*** Begin Patch\n*** Update File: /a\n-the old line\n+the new line\n*** End Patch"},
        ),
        ("apply_patch", "*** Begin Patch\n*** Add File: /a\n+the new line\n*** End Patch"),
        ("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Add File: /a\n+the new line\n*** End Patch"]}),
    ],
)
def test_each_form_of_an_edit_has_the_lines_that_it_adds(name, given):
    key = b"k" * 16
    assert lines_by(name, given) == ()
    with hashing_lines(key):
        assert lines_by(name, given) == tuple(line_hashes(comparable_lines("the new line"), key))
