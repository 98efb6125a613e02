"""What is published: ``make dist`` builds it into dist/, and tries it as whoever installs it would.

It needs a checkout, what `build` and `twine` bring, and the network for the model and the requirements.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PACKAGES = ("indexer", "smart_fork")
#: What the backend adds to the wheel's files, below `smart_fork-VERSION.dist-info`, and to those of the sdist.
ABOUT = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "licenses/LICENSE-model"}
ADDED = {"PKG-INFO"}
#: What hatch_build.py adds: the model's files.
MODEL = "smart_fork_minilm/"
#: The model is 83 MB of the wheel. A registry takes 100 MB.
LARGEST = 90_000_000
#: Each of these is said on the page of a registry, or read by installers.
SAID = (
    "Summary",
    "Author",
    "License-Expression",
    "License-File",
    "Keywords",
    "Requires-Python",
    "Project-URL",
    "Provides-Extra",
)
EVERY_MODULE = """
import importlib, pkgutil, sys
for name in ("indexer", "smart_fork"):
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        if not module.name.endswith("__main__") and ".team.server." not in module.name:  # an extra brings its driver
            importlib.import_module(module.name)
sys.exit("torch" in sys.modules)
"""
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "dist", "version": "1"}}
FIRST_REQUESTS = ({"id": 1, "method": "initialize", "params": CLIENT}, {"id": 2, "method": "tools/list"})


def main() -> None:
    """Build, check, install."""
    wheel, sdist = build()
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    _check("holds other files than the packages do", differences(wheel_files(wheel), tracked(*PACKAGES)))
    _check("holds other files than the repository does", differences(sdist_files(sdist), tracked()))
    _check(f"is larger than {LARGEST:,} bytes", [wheel.name] * (wheel.stat().st_size > LARGEST))
    _check("does not say", unsaid(metadata(wheel)))
    for python in os.environ.get("PYTHONS", sys.executable).split():
        try_out(wheel, python)
    for path in (wheel, sdist):
        _say(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def build() -> tuple[Path, Path]:
    """A sdist of this checkout, and the wheel that the sdist builds, which is the one that the checkout builds."""
    shutil.rmtree(DIST, ignore_errors=True)
    builder = (sys.executable, "-m", "build", "--no-isolation")
    _run(*builder, "--outdir", str(DIST), str(ROOT))
    ((wheel,), (sdist,)) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        _run(*builder, "--wheel", "--outdir", folder, str(ROOT))
        same = (Path(folder) / wheel.name).read_bytes() == wheel.read_bytes()
    _check("is another wheel than that of the checkout", [sdist.name] * (not same))
    return wheel, sdist


def tracked(*folders: str) -> set[str]:
    """The repository's files, in these folders."""
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, check=True)
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}


def wheel_files(wheel: Path) -> set[str]:
    """What it installs, without what the backend adds."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    return {name for name in names if not name.startswith(MODEL)} - {f"{about}/{name}" for name in ABOUT}


def sdist_files(sdist: Path) -> set[str]:
    """What it unpacks to, without what the backend adds."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    return names - ADDED


def differences(held: Collection[str], meant: Collection[str]) -> list[str]:
    """What is there and should not be, and what should be and is not."""
    return sorted([f"+ {name}" for name in {*held} - {*meant}] + [f"- {name}" for name in {*meant} - {*held}])


def metadata(wheel: Path) -> Message:
    """What installers and registries read of it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def unsaid(about: Message) -> list[str]:
    """What the metadata should say and does not; a link that leads nowhere outside the repository."""
    nowhere = [line for line in str(about.get_payload()).splitlines() if re.search(r"\]\((?!https?://|#)", line)]
    return [name for name in SAID if not about.get_all(name)] + nowhere


def try_out(wheel: Path, base: str) -> None:
    """Install it into an empty environment of the Python `base`, and use it with an empty home."""
    with tempfile.TemporaryDirectory(prefix="smart-fork-dist-") as folder, _elsewhere(Path(folder)) as environment:
        _run(base, "-m", "venv", f"{folder}/venv")
        python, program = f"{folder}/venv/bin/python", f"{folder}/venv/bin/smart-fork"
        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*install, "-c", str(ROOT / "constraints.txt"), str(wheel), env=environment)
        version = metadata(wheel)["Version"]
        _check("does not name its version", [version] * (version not in _run(program, "--version", env=environment)))
        _run(python, "-c", EVERY_MODULE, env=environment)
        requests = "".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in FIRST_REQUESTS)
        answered = _run(program, "mcp", env=environment, given=requests)
        _check("lists no tool", ["smart-fork mcp"] * ('"find_sessions"' not in answered))
        answer = json.loads(_run(program, "demo", "--json", env=environment))
        found = answer["results"]
        _check("finds nothing of the demo", ["smart-fork demo"] * (not found))
        _check("does not search by meaning", [answer["search_mode"]] * (answer["search_mode"] != "hybrid"))
        named = _run(python, "--version").strip()
        _say(f"{named}: installed, smart-fork {version} finds {found[0]['title']!r}")


@contextmanager
def _elsewhere(folder: Path) -> Iterator[dict[str, str]]:
    """An environment with an empty home; commands run where no checkout is imported."""
    home, before = folder / "home", Path.cwd()
    home.mkdir()
    os.chdir(home)
    try:
        yield {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {"HOME": str(home)}
    finally:
        os.chdir(before)


def _run(*command: str, env: dict[str, str] | None = None, given: str = "") -> str:
    """What a program prints; where it fails, so does this.

    Raises:
        SystemExit: it failed. It has said why.
    """
    done = subprocess.run(command, env=env, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _check(fault: str, found: Collection[str]) -> None:
    if found:
        sys.exit(f"What was built {fault}:\n" + "\n".join(found))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
