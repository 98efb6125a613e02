"""How often the service indexes, checked before it is written anywhere (F-205)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from smart_fork.errors import Usage

DEFAULT_INTERVAL = "1h"
_INTERVAL = re.compile(r"0*[1-9][0-9]{0,3}[mh]")
_HINT = "For example 15m, 1h, 6h, or the five fields of cron: '*/15 9-18 * * mon-fri'."


def checked_interval(text: str) -> str:
    """`text` as it is written into a unit: `15m`, `1h`, or five cron fields that the scheduler understands.

    Raises:
        Usage: it is neither, or would never come due.
    """
    wanted = " ".join(text.lower().split())
    if _INTERVAL.fullmatch(wanted):
        return wanted
    if len(wanted.split()) != 5:
        raise Usage(f"{text!r} is not an interval", _HINT)
    from apscheduler.triggers.cron import CronTrigger

    try:
        due = CronTrigger.from_crontab(wanted, UTC).get_next_fire_time(None, datetime.now(UTC))
    except ValueError as error:
        raise Usage(f"{text!r} is not an interval: {error}", _HINT) from error
    if due is None:
        raise Usage(f"{text!r} never comes due", _HINT)
    return wanted
