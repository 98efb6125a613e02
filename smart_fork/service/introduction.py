"""What our own program says of itself when it asks the service for an agent: where it was started, with what settings.

A client that only has the token in its configuration cannot say it, and nothing of it comes from the arguments of a
tool. Whoever reads it takes it for hostile text until the signature has been seen to be right.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from pathlib import Path

from smart_fork.caller import VARIABLES, Around
from smart_fork.errors import SmartForkError
from smart_fork.service.surroundings import surroundings

HEADER = "Smart-Fork-Caller"
#: Longer than the longest directory, and shorter than what a server takes as the head of a request.
MAX_CHARACTERS = 40_000
#: It is nothing that `token.proof` would ever sign for a stranger.
_LABEL = b"a caller: "


class ForgedError(SmartForkError):
    """Nobody of ours has written that."""

    code = "forged"
    http_status = 403

    def __init__(self) -> None:
        super().__init__("not a valid caller of smart-fork")


class OtherSettingsError(SmartForkError):
    """It is one of ours, for whom this process would find something else than it would; the message says why."""

    code = "other_settings"
    http_status = 409
    usual_hint = "`smart-fork service stop` ends it. Start it again with the current settings."


def introduction(secret: str) -> str:
    """What the header says of this process.

    Raises:
        OSError: its directory is gone.
    """
    known = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    facts = {"directory": os.getcwd(), "environment": known, "settings": surroundings()}  # noqa: PTH109 - a string
    said = base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()
    return f"{said}.{_signature(said, secret)}"


def introduced(given: Sequence[str], secret: str) -> Around:
    """Whom those headers introduce.

    Raises:
        ForgedError: they are not one, of somebody who has read the token.
        OtherSettingsError: it would find something else than we.
    """
    said, _, signature = given[0].partition(".")
    if len(given) != 1 or len(said) > MAX_CHARACTERS or not said.isascii():
        raise ForgedError
    if not hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(said, secret).encode()):
        raise ForgedError
    try:
        facts = json.loads(base64.b64decode(said, altchars=b"-_", validate=True))
        directory, environment, settings = facts["directory"], facts["environment"], facts["settings"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ForgedError from error
    if not isinstance(directory, str) or not directory.startswith("/") or not _is_environment(environment):
        raise ForgedError
    if settings != (ours := surroundings()):
        raise OtherSettingsError(f"it has other settings: {_differs(settings, ours)}")
    return Around(environment, Path(directory))


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(name in VARIABLES and isinstance(text, str) for name, text in value.items())


def _differs(theirs: object, ours: dict[str, object]) -> str:
    given = theirs if isinstance(theirs, dict) else {}
    return ", ".join(name for name, value in ours.items() if given.get(name) != value) or "settings"


def _signature(said: str, secret: str) -> str:
    return hmac.new(secret.encode(), _LABEL + said.encode(), hashlib.sha256).hexdigest()
