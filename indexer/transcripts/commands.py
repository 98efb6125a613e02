"""Parsing of shell command lines without running them, and recognition of smart-fork's own commands and tools."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Self

from indexer.lazy_compilation import late

#: Maximum length of a command that is parsed, since a longer one writes a file; and maximum depth of nested scripts.
_MAX_CHARACTERS, _MAX_DEPTH = 20_000, 4
#: Characters that separate the commands of a line.
_PARTS = ";&|()\n"
#: Characters that separate the words of a command.
_BETWEEN = " \t\r"
#: A comment. A line is split into comments, separators of commands, and words, much faster than by `shlex`.
_COMMENT = r"#[^\n]*\n?"
_WORDS = late(
    rf"{_COMMENT}|[{re.escape(_PARTS)}]+|"
    rf"(?:[^{re.escape(_PARTS + _BETWEEN)}#'\"\\]++|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.)+",
    re.DOTALL,
)
#: The quoted parts of a word, all closed.
_QUOTES = late(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", re.DOTALL)
_CLOSED = late(rf"(?>(?:{_COMMENT}|[^#'\"\\]++|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.)*)", re.DOTALL)
_ESCAPED = late(r"\\([\"\\])")
_HERE_DOCUMENT = late(r"<<-?\s*(['\"]?)(\w+)\1(.*?)\n.*?^\s*\2\s*$", re.DOTALL | re.MULTILINE)
_JOINED_OUTPUT = late(r"\d*>&\d*-?|&>>?\s*\S+|\d*>>?\s*/dev/null")
_CONTINUED = late(r"\\\r?\n")
_SUBSTITUTED = late(r"\$\(([^()]*)\)|`([^`]*)`")
_ASSIGNMENT = late(r"\w+=")
_SHELLS = {"bash", "sh", "zsh", "dash", "fish", "ksh"}
_QUOTED = late(r"'[^']*'|\"(?:[^\"\\\\]|\\\\.)*\"", re.DOTALL)
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "exec", "command", "eval"}
#: Programs that run another program, which comes after their options.
_RUNNERS = {
    "env", "sudo", "doas", "nohup", "nice", "ionice", "setsid", "stdbuf", "timeout", "gtimeout", "xargs", "caffeinate",
    "uv", "uvx", "pipx", "poetry", "pdm", "hatch", "rye", "pixi", "mise", "direnv", "nix", "npx",
}  # fmt: skip
_SUBCOMMANDS = {"run", "tool", "exec", "x"}
_WITH_VALUE = {"--from", "--with", "--python", "-p", "-u", "-n", "-C", "--directory", "--project", "--spec", "-s", "-k"}
_PATCHES = ("input", "patch", "patchText")
_DURATION = late(r"\d+(?:\.\d+)?[smhd]?")


@lru_cache(maxsize=64)  # one call is asked what it reads, where it works and what it proves
def simple_commands(line: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of each command in `line`, its program first, without runners such as `env` and `sudo`."""
    return tuple(_simple_commands(line, 0))


def _simple_commands(line: str, depth: int) -> Iterator[tuple[str, ...]]:
    if depth > _MAX_DEPTH:
        return
    line = _HERE_DOCUMENT.sub(r"\3", _CONTINUED.sub(" ", line[:_MAX_CHARACTERS]))
    for inner in _SUBSTITUTED.findall(line):
        yield from _simple_commands("".join(inner), depth + 1)
    for words in _parted(_JOINED_OUTPUT.sub(" ", line)):
        command = _without_runners(words)
        if not command:
            continue
        if _name(command[0]) in _SHELLS and (script := _script_of(command)):
            yield from _simple_commands(script, depth + 1)
        else:
            yield (_name(command[0]), *command[1:])


def unquoted(line: str) -> str:
    """Return `line` without quoted text, here-documents and redirected outputs."""
    line = _HERE_DOCUMENT.sub(r"\3", _CONTINUED.sub(" ", line[:_MAX_CHARACTERS]))
    return _JOINED_OUTPUT.sub(" ", _QUOTED.sub("''", line))


def command_of(arguments: Mapping[str, object]) -> str:
    """Return the command line in the input of a call of a shell tool, or ""."""
    command = arguments.get("command") or arguments.get("cmd") or ""
    if isinstance(command, list):
        words = [str(word) for word in command[:100]]
        # ["bash", "-lc", "the command"]: the shell in front says nothing.
        command = words[-1] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words)
    return str(command)


def patch_of(arguments: Mapping[str, object]) -> str:
    """Return the patch in the input of a call, under the names that agents use for it, or ""."""
    return next((text for name in _PATCHES if isinstance(text := arguments.get(name), str) and text), "")


def _parted(line: str) -> Iterator[list[str]]:
    try:
        words = _words(line)
    except ValueError:  # a quotation mark that is never closed
        yield from (part.split() for part in re.split(f"[{re.escape(_PARTS)}]+", line))
        return
    part: list[str] = []
    for word in words:
        if not word or word.strip(_PARTS):  # an empty one is given as such: it parts nothing
            part.append(word)
        else:
            yield part
            part = []
    yield part


def _words(line: str) -> list[str]:
    """Return the words and separators of `line` without comments, as `shlex` would.

    Raises:
        ValueError: a quotation mark is never closed.
    """
    if not _CLOSED.fullmatch(line):
        raise ValueError("a quotation mark is never closed")
    found = (word for word in _WORDS.findall(line) if word[:1] != "#")
    return [_QUOTES.sub(_unquoted, word) if "'" in word or '"' in word or "\\" in word else word for word in found]


def _unquoted(found: re.Match[str]) -> str:
    alone, quoted, escaped = found.groups()
    return alone or escaped or _ESCAPED.sub(r"\1", quoted or "")


def _without_runners(words: Sequence[str]) -> list[str]:
    rest = list(words)
    while rest:
        if _ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS:
            del rest[0]
        elif _name(rest[0]) in _RUNNERS:
            del rest[0]
            while rest and (rest[0].startswith("-") or rest[0] in _SUBCOMMANDS or _DURATION.fullmatch(rest[0])):
                del rest[: 2 if rest[0] in _WITH_VALUE else 1]
        else:
            break
    return rest


def _script_of(command: Sequence[str]) -> str:
    """Return the script that a command gives to a shell with ``-c``, or ""."""
    place = next((i for i, word in enumerate(command) if re.fullmatch(r"-\w*c", word)), None)
    return command[place + 1] if place is not None and place + 1 < len(command) else ""


def _name(word: str) -> str:
    return word.rpartition("/")[2]


#: smart-fork's tools, whatever a person has named the server. A test compares them with the server's.
TOOLS = frozenset({
    "smart_fork", "find_sessions", "list_sessions", "read_session", "index_status", "session_lineage", "branch_session",
    "excise_session", "spawn_workers", "list_workers", "read_worker", "message_worker", "wait_workers",
    "close_workers", "compare_workers",
})  # fmt: skip
#: A script of an agent that calls a tool of smart-fork, or has a shell run smart-fork.
_SCRIPTED = late(
    r"mcp__[\w-]*smart[-_]fork[\w-]*['\"]?\]?\s*\(|\btools\.smart_fork\b|\bcmd['\"]?\s*:\s*['\"`]\s*smart-fork\s"
)
#: Text in a prompt for another agent that tells it to ask smart-fork.
_PASSED_ON = late(r"\bmcp__[\w-]*smart[-_]fork[\w-]*__\w|\bsmart-fork find\b")
#: A command of smart-fork in a person's prompt; and the beginning of the prompt to which it is expanded.
_CALLED = late(
    r"/(?:mcp__)?[\w-]*smart[-_]fork[\w-]*(?:__|:)\w|"
    r"Find (?:the past session|out what past sessions) of this repository "
)
#: A result of a search, as smart-fork prints it.
_PRINTED = late(
    r"(?m:^)[ \t]*\d{1,2}(?:"
    r"\. +(?:[01]\.\d\d|(?:[<>] )?\d{1,2} %) [^\n]{1,200}\n[ \t]+\w{1,16} · [0-9a-f-]{8,36} · \d{4}-\d\d-"
    r"| +(?:(?:(?:[<>] )?\d{1,2} %|\?)  )?[^\n]{1,300}  \w{1,16} [0-9a-f-]{8,36}  )"
)
#: Programs that only look at something, or only pass on the output of another one.
_LOOKING_PROGRAMS = {
    "awk", "base64", "basename", "bat", "cat", "cd", "column", "cut", "date", "diff", "dirname", "echo", "egrep",
    "export", "false", "fd", "fgrep", "file", "find", "grep", "head", "jq", "less", "ls", "more", "nl", "printf", "pwd",
    "realpath", "rg", "sed", "set", "sleep", "sort", "source", "stat", "tail", "tee", "test", "tr", "tree", "true",
    "type", "uniq", "wait", "fi", "done", "esac", "wc", "which", "[", ".", "#",
}  # fmt: skip
_LOOKING_GIT = {"blame", "branch", "diff", "grep", "log", "ls-files", "reflog", "rev-parse", "show", "status"}
#: The folder of smart-fork's exports, below a home.
_EXPORTS = ".smart-fork"
_CHANGING = {"-i", "--in-place", "-delete", "-exec", "-execdir"}


def is_ours(name: str, namespace: str = "") -> bool:
    """Return True if a tool is smart-fork's own, by name or `namespace`. Its calls and results are never indexed."""
    if names_us(name) or names_us(namespace):
        return True
    server, _, tool = name.rpartition("__")
    return tool in TOOLS and bool(server or namespace)


def runs_ours(arguments: object) -> bool:
    """Return True if a call with this input runs smart-fork, so that the call's output repeats smart-fork's answer."""
    if isinstance(arguments, str):
        return names_us(arguments) and _SCRIPTED.search(arguments) is not None
    return isinstance(arguments, Mapping) and (passes_on(arguments) or _any_ours(command_of(arguments)))


def passes_on(arguments: Mapping[str, object]) -> bool:
    """Return True if a call lets another agent ask smart-fork, or opens the skill (instructions) of smart-fork."""
    told, skill = arguments.get("prompt"), arguments.get("skill")
    if isinstance(skill, str) and skill.partition(":")[0] == "smart-fork":
        return True
    return isinstance(told, str) and names_us(told) and _PASSED_ON.search(told) is not None


def calls_us(said: str) -> bool:
    """Return True if a person's text is a command of smart-fork, one of its prompts, or a copy of its output."""
    return _CALLED.match(said) is not None or _PRINTED.search(said) is not None


def without_ours(line: str) -> str:
    """Return a command line without its smart-fork commands, if any; then empty if the other ones change nothing."""
    if not _may_name_us(line):
        return line
    commands = simple_commands(line)
    if not any(map(_is_our_command, commands)):
        return line
    rest = [words for words in commands if not _is_our_command(words)]
    return "; ".join(map(shlex.join, rest)) if not all(map(_looks, rest)) else ""


def only_looks(line: str) -> bool:
    """Return True if all commands in a line only read or print something, such as ``ls``, and change nothing."""
    return all(map(_looks, simple_commands(line)))


def naming_sessions(places: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds action lines which name a log in one of `places`, or an export of a session.

    The output of such an action repeats another session. `places` are log folders below the homes of agents.
    """
    return re.compile(rf"/(?:{'|'.join(map(re.escape, (_EXPORTS, *places)))})/")


def names_us(text: str) -> bool:
    """Return True if `text` names smart-fork."""
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
    return words[0] in _LOOKING_PROGRAMS


#: Programs that only look or only prepare. Their errors are not worth noting, and they end no error of others.
_ASIDE_PROGRAMS = (
    "[|[[|awk|basename|bat|cat|cd|column|command|cut|date|diff|dirname|du|echo|egrep|env|exit|export|fd|fgrep|"
    "file|find|grep|head|jq|kill|less|ls|lsof|mkdir|nl|od|pgrep|pkill|popd|printf|ps|pushd|pwd|read|realpath|rg|"
    "sed|set|sleep|sort|source|stat|tail|tee|test|touch|tr|trap|tree|true|false|type|umask|uniq|unset|wait|wc|"
    "whereis|which|xxd|.|:"
)
_IS_ASIDE = frozenset(_ASIDE_PROGRAMS.split("|"))
_ONLY_LOOKS = {
    ("git", one) for one in ("blame", "branch", "diff", "fetch", "log", "ls-files", "rev-parse", "show", "status")
}
_SUBCOMMAND = late(r"[\w:./-]{1,80}")
#: Names of commands that change something. Commands of git hardly ever end an error.
_CHANGES = late(
    r"\b(?:add|auth|build|checkout|chmod|chown|clean|config|create|down|download|fix|fmt|format|gen|generate|get|i|init"
    r"|install|kill|link|ln|login|migrate|mv|cp|patch|prune|pull|rebase|reload|remove|reset|restart|restore|rm|seed|setup"
    r"|start|stash|stop|sync|tidy|touch|unset|up|update|upgrade|use)\b"
)
_BEHIND = late(r"[|;]")
_MAX_COMMANDS = 12


class WorkCommands(tuple[tuple[str, ...], ...]):
    """The commands in a line that do work, each as its words without options. Those that only read are missing."""

    __slots__ = ()

    @classmethod
    def of(cls, line: str) -> Self:
        return cls(dict.fromkeys(islice(_named_commands(line), _MAX_COMMANDS)))

    def are_again(self, other: WorkCommands) -> bool:
        """Return True if `other` repeats this line: it runs all the same programs, or has most of its words."""
        return {words[:2] for words in self} <= {words[:2] for words in other} or self.are_alike(other)

    def are_alike(self, other: WorkCommands) -> bool:
        """Return True if this line and `other` have most of their words in common."""
        words, others = ({word for words in line for word in words} for line in (self, other))
        return 2 * len(words & others) > len(words | others)

    def change(self) -> bool:
        """Return True if the commands' names say that they change something, such as "install"."""
        named = (word for words in self if words[0] != "git" for word in words[:3])
        return any(_SUBCOMMAND.fullmatch(word) and _CHANGES.search(word) for word in named)

    @staticmethod
    def hide_the_end(line: str) -> bool:
        """Return True if the exit status of a command line may come from a later command, not from its first one."""
        return _BEHIND.search(unquoted(line)) is not None


def is_aside(program: str) -> bool:
    """Return True if a program only reads or prints something, or prepares work, such as ``mkdir``."""
    return program in _IS_ASIDE


def _named_commands(line: str) -> Iterator[tuple[str, ...]]:
    for program, *given in simple_commands(line):
        words = (program, *(word for word in given if word[:1] != "-"))
        if program and program not in _IS_ASIDE and words[:2] not in _ONLY_LOOKS:
            yield words
