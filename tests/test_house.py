"""The repository's own rules."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from indexer.errors import joined
from smart_fork.agents import AGENTS
from tests import gauges
from tests.support.executables import shebang

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("indexer", "smart_fork")
MODULES = sorted(p for folder in (*PACKAGES, "benchmarks", "tests") for p in (ROOT / folder).rglob("*.py"))
VAGUE = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}
HEAVY = {"apscheduler", "mcp", "sentence_transformers", "torch", "transformers"}

#: Where agents are known: their own folders, and the conversations of the demo.
ROOMS = ("smart_fork/agents/", "smart_fork/cli/demo/")
#: Names of agents, of their variables, and of what they call their folders and logs. Style sheets and pages have cursors, too.
#: Short names are parts of many words, and one is an entity of HTML.
_NAMES = (
    "slug", "rollout",
    *(rf"(?<![\w|]){agent.name}(?![\w|;])" if len(agent.name) < 5 else rf"{agent.name}(?![:|])" for agent in AGENTS),
)  # fmt: skip
_AGENTS = re.compile("|".join(_NAMES), re.IGNORECASE)
_BEFORE_A_DOCSTRING = {tokenize.ENCODING, tokenize.INDENT, tokenize.NEWLINE}
_NOTHING = {tokenize.COMMENT, tokenize.NL}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def files_of_the_project() -> list[Path]:
    git = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if git.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / os.fsdecode(name) for name in git.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def test_a_module_is_read_in_one_sitting():
    assert [] == [relative(module) for module in MODULES if len(module.read_text().splitlines()) > 500]


def test_a_docstring_a_comment_and_a_blank_are_no_lines_of_code():
    source = '"""Doc.\n\nMore.\n"""\n\n# why\nx = """a\nb"""\n\n\ndef f():\n    """Doc."""\n    return x\n'
    assert gauges.code_lines(source) == 4


def test_an_install_without_extras_brings_no_framework():
    """As the installed packages say it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left, needed = [Requirement(need) for need in project["dependencies"]], set()
    while left:
        need = left.pop()
        name = canonicalize_name(need.name)
        if (name, *need.extras) in needed:
            continue
        needed.add((name, *need.extras))
        for line in requires(name) or ():
            more = Requirement(line)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *need.extras)):
                left.append(more)
    pins = {canonicalize_name(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}

    assert set() == {name for name, *_ in needed} & {"sentence-transformers", "torch", "transformers"}
    assert set() == {name for name, *_ in needed} - pins


def test_a_name_says_what_a_thing_does():
    vague = {}
    for module in MODULES:
        classes = re.findall(r"^ *class (\w+)", module.read_text(), re.MULTILINE)
        words = [word.lower() for name in classes for word in re.findall(r"[A-Z]?[a-z]+", name)]
        for part in module.relative_to(ROOT).with_suffix("").parts:
            words += part.split("_")
        vague[relative(module)] = VAGUE & set(words)

    assert {} == {name: words for name, words in vague.items() if words}


def test_what_is_required_is_named_in_tests_only():
    """A mark such as F-105 says nothing to who reads the product: the reason stands there in words."""
    mark = re.compile(r"\b([FBCREX]-[0-9]{3}|D[0-9]{1,2})\b")
    product = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]

    assert [] == [relative(path) for path in product if mark.search(path.read_text())]


def test_a_module_that_has_its_layer_is_there():
    """A layer that may be absent is left out silently where its module has another name now."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = [
        f"{container}.{name.strip(' ()')}".strip(".").replace(".", "/")
        for one in contracts
        if one["type"] == "layers"
        for container in one.get("containers", [""])
        for layer in one["layers"]
        for name in re.split(r"[|:]", layer)
    ]

    assert [] == [name for name in named if not (ROOT / name).is_dir() and not (ROOT / f"{name}.py").is_file()]


def test_every_public_name_exists():
    package = importlib.import_module("smart_fork")
    names = getattr(package, "__all__", [])

    assert [] == [name for name in names if not hasattr(package, name)]
    assert len(set(names)) == len(names)


#: Exceptions that no caller meets, and why they are none of the tree.
NOBODY_MEETS = {
    "StateUnavailable": "an `OSError`, told as that of a file is",
    "AnswerPending": "stops a search until a person has answered a form; the tool gives the form",
    "Unanswered": "the same, with the form",
}


@cache  # for two tests
def exceptions(root: Path) -> dict[str, list[ast.ClassDef]]:
    """The product's exception classes by their names; several of one name would hide each other."""
    texts = (path.read_text() for package in PACKAGES for path in (root / package).rglob("*.py"))
    classes: dict[str, list[ast.ClassDef]] = {}
    derives = re.compile(r"^ *class \w+\(", re.MULTILINE)
    for node in (node for text in texts if derives.search(text) for node in gauges.statements(ast.parse(text))):
        if isinstance(node, ast.ClassDef):
            classes.setdefault(node.name, []).append(node)
    return {name: nodes for name, nodes in classes.items() if "BaseException" in above(name, classes)}


def above(name: str, classes: dict[str, list[ast.ClassDef]]) -> set[str]:
    """What a class of that name is a kind of, itself among it."""
    bases = {ast.unparse(base).split(".")[-1] for node in classes.get(name, ()) for base in node.bases}
    kinds = {name}.union(*(above(base, classes) for base in bases - {name}))
    built_in = getattr(builtins, name, None)
    return kinds | ({one.__name__ for one in built_in.__mro__} if isinstance(built_in, type) else set())


def outside_the_tree(root: Path) -> set[str]:
    found = exceptions(root)
    return {name for name in found if not name.startswith("_") and "SmartForkError" not in above(name, found)}


def test_every_exception_that_a_caller_can_meet_is_a_smart_fork_error():
    assert set(NOBODY_MEETS) == outside_the_tree(ROOT)


def test_an_exception_outside_the_tree_is_seen_and_a_private_one_is_none(tmp_path):
    (tmp_path / "indexer").mkdir()
    (tmp_path / "indexer/errors.py").write_text(
        "class SmartForkError(Exception): ...\nclass IndexerError(SmartForkError): ...\n"
        "class Worse(errors.IndexerError, OSError): ...\nclass Stray(ValueError): ...\n"
        "class Astray(Stray): ...\nclass _Inner(Exception): ...\nclass Plain: ...\n"
    )

    assert {"Stray", "Astray"} == outside_the_tree(tmp_path)


def test_an_error_declares_its_code_and_no_two_have_one():
    """A code that was made of the class's name would change with it, and scripts look for it."""
    codes: dict[str, list[str]] = {}
    for name, (node, *_) in exceptions(ROOT).items():
        if name.startswith("_") or name in NOBODY_MEETS:
            continue
        said = [
            line.value for line in node.body if isinstance(line, ast.Assign | ast.AnnAssign) and "code" in _names(line)
        ]
        codes.setdefault(ast.literal_eval(said[0]) if said else "", []).append(name)

    assert [] == codes.get("", [])
    assert {"not_logged_in", "worker_limit", "already_runs", "fork_refused", "usage", "index_busy"} <= set(codes)
    assert {} == {code: names for code, names in codes.items() if len(names) > 1}


def _names(line: ast.Assign | ast.AnnAssign) -> list[str]:
    return [ast.unparse(target) for target in (line.targets if isinstance(line, ast.Assign) else [line.target])]


def joins(path: Path) -> Iterator[str]:
    """Texts that put a hint behind a message themselves, which makes two dots where the message ends with one."""
    source = path.read_text()
    if not re.search(r"\}\.? \{", source) or ("hint" not in source and "next_step" not in source):
        return
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        parts = "".join(
            f"<{ast.unparse(one.value)}>" if isinstance(one, ast.FormattedValue) else one.value for one in text.values
        )
        if re.search(r">\.? <[^>]*(hint>|next_step\()", parts):
            yield f"{relative(path)}:{text.lineno}"


def test_a_message_and_its_hint_are_joined_in_one_place():
    assert [] == [join for package in PACKAGES for path in (ROOT / package).rglob("*.py") for join in joins(path)]


def test_no_message_that_is_printed_has_two_dots_before_its_hint():
    said = (ROOT / "tests/golden/sentences.txt").read_text().splitlines()

    assert [] == [one for one in said if re.search(r"[^.]\.\. |[?!:…]\. ", joined(one, "Then this."))]


def test_the_changelog_begins_with_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert newest
    assert newest[1] == version


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [need for needs in (project["dependencies"], *project["optional-dependencies"].values()) for need in needs]
    pins = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}

    assert {"smart-fork"} == {re.split(r"[^\w-]", need)[0].lower() for need in wanted} - pins


def test_every_library_that_is_imported_is_a_dependency():
    """One that only another library brings goes with it, or comes in a version that we never tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [need for needs in (project["dependencies"], *project["optional-dependencies"].values()) for need in needs]
    needed = [Requirement(need) for need in wanted]
    declared = {canonicalize_name("-".join((need.name, *more))) for need in needed for more in ((), *zip(need.extras))}
    named = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)
    names = {
        name for path in MODULES if relative(path).startswith(PACKAGES) for name in named.findall(path.read_text())
    }

    brought = {name: by for name, by in packages_distributions().items() if name in names and name not in PACKAGES}

    undeclared = {name for name, by in brought.items() if not declared & {canonicalize_name(one) for one in by}}
    assert set() == undeclared


def test_no_file_has_two_sides_of_a_merge():
    sides = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)

    assert [] == [relative(path) for path in files_of_the_project() if sides.search(path.read_bytes())]


def test_a_database_is_closed_where_it_was_opened():
    """A connection as a context ends its transaction, and stays open: since Python 3.13 that is a warning."""
    open_still = re.compile(r"with sqlite3\.connect\(")

    assert [] == [relative(path) for path in MODULES if open_still.search(path.read_text("utf-8"))]


def test_no_file_names_the_machine_it_was_written_on():
    own = [str(ROOT)] if len(ROOT.parts) > 2 else []  # right below `/`, as in a container, it may have any name: `/src`
    places = {*own, pwd.getpwuid(os.getuid()).pw_dir} - {"/"}
    machine = re.compile("|".join(rf"(?<![\w.]){re.escape(place)}(?![\w.-])" for place in places).encode())
    texts = ((path, path.read_bytes()) for path in files_of_the_project())
    named = ((path, text) for path, text in texts if any(place.encode() in text for place in places))

    assert [] == [relative(path) for path, text in named if machine.search(text)]


def test_nothing_is_run_again_when_it_fails(request):
    ways = re.compile(r"rerun|flaky|--lf|--last-failed|--maxfail")
    told = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run")]
    told += (ROOT / ".github").rglob("*.yml")

    assert [] == [item.nodeid for item in request.session.items if item.get_closest_marker("flaky")]
    assert [] == [relative(path) for path in told if ways.search(path.read_text())]


@pytest.mark.parametrize("module", ["indexer", "smart_fork", "smart_fork.cli"])
def test_starting_loads_nothing_heavy(module):
    """D13: a model, a server or a scheduler is imported by whoever uses it."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} does not exist yet")
    script = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert set() == HEAVY & set(run.stdout.split())


def test_an_agent_is_named_in_its_own_room_only():
    """Also not on the page: what is written for one agent alone is missing where there is another."""
    modules = {module: sorted(_lines_that_name_an_agent(ROOT / module)) for module in _modules_outside()}
    pages = {
        relative(page): [number for number, line in enumerate(page.read_text().splitlines(), 1) if _AGENTS.search(line)]
        for folder in ("templates", "static")
        for page in (ROOT / "smart_fork/page" / folder).iterdir()
    }

    assert {} == {name: lines for name, lines in (modules | pages).items() if lines}


def test_an_agent_in_a_comment_or_docstring_does_not_count(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""Of Claude."""\n\ndef read(agent):\n    """Like Codex."""\n    # as Claude does\n'
        '    return agent == "claude"\n\nTEXT = """\nCodex\n"""\nCSS = "cursor: pointer"\ncodex = 1\n'
    )

    assert {6, 9, 12} == _lines_that_name_an_agent(module)


def _modules_outside() -> list[str]:
    paths = (path for package in ("indexer", "smart_fork") for path in (ROOT / package).rglob("*.py"))
    modules = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    return [module for module in modules if not module.startswith(ROOMS)]


def _lines_that_name_an_agent(path: Path) -> set[int]:
    """By their numbers. Comments and docstrings may name agents: they tell people why."""
    lines: set[int] = set()
    if not _AGENTS.search(path.read_text()):
        return lines
    before = tokenize.ENCODING
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in _NOTHING:
                continue
            if not (token.type == tokenize.STRING and before in _BEFORE_A_DOCSTRING):
                lines |= {
                    token.start[0] + number
                    for number, text in enumerate(token.string.splitlines())
                    if _AGENTS.search(text)
                }
            before = token.type
    return lines


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch) -> Path:
    """A checkout whose installed `smart-fork` prints its arguments and exits with $EXIT."""
    for name in ("INTENT", "PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "hatch_build.py"):
        shutil.copy(ROOT / name, tmp_path)
    command = tmp_path / ".venv/bin/smart-fork"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"{shebang()}import json, os, sys\nprint(json.dumps(sys.argv[1:]))\n"
        "sys.exit(int(os.environ.get('EXIT', 0)) if sys.argv[1] == 'find' else 0)\n"
    )
    command.chmod(0o755)
    for stamp in (".installed", ".light"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


def make_run(checkout: Path, *variables: str, **env: str) -> list[list[str]]:
    command = ["make", "run", *variables]
    run = subprocess.run(command, cwd=checkout, env=os.environ | env, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


HOSTILE = [
    "--help",
    'it\'s "quoted"',
    "$HOME $(id) ${x} $$",
    "`id`; id | id & id",
    "two\nlines",
    "fix #12 100% \\",
    "äöü",
]


@pytest.mark.parametrize("intent", HOSTILE)
def test_make_run_passes_an_intent_on_as_it_was_typed(checkout, intent):
    expected = [["find", "--project", ".", "--", intent]]

    assert expected == make_run(checkout, f"INTENT={intent}")
    assert expected == make_run(checkout, INTENT=intent)


def test_make_run_passes_the_project_on(checkout):
    assert [["find", "--project", "a b/$x", "--", "retry"]] == make_run(checkout, "INTENT=retry", "PROJECT=a b/$x")


def test_make_run_without_an_intent_shows_the_demo(checkout):
    assert [["demo"]] == make_run(checkout)


def test_make_run_shows_the_demo_where_there_is_no_session(checkout):
    assert ["demo"] == make_run(checkout, "INTENT=retry", EXIT="3")[-1]


@pytest.mark.parametrize("installed", [True, False])
def test_make_run_says_where_the_program_is_that_it_names_unless_it_is_found_by_its_name(checkout, tmp_path, installed):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("make", "sh", *(["smart-fork"] if installed else [])):
        (programs / name).symlink_to(shutil.which(name) or "/bin/true")
    env = os.environ | {"PATH": str(programs)}
    run = subprocess.run(["make", "run"], cwd=checkout, env=env, capture_output=True, text=True, check=True)

    assert ("(smart-fork is .venv/bin/smart-fork here;" in run.stderr) is not installed


def test_make_run_reports_an_error_as_an_error(checkout):
    with pytest.raises(subprocess.CalledProcessError):
        make_run(checkout, "INTENT=retry", EXIT="1")
