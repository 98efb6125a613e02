"""The user's tokens for team servers, stored in a file that only this user can read.

Each token is sent only to the server that gave it.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from indexer.environment import Setting
from indexer.errors import next_step
from indexer.locks import held_file
from indexer.safe_files import private_dir, replace_file, state_home
from smart_fork.display_text import quoted
from smart_fork.errors import NotAuthenticated, SmartForkError, Usage
from smart_fork.sharing.tracking import write_error

NOT_AUTHENTICATED = "Not authenticated. Please run smart-fork team login first."
TOKENS_BEGIN, TOKEN_BYTES = "sft_", 32
INVITATION_HINT = "An admin of the server invites you: smart-fork team login URL INVITATION"
_VERSION = 1
_DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Account:
    """A user's account on a team server, with its token.

    `user` is empty for a token from the environment: only the server knows its owner. A token that expires is replaced
    after `renew_after` (seconds since the epoch).
    """

    origin: str
    user: str
    token: str
    renew_after: float | None = None

    @property
    def is_due(self) -> bool:
        """True if the account's token should be replaced by a new one now."""
        return self.renew_after is not None and time.time() >= self.renew_after


def origin_of(url: str) -> str:
    """Return scheme, host and port of a server's URL. Except on this machine, the URL must begin with ``https``.

    Raises:
        Usage: the text is not an address, or the token would be sent unencrypted to another machine.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    if not host or parts.scheme not in _DEFAULT_PORTS or parts.username is not None or parts.password is not None:
        raise Usage(f"Not the address of a server: {quoted(url)}", "An address looks like https://forks.example.org")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise Usage(f"The address of a server has no path: {quoted(url)}")
    if parts.scheme == "http" and not is_loopback(host):
        raise Usage(f"{quoted(url)} is not encrypted", "Servers on other machines need TLS: https://…")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def is_loopback(host: str) -> bool:
    """Return True if `host` is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def logged_in_account(server: str | None = None) -> Account:
    """Return the account on `server`, or else on the environment's or last login's; or raise `NotAuthenticated`."""
    said, token = os.environ.get(Setting.TEAM_URL), os.environ.get(Setting.TEAM_TOKEN)
    if said and token and (server is None or origin_of(server) == origin_of(said)):
        return Account(origin_of(said), "", token)
    known = _known()
    origin = origin_of(server or said or known.get("last") or _refuse_unknown())
    one = known["servers"].get(origin)
    if not isinstance(one, dict) or not isinstance(one.get("token"), str):
        _refuse_unknown()
    after = one.get("renew_after")
    return Account(origin, str(one.get("user", "")), one["token"], after if isinstance(after, int | float) else None)


def is_in_environment() -> bool:
    """Return True if the environment names a server and a token."""
    return bool(os.environ.get(Setting.TEAM_URL) and os.environ.get(Setting.TEAM_TOKEN))


def has_login() -> bool:
    """Return True if the user has logged in to any server."""
    return is_in_environment() or bool(_known()["servers"])


def pending_token(origin: str, invite: str) -> str:
    """Return the token to ask for in a login with this invitation. A repeated login asks for the same token.

    An invitation works for one token only. So if the server's answer is lost, the login can be repeated.
    """
    what = f"{origin} {sha256(invite.encode(errors='surrogatepass')).hexdigest()}"
    fresh = TOKENS_BEGIN + secrets.token_urlsafe(TOKEN_BYTES)
    kept = _change(lambda known: known.setdefault("begun", {}).setdefault(what, fresh))
    return str(kept["begun"][what])


def renewal_after(expires_at: datetime | None) -> float | None:
    """Return the time to replace a new token: half of the way to `expires_at`, in seconds since the epoch.

    Return `None` for a token that does not expire.
    """
    return None if expires_at is None else (time.time() + expires_at.timestamp()) / 2


def remember(one: Account) -> None:
    """Store an account with its token. Its server becomes the default server."""

    def change(known: dict[str, Any]) -> None:
        expiring = {} if one.renew_after is None else {"renew_after": one.renew_after}
        known["servers"][one.origin] = {"user": one.user, "token": one.token} | expiring
        known["last"] = one.origin
        _not_begun(known, one.origin)

    _change(change)


def forget(origin: str) -> None:
    """Delete the stored token for a server."""

    def change(known: dict[str, Any]) -> None:
        known["servers"].pop(origin, None)
        _not_begun(known, origin)
        if known.get("last") == origin:
            known["last"] = next(iter(known["servers"]), None)

    _change(change)


def _not_begun(known: dict[str, Any], origin: str) -> None:
    left = {what: token for what, token in known.pop("begun", {}).items() if what.partition(" ")[0] != origin}
    if left:
        known["begun"] = left


def rejected_token() -> NotAuthenticated:
    """Return the error for a token that the server does not accept. It says where the token is set."""
    if os.environ.get(Setting.TEAM_TOKEN):
        return NotAuthenticated(
            f"The server does not accept {Setting.TEAM_TOKEN}.", f"Set another token, or unset {Setting.TEAM_TOKEN}."
        )
    return NotAuthenticated(NOT_AUTHENTICATED, INVITATION_HINT)


def _refuse_unknown() -> str:
    raise NotAuthenticated(NOT_AUTHENTICATED, INVITATION_HINT)


def _file() -> Path:
    return state_home() / "team" / "tokens.json"


def _known() -> dict[str, Any]:
    try:
        said = orjson.loads(_file().read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {"version": _VERSION, "servers": {}}
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        step = next_step(error) or "Remove it and log in again."
        raise SmartForkError(f"{_file()} cannot be read: {why}", step) from error
    if not (
        isinstance(said, dict) and isinstance(said.get("servers"), dict) and isinstance(said.get("begun", {}), dict)
    ):
        raise SmartForkError(f"{_file()} is damaged", "Remove it and log in again.")
    return said


def _change(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    try:
        with held_file(private_dir(_file().parent) / "tokens.lock"):
            known = _known()
            change(known)
            replace_file(_file(), [orjson.dumps(known, option=orjson.OPT_INDENT_2), b"\n"])
            return known
    except OSError as error:
        raise write_error(_file(), error) from error
