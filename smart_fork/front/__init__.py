"""What `smart-fork mcp` is beside the service: thin, so that ten of them need less than one that has a model.

It passes on what the agent says, and imports nothing that is needed to answer it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

from smart_fork.front.relay import Relay
from smart_fork.front.remote import Remote
from smart_fork.service.client import Service, ServiceGoneError, find_service

log = logging.getLogger(__name__)


def serve() -> None:
    """Serve on stdin and stdout until stdin closes. Comes back at once where no service answers for this process."""
    service = _ours()
    if service is None:
        return
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    status = 0
    try:
        Relay(Remote(service), sys.stdout.buffer).run(sys.stdin.buffer)
    except SystemExit as told:
        status = int(told.code or 0)
    # A thread may still wait for the service.
    os._exit(status)


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
