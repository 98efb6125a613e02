"""Authentication: the token, and the cookies, codes and forms derived from it. A new token invalidates all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from smart_fork.page.entry import Entries
from smart_fork.page.forms import PageForms
from smart_fork.page.renderer import stranger
from smart_fork.page.visits import Visits
from smart_fork.service.guard import Doors, Guard
from smart_fork.service.token import Token


class Entrance:
    """Authentication of the service at `host`, a name with a port. It keeps its files in `folder`."""

    def __init__(self, folder: Path, host: str) -> None:
        self.token = Token(self._changed)
        # Browsers give a cookie to every port of a machine: each service has a name of its own for it.
        self.visits = Visits(f"smart-fork-{host.rpartition(':')[2]}", folder / "visits.json", self.token)
        self.entries = Entries(folder, f"http://{host}/")
        self.forms: PageForms[Any] = PageForms(self.token, folder / "forms")
        self._guards: list[Guard] = []

    def guard(self, app: ASGIApp, names: Sequence[str], doors: Doors) -> Guard:
        """Return `app` behind a guard that accepts these host names."""
        made = Guard(app, token=self.token, hosts=names, doors=doors, cookies=self.visits, stranger=stranger)
        self._guards.append(made)
        return made

    def hang_up(self) -> None:
        """Close all streams."""
        for guard in self._guards:
            guard.hang_up()

    def _changed(self) -> None:
        self.visits.end()
        self.hang_up()
        self.entries.end()
