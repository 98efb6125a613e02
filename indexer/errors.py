"""The root of all errors of smart-fork, and those of the index.

The root stands here because `indexer` imports nothing of `smart_fork`; `smart_fork.errors` has the whole tree. Whoever
catches `SmartForkError` catches whatever either package has to say to a person.
"""

from __future__ import annotations

from typing import ClassVar

from indexer.masking import mask


class SmartForkError(Exception):
    """The base. `exit_code` is what the command line ends with, `http_status` what a browser is answered with.

    `code` is what a program tells it by: each class declares its own, so that a class may be renamed. `usual_hint` is
    the next step where whoever raises it names no better one.

    What it quotes is masked, whoever shows it.
    """

    code: ClassVar[str] = "smart_fork_error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 400
    usual_hint: ClassVar[str] = ""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = mask(message), mask(hint or self.usual_hint)
        super().__init__(self.message)

    def preface(self, words: str) -> None:
        """Put `words` before the message: whoever asked for several things must know which of them failed."""
        self.message = mask(f"{words} {self.message}")
        self.args = (self.message,)


def joined(*parts: str) -> str:
    """Join a message and what follows it, such as its hint, into sentences: each part ends once."""
    said = [part for part in parts if part]
    return " ".join([*(one if one.endswith((".", "?", "!", "…", ":")) else f"{one}." for one in said[:-1]), *said[-1:]])


class IndexerError(SmartForkError):
    """An error in reading, indexing or searching logs: the base of all errors of `indexer`."""

    code = "indexer_error"
    http_status = 503
