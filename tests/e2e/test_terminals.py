"""How the tests type: into a program of ours that loses keys, as the real ones do while they start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.programs import cache_folder
from tests.e2e.terminals import Terminal
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.e2e

#: Shows a question with three options, or a line to type in. It loses the first keys, and the first Enter.
PROGRAM = """
import os, sys, tty
tty.setraw(0)
what, lost, enters = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
line, marked, heard = "", 1, sys.argv[4]
def show():
    rows = ["Which one?", *(f"{'❯' if marked == n else ' '} {n}. Option" for n in (1, 2, 3)), "enter confirm"]
    if what == "line":
        rows = ["❯ said before", "", f"❯ {line}"]
    sys.stdout.write("\\x1b[2J\\x1b[H" + "\\r\\n".join(rows))
    sys.stdout.flush()
def end(text):
    with open(heard, "a") as file:
        file.write(text + "\\n")
show()
while True:
    for key in os.read(0, 99).decode():
        if lost:
            lost -= 1
        elif key == "\\r" and enters:
            enters -= 1
        elif key == "\\r":
            end(line if what == "line" else str(marked))
            what, line = "line", ""
        elif key == "\\x15":
            line = ""
        elif what == "line":
            line += key
        elif key in "123":
            marked = int(key)
    show()
"""


@pytest.fixture(scope="module")
def bare(machines: list[Machine]) -> Iterator[Machine]:
    """A machine without agents."""
    with machine_in(cache_folder(), Path("none")) as fresh:
        machines.append(fresh)
        yield fresh


@pytest.fixture
def started(bare: Machine, tmp_path: Path) -> Callable[..., Terminal]:
    """The program, as it loses so many keys and Enters; it writes what it heard into a file."""

    def start(what: str, lost: int, enters: int) -> Terminal:
        terminal = bare.interactive(
            sys.executable, "-c", PROGRAM, what, str(lost), str(enters), str(tmp_path / "heard"), cwd=bare.home
        )
        terminal.patience = 0.5
        return terminal

    return start


@pytest.mark.parametrize(("lost", "enters"), thorough_except_first([(3, 2), (0, 0), (3, 0), (9, 0), (0, 1)]))
def test_a_line_arrives_once_and_whole(started, tmp_path, lost, enters):
    terminal = started("line", lost, enters)

    terminal.type("said aloud")
    terminal.type("and more")

    assert "said aloud\nand more\n" == (tmp_path / "heard").read_text()


@pytest.mark.thorough  # without an agent: tests of workers
@pytest.mark.parametrize(("lost", "enters"), [(2, 2), (0, 0), (1, 0), (0, 1)])
def test_the_option_that_is_meant_is_chosen(started, tmp_path, lost, enters):
    started("question", lost, enters).choose("Which one?", "2")

    assert "2\n" == (tmp_path / "heard").read_text()


def test_what_fails_tells_what_was_on_the_screen(started, monkeypatch):
    monkeypatch.setattr("tests.e2e.terminals.SECONDS", 0.5)
    terminal = started("line", 999, 0)

    with pytest.raises(AssertionError, match=r"Could not type 'said aloud'\. The screen:\n❯ said before"):
        terminal.type("said aloud")
