"""Progress of long work: bars for people, lines for programs, nothing for short work."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from smart_fork.cli import output
from smart_fork.cli.output import ProgressBar, ProgressLines, progress_bar, working


@pytest.fixture(autouse=True)
def _not_as_json(monkeypatch):
    """Reset --json: no command runs here, and another test may have left it set."""
    monkeypatch.setattr(output, "_asked", {"json": False})


@pytest.fixture
def screen(monkeypatch) -> io.StringIO:
    shown = io.StringIO()
    monkeypatch.setattr(output.err, "console", Console(file=shown, force_terminal=True, width=100))
    monkeypatch.setenv("TERM", "xterm")
    return shown


def test_a_bar_is_shown_to_people_and_only_where_there_is_work(screen):
    with progress_bar() as bar:
        assert isinstance(bar, ProgressBar)
        bar("reading", 0, 0)
        assert screen.getvalue() == ""
        bar("reading", 1, 2)
        bar("embedding", 1, 2)
    with progress_bar(quiet=True) as nobody:
        assert nobody is None


def test_each_stage_has_a_bar_with_its_share_and_the_time_that_is_left_in_80_columns(screen):
    now = [0.0]
    bar = ProgressBar(lambda: now[0])
    for number in range(4):
        now[0] = float(number)
        bar("reading", 100 * number, 350)
    bar("reading", 350, 350)
    bar("loading", 0, 1)
    now[0] = 7.0
    loading = frame(bar)[1]
    bar("loading", 1, 1)
    for number in range(5):
        now[0] += 1
        bar("embedding", 32 * number, 160)
    reading, _, embedding = frame(bar)
    bar.close()

    assert "loading the model" in loading
    assert loading.endswith(" 4 s"), "it moves, and says for how long"
    assert reading.endswith(" 350 of 350 in 3 s")
    assert embedding.endswith(" 128 of 160 (80 %), about 1 s left")
    assert max(map(len, (reading, loading, embedding))) <= 80


def frame(bar: ProgressBar) -> list[str]:
    sheet = Console(file=io.StringIO(), width=100)
    sheet.print(bar._bars.get_renderable())
    return [line.rstrip() for line in sheet.file.getvalue().splitlines() if line.strip()]


@pytest.fixture
def lines():
    """Return progress lines with the clock `now`, without the thread that prints lines in between."""
    now = [0.0]
    told = ProgressLines(lambda: now[0])
    told.now = now
    told._looking = threading.current_thread()
    return told


def test_where_nobody_looks_at_a_terminal_a_stage_has_a_line_at_its_beginning_and_at_its_end(lines, capsys):
    for number in range(0, 351, 10):
        lines.now[0] = number / 25
        lines("reading", number, 350)
    lines("loading", 0, 1)
    lines.now[0] = 17.0
    lines.look()
    lines.now[0] = 18.0
    lines("loading", 1, 1)
    for number in range(0, 9_001, 32):
        lines.now[0] = 20 + number / 2
        lines("embedding", number, 9_000)
        if number == 64:
            break
    lines.close()

    assert [
        "reading logs: 50 of 350 (14 %), about 12 s left",
        "reading logs: 300 of 350 (85 %), about 2 s left",
        "reading logs: 350 of 350 in 14 s",
        "loading the model: 3 s",
        "loading the model: 4 s",
        "embedding passages: 32 of 9,000 (0 %), about 1 h 14 min left",
        "embedding passages: 64 of 9,000 (0 %), about 1 h 14 min left",
        "embedding passages: 64 of 9,000 in 32 s",
    ] == capsys.readouterr().err.splitlines()


def test_short_work_says_nothing_and_what_has_not_begun_has_no_estimate(lines, capsys):
    lines("reading", 0, 0)
    lines("reading", 3, 4)
    lines("reading", 4, 4)
    lines("embedding", 0, 128)
    assert "" == capsys.readouterr().err
    lines.now[0] = 60.0
    lines.look()

    assert ["embedding passages: 0 of 128 (0 %)"] == capsys.readouterr().err.splitlines()


def test_work_that_has_nothing_to_tell_is_looked_at_by_a_thread_of_its_own(monkeypatch, capsys):
    monkeypatch.setattr(output, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(output, "LOOK_SECONDS", 0.0)
    said = threading.Event()
    monkeypatch.setattr(output, "say", lambda line: said.set() if line.startswith("erasing: ") else None)
    monkeypatch.setattr(ProgressLines, "__call__", first_look_is_later(ProgressLines.__call__))

    with progress_bar(), working("erasing"):
        assert said.wait(120)


def first_look_is_later(call):
    """Return a call of the progress that does not print a line itself."""

    def called(self, *stage) -> None:
        look, self.look = self.look, lambda: None
        call(self, *stage)
        self.look = look

    return called


@pytest.mark.parametrize("lines", [False, True])
def test_what_is_said_of_work_goes_to_stderr_alone_without_control_characters_in_lines(monkeypatch, lines):
    shown, written = io.StringIO(), io.StringIO()
    monkeypatch.setattr(output.err, "console", Console(file=shown, force_terminal=not lines, width=100))
    monkeypatch.setattr("sys.stdout", written)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "FIRST_SECONDS", 0.0)

    with working("starting the agent"):
        pass
    with working("starting the agent", quiet=True):
        pass

    assert "" == written.getvalue()
    assert "starting the agent" in shown.getvalue()
    assert ("\x1b" in shown.getvalue()) is not lines
    if lines:
        assert shown.getvalue().replace("\n", "").isprintable()


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_what_is_no_terminal_or_a_dumb_one_gets_lines(screen, monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    if term == "xterm":
        monkeypatch.setattr(output.err, "console", Console(file=screen))

    with progress_bar() as told:
        assert isinstance(told, ProgressLines)
    assert "" == screen.getvalue()


def test_bars_that_made_room_for_a_question_are_drawn_again_behind_it(screen):
    bar = ProgressBar()
    bar("reading", 3, 3)
    bar.close()
    screen.write("Commit? ")
    bar("erasing", 1, 5)

    (again,) = frame(bar)
    bar.close()

    assert "erasing" in again
