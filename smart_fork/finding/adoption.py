"""Sessions of another directory that a person gives to a project, and takes back."""

from __future__ import annotations

from indexer import repositories
from indexer.project import Project, is_within, resolve
from smart_fork.errors import NotFound, Usage, advice
from smart_fork.finding.index_access import opened
from smart_fork.repository.identity import AboutProject, described
from smart_fork.text.snippets import shown


def adopt(project: Project, directory: str, *, remove: bool = False) -> AboutProject:
    """Give the sessions of `directory` to a project, or take them back.

    Raises:
        Usage: the directory is the project's own.
        NotFound: no session worked there, or it was not adopted.
    """
    old = str(resolve(directory))
    if not remove and (is_within(old, project.root) or is_within(project.root, old)):
        raise Usage(f"{shown(directory)} is a directory of this project", "Give the directory that the sessions name.")
    if remove and repositories.adopted().get(old) != project.root:
        raise NotFound(
            f"{shown(directory)} was not adopted",
            advice("`smart-fork project` lists the adopted directories.", tool="Tell the user."),
        )
    with opened() as store:
        if not store.read_again(old) and old not in repositories.noted() and not remove:
            raise NotFound(
                f"No session worked in {shown(directory)}",
                advice("`smart-fork list --all-projects` lists all.", tool="Tell the user."),
            )
        repositories.adopt(old, None if remove else project.root)
    return described(project)
