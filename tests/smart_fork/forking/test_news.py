"""Tests of the changes since a session, in histories of every kind, with real git: they are right or not reported."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from smart_fork.forking.changes_since import ChangesSince, SessionKnowledge, find_changes
from smart_fork.system.processes import Processes
from tests.support.cases import thorough_except_first

START = 1_770_000_000
BEGUN, UNTIL, LATER = START + 50, START + 100, START + 200
TEN = "".join(f"line {number}\n" for number in range(10))
PROCESSES = Processes()


def sh(folder: Path, script: str, at: int = LATER) -> str:
    """Run lines of a shell at a time that git uses for commits. Each line must succeed."""
    when = f"@{at} +0000"
    env = os.environ | {
        "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_TEMPLATE_DIR": "", "GIT_EDITOR": ":",
        "GIT_ALLOW_PROTOCOL": "file",
    }  # fmt: skip
    done = subprocess.run(["sh", "-ec", script], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def template(tmp_path_factory, _home_of_module):
    """Make a repository with one commit, once."""
    folder = tmp_path_factory.mktemp("template") / "shop"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.py", "b.py", "sub/c.py", "x.py"):
        (folder / name).write_text(f"# {name}\n{TEN}")
    (folder / "logo.png").write_bytes(b"\x89PNG\0\0" * 50)
    sh(folder, "git init -q -b main; git add .; git commit -qm One", at=START)
    return folder


@pytest.fixture(scope="module")
def _home_of_module():
    """Set the author of commits in the repository that is made once."""
    with pytest.MonkeyPatch.context() as patch:
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "Ada")
            patch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
        yield


@pytest.fixture
def shop(home, template, _home_of_module):
    folder = home / "shop"
    shutil.copytree(template, folder, symlinks=True)
    return folder


def then(shop: Path, *names: str, edited: tuple[str, ...] = (), **more: Any) -> SessionKnowledge:
    names = names or ("a.py", "b.py", "sub/c.py", "logo.png")
    edits = {str(shop / name): 1 for name in edited} | {str(shop / name): 0 for name in names if name not in edited}
    return SessionKnowledge(edits, **{"until": UNTIL, "begun": BEGUN, "cwd": str(shop), "branch": "main"} | more)


def told(found: ChangesSince | None) -> Mapping[str, str]:
    """Return each file with its difference."""
    if found is None:
        return {}
    return {
        one.path: " ".join(
            filter(
                None,
                (
                    one.change, one.to, f"+{one.lines[0]} -{one.lines[1]}" if one.lines else "",
                    "own" if one.own else "", "uncommitted" if one.uncommitted else "",
                ),
            )
        )
        for one in found.files
    }  # fmt: skip


COMMIT = "git add -A; git commit -qm Two"
HISTORIES = {
    "nothing was done": ("", {}),
    "a commit changed one": (f"echo more >> a.py; {COMMIT}", {"a.py": "changed +1 -0"}),
    "two commits changed one": (
        f"echo more >> a.py; {COMMIT}; sed -i 2,3d a.py; {COMMIT}", {"a.py": "changed +1 -2"},
    ),
    "others alone were changed": (f"echo more >> x.py; {COMMIT}", {}),
    "one was changed and changed back": (f"echo more >> a.py; {COMMIT}; git revert --no-edit HEAD", {}),
    "one was deleted": (f"rm a.py; {COMMIT}", {"a.py": "deleted +0 -11"}),
    "one was renamed": (f"git mv a.py d.py; {COMMIT}", {"a.py": "renamed d.py +0 -0"}),
    "one was renamed and edited": (
        f"git mv a.py d.py; echo more >> d.py; {COMMIT}", {"a.py": "renamed d.py +1 -0"},
    ),
    "the case of a name was changed": (f"git mv a.py A.py; {COMMIT}", {"a.py": "renamed A.py +0 -0"}),
    "one was moved to where another was": (
        f"git mv -f a.py b.py; {COMMIT}", {"a.py": "deleted +0 -11", "b.py": "changed +1 -1"},
    ),
    "an empty file is no rename": (f"rm a.py; : > e.py; {COMMIT}", {"a.py": "deleted +0 -11"}),
    "one was edited and not committed": ("echo more >> a.py", {"a.py": "changed +1 -0 uncommitted"}),
    "one was edited and staged": ("echo more >> a.py; git add a.py", {"a.py": "changed +1 -0 uncommitted"}),
    "one was taken away and not committed": ("rm a.py", {"a.py": "deleted +0 -11 uncommitted"}),
    "a rename was staged": ("git mv a.py d.py", {"a.py": "renamed d.py +0 -0 uncommitted"}),
    "one is no longer git's, and lies there": (f"git rm -q --cached a.py; echo a.py > .gitignore; {COMMIT}", {}),
    "one was written again as it was": ("cp a.py t; rm a.py; mv t a.py", {}),
    "changes were put away and brought back": (
        "echo more >> a.py; git stash -q; git stash pop -q", {"a.py": "changed +1 -0 uncommitted"},
    ),
    "changes were put away": ("echo more >> a.py; git stash -q", {}),
    "the commit was amended": ("echo more >> a.py; git add -A; git commit -q --amend -m One", {"a.py": "changed +1 -0"}),
    "the commit was amended in its words alone": ("git commit -q --amend -m Other", {}),
    "only the mode was changed": (f"chmod +x a.py; {COMMIT}", {"a.py": "mode"}),
    "only the mode was changed, and not committed": ("chmod +x a.py", {"a.py": "mode uncommitted"}),
    "a binary file was changed": (f"printf 'x\\0y' >> logo.png; {COMMIT}", {"logo.png": "changed"}),
    "one became a symbolic link": (f"ln -sf b.py a.py; {COMMIT}", {"a.py": "kind +1 -11"}),
    "one became a folder": (f"rm a.py; mkdir a.py; echo x > a.py/x; {COMMIT}", {"a.py": "deleted +0 -11"}),
    "very much was changed": (
        f"seq 1 60000 > a.py; seq 1 3000 | sed 's/.*/seq & > x&.txt/' | sh; {COMMIT}", {"a.py": "changed +60000 -11"},
    ),
    "line ends are made by git": ("git config core.autocrlf true; rm a.py; git checkout -q a.py", {}),
    "line ends were changed": (f"sed -i 's/$/\\r/' a.py; {COMMIT}", {"a.py": "changed +11 -11"}),
    "a name beside it is no text": (f"echo x > \"$(printf 'a\\377.py')\"; echo more >> a.py; {COMMIT}", {"a.py": "changed +1 -0"}),
    "a conflict is going on": (
        (f"git switch -qc other; echo one >> a.py; {COMMIT}; git switch -q main; echo two >> a.py; {COMMIT};"
        " git merge -q other || true"),
        {"a.py": "changed +5 -0 uncommitted"},
    ),
    "a branch was merged": (
        (f"git switch -qc other; echo one >> a.py; {COMMIT}; git switch -q main; echo two >> b.py; {COMMIT};"
        " git merge -q --no-edit other; git branch -qD other"),
        {"a.py": "changed +1 -0", "b.py": "changed +1 -0"},
    ),
    "it was rebased": (
        (f"git switch -qc other HEAD; echo one >> a.py; {COMMIT}; git switch -q main; echo two >> b.py; {COMMIT};"
        " git rebase -q other"),
        {"a.py": "changed +1 -0", "b.py": "changed +1 -0"},
    ),
    "an orphan branch is checked out": (
        "git switch -q --orphan new; echo x > b.py; git add b.py", {"a.py": "deleted +0 -11", "b.py": "changed +1 -11 uncommitted", "sub/c.py": "deleted +0 -11", "logo.png": "deleted"},
    ),
    "a part alone is checked out": ("git sparse-checkout set sub", {}),
}  # fmt: skip


@pytest.mark.parametrize("history", thorough_except_first(HISTORIES, 12))
def test_what_differs_from_what_was_known_is_told(shop, template, history):
    script, expected = HISTORIES[history]
    sh(shop, script)

    found = find_changes(shop, then(shop), PROCESSES)

    assert told(found) == expected
    if found is not None:
        assert found.known == "checked out"
        assert found.commit == (template / ".git/refs/heads/main").read_text().strip()


def rows(shop: Path, one: SessionKnowledge | None = None, **how: Any) -> Mapping[str, str]:
    return told(find_changes(shop, one or then(shop), PROCESSES, **how))


def test_what_nobody_has_written_to_since_is_as_it_was_known_whatever_git_says(shop):
    sh(shop, "echo mine >> a.py; echo mine >> b.py")
    for name in ("a.py", "b.py"):
        os.utime(shop / name, (UNTIL - 10, UNTIL - 10))
    one = then(shop, edited=("a.py",))

    assert rows(shop, one) == {}  # its own edits, and what it saw
    sh(shop, "git commit -qam Mine")
    assert rows(shop, one) == {}
    assert rows(shop, one, committed=True) == {}
    sh(shop, "echo theirs >> a.py")
    assert rows(shop, one) == {"a.py": "changed +2 -0 own uncommitted"}


def test_what_it_committed_itself_is_known_and_what_it_did_not_may_be_among_what_differs(shop):
    sh(shop, "echo mine >> a.py; git commit -qam Mine", at=BEGUN + 10)
    one = then(shop, edited=("a.py", "b.py"))
    assert rows(shop, one) == {}

    sh(shop, "echo theirs >> a.py; echo theirs >> b.py; git commit -qam Theirs")

    assert rows(shop, one) == {"a.py": "changed +1 -0", "b.py": "changed +1 -0 own"}


def test_a_worktree_is_compared_as_it_will_be_and_what_it_will_not_have_is_named(shop):
    sh(shop, "echo theirs >> a.py; git commit -qam Theirs; echo new >> b.py; echo new >> a.py")

    found = find_changes(shop, then(shop), PROCESSES, committed=True)

    assert found is not None
    assert (told(found), found.left_behind) == ({}, ("a.py", "b.py"))
    sh(shop, "git checkout -q a.py")
    found = find_changes(shop, then(shop), PROCESSES, committed=True)
    assert found is not None
    assert (told(found), found.left_behind) == ({"a.py": "changed +1 -0"}, ("b.py",))


def branches(found: ChangesSince | None) -> tuple[str | None, str] | None:
    return (found.branch, found.branch_now) if found is not None and found.branch_changed else None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    thorough_except_first(
        [
            ("", "git switch -qc dev", ("main", "dev")),
            ("", "git switch -qc dev; git switch -q main", None),
            ("git switch -qc dev", "git switch -q main; git branch -qD dev", ("dev", "main")),
            ("git checkout -q --detach", "git switch -q main", ("", "main")),
            ("", "git checkout -q --detach", ("main", "")),
            ("git switch -qc dev", "git branch -qm dev new", None),
            ("git switch -qc dev", "", None),
        ]
    ),
)
def test_the_branch_is_told_where_it_was_another_one(shop, before, after, expected):
    sh(shop, before, at=BEGUN)
    sh(shop, after)

    assert branches(find_changes(shop, then(shop, branch=None), PROCESSES)) == expected


def test_a_squashed_branch_has_what_it_had(shop):
    sh(
        shop,
        "git switch -qc dev; echo mine >> a.py; git commit -qam Mine; echo mine >> b.py; git commit -qam M",
        at=BEGUN,
    )
    sh(shop, "git switch -q main; git merge -q --squash dev; git commit -qm All; git branch -qD dev")

    found = find_changes(shop, then(shop, branch="dev"), PROCESSES)

    assert (told(found), branches(found)) == ({}, ("dev", "main"))


def test_of_a_commit_that_was_collected_no_file_is_told(shop):
    sh(shop, "git switch -qc dev; echo mine >> a.py; git commit -qam Mine", at=BEGUN)
    sh(shop, "git switch -q main; git branch -qD dev; echo x >> b.py; git commit -qam B")
    lost = [line.split()[1] for line in (shop / ".git/logs/HEAD").read_text().splitlines()][-3]
    (shop / ".git/objects" / lost[:2] / lost[2:]).unlink()

    found = find_changes(shop, then(shop), PROCESSES)

    assert (told(found), branches(found)) == ({}, ("dev", "main"))


def test_a_clock_that_went_back_or_ahead_tells_nothing(shop):
    sh(shop, "echo more >> a.py; git commit -qam Two", at=LATER)
    sh(shop, "echo more >> b.py; git commit -qam Three", at=BEGUN)
    assert rows(shop, then(shop, branch=None)) == {}
    assert rows(shop, then(shop, until=4_000_000_000.0)) == {}
    # What its log says that it was begun at is certain all the same.
    commit = sh(shop, "git rev-parse HEAD~2").strip()
    assert rows(shop, then(shop, commit=commit)) == {"a.py": "changed +1 -0", "b.py": "changed +1 -0"}


def test_outside_git_and_before_the_first_commit_there_is_no_news(home, shop):
    (home / "plain").mkdir()
    assert find_changes(home / "plain", then(home / "plain"), PROCESSES) is None
    sh(home / "plain", "git init -q -b main; echo x > a.py; git add .")
    assert find_changes(home / "plain", then(home / "plain"), PROCESSES) is None
    sh(home, "git clone -q --bare shop bare.git")
    assert find_changes(home / "bare.git", then(home / "bare.git"), PROCESSES) is None
    assert find_changes(home / "not there", then(shop), PROCESSES) is None


def test_of_a_worktree_that_is_gone_its_branch_tells(shop):
    tree = shop / ".worktrees/one"
    sh(shop, "git worktree add -q .worktrees/one -b one", at=BEGUN - 10)
    sh(tree, "echo mine >> a.py; git commit -qam Mine", at=BEGUN + 10)
    one = then(tree, branch="one")
    assert rows(tree, one) == {}
    sh(shop, "git worktree remove .worktrees/one; git merge -q --no-edit one; echo more >> b.py; git commit -qam B")

    found = find_changes(shop, one, PROCESSES)

    assert (told(found), branches(found)) == ({"b.py": "changed +1 -0"}, ("one", "main"))
    sh(shop, "git branch -qD one")  # nothing tells any more what it had
    assert rows(shop, one) == {}


def test_a_submodule_is_left_to_itself(home, shop):
    sh(
        shop,
        "git clone -q . ../inner; git -c protocol.file.allow=always submodule add -q ../inner inner; git commit -qm In",
        at=START + 10,
    )
    sh(shop / "inner", "echo more >> a.py; git commit -qam Inner")
    one = then(shop, "inner/a.py", "inner", "a.py")
    assert rows(shop, one) == {}
    sh(shop, "git add inner; git commit -qm Moved; echo more >> a.py")

    assert rows(shop, one) == {"a.py": "changed +1 -0 uncommitted"}
    assert rows(shop / "inner", then(shop / "inner", "a.py")) == {"a.py": "changed +1 -0"}


ELSEWHERE = {"here": False, "begun": BEGUN}


def test_in_a_teammates_clone_the_commit_of_the_log_counts_or_the_history_of_the_branch(home, shop):
    commit = sh(shop, "git rev-parse HEAD").strip()
    sh(shop, "echo more >> a.py; git commit -qam Two")
    sh(home, "git clone -q shop clone")
    clone = home / "clone"

    assert rows(clone, then(clone, commit=commit, **ELSEWHERE)) == {"a.py": "changed +1 -0"}
    assert rows(clone, then(clone, branch="main", **ELSEWHERE)) == {"a.py": "changed +1 -0"}
    assert rows(clone, then(clone, branch="main", edited=("a.py",), **ELSEWHERE)) == {"a.py": "changed +1 -0 own"}
    for unknown in ("gone", None, "../../main", "main..HEAD", "-x"):
        assert rows(clone, then(clone, branch=unknown, **ELSEWHERE)) == {}
    assert rows(clone, then(clone, commit="f" * 40, branch=None, **ELSEWHERE)) == {}


def test_work_that_is_older_than_the_session_is_no_news_however_late_it_came(home, shop):
    sh(shop, "git switch -qc dev; echo old >> a.py; git commit -qam Old", at=BEGUN)
    sh(shop, "git switch -q main; echo new >> b.py; git commit -qam New; git merge -q --no-edit dev")
    sh(home, "git clone -q shop clone")

    assert rows(home / "clone", then(home / "clone", branch="main", **ELSEWHERE)) == {"b.py": "changed +1 -0"}


def test_what_came_between_begin_and_end_may_have_been_known(home, shop):
    commit = sh(shop, "git rev-parse HEAD").strip()
    sh(shop, "echo pulled >> a.py; git commit -qam Pulled", at=BEGUN + 10)
    sh(shop, "echo more >> a.py; echo more >> b.py; git commit -qam Two")
    sh(home, "git clone -q shop clone")

    one = then(home / "clone", commit=commit, branch="main", **ELSEWHERE)
    assert rows(home / "clone", one) == {"b.py": "changed +1 -0"}


def test_a_shallow_clone_tells_what_it_has(home, shop):
    commit = sh(shop, "git rev-parse HEAD").strip()
    sh(shop, "echo more >> a.py; git commit -qam Two; echo more >> b.py; git commit -qam Three")
    sh(home, f"git clone -q --depth 1 file://{shop} shallow")
    shallow = home / "shallow"
    assert rows(shallow, then(shallow, commit=commit, branch="main", **ELSEWHERE)) == {}
    assert rows(shallow, then(shallow, branch="main", **ELSEWHERE | {"until": LATER + 10})) == {}
    sh(shallow, "echo mine >> b.py")
    later = then(shallow, branch="main", **ELSEWHERE | {"until": LATER + 10})
    assert rows(shallow, later) == {"b.py": "changed +1 -0 uncommitted"}


def test_the_record_of_another_clone_in_the_same_place_is_not_believed(shop):
    commit = sh(shop, "git rev-parse HEAD").strip()
    sh(shop, "echo more >> a.py; git commit -qam Two")
    (shop / ".git/logs/HEAD").write_text(
        f"{'0' * 40} {'e' * 40} A <a@b> {START} +0000\tclone\n{'e' * 40} {commit} A <a@b> {LATER} +0000\tx\n"
    )
    assert rows(shop, then(shop, commit=commit)) == {"a.py": "changed +1 -0"}
    (shop / ".git/logs/HEAD").unlink()
    os.mkfifo(shop / ".git/logs/HEAD")
    assert rows(shop, then(shop, commit=commit)) == {"a.py": "changed +1 -0"}


def test_nothing_that_a_repository_names_is_run_and_its_names_mean_nothing_to_git(shop):
    trap = f"sh -c 'touch {shop.parent}/sprung'"
    sh(
        shop,
        f"""git config diff.external "{trap}"; git config core.fsmonitor "{trap}"; git config diff.x.textconv "{trap}"
        git config filter.x.clean "{trap}"; git config filter.x.smudge "{trap}"; git config diff.x.command "{trap}"
        mkdir -p .git/info; echo '*.py diff=x filter=x' > .git/info/attributes; echo more >> a.py; mkdir -p -- --output=x ':(top)'; cp b.py -- '--output=x/*.py'""",
    )
    one = then(shop, "a.py", "*.py", "--output=x/*.py", ":(top)", "..", "../shop/b.py", "b.py/../x.py", "sub", "--help")
    before = sorted(shop.rglob("*"))

    assert rows(shop, one) == {"a.py": "changed +1 -0 uncommitted"}
    assert not (shop.parent / "sprung").exists()
    assert sorted(shop.rglob("*")) == before


#: What a name may be made of: git quotes it, or it looks like an option or a pattern.
HOSTILE = (
    'quo"te.py', "it's.py", "-rf", "--output=x", ":(top)", ":!a.py", "*", "back\\slash", "sp ace", " ", "é.py", "a -> b", "{a => b}.py",
)  # fmt: skip


#: Nothing is said of these.
UNSEEN = ("a\nb.py", "tab\t.py", "\x1b[31mred.py", "\u202eyp.txt")


def test_names_of_any_kind_are_told_as_they_are_or_not_at_all(shop):
    for name in (*HOSTILE, *UNSEEN):
        (shop / name).write_text(TEN)
    sh(shop, "git add .; git commit -qm Names", at=START + 10)
    known = then(shop, *HOSTILE, *UNSEEN, "a.py")
    assert rows(shop, known) == {}
    for name in (*HOSTILE, *UNSEEN):
        (shop / name).write_text(f"{TEN}more\n")
    assert rows(shop, known) == dict.fromkeys(HOSTILE, "changed +1 -0 uncommitted")
    sh(shop, "git mv a.py -- '-x\n\t:(top)'; git add .; git commit -qm More")

    told_of = rows(shop, known)

    assert told_of == dict.fromkeys(HOSTILE, "changed +1 -0") | {"a.py": "renamed -x\n\t:(top) +0 -0"}


def test_where_in_it_a_session_worked_does_not_matter_and_what_lies_outside_is_not_its(home, shop):
    outside = home / "notes.py"
    outside.write_text(TEN)
    sh(shop, "git init -q sub/inner; echo x > sub/inner/i.py")
    sh(shop, f"echo more >> a.py; echo more >> {outside}; echo more >> sub/inner/i.py; git commit -qam Two")
    names = ("a.py", "sub/c.py", "../notes.py", str(outside), "sub/inner/i.py", "/etc/hostname", "../shop-not/a.py")

    for cwd in (shop, shop / "sub", home):
        assert rows(shop / "sub", then(shop, *names, cwd=str(cwd))) == {"a.py": "changed +1 -0"}


def test_what_was_collected_and_forgotten_is_not_made_up(shop):
    """After ``git gc`` only the branch's history is left; amended commits are lost."""
    commit = sh(shop, "git rev-parse HEAD").strip()
    forget = "git reflog expire --expire=now --all; git gc -q --prune=now"
    sh(shop, f"echo more >> a.py; {COMMIT}; {forget}")
    assert rows(shop) == {"a.py": "changed +1 -0"}
    assert rows(shop, then(shop, branch=None)) == {}
    assert rows(shop, then(shop, branch=None, commit=commit)) == {"a.py": "changed +1 -0"}
    sh(shop, f"git reset -q --soft HEAD~; git commit -q --amend -m Both; {forget}")

    for more in ({}, {"commit": commit}, {"branch": None}):
        assert rows(shop, then(shop, **more)) == {}


def test_a_repository_that_was_moved_tells_nothing_of_where_it_was(home, shop):
    sh(shop, f"echo more >> a.py; {COMMIT}")
    shop.rename(home / "store")
    known = then(shop)
    assert rows(home / "store", known) == {}
    assert find_changes(shop, known, PROCESSES) is None

    sh(home, "mkdir shop; cd shop; git init -q -b main; echo other > a.py; git add .; git commit -qm Other")

    assert rows(shop, known) == {}  # another one in its place: nothing there is as old as the session


def test_commits_from_the_future_tell_no_time(home, shop):
    """A commit with a later date than now may have existed when the session began."""
    sh(shop, "echo ahead >> a.py; git commit -qam Ahead", at=4_000_000_000)
    sh(home, "git clone -q shop clone")
    clone = home / "clone"
    commit = sh(shop, "git rev-parse HEAD~").strip()

    assert rows(clone, then(clone, branch="main", **ELSEWHERE)) == {}
    # What its log says that it was begun at is certain, whatever the clocks say.
    assert rows(clone, then(clone, commit=commit, branch="main", **ELSEWHERE)) == {"a.py": "changed +1 -0"}


def test_linked_worktrees_are_checkouts_of_their_own_also_of_a_bare_repository(home, shop):
    sh(home, "git clone -q --bare shop bare.git; git -C bare.git worktree add -q ../one -b one main", at=BEGUN - 10)
    sh(home, "git -C bare.git worktree add -q --no-checkout ../two -b two main", at=BEGUN - 10)
    one, two = home / "one", home / "two"
    sh(two, "git sparse-checkout set sub; git checkout -q two", at=BEGUN - 5)
    sh(one, f"echo more >> a.py; {COMMIT}")
    sh(two, f"echo more >> sub/c.py; {COMMIT}")

    assert rows(one, then(one, branch="one")) == {"a.py": "changed +1 -0"}
    assert rows(two, then(two, branch="two")) == {"sub/c.py": "changed +1 -0"}
    # One that goes on in the other's has the other's files: they are not those that it knew.
    assert rows(two, then(one, branch="one")).keys() <= {"sub/c.py"}
    assert rows(home / "bare.git", then(one, branch="one")) == {}
