"""Recent sessions, for the command line and MCP."""

from __future__ import annotations

from smart_fork.agents.logs import odd, unread
from smart_fork.agents.readers import READERS
from smart_fork.agents.selection import selected
from smart_fork.errors import Usage
from smart_fork.notes import tag as checked
from smart_fork.retrieval.answer import Recents
from smart_fork.retrieval.gone import gone_prompts
from smart_fork.retrieval.index_access import known_index
from smart_fork.retrieval.recent import Listed, recent_sessions
from smart_fork.retrieval.request import current_project, project_notice
from smart_fork.retrieval.results import recent_ones
from smart_fork.system import permission


def list_recent(
    agent: str, project: str | None, limit: int, *, everywhere: bool = False, automated: bool = False,
    tag: str = "", archived: bool = False,
) -> Recents:  # fmt: skip
    """The newest sessions of a project, straight from the logs; see `recent_sessions`. They have no notice yet.

    Raises:
        Usage: an unknown agent or directory, or a limit below 1.
    """
    agents = selected(agent)
    if limit < 1:
        raise Usage(f"limit must be at least 1, not {limit}", "Drop it for the default.")
    within = None if everywhere else current_project(project)
    adapters = [READERS[one] for one in agents]
    listed = Listed(checked(tag) if tag else "", archived)
    with known_index():
        found = recent_sessions(adapters, within, limit, automated=automated or bool(tag), listed=listed)
        gone = () if tag or archived else gone_prompts(within, agents)
    passed_over = () if permission.limited() else (*odd(adapters), *found.passed_over)
    notice = project_notice(within, found=bool(found.sessions))
    shown = recent_ones(found.sessions)
    return Recents(len(shown), "", shown, found.hidden, unread(adapters), passed_over, notice, gone)
