"""Forged repositories: a `.git` that claims to be somebody else's, and names programs wherever git takes one.

Each is made by chance, the same for the same seed, and asked for everything that looks into a repository. No session of
another repository may be read, and no program that was planted may run.
"""

from __future__ import annotations

import contextvars
import json
import os
import random
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._words_only import NoModel
from smart_fork.workers.worktree import Worktree
from tests.attacks import planted_programs

LURE = "uploader"
SOMEBODY = 4242


@dataclass
class World:
    """A home with a repository that is nobody's business, one of the person's own, and a program that must not run."""

    home: Path
    chance: random.Random
    secret: Path = field(init=False)
    shop: Path = field(init=False)
    bad: Path = field(init=False)
    foreign: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bad = planted_programs.program(self.home)
        self.secret, self.shop = repository(self.home / "secret"), repository(self.home / "shop")
        git(self.secret, "submodule", "add", "-q", repository(self.home / "library"), "vendor")
        git(self.secret, "commit", "-q", "-m", "Vendor")
        git(self.secret, "worktree", "add", "-q", self.home / "linked")
        git(self.home, "clone", "-q", "--bare", self.secret, self.home / "secret.git")
        git(self.home, "init", "-q", "--separate-git-dir", self.home / "kept", self.home / "apart")
        for place in ("secret", "linked", "secret/vendor", "apart"):
            self.foreign.append(self.session(self.home / place, f"{LURE} CONFIDENTIAL"))

    def targets(self) -> list[Path]:
        """What a forged `.git` may lead to."""
        own = self.secret / ".git"
        places = [own, own / "worktrees/linked", own / "worktrees/new", own / "modules/vendor", own / "refs"]
        return [*places, self.home / "secret.git", self.home / "kept", self.home / "linked/.git", Path("/dev/zero")]

    def session(self, cwd: Path, words: str) -> str:
        """A session of Claude Code in `cwd`."""
        identity = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        about = {"sessionId": identity, "cwd": str(cwd), "version": "2.1.197", "isSidechain": False}
        records = []
        for turn, kind in enumerate(("user", "assistant")):
            content = [{"type": "text", "text": f"{words} done"}] if turn else words
            records.append(
                {"type": kind, "uuid": f"{identity}-{turn}", "parentUuid": f"{identity}-0" if turn else None, **about,
                 "entrypoint": "cli", "timestamp": f"2026-01-01T00:00:0{turn}.000Z",
                 "message": {"role": kind, "content": content}}
            )  # fmt: skip
        folder = "".join(letter if letter.isalnum() else "-" for letter in str(cwd))
        log = self.home / ".claude/projects" / folder / f"{identity}.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return identity


@dataclass
class Report:
    """What came out. `tricks` counts how often each was played, `outcomes` what the commands said."""

    repositories: int = 0
    tricks: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Figures and violations."""
        return {
            "repositories": self.repositories, "seconds": round(self.seconds, 1), "tricks": dict(self.tricks),
            "outcomes": dict(self.outcomes), "violations": self.violations,
        }  # fmt: skip


def git(folder: Path, *words: object) -> None:
    """Run git as the one who forges."""
    names = ("-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *names, *map(str, words)], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    """One with a file and a commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "file.txt").write_text("one\n", encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "First")
    return folder


# -- what is forged: each trick changes one directory -------------------------------------------------------------


def spelled(world: World, folder: Path, target: Path) -> str:
    """A path in one of the ways in which it can be written."""
    ways = [str(target), os.path.relpath(target, folder), f"{target}/", f"{target.parent}/./{target.name}",
            f"{folder}/../{folder.name}/{os.path.relpath(target, folder)}"]  # fmt: skip
    if world.chance.random() < 0.2:
        (folder / "way").unlink(missing_ok=True)
        (folder / "way").symlink_to(target.parent)
        ways.append(f"way/{target.name}")
    return world.chance.choice(ways)


def cleared(folder: Path) -> Path:
    """Where the `.git` is to be."""
    place = folder / ".git"
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    return place


def a_pointer(world: World, folder: Path) -> None:
    """To what is another's."""
    target = spelled(world, folder, world.chance.choice(world.targets()))
    ends = world.chance.choice(["\n", "", "\r\n", "\n\n", "\nworktree = x\n"])
    cleared(folder).write_text(f"gitdir: {target}{ends}", encoding="utf-8")


def a_link(world: World, folder: Path) -> None:
    """Symbolic, to what is another's."""
    cleared(folder).symlink_to(spelled(world, folder, world.chance.choice(world.targets())))


def an_own_worktree(world: World, folder: Path) -> None:
    """What looks like git's own for a worktree, and says that the rest is in another repository."""
    own = folder / world.chance.choice(["own/worktrees/x", "own", ".own/worktrees/linked"])
    own.mkdir(parents=True, exist_ok=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (own / "commondir").write_text(spelled(world, own, world.secret / ".git") + "\n", encoding="utf-8")
    (own / "gitdir").write_text(f"{folder}/.git\n", encoding="utf-8")
    planted_programs.plant(own, world.bad)
    cleared(folder).write_text(f"gitdir: {own}\n", encoding="utf-8")


def a_repository(world: World, folder: Path) -> None:
    """A whole one, full of programs."""
    cleared(folder)
    git(folder, "init", "-q", "-b", "main")
    (folder / "file.txt").write_text("one\n", encoding="utf-8")
    git(folder, "add", "file.txt")
    git(folder, "commit", "-q", "-m", "First")
    own = folder / ".git"
    planted_programs.plant(own, world.bad)
    if world.chance.random() < 0.3:
        (own / "objects/info").mkdir(parents=True, exist_ok=True)
        (own / "objects/info/alternates").write_text(f"{world.secret}/.git/objects\n", encoding="utf-8")
    if world.chance.random() < 0.3:
        text = f"[core]\n\tworktree = {spelled(world, own, world.secret)}\n"
        (own / "config").write_text((own / "config").read_text(encoding="utf-8") + text, encoding="utf-8")
    if world.chance.random() < 0.3:
        (own / "commondir").write_text(spelled(world, own, world.secret / ".git") + "\n", encoding="utf-8")


def a_repository_inside(world: World, folder: Path) -> None:
    """A pointer to a whole one in the directory itself, which may say of itself what it likes."""
    a_repository(world, folder)
    own = folder / world.chance.choice([".bare", "own", "x.git"])
    shutil.rmtree(own, ignore_errors=True)
    (folder / ".git").rename(own)
    bare = world.chance.choice(["true", "false"])
    worktree = world.chance.choice(["", f"\tworktree = {folder}\n", f"\tworktree = {world.secret}\n"])
    text = f"[core]\n\tbare = {bare}\n{worktree}"
    (own / "config").write_text((own / "config").read_text(encoding="utf-8") + text, encoding="utf-8")
    (folder / ".git").write_text(f"gitdir: ./{own.name}\n", encoding="utf-8")


def a_bare_one(world: World, folder: Path) -> None:
    """No `.git` at all: the directory itself is what a repository consists of."""
    a_repository(world, folder)
    for path in (folder / ".git").iterdir():
        if not (folder / path.name).exists():
            path.rename(folder / path.name)
    cleared(folder)


def a_pipe(_world: World, folder: Path) -> None:
    """Nobody will ever write into it."""
    os.mkfifo(cleared(folder))


def a_huge_one(_world: World, folder: Path) -> None:
    """More than anybody can read."""
    with cleared(folder).open("wb") as file:
        file.truncate(1 << 40)


def somebody_elses(_world: World, folder: Path) -> None:
    """As root can make it; others cannot forge that."""
    if os.geteuid() == 0 and os.path.lexists(folder / ".git"):
        os.lchown(folder / ".git", SOMEBODY, -1)


def attributes(_world: World, folder: Path) -> None:
    """Which files go through the programs."""
    (folder / ".gitattributes").write_text(planted_programs.ATTRIBUTES, encoding="utf-8")
    (folder / "new.txt").write_text("new\n", encoding="utf-8")
    (folder / "file.txt").write_text("two\n", encoding="utf-8")


def a_submodule(world: World, folder: Path) -> None:
    """A repository inside that git is told to look into."""
    part = folder / "part"
    if part.exists():
        return
    repository(part)
    planted_programs.plant(part / ".git", world.bad)
    attributes(world, part)
    text = f'[submodule "part"]\n\tpath = part\n\turl = ext::{world.bad}\n\tignore = none\n\tupdate = !{world.bad}\n'
    (folder / ".gitmodules").write_text(text, encoding="utf-8")


def a_registered_submodule(world: World, folder: Path) -> None:
    """The same, in the index of the directory's own repository, where it has one."""
    a_submodule(world, folder)
    entry = f"160000,{'1' * 40},part"
    with_own = ["git", "-c", "core.fsmonitor=false", "update-index", "--add", "--cacheinfo", entry]
    subprocess.run(with_own, cwd=folder, check=False, capture_output=True, timeout=5, env=_own_index(folder))


def _own_index(folder: Path) -> dict[str, str]:
    own = folder / ".git"
    text = own.read_text(encoding="utf-8", errors="replace") if own.is_file() and own.stat().st_size < 9999 else ""
    place = text.removeprefix("gitdir: ").strip() if text else str(own)
    inside = ".worktrees/" in str(folder) and "shop/.git/worktrees/" in place
    return {**os.environ, "GIT_DIR": place if inside else str(folder / "nothing"), "GIT_WORK_TREE": str(folder)}


CLAIMS: list[Callable[[World, Path], None]] = [
    a_pointer, a_pointer, a_link, an_own_worktree, a_repository, a_repository_inside, a_bare_one, a_pipe, a_huge_one,
]  # fmt: skip
MORE: list[Callable[[World, Path], None]] = [attributes, a_submodule, a_registered_submodule, somebody_elses]


# -- what is asked ------------------------------------------------------------------------------------------------


def forge(home: Path, number: int, seed: int) -> Report:
    """Make and ask so many in `home`, which the environment says is the person's."""
    report, world = Report(), World(home, random.Random(seed))
    started = time.perf_counter()
    for count in range(number):
        _one(world, count, report)
        if (home / "CANARY").exists():
            said = (home / "CANARY").read_text(encoding="utf-8", errors="replace")[:300]
            report.violations.append(f"{count}: a program has run: {said}")
            (home / "CANARY").unlink()
    report.repositories, report.seconds = number, time.perf_counter() - started
    return report


def _one(world: World, count: int, report: Report) -> None:
    from smart_fork.system.processes import Processes

    chance, made = world.chance, None
    if chance.random() < 0.5:
        made = Worktree.create(world.shop, f"w{count}", Processes())
        folder = made.path
    else:
        folder = world.home / "downloads" / f"d{count}"
        folder.mkdir(parents=True)
    tricks = ([chance.choice(CLAIMS)] if made is None or chance.random() < 0.8 else []) + chance.sample(MORE, 2)
    for trick in tricks:
        try:
            trick(world, folder)
        except (OSError, subprocess.SubprocessError):  # it does not go with what was there before
            report.outcomes["a trick that could not be played"] += 1
            continue
        report.tricks[trick.__name__] += 1
    (world.home / "CANARY").unlink(missing_ok=True)  # the forger's own git may have run it
    asked = folder
    if made is None and chance.random() < 0.3:
        asked = folder / "sub"
        asked.mkdir(exist_ok=True)
    own = world.session(asked, f"{LURE} mine {count}")
    shown = f"{count}: {[trick.__name__ for trick in tricks]}"
    for wrong in _read(world, asked, count, own, report):
        report.violations.append(f"{shown}: {wrong}")
    _run(world, folder, made, report)
    next((world.home / ".claude/projects").rglob(f"{own}.jsonl")).unlink()
    if made is not None:
        made.remove(Processes())
    shutil.rmtree(folder, ignore_errors=True)


def _read(world: World, folder: Path, count: int, own: str, report: Report) -> list[str]:
    """What must not be readable from `folder`, and is."""
    from indexer.project import project_of
    from smart_fork.agents.log_readers import READERS
    from smart_fork.finding.index_refresh import Engine
    from smart_fork.finding.recent import recent_sessions
    from smart_fork.finding.request import FindRequest
    from smart_fork.system import call_context
    from tests.smart_fork.searches import find

    wrong = []
    project = project_of(folder)
    report.outcomes["believed" if project.git else "not believed"] += 1
    if any(Path(place).is_relative_to(world.secret) for place in (project.key, project.root)):
        wrong.append(f"it is taken for {project.root}")
    request = FindRequest(f"{LURE} {count}", agent_type="both", limit=50)
    answer = find(request, Engine(NoModel(), embed_seconds=0), folder).as_json()
    ids = {one["session_id"] for one in answer["results"]}
    if ids & set(world.foreign) or "CONFIDENTIAL" in json.dumps(answer):
        wrong.append("a search finds another's session")
    if own not in ids:
        wrong.append("a search does not find its own session")
    if {one.session_id for one in recent_sessions(READERS, project, 50)[0]} & set(world.foreign):
        wrong.append("another's session is listed")

    def limited() -> bool:
        call_context.limit_to(call_context.permitted([str(folder)]))
        return any(call_context.permits(str(world.home / place)) for place in ("secret", "linked", "apart"))

    if contextvars.copy_context().run(limited):
        wrong.append("a client in it may ask about another's repository")
    return wrong


def _run(world: World, folder: Path, made: Any, report: Report) -> None:
    """Everything that runs git there."""
    from indexer.project import project_of
    from indexer.safe_files import state_home
    from smart_fork.errors import SmartForkError
    from smart_fork.system.processes import Processes
    from smart_fork.workers.comparison import compare
    from smart_fork.workers.registry import Registry
    from smart_fork.workers.worktree_cleanup import worktrees

    processes = Processes()
    branch, base = (made.branch, made.base) if made else ("smart-fork/x", _head(world.shop))
    with Registry() as registry:
        worker = registry.add(
            "claude",
            source_session_id="",
            place="process",
            cwd=folder,
            worktree=folder,
            branch=branch,
            base_commit=base,
        )
        registry.set_state(worker.id, "ended")
    doings: dict[str, Callable[[], object]] = {
        "compare": lambda: compare([worker.id], processes, patch=True),
        "worktrees": lambda: worktrees(processes, project_of(folder)),
        "with_changes": lambda: Worktree.create(folder, "inner", processes, with_changes=True),
        "prune": lambda: Worktree(folder, branch, folder.parent.parent, base).remove_if_saved(processes),
    }
    for name, do in doings.items():
        try:
            do()
        except SmartForkError as error:
            report.outcomes[f"{name}: {error.message.split(':')[0].split(' in /')[0][:40]}"] += 1
        else:
            report.outcomes[f"{name}: done"] += 1
    for file in state_home().glob("workers.db*"):
        file.unlink()


def _head(folder: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
