"""The output of commands: data goes to stdout; errors, notes and progress go to stderr."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TextIO

from smart_fork.display_text import Stage, printable
from smart_fork.errors import SmartForkError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task
    from rich.text import Text

    from indexer.runs import FailedLog
    from smart_fork.finding.session_library import Library


#: The note after an erasure while another process still keeps the erased text in the index's files.
NOT_ERASED = (
    "Search no longer finds it, but its bytes are still in the index's files: another process reads them, or the disk "
    "is full. The next indexing erases them; `smart-fork index run` does it now."
)
#: The most files without a session that are named one by one.
_MAX_PASSED_OVER = 5
#: The indentation of the next step below an error.
_HINT = "  "
#: The smallest width of wrapped lines, in cells.
_NARROW = 20
#: Environment variables that make rich treat any stream as a terminal.
_SAID_TO_BE = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})


class Unprinted(SmartForkError):
    """An error: standard output cannot be written, for example because the disk is full."""

    code = "unprinted"
    usual_hint = "Free space there, or write it elsewhere."

    def __init__(self, error: OSError) -> None:
        super().__init__(f"The output could not be written: {error.strerror or error}")


class Plain:
    """A text for the terminal, as pieces with a style each. It imports rich only if it is printed with rich."""

    def __init__(self, *spans: tuple[str, str]) -> None:
        self._spans = spans

    def __add__(self, other: Plain) -> Plain:
        return Plain(*self._spans, *other._spans)

    def __str__(self) -> str:
        return "".join(text for text, _ in self._spans)

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text.assemble(*self._spans)


class _Stream:
    """Standard output or standard error. rich is imported only for a terminal, or to print a table."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(stderr=self._stderr, highlight=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        return self._uses_rich and self.console.is_terminal

    @property
    def _uses_rich(self) -> bool:
        """Return True if rich prints on this stream: on a terminal, with FORCE_COLOR, or once it has printed."""
        return "console" in vars(self) or self._file.isatty() or bool(_SAID_TO_BE.intersection(os.environ))

    @property
    def _file(self) -> TextIO:
        return sys.stderr if self._stderr else sys.stdout

    def print(self, *parts: Any, sep: str = " ", end: str = "\n", **how: Any) -> None:
        """Print `parts` as rich's `Console.print` does. A `Plain` text is printed literally, without markup."""
        parts = tuple(map(_as_plain, parts))
        with self._writing():
            if self._uses_rich or not all(isinstance(one, Plain) for one in parts):
                self.console.print(*parts, sep=sep, end=end, **how)
            else:
                self._file.write(sep.join(map(str, parts)).expandtabs() + end)
                self._file.flush()  # in the order of what goes to the other stream

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A context that turns a failed write to stdout into `Unprinted`, and ignores one to stderr."""
        try:
            yield
        except OSError as error:
            if self._stderr:
                return
            raise _unprinted(error) from error

    @property
    def width(self) -> int:
        """The number of columns of the terminal; 0 if the stream is no terminal, where lines have any length."""
        return self.console.width if self.is_terminal else 0

    def row(self, *given: Plain | str) -> None:
        """Print `given` as one line of a table, shortened to the terminal's width; without a terminal, whole."""
        parts = [*map(_as_plain, given)]
        if not self._uses_rich:
            self.print(Plain((" ".join(map(str, parts)).removesuffix("\n").replace("\n", " "), "")))
            return
        from rich.text import Text

        line = Text(" ").join(Text(" ").join(one.__rich__() for one in parts).split())
        if self.is_terminal:
            line.plain = cut_to(line.plain, self.console.width)
        self.print(line)

    def named(self, name: str, text: str, width: int) -> None:
        """Print the label `name` in `width` columns, and `text` wrapped beside it; without a terminal, on one line."""
        head, body = plain(name.ljust(width), "bold"), plain(text)
        if not self.is_terminal:
            self.print(head, body)
            return
        from rich.table import Table

        table = Table.grid(padding=(0, 1), expand=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row(head, body)
        self.print(table, soft_wrap=False)


out, err = _Stream(stderr=False), _Stream(stderr=True)
#: Whether the command that runs was given --json.
_asked = {"json": False}


def answer_in_json(asked: bool) -> None:
    """Set whether the running command prints its answer as JSON (``--json``)."""
    _asked["json"] = asked


def wants_json() -> bool:
    """Return True if the running command prints its answer as JSON (``--json``)."""
    return _asked["json"]


def printed_as_json(answer: Any) -> bool:
    """Print `answer` as JSON if ``--json`` was given, and return whether it was."""
    if wants_json():
        print_json(answer.as_json() if hasattr(answer, "as_json") else answer)
    return wants_json()


def print_json(value: Any) -> None:
    """Print `value` as JSON on stdout, indented on a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    # File names need not be UTF-8: what cannot be written as such is escaped, as JSON can.
    write(re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def write(text: str) -> None:
    """Write `text` to stdout, without styles or wrapping."""
    try:
        sys.stdout.write(text)
    except OSError as error:
        raise _unprinted(error) from error


def _unprinted(error: OSError) -> Exception:
    """Return the error for a failed write to stdout: `Unprinted`, or a `BrokenPipeError` as is, to end quietly."""
    return error if isinstance(error, BrokenPipeError) else Unprinted(error)


def plain(text: str, style: str = "") -> Plain:
    """Return `text` in `style`, without control characters, because other programs may have written it."""
    return Plain((printable(text).encode("utf-8", "replace").decode("utf-8"), style))


def _as_plain(part: Any) -> Any:
    return plain(part) if isinstance(part, str) else part


def one_line(text: str) -> str:
    """Return `text` on one line, with single spaces."""
    return " ".join(text.split())


def cut_to(text: str, cells: int) -> str:
    """Return `text` on one line of at most `cells` terminal columns, with an ellipsis if it was cut.

    It is cut between words, unless less than half of the line would stay. A wide character is never halved.
    """
    from rich.cells import cell_len, set_cell_size

    line = " ".join(text.splitlines())
    kept = set_cell_size(line, max(cells - 1, 0)).rstrip()
    words = kept if line[len(kept) :].startswith(" ") else kept.rpartition(" ")[0].rstrip()
    return line if cell_len(line) <= cells else f"{words if 2 * len(words) > cells else kept}…"


def wrapped(text: str, margin: int, most: int = 0, stream: _Stream = out) -> list[str]:
    """Return `text` as lines for the terminal, `margin` columns narrower, at most `most`; elsewhere as one line."""
    if not stream.width:
        return [text]
    from rich.text import Text

    cells = max(_NARROW, stream.width - margin)
    lines = [line.plain.rstrip() for line in Text(text).wrap(stream.console, cells)]
    return lines if not most or len(lines) <= most else [*lines[: most - 1], cut_to(" ".join(lines[most - 1 :]), cells)]


def at_home(path: str) -> str:
    """Return `path` with ``~`` in place of the home directory."""
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib takes long
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def say(message: str) -> None:
    """Print `message` on stderr for the person, wrapped between words on a terminal."""
    for line in wrapped(message, 0, stream=err):
        err.print(line)


def say_notes(warnings: Iterable[str]) -> None:
    """Print each warning on its own line on stderr, after the word ``note``."""
    for warning in warnings:
        say(f"note: {warning}")


def say_passed_over(logs: Sequence[FailedLog]) -> None:
    """Print the first of the files that indexing passed over because they hold no session, and count the others."""
    for one in logs[:_MAX_PASSED_OVER]:
        say(f"Passed over: {one.path}: {one.reason}")
    if len(logs) > _MAX_PASSED_OVER:
        say(f"… and {len(logs) - _MAX_PASSED_OVER} more; --json has all")


def as_values(error: SmartForkError) -> dict[str, str]:
    """Return an error's message and next step as JSON values."""
    return {"error": error.message, **({"hint": error.hint} if error.hint else {})}


def complain(error: SmartForkError, *, as_json: bool = False) -> None:
    """Print an error and its next step on stderr; with `as_json` also as JSON on stdout."""
    if as_json:
        print_json(as_values(error))
    first, *rest = wrapped(f"error: {error.message}", 0, stream=err)
    err.print(plain("error: ", "bold red") + plain(first.removeprefix("error: ")))
    for line in rest:
        say(line)
    for line in wrapped(error.hint, len(_HINT), stream=err) if error.hint else ():
        err.print(f"{_HINT}{line}")


def log_to_stderr(*, verbose: bool) -> None:
    """Send smart-fork's log records to stderr: errors, or with `verbose` a record of each step."""
    level = logging.INFO if verbose else logging.ERROR
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    for name in ("indexer", "smart_fork"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)


#: Seconds before the first line about a stage, between two lines, and between two looks whether a line is due.
FIRST_SECONDS, SAY_SECONDS, LOOK_SECONDS = 2.0, 10.0, 0.5
#: The width of a bar in cells: its line fits into 80 columns.
BAR_WIDTH = 16


class ProgressBar:
    """Progress on a terminal: a bar for each stage of the work, with its finished share and the remaining time.

    If a stage's work cannot be counted, its bar moves to and fro and shows the elapsed time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn

        stages = self._stages = dict[str, Stage]()

        class Share(ProgressColumn):
            def render(self, task: Task) -> Text:
                from rich.text import Text

                stage = stages[task.fields["stage"]]
                return Text(stage.ended(task.fields["ended"]) if task.fields["ended"] else stage.share(clock()))

        self._clock = clock
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=BAR_WIDTH), Share())
        self._new = partial(Progress, *columns, console=err.console, transient=True)
        self._tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if total == 0:
            return
        now = self._clock()
        known = self._stages.setdefault(stage, Stage(stage, now, done, done, total))
        known.done, known.total = done, total
        if stage not in self._tasks:
            if not self._tasks:
                self._bars = self._new()
                self._bars.start()
            self._tasks[stage] = self._bars.add_task(known.title, total=None, stage=stage, ended=None)
        counted = total if total > 1 or done >= total else None
        self._bars.update(self._tasks[stage], completed=done, total=counted, ended=now if done >= total else None)

    def close(self) -> None:
        """Remove the progress bars from the terminal. Later progress shows new ones."""
        if self._tasks:
            self._bars.stop()
            self._tasks.clear()


class ProgressLines:
    """Progress as lines on stderr: one every few seconds of a long stage, and one when it ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._looking: threading.Thread | None = None
        self._stage: Stage | None = None
        self._say_at = 0.0
        self._told = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        if total == 0:
            return
        with self._lock:
            now = self._clock()
            if self._stage is None or self._stage.name != stage:
                self._end(now)
                self._stage, self._say_at = Stage(stage, now, done, done, total), now + FIRST_SECONDS
            self._stage.done, self._stage.total = done, total
            if done >= total:
                self._end(now)
        self.look()
        if self._looking is None:  # who works may have nothing to tell for long
            self._looking = threading.Thread(target=self._look_again, name="progress", daemon=True)
            self._looking.start()

    def look(self) -> None:
        """Print a line about the current stage, if the last line is some seconds old."""
        with self._lock:
            now = self._clock()
            if self._stage is not None and now >= self._say_at:
                say(f"{self._stage.title}: {self._stage.share(now)}")
                self._say_at, self._told = now + SAY_SECONDS, True

    def close(self) -> None:
        """Print that the last stage has ended, if a line about it was printed."""
        self._over.set()
        with self._lock:
            self._end(self._clock())

    def _end(self, now: float) -> None:
        if self._stage is not None and self._told:
            say(f"{self._stage.title}: {self._stage.ended(now)}")
        self._stage, self._told = None, False

    def _look_again(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.look()


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[ProgressBar | ProgressLines | None]:
    """Yield an object that shows progress: bars on a terminal, lines elsewhere.

    Yield `None` with `quiet`, or if the command answers in JSON.
    """
    if quiet or wants_json():
        yield None
        return
    lines = not err.is_terminal or os.environ.get("TERM") == "dumb"
    progress = ProgressLines() if lines else ProgressBar()
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def working(stage: str, *, quiet: bool = False) -> Iterator[None]:
    """Show inside the context that the `stage` (a text such as "checking each part") runs, and how long it has run."""
    with progress_bar(quiet=quiet) as progress:
        if progress is not None:
            progress(stage, 0, 1)
        yield


def starting(place: str | None, *, quiet: bool = False) -> AbstractContextManager[None]:
    """Show inside the context that an agent is starting, unless its `place` is "here": it takes over this terminal."""
    return working("starting the agent", quiet=quiet or place == "here")


@contextmanager
def library_shown(path: str | None = None, **how: Any) -> Iterator[Library]:
    """Open the library (all searchable sessions, see `Library.open`), and show the progress of indexing."""
    from smart_fork.finding.session_library import library

    with progress_bar() as progress, library(path, progress, **how) as known:
        yield known
