"""From the greeting on: whoever has asked for more than a file knows is answered by a server, or by two."""

from __future__ import annotations

import logging
import signal
import sys
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from smart_fork.front.local import Local
from smart_fork.front.relay import Relay
from smart_fork.front.remote import Remote
from smart_fork.front.routes import reading_tools
from smart_fork.rpc import read
from smart_fork.service.client import Service, ServiceGoneError, find_service
from smart_fork.standard_error import never_waiting

log = logging.getLogger(__name__)


def converse(
    hello: bytes | None, first: bytes, tools: str, catalogue: dict[str, Any], listed: list[dict[str, Any]]
) -> int:
    """Have `first` answered, and all that comes on stdin; the status with which to end.

    The client has begun with `hello`, where it is one that begins so. `catalogue` has what it was told since, `tools`
    says how much of it, and `listed` is the list of them.
    """
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    with never_waiting():
        return _relayed(hello, first, tools, catalogue, listed)


def _relayed(
    hello: bytes | None, first: bytes, tools: str, catalogue: dict[str, Any], listed: list[dict[str, Any]]
) -> int:
    try:
        greeting = read(hello) if hello is not None else None
        service = _ours() if greeting is not None else None
        relay = Relay(
            sys.stdout.buffer,
            hello=greeting,
            remote=Remote(service, greeting) if service is not None and greeting is not None else None,
            reading=reading_tools(catalogue["tools"]),
            listed=listed,
            start=partial(Local, tools),
        )
        relay.run(chain([first], sys.stdin.buffer))
    except SystemExit as told:
        return int(told.code or 0)
    return 0


def _end(number: int, _: object) -> NoReturn:
    """Agents end their servers by a signal; the service is to be told, which would go on with what was asked."""
    sys.exit(128 + number)


def _ours() -> Service | None:
    try:
        service = find_service()
        return service if service is not None and service.answers_for_us() else None
    except (ServiceGoneError, OSError) as error:
        log.info("working without the service: %s", error)
        return None
