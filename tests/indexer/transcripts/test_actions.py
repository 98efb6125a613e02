"""One line for each tool call, and the names of code in its input and output."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.actions import describe, describe_raw, edited_by, error_note, is_ours, read_by, runs_ours
from indexer.transcripts.symbols import HEAD_CHARACTERS, MAX_SYMBOLS, Symbols
from smart_fork.agents.codex.codec import failure_of
from tests.support.cases import parametrize_subtests

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b/c.py\n+z\n*** End Patch"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["Bash", "Edit", "Read", "Grep", "apply_patch", "shell", "Task", "str_replace_editor", "other"])
KEYS = st.sampled_from(["command", "cmd", "file_path", "path", "pattern", "query", "input", "patch", "description"])


def symbols(*texts: str) -> list[str]:
    Symbols.forget_shown()
    found = Symbols()
    for text in texts:
        found.add(text)
    return list(found)


@parametrize_subtests(
    ("name", "arguments", "line"),
    [
        ("Bash", {"command": "pytest -q  \n tests"}, "run pytest -q tests"),
        ("shell", {"command": ["bash", "-lc", "ls -l | wc"]}, "run ls -l | wc"),
        ("shell", {"command": ["git", "status"]}, "run git status"),
        ("exec_command", {"cmd": "cargo test"}, "run cargo test"),
        ("some_mcp_tool", {"command": "make"}, "run make"),
        ("Edit", {"file_path": "/srv/a.py", "old_string": "x"}, "edit /srv/a.py"),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, "edit n.ipynb"),
        ("str_replace_editor", {"command": "create", "path": "a.py"}, "edit a.py"),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, "read a.py"),
        ("Read", {"file_path": "/srv/a.py"}, "read /srv/a.py"),
        ("Grep", {"pattern": "def x", "path": "src"}, "search def x src"),
        ("apply_patch", {"input": PATCH}, "edit a.py, b/c.py"),
        ("apply_patch", {"patchText": PATCH}, "edit a.py, b/c.py"),
        ("shell", {"command": ["apply_patch", PATCH]}, "edit a.py, b/c.py"),
        ("apply_patch", {"command": ["apply_patch", PATCH]}, "edit a.py, b/c.py"),
        ("Task", {"description": "find callers", "prompt": "long"}, "Task find callers"),
        ("WebFetch", {"url": "https://example.org"}, "WebFetch https://example.org"),
        ("TodoWrite", {"todos": []}, ""),
        ("unknown", {}, ""),
    ],
)
def test_an_action_is_one_line(name, arguments, line):
    assert describe(name, arguments) == line


@parametrize_subtests(
    "given", [PATCH, *({name: PATCH} for name in ("input", "patch", "patchText")), {"command": ["apply_patch", PATCH]}]
)
def test_a_patch_edits_its_files_however_an_agent_gives_it(given):
    assert ("a.py", "b/c.py") == edited_by("apply_patch", given)


def test_a_long_action_is_cut_with_an_ellipsis():
    line = describe("Bash", {"command": "x" * 5000})

    assert len(line) == 240
    assert line.endswith("...")


@pytest.mark.parametrize(("text", "line"), [(PATCH, "edit a.py, b/c.py"), ("print(1)", "run print(1)"), ("", "")])
def test_a_call_with_one_text_is_a_patch_or_a_script(text, line):
    assert describe_raw("exec", text) == line


@parametrize_subtests(
    ("name", "namespace"),
    [
        ("mcp__smart-fork__smart_fork", ""),
        ("mcp__smart_fork__list_sessions", ""),
        ("smart_fork", "mcp__smart_fork"),
        ("read_session", "mcp__smart-fork"),
        ("mcp__plugin_x_smart-fork__read_session", ""),
    ],
)
def test_our_own_tools_are_known_in_all_spellings(name, namespace):
    assert is_ours(name, namespace)
    assert describe(name, {"query": "x"}) == "" or namespace


def test_other_tools_are_not_ours():
    assert not is_ours("mcp__github__fork_repo", "mcp__github")


@parametrize_subtests(
    "command",
    [
        "smart-fork find 'retry'",
        ".venv/bin/smart-fork find x",
        "cd /srv/shop && smart-fork find x | head",
        "uvx smart-fork find x",
        "uv run smart-fork fork 60309e1e",
        "A=1 smart-fork list",
        "python3 -m smart_fork find x",
        ["bash", "-lc", "smart-fork find x"],
    ],
)
def test_a_shell_that_runs_us_answers_with_our_own_words(command):
    assert runs_ours({"command": command})
    assert describe("Bash", {"command": command}) == ""


@parametrize_subtests(
    "command",
    [
        "cd ~/src/smart-fork && pytest -q",
        "git clone https://example.org/smart-fork",
        "grep -r smart-fork docs",
        "ls smart-fork/docs",
    ],
)
def test_a_folder_of_our_name_is_somebody_s_work(command):
    assert not runs_ours({"command": command})
    assert describe("Bash", {"command": command}).startswith("run ")


@parametrize_subtests(
    ("output", "note"),
    [
        ("Exit code 2\nE   assert 1 == 2", "exit 2: E assert 1 == 2"),
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nerror: no such file", "exit 1: error: no such file"),
        ("Command: sh -c 'x\nExit code: 9'\nChunk ID: 1\nProcess exited with code 7\nOutput:\nboom\n", "exit 7: boom"),
        ("Process exited with code 1\nOutput:\n", "exit 1"),
        ("exit_code: 3\nbad", "exit 3: bad"),
        ("<tool_use_error>File has not been read yet.</tool_use_error>", "File has not been read yet."),
        ("", "failed"),
        ("x" * 500, "x" * 197 + "..."),
    ],
)
def test_a_failure_is_its_status_and_first_line(output, note):
    assert error_note(output) == note


@parametrize_subtests(
    ("output", "note"),
    [
        ("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nProcess exited with code 3", ""),
        ("Wall time: 1 seconds\nOutput:\n{}", ""),
        ("the log says:\nExit code: 1", ""),
        ("Exit code: 1\nOutput:\nno", "exit 1: no"),
        ("exec_command failed for `ls`: denied", "exec_command failed for `ls`: denied"),
    ],
)
def test_a_codex_call_failed_only_if_its_own_header_says_so(output, note):
    assert failure_of(output) == note


@given(name=NAMES, arguments=st.dictionaries(KEYS, JSON, max_size=4))
def test_any_arguments_are_one_line_or_none(name, arguments):
    assert "\n" not in describe(name, arguments)
    runs_ours(arguments)


@given(st.text())
def test_any_output_has_a_note_of_one_line(text):
    assert 0 < len(error_note(text)) <= 200
    assert "\n" not in error_note(text) + failure_of(text)


def test_names_of_code_are_kept_in_the_order_in_which_they_came():
    text = "getUserById(MAX_RETRY_COUNT) and getUserById again, plain words, HTTPServer2x, os, a_b"

    assert symbols(text) == ["getUserById", "MAX_RETRY_COUNT", "HTTPServer2x"]


def test_keys_and_digests_are_no_names():
    assert symbols("sk_0123456789abcdef " + "a_" + "x" * 80) == []


def test_a_session_keeps_no_more_names_than_it_may():
    starts = range(0, MAX_SYMBOLS + 1000, 700)
    known = symbols(*(" ".join(f"name_{i:05}" for i in range(start, start + 700)) for start in starts))

    assert known == [f"name_{i:05}" for i in range(MAX_SYMBOLS)]


def test_only_the_beginning_of_a_text_is_looked_at():
    assert symbols("first_name" + " " * HEAD_CHARACTERS + "too_late", "second_name") == ["first_name", "second_name"]


@given(st.lists(st.text(st.sampled_from("aZ_0 é-\n\0"), max_size=30)))
def test_a_name_is_a_word_with_an_underscore_or_a_capital_inside(texts):
    name = re.compile(r"\b[A-Za-z][a-z0-9]*(?:_[A-Za-z0-9]|[A-Z][A-Za-z0-9]*(?:[a-z0-9]|_[A-Za-z0-9]))\w*", re.ASCII)
    found = dict.fromkeys(found for text in texts for found in name.findall(text))

    assert symbols(*texts) == [one for one in found if 6 <= len(one) <= 64 and one.count("0") <= 8]


def test_names_are_found_at_any_depth_of_arguments():
    """The decoder allows deeper nesting than Python's stack."""
    value: object = "deep_name"
    for _ in range(5000):
        value = [{"x": value}]
    known = Symbols()

    known.add_all({"first": "first_name", "then": value})

    assert list(known) == ["first_name", "deep_name"]


@parametrize_subtests(
    "output",
    [
        "export DB_PASSWORD={}",
        '{{"user": "app", "password": "{}", "port": 5432}}',
        "postgres://app:{}@db.internal/prod",
        "curl -u app:{} https://api.internal",
        'name: DB_PASSWORD\nvalue: "{}"',
        "machine api.internal\n  login app\n  password {}\n",
        "aws_secret_access_key = {}/Kx7Qm2Zp9Lw4Vt8Rb3Nc6",
        "Authorization: Bearer {}7Qm2Zp9Lw4Vt8Rb3",
        "x\n" * 8_150 + "DB_PASSWORD='{}'",
        "x" * (HEAD_CHARACTERS - 30) + " DB_PASSWORD={}",
    ],
)
def test_a_secret_that_only_an_output_has_leaves_no_piece_among_the_names(output: str):
    secret = "aB3x-mixedCase_Part9+last_Piece.end_Ing4"

    found = symbols("first_name", output.format(secret), "second_name")

    assert [name for name in found if name in secret] == []
    assert {"first_name", "second_name"} <= set(found)


def test_lines_of_a_key_are_no_names():
    line = "MIIEvQIBADANBg/kqhkiGwBAQEF+AASCBKcwggSjAgEAAoIBAQ/DuVrabcDef+ghi"
    key = "\n".join(["-----BEGIN PRIVATE" + " KEY-----", *[line] * 20, "-----END PRIVATE" + " KEY-----"])

    assert symbols(f"before_it\n{key}\nbehind_it", f"cut_key\n{key[:900]}") == ["before_it", "behind_it", "cut_key"]


@parametrize_subtests(
    "arguments",
    [
        {"user": "app_user", "password": "aB3x-mixedCase_Part9"},
        {"env": [{"name": "DB_PASSWORD", "value": "aB3x-mixedCase_Part9"}], "user": "app_user"},
        {"headers": {"X-Api-Key": "aB3x-mixedCase_Part9x8Y7"}, "user": "app_user"},
        {"command": ["mysql", "-u", "app_user", "-paB3x-mixedCase_Part9"]},
        {"command": ["login", "app_user", "--password", "aB3x-mixedCase_Part9"]},
    ],
)
def test_a_secret_that_only_the_name_of_an_argument_tells_leaves_no_piece(arguments: object):
    Symbols.forget_shown()
    found = Symbols()
    found.add_all(arguments)

    assert set(found) - {"DB_PASSWORD"} == {"app_user"}


@parametrize_subtests(
    ("name", "arguments", "expected"),
    [
        ("Read", {"file_path": "/shop/a.py", "offset": 1}, ("/shop/a.py",)),
        ("str_replace_editor", {"command": "view", "path": "/shop/a.py"}, ("/shop/a.py",)),
        ("str_replace_editor", {"command": "create", "path": "/shop/a.py"}, ()),
        ("Grep", {"pattern": "x", "path": "a.py"}, ()),
        ("shell", {"command": ["bash", "-lc", "sed -n '1,200p' a.py | head -n 20"]}, ("a.py",)),
        ("exec_command", {"cmd": "nl -ba 'a b.py'; cat c.py d.py", "workdir": "/shop"}, ("/shop/a b.py", "/shop/c.py", "/shop/d.py")),
        ("exec_command", {"cmd": "cat /etc/a", "workdir": "/shop"}, ("/etc/a",)),
        ("exec_command", {"cmd": "cd sub && cat a.py"}, ()),
        ("exec_command", {"cmd": "sed -i s/a/b/ a.py; sed s/a/b/ b.py; sed -n -e 1p c.py"}, ()),
        ("exec_command", {"cmd": "cat > a.py <<'EOF'\nx\nEOF"}, ()),
        ("exec_command", {"cmd": "cat *.py $FILE ~/a `which x`"}, ()),
        ("exec_command", {"cmd": "grep x a.py; python cat.py"}, ()),
        ("Bash", {"command": "cat a.py /shop/b.py"}, ("/shop/b.py",)),
        ("Bash", {"command": 7}, ()),
        ("exec", "cat a.py", ()),
    ],
)  # fmt: skip
def test_the_files_that_a_call_reads_are_those_that_are_sure(name, arguments, expected):
    assert read_by(name, arguments) == expected
