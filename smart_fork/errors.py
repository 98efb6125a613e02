"""What can go wrong while finding and forking, in words for a person.

SmartForkError          anything below; `message` says what, `hint` says what to do next
├── Usage               the request itself is wrong: a bad id, an empty or too long prompt
├── NotFound            a session, worker, message or directory that is not there
├── ProgramMissing      an agent's program, git or tmux is not installed, or too old to fork
├── ProgramFailed       a program ran and failed, or did not answer in time
├── RegistryUnavailable the register of workers is damaged, or cannot be written
├── IndexUnavailable    the search index is damaged, or cannot be written
└── ForkRefused         it could be done and must not be: another file would be overwritten, agents are mixed, …
"""

from __future__ import annotations

import logging
from typing import ClassVar

from indexer.masking import mask

# A library says nothing by itself. Here, for every module that logs imports this one, and the package itself nothing.
logging.getLogger("smart_fork").addHandler(logging.NullHandler())


class SmartForkError(Exception):
    """The base. `exit_code` is what the command line ends with, `http_status` what a browser is answered with.

    What it quotes is masked, whoever shows it.
    """

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 400

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = mask(message), mask(hint)
        super().__init__(self.message)


class Usage(SmartForkError):
    """The request itself is wrong."""

    exit_code = 2


class NotFound(SmartForkError):
    """What was asked for is not there."""

    exit_code = 3
    http_status = 404


class ProgramMissing(SmartForkError):
    """A program is not installed, or too old for what it is needed for."""


class ProgramFailed(SmartForkError):
    """A program ran and failed, or did not answer in time."""


class ForkRefused(SmartForkError):
    """It could be done and must not be."""

    http_status = 409


class RegistryUnavailable(SmartForkError):
    """The register of workers is damaged, or cannot be written."""


class IndexUnavailable(SmartForkError):
    """The search index is damaged, written by a newer version, or its folder cannot be written."""
