"""A session that a server is asked to make: its id is chosen here, and kept before it is asked.

Whoever is killed, or never sees the answer, finds the id again when the same is asked once more: nothing is made twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from smart_fork.errors import NotFound
from smart_fork.sharing import wire
from smart_fork.team.project import Project, new_id
from smart_fork.team.tracking import Tracked


@dataclass(frozen=True, slots=True)
class Begun:
    """The session `session_id`, which `what` is to make. `again` is whether it was begun before."""

    project: Project
    what: str
    session_id: str
    again: bool

    def there(self) -> wire.SessionRead | None:
        """The session, if the server has made it already."""
        if not self.again:
            return None
        try:
            return self.project.client.session(self.project.key, self.session_id)
        except NotFound:
            return None

    def anew(self) -> Begun:
        """The same with another id: the first one is of a session that is another one, or is no more."""
        other = new_id()
        self.project.tracking.change(lambda now: now.with_begun(self.what, other))
        return replace(self, session_id=other, again=False)

    def done(self, tracked: Tracked) -> Tracked:
        """What is tracked, once it is made and known."""
        return tracked.with_begun(self.what, None)


def begin(project: Project, *what: object) -> Begun:
    """The session that `what` makes, with the id that it was given before, or a new one.

    Raises:
        SmartForkError: the id cannot be kept, so nothing is asked.
    """
    key, fresh = " ".join(map(str, (project.server, project.key, *what))), new_id()
    kept = project.tracking.change(lambda now: now if key in now.begun else now.with_begun(key, fresh)).begun[key]
    return Begun(project, key, kept, again=kept != fresh)
