"""Prints the commands' output: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from smart_fork.errors import SmartForkError
from smart_fork.snippets import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from indexer.runs import FailedLog


#: Said where another process keeps what was taken out in the index's files for now.
NOT_ERASED = (
    "Search no longer finds it, but its bytes are still in the index's files: another process reads them, or the disk "
    "is full. The next indexing erases them; `smart-fork index run` does it now."
)
#: Files among the logs that hold no session, named one by one.
_MAX_PASSED_OVER = 5
#: What stands before the next step that an error names.
_HINT = "  "
#: Text is not broken into shorter lines.
_NARROW = 20
#: Variables by which rich takes for a terminal what is none.
_SAID_TO_BE = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})


class Unprinted(SmartForkError):
    """Stdout does not take what is printed, as where a disk is full."""

    code = "unprinted"
    usual_hint = "Free space there, or write it elsewhere."

    def __init__(self, error: OSError) -> None:
        super().__init__(f"The output could not be written: {error.strerror or error}")


class Plain:
    """Texts one behind the other, each with its style; `plain` makes one. rich is imported where people look at it."""

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
    """A console that is made when people look, or for what is no plain text: a program does not wait for rich."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(stderr=self._stderr, highlight=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """Return True if people look at the stream. Anything but a terminal is recognized without importing rich."""
        return self._is_made and self.console.is_terminal

    @property
    def _is_made(self) -> bool:
        """Return True if there is a console, or one is needed."""
        return "console" in vars(self) or self._file.isatty() or bool(_SAID_TO_BE.intersection(os.environ))

    @property
    def _file(self) -> TextIO:
        return sys.stderr if self._stderr else sys.stdout

    def line(self, text: str) -> None:
        """One line of `plain` text."""
        self.print(plain(text))

    def print(self, *parts: Any, sep: str = " ", end: str = "\n", **how: Any) -> None:
        """As `Console.print`."""
        with self._writing():
            if self._is_made or not all(isinstance(one, Plain) for one in parts):
                self.console.print(*parts, sep=sep, end=end, **how)
            else:
                self._file.write(sep.join(map(str, parts)).expandtabs() + end)
                self._file.flush()  # in the order of what goes to the other stream

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Ignore errors of writing to stderr: no command ends because of them.

        Raises:
            Unprinted: stdout does not take it.
        """
        try:
            yield
        except OSError as error:
            if self._stderr:
                return
            raise _unprinted(error) from error

    @property
    def width(self) -> int:
        """The columns of the terminal; 0 where what is printed is no terminal's, and no line ends early."""
        return self.console.width if self.is_terminal else 0

    def row(self, *parts: Plain) -> None:
        """One line of a table. Where people look it ends at the terminal's edge, elsewhere it is whole."""
        if not self._is_made:
            self.print(Plain((" ".join(map(str, parts)).removesuffix("\n").replace("\n", " "), "")))
            return
        from rich.text import Text

        line = Text(" ").join(Text(" ").join(one.__rich__() for one in parts).split())
        if self.is_terminal:
            line.plain = cut_to(line.plain, self.console.width)
        self.print(line)

    def named(self, name: str, text: str, width: int) -> None:
        """`text` beside its name: where people look, in a column of its own, elsewhere on one line."""
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
    """Set whether the command that runs answers in JSON."""
    _asked["json"] = asked


def wants_json() -> bool:
    """Return whether the command that runs answers in JSON."""
    return _asked["json"]


def printed_as_json(answer: Any) -> bool:
    """Print the answer of a command as JSON if --json was given. Return whether it was."""
    if wants_json():
        print_json(answer.as_json() if hasattr(answer, "as_json") else answer)
    return wants_json()


def print_json(value: Any) -> None:
    """`value` as JSON on stdout, indented for people where they look at it."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    # File names need not be UTF-8: what cannot be written as such is escaped, as JSON can.
    write(re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def write(text: str) -> None:
    """A text on stdout as it is.

    Raises:
        Unprinted: it does not take it.
    """
    try:
        sys.stdout.write(text)
    except OSError as error:
        raise _unprinted(error) from error


def _unprinted(error: OSError) -> Exception:
    """Return the error to raise after a failed write: none that matters if the reader has closed the pipe."""
    return error if isinstance(error, BrokenPipeError) else Unprinted(error)


def plain(text: str, style: str = "") -> Plain:
    """`text` from a log, a file name or another program, for a terminal: nothing in it steers the terminal."""
    return Plain((printable(text).encode("utf-8", "replace").decode("utf-8"), style))


def one_line(text: str) -> str:
    """`text` without line breaks and further white space."""
    return " ".join(text.split())


def cut_to(text: str, cells: int) -> str:
    """`text` on one line, no wider than so many cells of a terminal, cut between words if more than half of it stays.

    A character that takes two cells is never halved.
    """
    from rich.cells import cell_len, set_cell_size

    line = " ".join(text.splitlines())
    kept = set_cell_size(line, max(cells - 1, 0)).rstrip()
    words = kept if line[len(kept) :].startswith(" ") else kept.rpartition(" ")[0].rstrip()
    return line if cell_len(line) <= cells else f"{words if 2 * len(words) > cells else kept}…"


def wrapped(text: str, margin: int, most: int = 0, stream: _Stream = out) -> list[str]:
    """`text` in lines for a terminal with `margin` columns beside them, broken between words, at `most` so many if
    given. Elsewhere than on a terminal it is one line.
    """
    if not stream.width:
        return [text]
    from rich.text import Text

    cells = max(_NARROW, stream.width - margin)
    lines = [line.plain.rstrip() for line in Text(text).wrap(stream.console, cells)]
    return lines if not most or len(lines) <= most else [*lines[: most - 1], cut_to(" ".join(lines[most - 1 :]), cells)]


def at_home(path: str) -> str:
    """A path as people write it: ~ is the home directory."""
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib takes long
    return f"~{path[len(home) :]}" if path.startswith(f"{home}/") else path


def say(message: str) -> None:
    """A line for the person, on stderr. A terminal does not break it inside a word."""
    for line in wrapped(message, 0, stream=err):
        err.line(line)


def say_notes(warnings: Iterable[str]) -> None:
    """Print a line for each warning, on stderr."""
    for warning in warnings:
        say(f"note: {warning}")


def say_passed_over(logs: Sequence[FailedLog]) -> None:
    """Files among the logs that hold no session, for the person."""
    for one in logs[:_MAX_PASSED_OVER]:
        say(f"Passed over: {one.path}: {one.reason}")
    if len(logs) > _MAX_PASSED_OVER:
        say(f"… and {len(logs) - _MAX_PASSED_OVER} more; --json has all")


def as_values(error: SmartForkError) -> dict[str, str]:
    """Return the error as JSON values."""
    return {"error": error.message, **({"hint": error.hint} if error.hint else {})}


def complain(error: SmartForkError, *, as_json: bool = False) -> None:
    """Print the error and the next step."""
    if as_json:
        print_json(as_values(error))
    first, *rest = wrapped(f"error: {error.message}", 0, stream=err)
    err.print(plain("error: ", "bold red") + plain(first.removeprefix("error: ")))
    for line in rest:
        say(line)
    for line in wrapped(error.hint, len(_HINT), stream=err) if error.hint else ():
        err.line(f"{_HINT}{line}")


def log_to_stderr(*, verbose: bool) -> None:
    """Our own log on stderr: warnings only with --verbose, so that ordinary answers stay clean."""
    level = logging.INFO if verbose else logging.ERROR
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    for name in ("indexer", "smart_fork"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
