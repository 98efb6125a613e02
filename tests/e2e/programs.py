"""The real Claude Code and Codex, of the versions that are tested: brought from npm once, and kept in a cache."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

CLAUDE_VERSION = "2.1.197"
CODEX_VERSION = "0.169.0"
CHECKOUT = Path(__file__).resolve().parents[2]
#: Where the programs are kept between runs. Read at once: later, no test sees a variable of whoever runs the suite.
CACHE = Path(os.environ.get("SMART_FORK_E2E_CACHE") or CHECKOUT / ".cache" / "e2e").resolve()
#: What npm says when it is the network that is missing, and not a package.
UNREACHABLE = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ETIMEDOUT",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ERR_SOCKET_TIMEOUT",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "UNABLE_TO_GET_ISSUER_CERT",
)


class Unavailable(Exception):
    """The programs cannot be had here, and why."""


def cache_folder() -> Path:
    """`CACHE`, made where it is missing, and never part of the repository."""
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    return CACHE


def install(cache: Path) -> Path:
    """A folder with ``claude`` and ``codex`` in it, of the pinned versions, from npm unless they are there already.

    Raises:
        Unavailable: there is no npm, or it reaches nothing.
    """
    folder = cache / f"claude-{CLAUDE_VERSION}-codex-{CODEX_VERSION}"
    programs = folder / "bin"
    with FileLock(cache / "install.lock"):
        if not programs.is_dir():
            _npm_install(folder, cache / "npm")
            staging = folder / "bin.new"
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()
            (staging / "claude").symlink_to(_native_claude(folder))
            (staging / "codex").symlink_to(folder / "node_modules" / ".bin" / "codex")
            staging.rename(programs)
            shutil.rmtree(cache / "npm", ignore_errors=True)  # several hundred MB that nothing needs any more
    return programs


def _npm_install(folder: Path, npm_cache: Path) -> None:
    if not shutil.which("npm") or not shutil.which("node"):
        raise Unavailable("npm is not installed")
    folder.mkdir(exist_ok=True)
    # Post-install steps only put the program of this platform in its place, and may be forbidden: `_native_claude` does it.
    command = ["npm", "install", "--prefix", str(folder), "--cache", str(npm_cache), "--ignore-scripts"]
    command += ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--fetch-retries=1"]
    command += [f"@anthropic-ai/claude-code@{CLAUDE_VERSION}", f"@openai/codex@{CODEX_VERSION}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("npm does not get on") from None
    if done.returncode:
        if signs := [sign for sign in UNREACHABLE if sign in done.stderr]:
            raise Unavailable(f"npm is unreachable ({signs[0]})")
        raise RuntimeError(f"npm install failed: {done.stderr[-2000:]}")


def _native_claude(folder: Path) -> Path:
    system = platform.system().lower()
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(platform.machine().lower(), platform.machine())
    packages = folder / "node_modules" / "@anthropic-ai"
    for libc in ("", "-musl"):
        program = packages / f"claude-code-{system}-{machine}{libc}" / "claude"
        if program.is_file() and _runs(program):
            return program
    raise Unavailable(f"Claude Code has no program for {system}-{machine}")


def _runs(program: Path) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False
