"""How often the service indexes, checked before it is written anywhere."""

from __future__ import annotations

from indexer.schedule import parsed
from smart_fork.errors import Usage

_HINT = "For example 15m, 1h, 6h, or five cron fields: '*/15 9-18 * * mon-fri'."


def checked_interval(text: str) -> str:
    """`text` as it is written into a unit, if it is what the scheduler understands.

    Raises:
        Usage: it is not, or would never come due.
    """
    wanted = " ".join(text.lower().split())
    try:
        parsed(wanted)
    except ValueError as error:
        raise Usage(f"{text!r} is not an interval: {error}", _HINT) from error
    return wanted
