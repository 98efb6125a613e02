"""Gauges of the product's structure, and of what its commands do on the demo's home.

``python -m tests.gauges`` prints them; ``--of FOLDER`` those of another checkout; ``--circles``, ``--names`` and ``--work``
what is behind the numbers; ``--lower`` (``make gauges``) lowers the numbers in ``gauges.toml`` to those that are there.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.call_counter import NUMBERS
from tests.support.executables import shebang

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("indexer", "smart_fork")
KEPT = Path(__file__).with_suffix(".toml")
COUNTED = Path(__file__).with_name("call_counter.py")

#: What the agents say that are asked which version they are, and what they can do.
AGENTS = {"claude": "2.1.332 --fork-session --session-id", "codex": "codex-cli 0.171.0 fork"}
ERROR = "ConnectionResetError: [Errno 104] Connection reset by peer\n"

#: Folders that homes may be in, each as long as the others.
WORDS = ("river", "table", "green", "stone", "paper", "house", "light", "water")

Sources = Mapping[str, str]

#: A comment, or a string. Python's own tokens say the same, and take seven times as long.
_COMMENT_OR_STRING = re.compile(
    r"""#[^\n]*|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""", re.DOTALL
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """Return the number of lines with code."""
    text = _COMMENT_OR_STRING.sub(lambda found: "" if found[0][0] == "#" else found[0].replace("\n", "x\nx"), source)
    lines = {number for number, line in enumerate(text.split("\n"), 1) if line and not line.isspace()}
    for node in statements(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over a module and its statements, without their expressions."""
    yield node
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(node, name, ())
        for one in inner if isinstance(inner, list) else ():
            yield from statements(one)


class Imported(NamedTuple):
    """What a module imports: a name of another module, or that module itself; `typed` if only types need it."""

    module: str
    name: str
    typed: bool


class Structure:
    """The modules of a checkout by their dotted names, and what they import of each other."""

    def __init__(self, sources: Sources) -> None:
        self._paths = {_dotted(path): path for path in sources}
        self.lines_of = Counter({path: code_lines(source) for path, source in sources.items()})
        self.imports = {
            module: list(self._resolved(_imports(ast.parse(sources[path]), module, path.endswith("/__init__.py"))))
            for module, path in self._paths.items()
        }

    @property
    def lines(self) -> Counter[str]:
        """The code lines of each package."""
        counted = Counter[str]()
        for path, count in self.lines_of.items():
            counted[path.split("/")[0]] += count
        return counted

    def room(self, module: str) -> str:
        """The first folder below its package; the modules beside these folders are one."""
        return "/".join(self._paths[module].split("/")[:-1][:2])

    def crossing(self) -> dict[str, set[str]]:
        """The names that modules of another room import, not for types alone; with these modules."""
        users = defaultdict[str, set[str]](set)
        for module, imports in self.imports.items():
            for one in imports:
                if not one.typed and self.room(module) != self.room(one.module):
                    users[f"{one.module}.{one.name}".rstrip(".")].add(module)
        return users

    def circles(self) -> list[list[str]]:
        """The modules that import each other in a circle, for types too: each circle once, the smallest first."""
        graph = {module: {one.module for one in imports} - {module} for module, imports in self.imports.items()}
        return sorted((sorted(one) for one in _components(graph) if len(one) > 1), key=lambda one: (len(one), one))

    def _resolved(self, imports: Iterator[Imported]) -> Iterator[Imported]:
        for one in imports:
            if (whole := f"{one.module}.{one.name}") in self._paths:
                yield Imported(whole, "", one.typed)
            elif one.module in self._paths:
                yield one


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(tree: ast.AST, module: str, is_package: bool, typed: bool = False) -> Iterator[Imported]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                base = ".".join([*parts[: len(parts) - node.level + is_package], *([base] if base else [])])
            yield from (Imported(base, alias.name, typed) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (Imported(alias.name, "", typed) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(ast.Module(node.body, []), module, is_package, typed=True)
            yield from _imports(ast.Module(node.orelse, []), module, is_package, typed)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _imports(node, module, is_package, typed)


def _components(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The largest sets of modules each of which reaches all others of its set."""
    backwards = defaultdict[str, set[str]](set)
    for module, targets in graph.items():
        for target in targets:
            backwards[target].add(module)
    left, found = set(graph), []
    while left:
        start = min(left)
        found.append(_reached(graph, start, left) & _reached(backwards, start, left))
        left -= found[-1]
    return found


def _reached(graph: Mapping[str, set[str]], start: str, among: set[str]) -> set[str]:
    reached, todo = {start}, [start]
    while todo:
        new = (graph.get(todo.pop(), set()) & among) - reached
        reached |= new
        todo += new
    return reached


def sources(root: Path = ROOT) -> dict[str, str]:
    """The texts of the product's modules by their paths below `root`."""
    paths = (path for package in PACKAGES for path in (root / package).rglob("*.py"))
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}


def as_kept() -> Structure | None:
    """The structure at the commit that last wrote `gauges.toml`; `None` where git does not know it."""
    commit = _git("log", "-1", "--format=%H", "--", str(KEPT)).decode().strip()
    packed = _git("archive", "--format=tar", commit, *PACKAGES) if commit else b""
    if not packed:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        opened = ((one.name, files.extractfile(one)) for one in files if one.name.endswith(".py"))
        return Structure({name: file.read().decode() for name, file in opened if file})


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False).stdout


@cache
def structure(root: Path = ROOT) -> Structure:
    return Structure(sources(root))


@contextmanager
def place() -> Iterator[Path]:
    """A folder for a home. Its name is in what is found, masked and shown: one word is as good as another, an id is not."""
    above = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())  # noqa: S108
    for word in WORDS:
        with suppress(FileExistsError):
            (folder := above / word).mkdir(mode=0o700)
            break
    else:
        folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Home:
    """The demo's home, indexed, with agents that only say what they are."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        home = folder / "home"
        home.mkdir()
        self._env = {
            "HOME": str(home), "SMART_FORK_HOME": f"{home}/.smart-fork", "PATH": f"{home}/bin", "PYTHONPATH": str(root),
            "SMART_FORK_PRELOAD": "off", "SMART_FORK_BACKGROUND": "0", "OMP_NUM_THREADS": "1", "NO_COLOR": "1",
            "LANG": "C.UTF-8", "TZ": "UTC", "HF_HUB_OFFLINE": "1", "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }  # fmt: skip
        self._result = folder / "result.json"
        script = (
            "import json, sys; from pathlib import Path; from smart_fork.cli.demo import write_demo_home as write; "
            "made = write(Path(sys.argv[1])); print(json.dumps([str(made.project), made.intent, made.expected_session_id]))"
        )
        made = self._run("-P", "-c", script, str(home), path=os.environ["PATH"])
        self.project, self.intent, self.session = json.loads(made)
        (home / "bin").mkdir()
        (home / "bin/git").symlink_to(shutil.which("git") or "git")
        for name, said in AGENTS.items():
            program = home / "bin" / name
            program.write_text(f"{shebang('-IS')}print({said!r})\n")
            program.chmod(0o755)
        self._log = next((home / ".claude").rglob(f"{self.session}.jsonl"))
        self.count("index", "run")
        self.count("find", self.intent)

    def count(self, *words: str, stdin: str = "") -> dict[str, Any]:
        """What `call_counter.py` has counted of one command."""
        self._result.unlink(missing_ok=True)
        self._run("-P", str(COUNTED), str(self._result), *words, stdin=stdin)
        found: dict[str, Any] = json.loads(self._result.read_text("utf-8"))
        return found

    def write_two_lines(self) -> None:
        """Two further records at the end of the log that answers `intent`, of a while ago."""
        records = [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]
        *_, asked, answered = (one for one in records if one.get("uuid"))
        added = [
            asked | {"uuid": f"0{asked['uuid'][1:]}", "parentUuid": answered["uuid"]},
            answered | {"uuid": f"0{answered['uuid'][1:]}", "parentUuid": f"0{asked['uuid'][1:]}"},
        ]
        with self._log.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(one)}\n" for one in added)
        then = time.time() - 3600
        os.utime(self._log, (then, then))

    def _run(self, *words: str, stdin: str = "", path: str = "") -> str:
        env = self._env | ({"PATH": path} if path else {})
        cwd = getattr(self, "project", "/")
        done = subprocess.run(
            [sys.executable, *words], cwd=cwd, env=env, input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode not in {0, 3}:  # 3: nothing was found
            raise RuntimeError(f"{words}: {done.stderr or done.stdout}")
        return done.stdout


def commands(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """What each command does on a demo's home."""
    with place() as folder:
        return _commands(Home(folder, root))


def _commands(home: Home) -> dict[str, dict[str, Any]]:
    short = home.session[:8]
    counted = {
        "find": home.count("find", home.intent),
        "show": home.count("show", short),
        "list": home.count("list"),
        "fork": home.count("fork", short, "Go on.", "--dry-run"),
        "fork-budget": home.count("fork", short, "Add a timeout.", "--budget", "2k", "--dry-run"),
        "recall": home.count("recall", home.intent),
        "fix": home.count("fix", stdin=ERROR),
        "why": home.count("why", "README.md:1"),
        "cut-dry-run": home.count("excise", "cut", "2-3", home.session, "--dry-run"),
        "mcp-fork": home.count(
            "tool", "smart_fork", json.dumps({"intent": home.intent, "auto_fork": True, "dry_run": True})
        ),
    }
    home.write_two_lines()
    counted["index-run"] = home.count("index", "run")
    counted["cut"] = home.count("excise", "cut", "2-3", home.session, "--yes")
    return counted


def numbers(found: Structure, done: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """All gauges, as `gauges.toml` has them."""
    crossing = found.crossing()
    return {
        "lines": dict(sorted(found.lines.items())),
        "names": {"crossing": len(crossing), "one_user": sum(len(users) == 1 for users in crossing.values())},
        "circles": {"modules": len(found.circles())},
        **{name: {key: one[key] for key in NUMBERS} for name, one in done.items()},
    }


def as_toml(gauges: Mapping[str, Mapping[str, int]]) -> str:
    return "\n".join(
        "".join([f"[{name}]\n", *(f"{key} = {number}\n" for key, number in one.items())])
        for name, one in gauges.items()
    )


#: A home's name, its times and its ids decide what looks like a secret; on a busy machine a wait looks more often.
TOLERANCE = {"files": 1.02, "calls": 1.1}


def grown(now: Mapping[str, int], allowed: Mapping[str, int]) -> dict[str, str]:
    """The numbers of a table that are larger than they may be, each beside what is allowed."""
    return {
        key: f"{number}, {allowed.get(key, 0)} allowed"
        for key, number in now.items()
        if number > allowed.get(key, 0) * TOLERANCE.get(key, 1)
    }


def kept() -> dict[str, dict[str, int]]:
    return tomllib.loads(KEPT.read_text("utf-8"))


def lowered(now: Mapping[str, Mapping[str, int]], before: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The gauges as they are now, where that is less; a new one as it is."""
    return {
        name: {key: min(number, before.get(name, {}).get(key, number)) for key, number in one.items()}
        for name, one in now.items()
    }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gauges", description=__doc__)
    parser.add_argument("--of", type=Path, default=ROOT, metavar="FOLDER", help="another checkout")
    parser.add_argument("--source", action="store_true", help="run no command")
    parser.add_argument("--circles", action="store_true", help="name the modules of each circle")
    parser.add_argument("--names", action="store_true", help="name the crossing names, with their users")
    parser.add_argument("--work", action="store_true", help="say who opens, refreshes, reads and gathers")
    parser.add_argument("--lower", action="store_true", help="lower the numbers in gauges.toml")
    asked = parser.parse_args()
    root = asked.of.resolve()
    found, done = structure(root), dict[str, dict[str, Any]]()
    if not asked.source:
        done = commands(root)
    if asked.circles:
        for circle in found.circles():
            say(f"circle of {len(circle)}: {' '.join(circle)}")
    if asked.names:
        for name, users in sorted(found.crossing().items()):
            say(f"{name}  {len(users)}  {' '.join(sorted(users))}")
    for name, one in done.items() if asked.work else ():
        for what, stack in one["work"]:
            say(f"{name} {what}: {' < '.join(line.removeprefix(f'{root}/') for line in stack)}")
    gauges = numbers(found, done)
    if asked.lower:
        KEPT.write_text(as_toml(lowered(gauges, kept() if KEPT.exists() else {})), "utf-8")
    say(as_toml(gauges))


if __name__ == "__main__":
    main()
