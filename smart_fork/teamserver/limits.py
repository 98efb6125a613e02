"""What the server takes of one session, one user, one project, and one request."""

from __future__ import annotations

from psycopg import sql
from pydantic import BaseModel, ConfigDict

from smart_fork.errors import TooLarge
from smart_fork.sharing.limits import LIMITS, MIB
from smart_fork.teamserver.auth import Person, Project
from smart_fork.teamserver.database import Connection

#: Segments that ride in a commit: a larger push sends them one by one first.
COMMIT_BYTES = 12 * MIB
QUESTION_BYTES = MIB


class Query(BaseModel):
    """The base class of what stands behind the question mark of an address."""

    model_config = ConfigDict(frozen=True)


class OverQuota(TooLarge):
    """There is no room for it: `used` and `limit` say how much there is."""

    code = "over_quota"

    def __init__(self, message: str, hint: str, used: int, limit: int) -> None:
        super().__init__(message, hint)
        self.used, self.limit = used, limit


def account(db: Connection, project: Project, person: Person, more: int) -> None:
    """Count what is stored for a user and in a project.

    Raises:
        OverQuota: It is more than either may have.
    """
    for table, number, limit, whose in (
        ("users", person.id, LIMITS.user_bytes, "You"),
        ("projects", project.id, LIMITS.project_bytes, f"The sessions of {project.key}"),
    ):
        row = db.execute(
            sql.SQL("UPDATE {} SET bytes = bytes + %s WHERE id = %s RETURNING bytes").format(sql.Identifier(table)),
            (more, number),
        ).fetchone()
        if row is not None and more > 0 and row["bytes"] > limit:
            raise OverQuota(
                f"{whose} may have {limit} bytes on this server.", "Delete sessions", row["bytes"] - more, limit
            )
