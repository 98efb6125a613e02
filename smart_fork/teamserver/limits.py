"""What the server takes of one session, one user, one project, and one request."""

from __future__ import annotations

from dataclasses import dataclass

from smart_fork.errors import TooLarge
from smart_fork.sharing.limits import LIMITS, MIB, Limits
from smart_fork.teamserver.auth import Person, Project
from smart_fork.teamserver.database import Connection


class OverQuota(TooLarge):
    """There is no room for it: `used` and `limit` say how much there is."""

    code = "over_quota"

    def __init__(self, message: str, hint: str, used: int, limit: int) -> None:
        super().__init__(message, hint)
        self.used, self.limit = used, limit


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of `sharing`, and those of requests."""

    limits: Limits = LIMITS
    #: Segments that ride in a commit: a larger push sends them one by one first.
    commit_bytes: int = 12 * MIB
    question_bytes: int = MIB

    def session(self, count: int, size: int) -> None:
        """Refuse a session that is too long.

        Raises:
            TooLarge: It is.
        """
        if count > self.limits.session_records:
            raise TooLarge(f"A session has {count} records; at most {self.limits.session_records} are allowed.")
        if size > self.limits.session_bytes:
            raise TooLarge(f"A session has {size} bytes; at most {self.limits.session_bytes} are allowed.")

    def account(self, db: Connection, project: Project, person: Person, more: int) -> None:
        """Count what is stored for a user and in a project.

        Raises:
            OverQuota: It is more than either may have.
        """
        for statement, number, limit, whose in (
            (
                "UPDATE users SET bytes = bytes + %s WHERE id = %s RETURNING bytes",
                person.id,
                self.limits.user_bytes,
                "You",
            ),
            (
                "UPDATE projects SET bytes = bytes + %s WHERE id = %s RETURNING bytes",
                project.id,
                self.limits.project_bytes,
                f"The sessions of {project.key}",
            ),
        ):
            row = db.execute(statement, (more, number)).fetchone()
            if row is not None and more > 0 and row["bytes"] > limit:
                raise OverQuota(
                    f"{whose} may have {limit} bytes on this server.", "Delete sessions", row["bytes"] - more, limit
                )
