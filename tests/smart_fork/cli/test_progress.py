"""What is said of long work: bars to people, lines to programs, nothing where it is short."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from smart_fork.cli import output
from smart_fork.cli.progress import ProgressBar, ProgressLines, progress_bar


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


def test_reading_and_embedding_have_a_bar_each_with_the_time_that_is_left(screen):
    now = [0.0]
    with progress_bar() as bar:
        bar._bars.get_time = lambda: now[0]
        for number in range(4):
            now[0] = float(number)
            bar("reading", 100 * number, 350)
        bar("reading", 350, 350)
        for number in range(5):
            now[0] += 1
            bar("embedding", 32 * number, 160)
        bar._bars.refresh()
        reading, embedding = _last_frame(bar)

    assert ("reading logs", "350/350") == (reading[2:14], reading.split()[-3])
    assert ("embedding passages", "128/160 0:00:01 left") == (embedding[2:20], embedding[-20:].strip())


def _last_frame(bar: ProgressBar) -> list[str]:
    sheet = Console(file=io.StringIO(), width=100)
    sheet.print(bar._bars.get_renderable())
    return [line for line in sheet.file.getvalue().splitlines() if line.strip()]


def test_where_nobody_looks_at_a_terminal_lines_say_how_long_it_still_takes(capsys):
    now = [0.0]
    lines = ProgressLines(lambda: now[0])
    for number in range(0, 351, 10):
        now[0] = number / 25
        lines("reading", number, 350)
    for number in range(0, 9_001, 32):
        now[0] = 14 + number / 2
        lines("embedding", number, 9_000)
        if number == 64:
            break
    assert [
        "reading logs: 130 of 350, about 9 s left",
        "embedding passages: 32 of 9,000, about 1 h 14 min left",
        "embedding passages: 64 of 9,000, about 1 h 14 min left",
    ] == capsys.readouterr().err.splitlines()


def test_short_work_says_nothing_and_what_has_not_begun_has_no_estimate(capsys):
    now = [0.0]
    lines = ProgressLines(lambda: now[0])
    lines("reading", 0, 0)
    lines("reading", 3, 4)
    assert "" == capsys.readouterr().err
    now[0] = 60.0
    lines("masking", 0, 0)
    lines("embedding", 0, 128)
    lines("embedding", 32, 128)

    assert ["embedding passages: 0 of 128"] == capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_what_is_no_terminal_or_a_dumb_one_gets_lines(screen, monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    if term == "xterm":
        monkeypatch.setattr(output.err, "console", Console(file=screen))

    with progress_bar() as progress:
        assert isinstance(progress, ProgressLines)
    assert "" == screen.getvalue()
