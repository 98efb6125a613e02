"""Equal errors have equal lines, whatever differs between two runs. Lines of all programs are left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.commands import WorkCommands
from indexer.transcripts.line_hashes import error_signatures, line_shape, text_hashes
from tests.support.cases import parametrize_subtests

NAMES = st.text("abcdefghijklmnopqrstuvwxyz_-", min_size=1, max_size=12)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(lambda names: "/" + "/".join(names))
NUMBERS = st.integers(0, 10**12)


@given(PATHS, PATHS, NUMBERS, NUMBERS)
def test_paths_and_numbers_do_not_count(one, other, few, many):
    said = "{0}: line {1}: widget backend refused the handshake at {0}:{1} after {1}ms"

    assert line_shape(said.format(one, few)) == line_shape(said.format(other, many))


@given(st.uuids(), st.uuids(), st.datetimes(), st.datetimes())
def test_ids_hashes_and_times_do_not_count(one, other, then, now):
    said = "{1} upload {0} to https://example.org/{0}?at={1} failed: blob {2} is corrupt"

    first, second = ((id_, when.isoformat(), id_.hex) for id_, when in ((one, then), (other, now)))
    assert line_shape(said.format(*first)) == line_shape(said.format(*second))


@given(st.text(), st.text())
def test_any_output_has_lines_that_are_the_same_each_time(before, after):
    output = f"{before}\nerror: widgetBackend refused the handshake\n{after}"

    found = error_signatures(output)

    assert found == error_signatures(output)
    assert all(line_shape(line) == line for line in found)
    assert len(found) <= 12


@given(st.text("\n\x1b[0m ab/:.1", max_size=60))
def test_a_plain_line_stays_as_it_is(text):
    assert line_shape(line_shape(text)) == line_shape(text)


@parametrize_subtests(
    "output",
    [
        "",
        "Exit code 1",
        "bash: line 1: rg: command not found",
        "cat: /etc/shadow: Permission denied",
        "ls: cannot access '/tmp/x': No such file or directory",
        'error: script "test" exited with code 1',
        "FAIL\nFAILED (failures=2)\n1 failed, 20 passed in 0.3s",
        "fatal: not a git repository (or any of the parent directories): .git",
        "  12 | throw new Error('uploadWidget')\n    at failUpload (src/a.ts:3:4)",
    ],
)
def test_what_every_program_prints_is_no_errors_own(output):
    assert [] == error_signatures(output)


def test_colours_do_not_count_and_a_line_counts_once():
    red = "\x1b[31merror: widgetBackend is unknown\x1b[0m"

    assert ["error: widgetBackend is unknown"] == error_signatures(f"{red}\n{red}\nerror: widgetBackend is unknown")


def test_of_a_long_output_beginning_and_end_are_looked_at():
    output = "\n".join(
        ["error: firstWidget", *["compiling"] * 5_000, "error: middleWidget", *["x"] * 9_000, "error: lastWidget"]
    )

    assert ["error: firstWidget", "error: lastWidget"] == error_signatures(output)


def test_without_the_key_nobody_can_tell_which_line_a_hash_is_of():
    assert text_hashes(["a"], b"one") != text_hashes(["a"], b"other")


@parametrize_subtests(
    ("one", "other", "same"),
    [
        ("cd /tmp && go test ./...", "go test ./internal -run X 2>&1 | tail", True),
        ("wrapper tool run test", "tool run test 2>&1", True),
        ("npm run lint", "npm test && npm run lint", True),
        ("npm run lint", "cargo build", False),
        ("git commit -m x", "git push", False),
    ],
)
def test_a_command_is_recognized_when_it_is_run_again(one, other, same):
    assert WorkCommands.of(one).are_again(WorkCommands.of(other)) is same


def test_what_only_looks_runs_nothing():
    assert () == WorkCommands.of("cd /tmp; ls -l | grep x && cat y && git status && git log -1")


@parametrize_subtests(
    ("line", "does"),
    [
        ("npm install", True),
        ("bun run lint:fix", True),
        ("rm -rf tmp/clones", True),
        ("make test", False),
        ("git pull --rebase", False),
        ("ssh host 'apt update'", False),
    ],
)
def test_what_changes_something_is_known_by_its_name(line, does):
    assert WorkCommands.of(line).change() is does


def test_a_command_run_another_way_is_like_it():
    assert WorkCommands.of("tool run test").are_alike(WorkCommands.of("wrapper tool run test"))
    assert not WorkCommands.of("ssh host 'ls /etc'").are_alike(WorkCommands.of("ssh host 'free -m'"))


@pytest.mark.parametrize(
    ("line", "hidden"), [("make | tail", True), ("make; echo x", True), ("make 'a|b' && ls", False)]
)
def test_a_status_may_be_that_of_what_stands_behind(line, hidden):
    assert WorkCommands.hide_the_end(line) is hidden
