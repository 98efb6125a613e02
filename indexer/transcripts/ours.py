"""Which of an agent's calls are smart-fork's own: what they ask and answer must never be found again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from indexer.patterns import late
from indexer.transcripts.commands import command_of, simple_commands

#: Our tools, whatever a person has named the server. A test holds them to those that the server has.
TOOLS = frozenset({
    "smart_fork", "find_sessions", "list_sessions", "read_session", "index_status", "session_lineage", "branch_session",
    "excise_session", "spawn_workers", "list_workers", "read_worker", "message_worker", "wait_workers",
    "close_workers", "compare_workers",
})  # fmt: skip
#: A script of an agent's that calls one of our tools, or has a shell run us.
_SCRIPTED = late(
    r"mcp__[\w-]*smart[-_]fork[\w-]*['\"]?\]?\s*\(|\btools\.smart_fork\b|\bcmd['\"]?\s*:\s*['\"`]\s*smart-fork\s"
)
#: What an agent is told that is to ask us in the place of its caller.
_PASSED_ON = late(r"\bmcp__[\w-]*smart[-_]fork[\w-]*__\w|\bsmart-fork find\b")
#: How a person calls us by name, and how that begins what the model is then told.
_CALLED = late(
    r"/(?:mcp__)?[\w-]*smart[-_]fork[\w-]*(?:__|:)\w|"
    r"Find (?:the past session|out what past sessions) of this repository "
)
#: A result, as it is printed.
_PRINTED = late(r"(?m:^)[ \t]*\d{1,2}\. [01]\.\d\d [^\n]{1,200}\n[ \t]+\w{1,16} · [0-9a-f-]{8,36} · \d{4}-\d\d-")
#: Programs that only look at something, or pass on what another one says.
_LOOKING = {
    "awk", "base64", "basename", "bat", "cat", "cd", "column", "cut", "date", "diff", "dirname", "echo", "egrep",
    "export", "false", "fd", "fgrep", "file", "find", "grep", "head", "jq", "less", "ls", "more", "nl", "printf", "pwd",
    "realpath", "rg", "sed", "set", "sleep", "sort", "source", "stat", "tail", "tee", "test", "tr", "tree", "true",
    "type", "uniq", "wait", "fi", "done", "esac", "wc", "which", "[", ".", "#",
}  # fmt: skip
_LOOKING_GIT = {"blame", "branch", "diff", "grep", "log", "ls-files", "reflog", "rev-parse", "show", "status"}
#: Where our own exports of sessions are, below a home.
_EXPORTS = ".smart-fork"
_CHANGING = {"-i", "--in-place", "-delete", "-exec", "-execdir"}


def is_ours(name: str, namespace: str = "") -> bool:
    """Whether a tool is smart-fork's own, whose calls and answers must never be found again."""
    if names_us(name) or names_us(namespace):
        return True
    server, _, tool = name.rpartition("__")
    return tool in TOOLS and bool(server or namespace)


def runs_ours(arguments: object) -> bool:
    """Whether these are the arguments of a call that runs smart-fork: its output is our own answer again."""
    if isinstance(arguments, str):
        return names_us(arguments) and _SCRIPTED.search(arguments) is not None
    return isinstance(arguments, Mapping) and (passes_on(arguments) or _any_ours(command_of(arguments)))


def passes_on(arguments: Mapping[str, object]) -> bool:
    """Whether these are the arguments of a call that has another agent ask smart-fork, or reads how that is done."""
    told, skill = arguments.get("prompt"), arguments.get("skill")
    if isinstance(skill, str) and skill.partition(":")[0] == "smart-fork":
        return True
    return isinstance(told, str) and names_us(told) and _PASSED_ON.search(told) is not None


def calls_us(said: str) -> bool:
    """Whether a person's words are a command of ours, what one of our prompts makes of it, or what we have printed."""
    return _CALLED.match(said) is not None or _PRINTED.search(said) is not None


def without_ours(line: str) -> str:
    """A command line without those of its commands that run smart-fork; empty where the others only serve them."""
    if not _may_name_us(line):
        return line
    commands = list(simple_commands(line))
    if not any(map(_is_our_command, commands)):
        return line
    rest = [words for words in commands if not _is_our_command(words)]
    return "; ".join(map(shlex.join, rest)) if not all(map(_looks, rest)) else ""


def only_looks(line: str) -> bool:
    """Whether a command line does nothing but look at things."""
    return all(map(_looks, simple_commands(line)))


def naming_sessions(places: Iterable[str]) -> re.Pattern[str]:
    """What finds in the line of an action that it names a log, or our export of one: who opens it reads more of our
    answer. `places` are the folders of the agents' logs, as they stand below a home.
    """
    return re.compile(rf"/(?:{'|'.join(map(re.escape, (_EXPORTS, *places)))})/")


def names_us(text: str) -> bool:
    """Whether smart-fork is named in `text`."""
    return "smart-fork" in text or "smart_fork" in text


def _any_ours(line: str) -> bool:
    return _may_name_us(line) and "*** Begin Patch" not in line and any(map(_is_our_command, simple_commands(line)))


def _may_name_us(line: str) -> bool:
    return names_us(line) or "INTENT=" in line


def _is_our_command(words: Sequence[str]) -> bool:
    program = re.split("[@:]", words[0], maxsplit=1)[0]  # a version, or a skill of the plugin
    if program in ("smart-fork", "smart-fork.exe"):
        return True
    if program == "make":
        return "run" in words and any(word.startswith("INTENT=") for word in words)
    if not program.startswith("python"):
        return False
    module = words[words.index("-m") + 1 : words.index("-m") + 2] if "-m" in words else words[1:2]
    return any(re.fullmatch(r"(?:.*/)?smart_fork(?:[.][\w.]+|/__main__[.]py)?", word) for word in module)


def _looks(words: Sequence[str]) -> bool:
    if _CHANGING.intersection(words) or any(">" in word for word in words if word[:1] in "0123456789>"):
        return False
    if words[0] == "git":
        return next((word for word in words[1:] if not word.startswith("-")), "") in _LOOKING_GIT
    return words[0] in _LOOKING
