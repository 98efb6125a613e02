"""What the commands print: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from smart_fork.errors import SmartForkError
from smart_fork.snippets import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class _Stream:
    """A console that is made when it is first written to: a program that asks for JSON does not wait for rich."""

    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(stderr=self._stderr, highlight=False, soft_wrap=True)

    def print(self, *parts: Any, **how: Any) -> None:
        """As `Console.print`."""
        self.console.print(*parts, **how)


out, err = _Stream(stderr=False), _Stream(stderr=True)


def print_json(value: Any) -> None:
    """`value` as JSON on stdout, indented for people where they look at it."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    # File names need not be UTF-8: what cannot be written as such is escaped, as JSON can.
    sys.stdout.write(re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def plain(text: str, style: str = "") -> Text:
    """`text` from a log, a file name or another program, for a terminal: nothing in it steers the terminal."""
    from rich.text import Text

    return Text(printable(text).encode("utf-8", "replace").decode("utf-8"), style=style)


def say(message: str) -> None:
    """A line for the person, on stderr."""
    err.print(plain(message))


def complain(error: SmartForkError, *, as_json: bool) -> None:
    """What went wrong and what to do next."""
    if as_json:
        print_json({"error": error.message, **({"hint": error.hint} if error.hint else {})})
    err.print(plain("error: ", "bold red") + plain(error.message))
    if error.hint:
        say(f"  {error.hint}")


def log_to_stderr(*, verbose: bool) -> None:
    """Our own log on stderr: warnings only with --verbose, so that ordinary answers stay clean."""
    level = logging.INFO if verbose else logging.ERROR
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    for name in ("indexer", "smart_fork"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)


class ProgressBar:
    """One bar a stage of long work, on stderr and only where a person looks; shown when there is something to do."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err.console,
            transient=True,
        )
        self._tasks: dict[str, Any] = {}
        self._started = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        if total == 0:
            return
        if not self._started:
            self._bars.start()
            self._started = True
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)

    def close(self) -> None:
        """Take the bars away."""
        if self._started:
            self._bars.stop()


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[ProgressBar | None]:
    """A progress bar where stderr is a terminal; `None` elsewhere."""
    if quiet or not err.console.is_terminal or os.environ.get("TERM") == "dumb":
        yield None
        return
    bar = ProgressBar()
    try:
        yield bar
    finally:
        bar.close()
