"""Errors, in words for a person. `SmartForkError` is the base of all that a caller can meet.

SmartForkError          anything below; `message` says what, `hint` says what to do next, `code` tells a program
├── Usage               the request itself is wrong: a bad id, an empty or too long prompt
│   └── Ambiguous       a session is named by what means several
├── NotFound            a session, worker, message or directory that is not there
├── ProgramMissing      an agent's program, git or tmux is not installed, or too old to fork
├── ProgramFailed       a program ran and failed, or did not answer in time
├── RegistryUnavailable the register of workers is damaged, or cannot be written
├── IndexUnavailable    the search index is damaged, or cannot be written
├── ForkRefused         it could be done and must not be: another file would be overwritten, agents are mixed, …
├── NotAuthenticated    the server of the team does not know who asks
├── WrongVerb           the session is not one with which that may be done, or its project is another's
├── Conflict            the remote session is not as it was when it was last seen
├── ServerUnavailable   the server of the team does not answer, or not as one does
├── Unshareable         what is sent or was received is not in the form in which sessions are shared
│   └── TooLarge        it has the form, and is more than is taken
└── IndexerError        logs cannot be read, indexed or embedded: another process is at it, a model is missing, …

What one room alone raises derives from these and stands in that room. `SmartForkError` and `IndexerError` are defined
in `indexer.errors`, which cannot import this.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from indexer.errors import IndexerError as IndexerError  # noqa: PLC0414 - it is caught by the name that it has here
from indexer.errors import SmartForkError as SmartForkError  # noqa: PLC0414 - it is caught by the name that it has here

# A library says nothing by itself. Here, for every module that logs imports this one, and the package itself nothing.
logging.getLogger("smart_fork").addHandler(logging.NullHandler())


class Usage(SmartForkError):
    """The request itself is wrong."""

    code = "usage"
    exit_code = 2

    # Values are named as their caller knows them: options, arguments, JSON keys.

    @staticmethod
    def first_empty(given: Mapping[str, object]) -> str | None:
        """Return the name of the first value without a visible character, or of a list with such an element."""
        return next((name for name, value in given.items() if is_empty(value)), None)

    @classmethod
    def refuse_empty(cls, given: Mapping[str, object]) -> None:
        """Refuse a blank value: a variable of a shell that is not set, a field that a program left empty.

        Raises:
            Usage: one is blank.
        """
        if (name := cls.first_empty(given)) is not None:
            raise cls(f"{name} is empty", "Give it a value, or drop it.")

    @classmethod
    def refuse_both(cls, given: Mapping[str, object], pairs: Sequence[tuple[str, str]]) -> None:
        """Refuse two values that contradict each other.

        Raises:
            Usage: both of a pair are given.
        """
        for one, other in pairs:
            if _is_given(given.get(one)) and _is_given(given.get(other)):
                raise cls(f"{one} and {other} are mutually exclusive", "Give one of them.")


class Ambiguous(Usage):
    """The reference is ambiguous: the caller must choose first."""

    code = "ambiguous"


class NotFound(SmartForkError):
    """The requested object does not exist."""

    code = "not_found"
    exit_code = 3
    http_status = 404


class ProgramMissing(SmartForkError):
    """A program is not installed, or too old for what it is needed for."""

    code = "program_missing"


class ProgramFailed(SmartForkError):
    """A program ran and failed, or did not answer in time."""

    code = "program_failed"


class ForkRefused(SmartForkError):
    """It could be done and must not be."""

    code = "fork_refused"
    http_status = 409


class RegistryUnavailable(SmartForkError):
    """The register of workers is damaged, or cannot be written."""

    code = "registry_unavailable"


class IndexUnavailable(SmartForkError):
    """The search index is damaged, written by a newer version, or its folder cannot be written."""

    code = "index_unavailable"


class NotAuthenticated(SmartForkError):
    """The server of the team does not know who asks."""

    code = "not_authenticated"
    exit_code = 4
    http_status = 401


class WrongVerb(SmartForkError):
    """The session is not one with which that may be done."""

    code = "forbidden"
    exit_code = 4
    http_status = 403


class Conflict(SmartForkError):
    """The remote session is not as it was when it was last seen: `count` and `digest` are what it is now."""

    code = "conflict"
    exit_code = 9
    http_status = 409

    def __init__(self, message: str, hint: str = "", *, count: int | None = None, digest: str | None = None) -> None:
        super().__init__(message, hint)
        self.count, self.digest = count, digest


class Withdrawn(Conflict):
    """Something of what is sent was taken back by who had shared it."""

    code = "withdrawn"


class ServerUnavailable(SmartForkError):
    """The server of the team does not answer, or not as one does.

    `answered` is whether it did, `again` whether it is asked once more: nothing was answered, or that it failed.
    """

    answered = True
    again = False

    code = "server_unavailable"
    http_status = 502


class Unshareable(SmartForkError):
    """The sent or received content is not in the form in which sessions are shared."""

    code = "unshareable"
    http_status = 422


class TooLarge(Unshareable):
    """It is more than is taken."""

    code = "too_large"
    http_status = 413


#: What to do next goes with a request into its threads: the code that knows it need not know who will read it.
_of_tools: ContextVar[bool] = ContextVar("of_tools", default=False)


def speak_of_tools() -> None:
    """From here on in this context, whoever asks has tools and no command line."""
    _of_tools.set(True)


def advice(command: str, *, tool: str) -> str:
    """Return what to do next: `command` for a person at a terminal, `tool` for a model that calls tools."""
    return tool if _of_tools.get() else command


def _is_given(value: object) -> bool:
    return isinstance(value, str | int | list | tuple) and value is not False


def is_empty(value: object) -> bool:
    """Return whether `value` is text without a visible character, or a list with such an element."""
    # Half a surrogate pair is a character that a program has cut; it is shown as one.
    if isinstance(value, list | tuple):
        return any(is_empty(one) for one in value)
    return isinstance(value, str) and not any(
        (one.isprintable() and not one.isspace()) or "\ud800" <= one <= "\udfff" for one in value
    )
