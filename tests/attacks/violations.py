"""What must not happen under attack: to answers, to files, to programs that are started, to what is logged."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.attacks.client import Answer
from tests.attacks.home import Home
from tests.attacks.hostile_arguments import SECRET

#: An error that repeats more than a part of what was wrong is no help, and floods whoever asked.
MAX_ERROR = 4_000
INTERNAL_ERROR = -32603
CODE = Path(__file__).resolve().parents[2]
#: What only an error that nobody thought of says.
_INSIDE = re.compile(rf'Traceback|File "[^"]*\.py"|site-packages|{re.escape(str(CODE))}/|Internal Server Error')
#: A tool that fails in a way that it does not know of says no more than this.
_CRASH = re.compile(r"Error executing tool \w+")
#: Options that programs are given by us; anything else that begins with a dash came from outside.
_OPTIONS = {
    "--resume", "--fork-session", "--session-id", "--dangerously-skip-permissions", "-p", "--output-format", "-C",
    "--dangerously-bypass-approvals-and-sandbox", "--help", "--version",
}  # fmt: skip
_WRITING = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
#: Of any directory that is named it is looked up which repository it belongs to.
_ATTACKS_OWN = ("state", "calls", "tmp", "events.jsonl", "stderr")
_GIT = {".git", "commondir", "gitdir", "HEAD"}


def of_answer(home: Home, answer: Answer, sent: str, *, person: bool) -> str:
    """What is wrong with an answer; empty where nothing is. A person with the token in a browser may see all."""
    home.sent.update(one for one in home.canaries if one in sent)
    told = [one for one in home.canaries if one in answer.text and one not in home.sent]
    if told and not person:
        return f"tells {told[0]} of another project"
    if answer.status >= 500:
        return f"status {answer.status}"
    if found := _INSIDE.search(answer.text):
        return f"shows {found.group()!r}"
    if home.token in answer.text:
        return "tells the token"
    result = (answer.message or {}).get("result")
    if isinstance(result, dict) and result.get("isError"):
        texts = [part.get("text", "") for part in result.get("content", ())]
        if any(_CRASH.fullmatch(text.strip()) for text in texts):
            return "crashed"
        ours = [text for text in texts if "validation error" not in text and not text.startswith("Unknown tool")]
        if any(len(text) > MAX_ERROR or "\x1b" in text for text in ours):
            return "repeats all that it was given"
    code = ((answer.message or {}).get("error") or {}).get("code")
    return "internal error" if code == INTERNAL_ERROR else ""


def tree(home: Home) -> dict[str, str]:
    """Every file of the home but the service's own and those of the calls, with what is in it."""
    found = {}
    for path in sorted(home.folder.rglob("*")):
        below = path.relative_to(home.folder).parts[0]
        if (
            path.is_file()
            and not path.is_symlink()
            and below not in ("state", "calls", "tmp", "events.jsonl", "stderr")
        ):
            found[str(path)] = hashlib.blake2b(path.read_bytes()).hexdigest()
    return found


def of_files(home: Home, before: dict[str, str], cut: set[str]) -> Iterator[str]:
    """Files that were changed, removed, or made where nothing is to be made; `cut` are sessions cut on request."""
    after = tree(home)
    own = "".join(letter if letter.isalnum() else "-" for letter in str(home.project))
    for path, content in before.items():
        if after.get(path) != content and not any(one in path for one in (*cut, f"{home.project}/.git/")):
            yield f"{'changed' if path in after else 'removed'}: {path}"
    for path in after.keys() - before.keys():
        log = path.startswith((f"{home.folder}/.claude/projects/{own}", f"{home.folder}/.codex/sessions/"))
        # A worktree of the client's own project is git's, and what is below it too.
        if not log and not path.startswith(f"{home.project}/"):
            yield f"made: {path}"


def of_events(home: Home) -> Iterator[str]:
    """Files that the service itself opened or wrote, and programs that it started, without any reason."""
    roots = [str(home.folder / name) for name in ("state", ".claude", ".codex", "tmp", home.project.name)]
    writable = (*(f"{root}/" for root in roots), *roots, "/dev/null")
    readable = (*writable, str(CODE), sys.prefix, sys.base_prefix, "/proc/", "/sys/", "/usr/share/", "/etc/mime.types",
                "/etc/localtime", "/etc/os-release", "/dev/urandom", f"{home.folder}/bin")  # fmt: skip
    baits = {str(one) for one in home.bait}
    for line in (home.folder / "events.jsonl").read_text(encoding="utf-8").splitlines():
        event, *about = json.loads(line)
        if event == "open" and isinstance(about[0], str):
            writes = bool(about[1] and set(str(about[1])) & set("wax+")) or bool(_flags(about) & 0o3)
            fine = about[0].startswith(writable if writes else readable)
            if about[0] in baits or not (fine or (not writes and Path(about[0]).name in _GIT)):
                yield f"opened{' to write' if writes else ''}: {about[0][:200]}"
        elif event in _WRITING:
            for path in (one for one in about if isinstance(one, str)):
                if not path.startswith(writable) and not _is_relative_to_ours(path):
                    yield f"{event}: {path[:200]}"
        elif event == "subprocess.Popen":
            yield from _of_program(about[0], about[1])
            if any(key in str(about[1]) for key in {home.token, *home.secrets}):
                yield f"tells a key: {about[1]}"
        elif event in ("os.exec", "os.posix_spawn", "os.system", "pty.spawn"):
            yield f"{event}: {about}"


def of_calls(home: Home) -> Iterator[str]:
    """Programs in place of the agents that were given an option which is not ours."""
    for file in (home.folder / "calls").iterdir():
        yield from _of_program("", file.read_bytes().decode("utf-8", "replace").split("\0")[:-1])


def of_log(home: Home) -> Iterator[str]:
    """What must not stand in the service's log, or in what it says."""
    hidden = [one for one in home.canaries if one not in home.sent]
    for path in (*(home.state / "logs").glob("service*"), home.folder / "stderr"):
        text = path.read_text(encoding="utf-8", errors="replace")
        keys = [(one, "a key") for one in {home.token, *home.secrets}]
        for secret, name in (*keys, (SECRET, "a secret"), *((one, "a canary") for one in hidden)):
            if secret in text:
                line = next(one for one in text.splitlines() if secret in one)
                yield f"{path.name} has {name}: {line[:300]}"


def _of_program(program: object, argv: Any) -> Iterator[str]:
    words = [str(word) for word in argv]
    name = Path(str(words[0] if words else program)).name
    if name not in ("claude", "codex", "git", "ps", "python", "python3") and not name.startswith("python3."):
        yield f"started {words[:5]}"
    if name in ("claude", "codex"):
        options = words[1 : words.index("--")] if "--" in words else words[1:]
        for word in options:
            if word.startswith("-") and word not in _OPTIONS and not word.startswith("--name="):
                yield f"{name} was given the option {word[:200]!r}"


def _flags(about: list[Any]) -> int:
    return about[2] if len(about) > 2 and isinstance(about[2], int) and about[1] is None else 0


def _is_relative_to_ours(path: str) -> bool:
    """A name in a folder that was opened before: what is below a folder is removed so."""
    return "/" not in path
