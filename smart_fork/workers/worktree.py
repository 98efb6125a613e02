"""Creates and removes git worktrees for workers (agents that smart-fork starts), so that agents do not share files."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from indexer.lazy_compilation import dataclass
from indexer.project import bare_at, is_within, project_of, resolve, text_of_regular
from smart_fork.display_text import printable
from smart_fork.errors import ForkRefused, ProgramFailed, SmartForkError, advice
from smart_fork.finding.git import Repository
from smart_fork.system.processes import Completed, Processes
from smart_fork.workers import uncommitted
from smart_fork.workers.uncommitted import FileChange, difference, submodules

BRANCHES = "smart-fork/"
MAX_NAME_CHARACTERS = 30
_MAX_WORKTREES = 99
#: The number of tries to make a worktree. Git fails while another process makes one in the same repository.
_MAX_TRIES = 5


def _without() -> str:
    return advice("fork without --worktree.", tool="leave worktree out.")


@dataclass(frozen=True, slots=True)
class Worktree:
    """A git worktree for a worker: its directory, its branch, and the directory from which it was made (`repository`).

    The worker's work begins on `base`: the checked-out commit, or a commit of the copied uncommitted changes.
    """

    path: Path
    branch: str
    repository: Path
    base: str

    @classmethod
    def of(cls, path: str, branch: str | None, base: str | None) -> Worktree:
        """Return the worktree at `path`, from the values that the registry of workers stores."""
        return cls(Path(path), branch or "", Path(path).parent.parent, base or "")

    @property
    def made(self) -> tuple[str, str, str]:
        """Return the worktree's path, branch and base, as the registry of workers stores them."""
        return str(self.path), self.branch, self.base

    def left_unfiltered(self, processes: Processes) -> str:
        """Return a warning about files that git stores in another form, such as Git LFS, and did not convert; or ""."""
        there = Repository.open_worktree(self.path, processes)
        if not there.has_filters:
            return ""
        files = there.git("ls-files", "-z").stdout
        said = iter(there.git("check-attr", "-z", "--cached", "--stdin", "filter", given=files).stdout.split(b"\0"))
        made = [(os.fsdecode(name), os.fsdecode(value)) for name, _, value in zip(said, said, said, strict=False)]
        made = [one for one in made if one[1] not in ("unspecified", "unset")]
        if not made:
            return ""
        name, driver = map(printable, made[0])
        pull = " (git lfs pull, there, fetches them)" if driver == "lfs" else ""
        return f"Filters are not run: {len(made)} files, such as {name}, are in the worktree as git stores them{pull}"

    @staticmethod
    def empty_submodules(repository: Path, processes: Processes) -> str:
        """Return a warning that submodules are empty in a new worktree; empty if the repository has none."""
        there = Repository.open(repository, processes)
        if not (there.top / ".gitmodules").exists():
            return ""
        listed = there.git("ls-tree", "-r", "-z", "--full-tree", "HEAD").stdout.split(b"\0")
        names = [os.fsdecode(entry.partition(b"\t")[2]) for entry in listed if entry.startswith(b"160000 ")]
        if not names:
            return ""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        fill = advice("; git submodule update --init, there, fills them", tool="")
        return f"Submodules are empty in the worktree: {printable(names[0])}{more}{fill}"

    def remove(self, processes: Processes) -> None:
        """Remove the new worktree, its branch and its content: the fork for which it was made was not started."""
        there = Repository.open(self.repository, processes)
        there.git("worktree", "remove", "--force", "--force", str(self.path))  # also one that git was just making
        there.git("branch", "--quiet", "-D", self.branch)
        uncommitted.forget_base(there, self.path)

    def undo(self, processes: Processes) -> None:
        """Remove the worktree after the start of its fork was interrupted, unless the worktree contains work."""
        if self.path.is_dir() and {one.name for one in self.path.iterdir()} <= {".git"}:  # git had not come far
            shutil.rmtree(self.path)
        if not self.path.exists() or not self._has_work(processes):
            self.remove(processes)

    def _has_work(self, processes: Processes) -> bool:
        """Return True if the worktree has a new commit or a changed or new file.

        Missing files do not count: git may have been stopped before it wrote them.
        """
        there = Repository.open_worktree(self.path, processes)
        heads = there.git("rev-parse", "--symbolic-full-name", "HEAD").text, there.git("rev-parse", "HEAD").text
        if heads != (f"refs/heads/{self.branch}", self.base):
            return True
        with TemporaryDirectory() as folder:  # its own index may be half written, and locked
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            there.asked("read-tree", "HEAD", env=index)
            listed = there.asked("status", "--porcelain", "-z", "--no-renames", env=index).stdout.split(b"\0")
        return any(one and not one.startswith(b" D") for one in listed)

    @classmethod
    def plan(cls, repository: Path, name: str | None, processes: Processes, *, with_changes: bool = False) -> Worktree:
        """Return the worktree that `create` would make, with the first free name among `name`, `name`-1, `name`-2 ….

        Raises:
            ForkRefused: it is in no git repository, has no commit or 99 such worktrees, or changes cannot be copied.
            ProgramFailed: git does not read the repository.
        """
        project = project_of(repository)
        if not project.git:
            if bare := bare_at(resolve(repository)):
                hint = f"Make it from one of its worktrees or a clone, or {_without()}"
                raise ForkRefused(f"{bare} is a bare repository: it has no files to work on", hint)
            why = f" ({printable(project.doubt)})" if project.doubt else ""
            hint = f"A worktree needs one; {_without()}"
            raise ForkRefused(f"Not in a git repository: {repository}{why}", hint)
        folder = Path(project.root) / Repository.WORKTREES
        if folder.is_symlink() or folder.is_file():
            what = f"{folder} is a {'symbolic link' if folder.is_symlink() else 'file'}"
            raise ForkRefused(what, f"Remove it, or {_without()}")
        there = Repository.open(repository, processes)
        head = there.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if not head.ok and head.complaint:
            raise ProgramFailed(f"git cannot read {repository}: {head.complaint}", _without().capitalize())
        if not head.ok:
            raise ForkRefused(f"No commit yet in {repository}", f"Make the first one, or {_without()}")
        if with_changes:
            uncommitted.check(repository, processes)
        # Of two branches, one of which is named as the other and then a slash, git keeps one only.
        taken = there.git("show-ref", "--verify", "--quiet", f"refs/heads/{BRANCHES[:-1]}").ok
        for number in range(_MAX_WORKTREES + 1):
            end = f"-{number}" if number else ""
            free = plain_name(name)[: MAX_NAME_CHARACTERS - len(end)] + end
            branch = f"{BRANCHES[:-1]}-{free}" if taken else BRANCHES + free
            if os.path.lexists(folder / free):
                continue
            if not there.git("for-each-ref", "--count=1", f"refs/heads/{branch}").text:
                return Worktree(folder / free, branch, repository, head.text)
        raise ForkRefused(
            f"{_MAX_WORKTREES} worktrees are named {plain_name(name)}",
            advice("Remove some: smart-fork worktrees --prune", tool="Choose another worktree name."),
        )

    @classmethod
    def create(
        cls,
        repository: Path,
        name: str | None,
        processes: Processes,
        *,
        with_changes: bool = False,
        note: Callable[[Worktree], object] = lambda _planned: None,
    ) -> Worktree:
        """Make a worktree of the commit that is checked out in `repository`, on a new branch.

        `note` is called with the planned worktree before it is made. `with_changes` also copies uncommitted changes and
        new files that are not ignored.

        Raises:
            ForkRefused: see `plan`.
            ProgramFailed: git failed.
        """
        planned = Worktree.plan(repository, name, processes)
        there = Repository.open(repository, processes)
        _exclude(there.place.common)
        carried = uncommitted.take(there, planned.base) if with_changes else None
        made = _add(planned, name, processes, note)
        if carried is None:
            return made
        try:
            return replace(made, base=uncommitted.put(carried, made.path, processes))
        except BaseException:
            made.remove(processes)
            raise

    def remove_if_saved(self, processes: Processes) -> str | None:
        """Remove the worktree and its branch and return `None`, or return a sentence on the work that would be lost.

        git itself checks again. The branch is deleted only if it gets no new commit meanwhile.
        """
        worktree, branch = self.path, self.branch
        try:
            there, ref = Repository.open(worktree.parent.parent, processes), f"refs/heads/{branch}"
        except ProgramFailed as error:
            return f"{worktree} stays: {error.message}"
        tip = there.git("rev-parse", "--verify", "--quiet", "--end-of-options", ref).text
        if loss := self.what_would_be_lost(processes):
            return loss
        if worktree.exists():
            # As the worktree itself is configured: git looks into it once more.
            removed = Repository.open_worktree(worktree, processes).git(
                "worktree", "remove", str(worktree), within=there.top
            )
            if not removed.ok:
                return f"git does not remove {worktree}: {removed.complaint}"
        if tip:
            removed = there.git("update-ref", "-d", ref, tip)
            if not removed.ok:
                return f"{worktree} is removed, but not its branch {branch}: {removed.complaint}"
            there.git("config", "--remove-section", f"branch.{branch}")
        uncommitted.forget_base(there, worktree)
        return None

    def what_would_be_lost(self, processes: Processes) -> str | None:
        """Return why the worktree and its branch must not be removed; `None` if no work would be lost with them.

        In doubt, content counts as work. The reason ends with the commands that remove both.
        """
        worktree, branch = self.path, self.branch
        if worktree.parent.name != Repository.WORKTREES or ".." in worktree.parts or not _OURS.fullmatch(branch):
            return f"{worktree} was not made by smart-fork and stays."
        try:
            repository = Repository.open(worktree.parent.parent, processes)
        except ProgramFailed as error:
            return f"{worktree} stays: {error.message}"
        known = listed(repository)
        mine = next((one for one in known if one.path == worktree), None)
        elsewhere = next((one.path for one in known if one.branch == f"refs/heads/{branch}" and one != mine), None)
        if elsewhere:
            return f"The branch {branch} is checked out in {elsewhere}; {_by_hand(repository.top, elsewhere, branch)}"
        if mine is None and os.path.lexists(worktree):
            return f"{worktree} is not a git worktree and stays."
        if mine and not worktree.is_dir():
            prune = f"git -C {shlex.quote(str(repository.top))} worktree prune"
            return (
                f"{worktree} is missing; if it was deleted: {prune}, and if it was moved: git worktree repair, there."
            )
        try:
            there = Repository.open_worktree(worktree, processes) if mine else None
        except ProgramFailed as error:
            return f"{worktree} cannot be read ({error.message}); {_by_hand(repository.top, worktree, branch)}"
        reasons = _in_it(mine, there, branch, self.base, known) if mine and there else iter(())
        reason = next(reasons, None) or _unsaved_commits(repository, there, branch)
        return f"{worktree} {reason}; {_by_hand(repository.top, worktree, branch)}" if reason else None

    def is_left(self, processes: Processes) -> bool:
        """Return True if the worktree's directory or branch still exists."""
        if self.path.is_dir():
            return True
        try:
            repository = Repository.open(self.path.parent.parent, processes)
        except SmartForkError:
            return False
        return repository.git("show-ref", "--verify", "--quiet", f"refs/heads/{self.branch}").ok

    def changes(self, processes: Processes) -> tuple[FileChange, ...] | None:
        """Return the files of the worktree that differ from the commit `base`, if known."""
        try:
            return difference(self.path, self.base, processes)[0] if self.base and self.path.is_dir() else None
        except (SmartForkError, OSError):
            return None

    def ahead(self, processes: Processes) -> int | None:
        """Return the number of commits that the worker made on its branch; `None` if unknown."""
        there = self.path.is_dir()
        opened = Repository.open_worktree if there else Repository.open
        try:
            where = opened(self.path if there else self.path.parent.parent, processes)
        except SmartForkError:
            return None
        done = where.git("rev-list", "--count", "--end-of-options", f"refs/heads/{self.branch}", f"^{self.base}")
        return int(done.text) if done.ok else None


def plain_name(name: str | None) -> str:
    """Return `name` in a form that can name a folder and a branch: at most 30 of the characters ``[A-Za-z0-9._-]``."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", name or "")
    text = re.sub(r"\.{2,}", ".", text)
    while text != (text := text[:MAX_NAME_CHARACTERS].strip("-._").removesuffix(".lock")):
        pass
    return text or "fork"


def _add(planned: Worktree, name: str | None, processes: Processes, note: Callable[[Worktree], object]) -> Worktree:
    failed = 0
    note(planned)
    while not (done := _try_to_make(planned, processes)).ok:
        again = replace(Worktree.plan(planned.repository, name, processes), base=planned.base)
        failed += again == planned  # else somebody else took the name meanwhile
        if failed == _MAX_TRIES:
            raise ProgramFailed(f"git worktree add failed: {done.complaint}", _without().capitalize())
        note(planned := again)
    return planned


def _try_to_make(planned: Worktree, processes: Processes) -> Completed:
    """Make the planned worktree, and return git's result.

    The branch is made first. That fails if the branch exists: so a cleanup never deletes a branch of others.
    """
    there = Repository.open(planned.repository, processes)
    ref = f"refs/heads/{planned.branch}"
    branch = there.git("update-ref", ref, planned.base, "")
    if not branch.ok:
        return branch
    done = there.git("worktree", "add", "--quiet", "--no-checkout", str(planned.path), planned.branch)
    if not done.ok:
        there.git("update-ref", "-d", ref, planned.base)
        return done
    try:
        # Filled as the worktree itself is configured, which may be otherwise than where it is made from.
        done = Repository.open_worktree(planned.path, processes).git("read-tree", "--reset", "-u", planned.base)
        if done.ok:
            return done
    except BaseException:
        planned.remove(processes)
        raise
    planned.remove(processes)
    return done


def _exclude(common: Path) -> None:
    """Hide workers' worktrees from ``git status``: add them to ``info/exclude`` in the git folder `common`."""
    line = f"/{Repository.WORKTREES}/"
    path = common / "info" / "exclude"
    path.parent.mkdir(exist_ok=True)
    try:
        known = text_of_regular(path) if os.path.lexists(path) else ""
        # Neither through a symbolic link, to a file that is not git's, nor into a pipe, which would never end.
        if line in known.splitlines() or path.is_symlink():
            return
    except OSError:
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n" if not known or known.endswith("\n") else f"\n{line}\n")


_OURS = re.compile(r"smart-fork[/-][A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ListedWorktree:
    """A worktree as ``git worktree list`` prints it, with the full name of its branch.

    `locked` is the reason for which it is locked, or `None`.
    """

    path: Path
    branch: str
    locked: str | None


def listed(repository: Repository) -> list[ListedWorktree]:
    """Return the worktrees that ``git worktree list`` names for a repository, except the main working directory."""
    found = []
    for block in os.fsdecode(repository.git("worktree", "list", "--porcelain").stdout).split("\n\n")[1:]:
        lines = [line.partition(" ")[::2] for line in block.splitlines()]
        said = dict(lines)
        if lines and lines[0][0] == "worktree":
            found.append(ListedWorktree(Path(said["worktree"]), said.get("branch", ""), said.get("locked")))
    return found


def _in_it(
    mine: ListedWorktree, there: Repository, branch: str, base: str, known: list[ListedWorktree]
) -> Iterator[str]:
    worktree = mine.path
    if mine.locked is not None:
        yield f"is locked{f' ({mine.locked})' if mine.locked else ''}"
    for other in known:
        if other != mine and is_within(other.path, worktree):
            yield f"has another worktree in it, {other.path}"
    if somebody := _process_in(worktree):
        yield f"is the working directory of process {somebody}"
    how = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
    status = there.git(*how)
    if not status.ok:
        yield f"cannot be read ({status.complaint})"
    if number := status.stdout.count(b"\0"):
        carried = ", as copied at the start" if _as_it_began(there, base) else ""
        yield f"has {_counted(number, 'uncommitted or new file')}{carried}"
    if changed := next((one.name for one in submodules(there) if one.changed), None):
        yield f"has changes in the submodule {changed}"
    if hidden := _file_hidden_from_status(there):
        yield f"has files that git does not check (assume-unchanged), such as {hidden}"
    stashes = there.git("stash", "list", "--format=%gs").text.splitlines()
    made_there = [line for line in stashes if line.startswith((f"WIP on {branch}:", f"On {branch}:"))]
    if made_there:
        yield f"has {_counted(len(made_there), 'stash', 'stashes')}"


def _unsaved_commits(repository: Repository, there: Repository | None, branch: str) -> str | None:
    """Return a text about commits of a worker's branch and worktree that no other branch has; `None` without any."""
    tips = []
    if repository.git("show-ref", "--verify", "--quiet", f"refs/heads/{branch}").ok:
        tips.append(f"refs/heads/{branch}")
    if there:
        tips.append(there.git("rev-parse", "HEAD").text)
    if not tips:
        return None
    others = ("--not", f"--exclude={branch}", "--branches", "--remotes")
    done = repository.git("rev-list", "--count", *tips, *others)
    if not done.ok:
        return f"cannot be read ({done.complaint})"
    return f"has {_counted(int(done.text), 'commit')} on no other branch" if done.text != "0" else None


def _as_it_began(there: Repository, base: str) -> bool:
    try:
        return bool(base) and not difference(there.top, base, there.processes)[0]
    except SmartForkError:
        return False


def _file_hidden_from_status(there: Repository) -> str | None:
    for line in there.git("ls-files", "-z", "-v").stdout.split(b"\0"):
        flag, name = line[:1], os.fsdecode(line[2:])
        if (flag == b"S" or flag.islower()) and os.path.lexists(there.top / name):
            return name
    return None


def _process_in(worktree: Path) -> str | None:
    import psutil  # takes a while

    there = resolve(worktree)
    for process in Processes.each():
        with contextlib.suppress(psutil.Error, OSError):  # it has ended, or is somebody else's
            if is_within(process.cwd(), there):
                return f"{process.pid} ({process.name()})"
    return None


def _by_hand(repository: Path, worktree: Path, branch: str) -> str:
    git_there = f"git -C {shlex.quote(str(repository))}"
    path = shlex.quote(str(worktree))
    return f"to remove it anyway: {git_there} worktree remove --force {path} && {git_there} branch -D {branch}"


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
