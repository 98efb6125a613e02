"""What one record of a log says, whichever agent wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class UsedTool(NamedTuple):
    """A call: its id, the name of its tool, and what the tool was given."""

    id: str
    name: str
    given: Mapping[str, Any] | str | Any


class GivenBack(NamedTuple):
    """The result of a call, a shell's exit status first; of an edit, its changes as a unified diff."""

    id: str
    output: str
    failed: bool = False
    patch: str = ""


class Item(NamedTuple):
    """The text of a record, the calls that it makes, the results in it, its thoughts, and its number of images.

    An encrypted thought is an empty text.
    """

    text: str = ""
    calls: tuple[UsedTool, ...] = ()
    results: tuple[GivenBack, ...] = ()
    thoughts: tuple[str, ...] = ()
    images: int = 0
