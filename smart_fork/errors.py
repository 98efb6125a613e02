"""Errors in words for people. `SmartForkError` is the base of all errors that a caller can meet.

    SmartForkError          anything below; `message` says what failed, `hint` what to do next, `code` tells a program
    ├── Usage               the request itself is wrong: a bad id, an empty or too long prompt
    │   └── Ambiguous       a reference means several sessions
    ├── NotFound            a session, worker, message or directory does not exist
    ├── ProgramMissing      an agent's program, git or tmux is not installed, or too old to fork
    ├── ProgramFailed       a program ran and failed, or did not answer in time
    ├── RegistryUnavailable the registry of workers is damaged, or cannot be written
    ├── IndexUnavailable    the search index is damaged, or cannot be written
    ├── ForkRefused         the action is possible but not allowed: it would overwrite a file, mix agents, …
    ├── NotAuthenticated    the team's server does not know the caller
    ├── WrongVerb           the session does not allow this action, or its project belongs to others
    ├── Conflict            the remote session has changed since it was last seen
    │   └── Withdrawn       some of the sent content was withdrawn by its owner
    ├── ServerUnavailable   the team's server does not answer, or its answer is invalid
    ├── Unshareable         sent or received content is not in the form of shared sessions
    │   └── TooLarge        content has the right form, and is too large
    └── IndexerError        logs cannot be read, indexed or embedded: another process indexes, a model is missing, …

Errors of one package derive from these, and are defined in that package. `SmartForkError` and `IndexerError` are
defined in `indexer.errors`, which cannot import this module.
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
    """A wrong request, such as one with an invalid id or an empty prompt."""

    code = "usage"
    exit_code = 2

    # Values are named as their caller knows them: options, arguments, JSON keys.

    @staticmethod
    def first_empty(given: Mapping[str, object]) -> str | None:
        """Return the name of the first argument that is blank text, or a list with a blank element; else `None`."""
        return next((name for name, value in given.items() if is_empty(value)), None)

    @classmethod
    def refuse_empty(cls, given: Mapping[str, object]) -> None:
        """Refuse arguments with blank values, such as an unset shell variable.

        Raises:
            Usage: a value is blank.
        """
        if (name := cls.first_empty(given)) is not None:
            raise cls(f"{name} is empty", "Give it a value, or drop it.")

    @classmethod
    def refuse_both(cls, given: Mapping[str, object], pairs: Sequence[tuple[str, str]]) -> None:
        """Refuse a call that gives both arguments of one of the `pairs`, which contradict each other.

        Raises:
            Usage: both values of a pair are given.
        """
        for one, other in pairs:
            if _is_given(given.get(one)) and _is_given(given.get(other)):
                raise cls(f"{one} and {other} are mutually exclusive", "Give one of them.")


class Ambiguous(Usage):
    """A reference, such as the start of an id, that means several sessions. The caller must choose one."""

    code = "ambiguous"


class NotFound(SmartForkError):
    """A session, worker, message or directory that does not exist."""

    code = "not_found"
    exit_code = 3
    http_status = 404


class ProgramMissing(SmartForkError):
    """A program, such as git, that is not installed, or is too old for this action."""

    code = "program_missing"


class ProgramFailed(SmartForkError):
    """A program that ran and failed, or did not answer in time."""

    code = "program_failed"


class ForkRefused(SmartForkError):
    """An action that is possible but not allowed, such as overwriting a file."""

    code = "fork_refused"
    http_status = 409


class RegistryUnavailable(SmartForkError):
    """A registry of workers that is damaged or cannot be written."""

    code = "registry_unavailable"


class IndexUnavailable(SmartForkError):
    """A search index that is damaged, was written by a newer version, or has a folder that cannot be written."""

    code = "index_unavailable"


class NotAuthenticated(SmartForkError):
    """A caller that the team's server does not know."""

    code = "not_authenticated"
    exit_code = 4
    http_status = 401


class WrongVerb(SmartForkError):
    """An action that this caller may not do with the session, or a project that belongs to others."""

    code = "forbidden"
    exit_code = 4
    http_status = 403


class Conflict(SmartForkError):
    """A session on the server that changed since the client saw it. It has `count` records and this `digest` now."""

    code = "conflict"
    exit_code = 9
    http_status = 409

    def __init__(self, message: str, hint: str = "", *, count: int | None = None, digest: str | None = None) -> None:
        super().__init__(message, hint)
        self.count, self.digest = count, digest


class Withdrawn(Conflict):
    """Sent content that its owner has withdrawn. The server does not accept this content again."""

    code = "withdrawn"


class ServerUnavailable(SmartForkError):
    """A team's server that does not answer (`answered` is False), or gives an invalid answer.

    If `again` is True, the client may repeat the request.
    """

    answered = True
    again = False

    code = "server_unavailable"
    http_status = 502


class Unshareable(SmartForkError):
    """Sent or received content that is not in the form of shared sessions."""

    code = "unshareable"
    http_status = 422


class TooLarge(Unshareable):
    """Shared content that is larger than allowed."""

    code = "too_large"
    http_status = 413


#: True if hints are for a caller with tools. A context variable, so that the code that hints need not know its reader.
_of_tools: ContextVar[bool] = ContextVar("of_tools", default=False)


def speak_of_tools() -> None:
    """Make the hints of this context's further errors name tools, for a model without a command line."""
    _of_tools.set(True)


def advice(command: str, *, tool: str) -> str:
    """Return what to do next: `command` for a person at a terminal, `tool` for a model that calls tools."""
    return tool if _of_tools.get() else command


def _is_given(value: object) -> bool:
    return isinstance(value, str | int | list | tuple) and value is not False


def is_empty(value: object) -> bool:
    """Return True if `value` is a text without a visible character, or a list that contains such a text."""
    # Half a surrogate pair is a character that a program has cut; it is shown as one.
    if isinstance(value, list | tuple):
        return any(is_empty(one) for one in value)
    return isinstance(value, str) and not any(
        (one.isprintable() and not one.isspace()) or "\ud800" <= one <= "\udfff" for one in value
    )
