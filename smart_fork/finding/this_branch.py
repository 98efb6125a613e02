"""The branch that is checked out, for questions that point at it without its name: "fix the failing test"."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from smart_fork.errors import SmartForkError
from smart_fork.repository.git import Repository
from smart_fork.repository.history import branch_at
from smart_fork.system.processes import Processes

log = logging.getLogger(__name__)

#: How a question speaks of the branch that is checked out, without its name; a number names another one.
_THIS_BRANCH = re.compile(
    r"\b(?:(?:this|the|my|our|current|local) (?!main\b|master\b|default\b)(?:\w+ )?branch"
    r"|(?:this|that|the|my|our) (?:\w+ )?(?:prs?|pull request|merge request|mr)|prs? (?:comments?|feedback|review))\b"
    r"(?! ?#?\d)|\bwhere (?:were|are) we\b|\b(?:we|i) (?:left|leave) off\b"
    r"|\b(?:my|our) (?:\w+ )?(?:tests?|changes|commits?|build|checks?)\b|\bmerge conflicts?\b"
    r"|\b(?:i|we) (?:opened|created|pushed) (?:a|an|the) (?:\w+ )?(?:pr|pull request|merge request|mr)\b"
    r"|\b(?:failing|broken|red) (?:\w+ )?(?:tests?|checks?|build|lint|ci|pipeline)\b"
    r"|\b(?:tests?|checks?|build|lint(?:er|ing)?|ci|pipeline) (?:is|are|still|keeps?) (?:still )?"
    r"(?:failing|fails?|broken|red)\b",
    re.IGNORECASE,
)
#: Branches that say nothing of what is done on them.
_TRUNKS = ("develop", "main", "master", "trunk")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
#: The subjects of the last commits that are on no trunk, and how long git may look for them.
_LANDED = (
    "log", "--max-count=3", "--no-merges", "--no-show-signature", "--no-color", "--format=%s", "HEAD", "--not",
    *(f"--{where}{one}" for one in _TRUNKS for where in ("branches=", "remotes=*/")),
)  # fmt: skip
_SECONDS = 0.5


def is_of_this_branch(text: str) -> bool:
    """Return True if `text` asks for the work on the current branch."""
    return _THIS_BRANCH.search(text) is not None


def branch_words(branch: str) -> str:
    """The words of a branch's name, behind its last slash; none of a trunk's."""
    return "" if branch in _TRUNKS else " ".join(_LETTERS.findall(branch.rpartition("/")[2]))


def pointed_at(intent: str, directory: Path, processes: Processes) -> dict[str, str]:
    """The branch of a query and, if the intent points at it, the subjects of its commits."""
    branch = branch_at(directory)
    if not branch or branch in _TRUNKS or not is_of_this_branch(intent):
        return {"branch": branch}
    try:
        done = Repository.open(directory, processes).git(*_LANDED, seconds=_SECONDS)
    except (SmartForkError, OSError) as error:  # the answer is good without
        log.info("the commits of the branch are not known: %s", error)
        return {"branch": branch}
    return {"branch": branch, "landed": " ".join(done.stdout.decode("utf-8", "replace").replace("\0", " ").split())}
