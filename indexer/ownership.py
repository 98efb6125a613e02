"""Whose a repository is, decided as git does: one's own, or named in one's own ``safe.directory``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from indexer.git_settings import with_included
from indexer.paths import config_home


def trusted(top: Path, *parts: Path) -> bool:
    """Whether the checkout `top` and these `parts` of it are all one's own, or the person has declared it safe."""
    return all(map(_is_ones_own, (top, *parts))) or _declared_safe(str(top))


def _is_ones_own(path: Path) -> bool:
    """The system's administrator is also whoever has become it with sudo."""
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return False
    me = os.geteuid()
    return owner == me or (me == 0 and os.environ.get("SUDO_UID", "") == str(owner))


def _declared_safe(top: str) -> bool:
    """By the last that speaks of it: an empty value takes back all before."""
    safe = False
    for file in _files():
        for name, value in with_included(file):
            if name == "safe.directory":
                safe = bool(value) and (safe or _means(value or "", top))
    return safe


def _means(value: str, top: str) -> bool:
    if value == "*":
        return True
    path = os.path.expanduser(value)  # noqa: PTH111 - leaves the ~ of nobody we know alone
    if not os.path.isabs(path):  # noqa: PTH117
        return False
    if path.endswith("/*"):
        return top.startswith(os.path.realpath(path[:-1]).rstrip("/") + "/")
    return os.path.realpath(path) == top


def _files() -> Iterator[Path]:
    """Those that no repository can write: the system's and the person's."""
    said = os.environ
    if said.get("GIT_CONFIG_NOSYSTEM", "").lower() in ("", "0", "false", "no", "off"):
        yield Path(said.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")
    if "GIT_CONFIG_GLOBAL" in said:
        if said["GIT_CONFIG_GLOBAL"]:
            yield Path(said["GIT_CONFIG_GLOBAL"])
        return
    yield config_home() / "git/config"
    yield Path.home() / ".gitconfig"
