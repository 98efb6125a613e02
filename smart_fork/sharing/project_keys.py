"""A checkout's project key, made from the address of its remote. All clones have the same key.

git@GitHub.com:acme/shop.git, https://token@github.com/acme/shop, ssh://git@github.com:22/acme/shop/
-> github.com/acme/shop
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote, unquote

from smart_fork.errors import Usage

#: The longest address, and the longest key.
_ADDRESS, _KEY = 2_000, 200
_SCHEMES = frozenset({"https", "http", "ssh", "git", "git+ssh", "ssh+git", "git+https", "git+http"})
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/+(.*)", re.DOTALL)
#: scp's form: no scheme, and a colon before the first slash. A single letter is a Windows drive.
_SCP = re.compile(r"((?:[^@/:]*@)?(?:\[[^\]/]*\]|[^:/@\[\]]{2,})):(?!:|//)(.*)", re.DOTALL)
_PORT = re.compile(r":[0-9]{0,5}$")
_HOST = re.compile(r"(?!-)[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_GIT = re.compile(r"(\.git)+$")
#: Letters of any script, without characters that are special in a shell, path, address or terminal.
_PART = re.compile(r"[\w.~+@][\w.~+@ -]*")


def project_key(remote: str) -> str:
    """Return the project key of a remote's address.

    Raises:
        Usage: The remote is a folder of this machine, or git could not clone it.
    """
    host, path = _split(remote.strip())
    return _key(host, path, remote)


def check_key(key: str) -> str:
    """Return a typed key if it is valid, for projects without a remote.

    Raises:
        Usage: No remote could have this key.
    """
    host, _, path = key.partition("/")
    if _key(host, path, key) != key:
        raise Usage("Not a project key. A key looks like github.com/acme/shop.")
    return key


def _split(remote: str) -> tuple[str, str]:
    if len(remote) > _ADDRESS:
        raise Usage("The address of the remote is too long.")
    if found := _URL.fullmatch(remote):
        scheme, place, path = found.groups()
        if scheme.lower() not in _SCHEMES:
            raise Usage("The remote is on this machine, or is not an address.", _NAME_ONE)
        if scheme.lower().startswith(("http", "git+http")):
            path = re.split(r"[?#]", path, maxsplit=1)[0]
        return place.rpartition("@")[2], _decoded(path)
    if found := _SCP.fullmatch(remote):
        return found[1].rpartition("@")[2], found[2]
    raise Usage("The remote is on this machine, or is not an address.", _NAME_ONE)


_NAME_ONE = "Name the project, such as git.example.org/acme/shop."


def _key(host: str, path: str, remote: str) -> str:
    host = _ascii(_PORT.sub("", host)).lower().removesuffix(".")
    parts = [part for part in unicodedata.normalize("NFC", path).split("/") if part]
    if parts:
        parts[-1] = _GIT.sub("", parts[-1])
    key = "/".join((host, *parts))
    good = parts and _HOST.fullmatch(host) and ".." not in host and all(map(_is_name, parts))
    if not good or len(key) > _KEY:
        raise Usage(f"Not the address of a project: {remote[:_KEY]!r}", _NAME_ONE)
    return key


def _is_name(part: str) -> bool:
    return _PART.fullmatch(part) is not None and set(part) != {"."} and not part.endswith(" ")


def _ascii(host: str) -> str:
    """Return a host name as the network spells it."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""


def _decoded(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        return ""


def url_of(server: str, project: str, session_id: str) -> str:
    """The address of a session: to be handed on, and to be given in place of its id."""
    return f"{server}/v1/sessions/{session_id}?project={quote(project, safe='')}"
