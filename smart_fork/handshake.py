"""How both ends of a connection to the service show that they have the token, without telling it.

Each signs what the other has made up, together with the address at which they are connected. Whoever passes our words
on, at another address or port, gets nothing by it. The hooks of each session of a person speak it: little is imported.
"""

from __future__ import annotations

import hmac
import os
import stat

TYPE_CHECKING = False  # `typing` itself takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Literal

#: How a program of ours says that it knows the token; others, who have it in their settings, send it as ``Bearer``.
SCHEME = "Smart-Fork"
TOKEN_BYTES = 32


class UnsafeSecretError(Exception):
    """What is in a file must not be used as a token, and why.

    It stands outside the tree of errors, which the hook of a first prompt has no time to import. That hook is silent
    then; anybody else asks `service.token`, which raises `TokenUnsafe`.
    """


def secret_in(path: str | os.PathLike[str]) -> str:
    """The token that a file holds.

    Raises:
        UnsafeSecretError: somebody else could have read or written it, or it is none.
        FileNotFoundError: there is no such file.
    """
    # Not waited for, and not followed: it may be a pipe, or a link to what somebody else can write.
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnsafeSecretError(f"cannot be opened: {error.strerror}") from error
    try:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise UnsafeSecretError("belongs to another user")
        if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UnsafeSecretError("can be read or written by others")
        text = os.read(opened, 2 * TOKEN_BYTES + 2).decode("ascii", "replace").strip()
    finally:
        os.close(opened)
    # An empty one would open everything to everybody.
    if len(text) != 2 * TOKEN_BYTES or text.strip("0123456789abcdef"):
        raise UnsafeSecretError("holds no token")
    return text


def proof(who: Literal["asks", "service", "client"], secret: str, at: str, nonce: str, challenge: str = "") -> str:
    """What only somebody who has the token can say, as the one or the other end of a connection to the service `at`.

    `nonce` is what the client has made up, and `challenge` what the service has. Who only ``asks`` has none yet.
    """
    said = f"{who} {at} {challenge} {nonce}".encode("utf-8", "replace")
    return hmac.digest(secret.encode(), said, "sha256").hex()


def endpoint(host: str, port: int) -> str:
    """The service's end of a connection, as both ends spell it."""
    if ":" not in host:
        return f"{host} {port}"
    import ipaddress

    literal = ipaddress.ip_address(host.partition("%")[0])
    return f"{getattr(literal, 'ipv4_mapped', None) or literal} {port}"


def same(given: str, right: str) -> bool:
    """Whether somebody gives what is right; how long it takes tells nothing of it."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())
