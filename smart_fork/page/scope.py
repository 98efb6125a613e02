"""The project that a browser asks about: what the address says, else what it remembers, else all projects."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from indexer.shapes import dataclass
from indexer.unchecked import dict_in, json_in
from smart_fork.errors import Usage

#: What an address says that asks about all projects, where the browser remembers one.
EVERYWHERE = "*"
KEPT_SECONDS = 180 * 86_400
#: No path is longer that a system takes.
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Scope:
    """`project` is empty for all; `remembered` is what is asked about where an address says nothing."""

    project: str
    remembered: str


@dataclass(frozen=True, slots=True)
class Scopes:
    """What browsers remember in the cookie of that `name`."""

    name: str

    def of(self, request: Request) -> Scope:
        """The scope of a request."""
        remembered = _there(unquote(request.cookies.get(self.name, "")))
        asked = request.query_params.get("project")
        if asked is None:
            return Scope(remembered, remembered)
        return Scope("" if asked.strip() == EVERYWHERE else asked.strip(), remembered)

    def remember(self, answer: Response, request: Request, found: Scope) -> None:
        """Have the browser remember what its address has said, if that is another project or none."""
        if request.query_params.get("project") is None or found.project == found.remembered:
            return
        if not found.project:
            answer.delete_cookie(self.name, path="/", httponly=True, samesite="strict")
        elif _there(found.project):
            self.keep(answer, found.project)

    def keep(self, answer: Response, project: str) -> None:
        """Have the browser remember it."""
        answer.set_cookie(self.name, quote(project), max_age=KEPT_SECONDS, httponly=True, samesite="strict", path="/")


def project_in(body: bytes) -> str:
    """The project that ``smart-fork open`` was run in, as it says it; empty where it says none that is there."""
    project = dict_in(json_in(body)).get("project")
    return _there(project) if isinstance(project, str) else ""


def folder(project: str) -> Path:
    """The directory that an address or a form names as a project.

    Raises:
        Usage: there is none.
    """
    if not _there(project):
        raise Usage(
            "This project's directory does not exist", "Choose a project above the search, then open the session again."
        )
    return Path(project)


def _there(project: str) -> str:
    try:
        return project if 0 < len(project) <= _LONGEST and Path(project).is_dir() else ""
    except (OSError, ValueError):  # a NUL, or what is in no file system's encoding
        return ""
