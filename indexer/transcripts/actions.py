"""One-line descriptions (action lines) of tool calls, never with output, and the files that calls edit and read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from indexer.masking import NOTHING, Masked, mask, shorten
from indexer.transcripts.commands import (
    command_of,
    is_aside,
    is_ours,
    passes_on,
    patch_of,
    runs_ours,
    simple_commands,
    without_ours,
)
from indexer.transcripts.line_hashes import added_line_hashes

ACTION_CHARACTERS = 240
NOTE_CHARACTERS = 200

_EDITS = {"Edit", "Write", "MultiEdit", "NotebookEdit", "Update", "str_replace_editor", "create_file"}
SHELLS = {"Bash", "shell", "shell_command", "exec_command", "local_shell", "container.exec", "unified_exec"}
_SILENT = {
    "TodoWrite", "TaskUpdate", "TaskList", "TaskGet", "TaskOutput", "BashOutput", "KillBash", "KillShell", "ToolSearch",
    "write_stdin", "update_plan", "wait", "EnterPlanMode", "view_image",
}  # fmt: skip
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_MOVED = re.compile(r"^\*\*\* Move to: (.+)$", re.MULTILINE)
#: Maximum number of files of one patch that are stored.
_MAX_PATCHED = 1000
#: Programs that only show the files that they get; below, words among their arguments that are no file names.
_SHOWING = {"cat", "head", "tail", "nl", "less", "more", "bat", "sed"}
_MAY_SHOW = re.compile(r"\b(?:cat|head|tail|nl|less|more|bat|sed)\b")
_SCRIPTS = {"-e", "--expression", "-f", "--file", "-i", "--in-place"}
_NO_NAME = re.compile(r"[*?$`{}~\[\]]|^\d+$")
_MOVES = {"cd", "pushd", "popd"}
#: Maximum number of commands of one line that are looked at.
_MAX_COMMANDS = 50
#: The shell tool that keeps its directory from one call to the next.
KEEPS_ITS_PLACE = "Bash"
#: The exit statuses with which a shell has not found a program, or may not run it.
_NOT_FOUND = (126, 127)
_IN_BACKGROUND = "Command running in background with ID"
_STATUS = re.compile(r"^(?:Exit code:?|Process exited with code|exit_code:)\s*(-?\d{1,9})", re.MULTILINE)
#: A line of an output, and the maximum number of lines before the error.
_LINE, _MAX_LINES = re.compile(r"\S[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*"), 100
_ERROR_TAG = re.compile(r"</?tool_use_error>")
#: Beginnings of the lines in Codex's header of a shell's output.
_HEADERS = ("Chunk ID:", "Wall time:", "Process exited", "Original token count:", "Output:", "Total output lines:")
#: Number of characters in which that header, with the command, is looked for.
_HEADER_CHARACTERS = 8000


def describe(name: str, arguments: Mapping[str, Any]) -> Masked:
    """Return the action line of a call, such as ``edit src/a.py`` or ``run pytest -q``; empty for unimportant calls."""
    if name in _SILENT or is_ours(name) or passes_on(arguments):
        return NOTHING
    path = _first(arguments, "file_path", "notebook_path", "path", "filePath")
    if name in _EDITS:
        return _line(f"read {path}" if arguments.get("command") == "view" else f"edit {path}")
    if name == "apply_patch" and (patch := patch_of(arguments)):
        return _patch(patch)
    if name in SHELLS or "command" in arguments or "cmd" in arguments:
        return _shell(arguments)
    if name == "Read":
        return _line(f"read {path}")
    if name in ("Grep", "Glob", "search"):
        return _line(f"search {_first(arguments, 'pattern', 'query')} {path}")
    subject = (
        _first(arguments, "description", "query", "url", "skill", "subject", "message", "prompt", "pattern") or path
    )
    return _line(f"{name} {subject}") if subject else NOTHING


def describe_raw(name: str, text: str) -> Masked:
    """Return the action line of a call whose input is one text: a patch or a script."""
    if not text or is_ours(name) or name in _SILENT or runs_ours(text):
        return NOTHING
    return _patch(text) or _line(f"run {text}")


def edited_by(name: str, arguments: Mapping[str, Any] | str) -> tuple[str, ...]:
    """Return the paths of the files that a call edits, as its input names them."""
    if isinstance(arguments, str):
        return _patched(arguments)
    if name in _EDITS and arguments.get("command") != "view":
        path = _first(arguments, "file_path", "notebook_path", "path", "filePath")
        return (path,) if path else ()
    patch = patch_in(name, arguments)
    folder = _first(arguments, "workdir")
    return tuple(f"{folder}/{path}" if folder and path[:1] != "/" else path for path in _patched(patch))


def lines_by(name: str, arguments: Mapping[str, Any] | str) -> tuple[bytes, ...]:
    """Return for each file that a call edits, in the order of `edited_by`, the joined hashes of the lines it adds."""
    patch = "" if name in _EDITS and not isinstance(arguments, str) else patch_in(name, arguments)
    return added_line_hashes(arguments, patch, _patched(patch) if patch else ("",))


def patch_in(name: str, arguments: Mapping[str, Any] | str) -> str:
    """Return the text in a call's input that may be a patch; empty if the input has no such text."""
    if isinstance(arguments, str):
        return arguments
    return (name == "apply_patch" and patch_of(arguments)) or command_of(arguments)


def writes(edits: Sequence[str], arguments: Mapping[str, Any] | str) -> bool:
    """Return True if a call with these `edits` edits or runs something, so that its input is the session's work."""
    return bool(edits) or isinstance(arguments, str) or bool(command_of(arguments))


def read_by(name: str, arguments: Mapping[str, Any] | str) -> tuple[str, ...]:
    """Return the paths of the files that a call reads with a tool or a command, as its input names them.

    Paths in a command count only if they are reliable: none if the line changes the directory, and only absolute ones
    if an earlier call may have changed it.
    """
    if isinstance(arguments, str):
        return ()
    if name == "Read" or (name in _EDITS and arguments.get("command") == "view"):
        path = _first(arguments, "file_path", "notebook_path", "path", "filePath")
        return (path,) if path else ()
    if name not in SHELLS:
        return ()
    line = command_of(arguments)
    commands = simple_commands(line)[:_MAX_COMMANDS] if _MAY_SHOW.search(line) else ()
    if any(words[0] in _MOVES for words in commands):
        return ()
    folder = _first(arguments, "workdir")
    paths = (path for words in commands for path in _shown(words))
    kept = (path for path in paths if path[:1] == "/" or name != KEEPS_ITS_PLACE)
    return tuple(dict.fromkeys(f"{folder}/{path}" if folder and path[:1] != "/" else path for path in kept))


def _shown(words: Sequence[str]) -> Iterator[str]:
    """Yield the arguments of a command such as `cat` that can be names of the files that it shows."""
    program, *given = words
    if program not in _SHOWING or any(sign in word for word in given for sign in "<>"):
        return
    names = [word for word in given if word[:1] != "-"]
    if program == "sed":  # its script comes first
        names = names[1:] if "-n" in given and not _SCRIPTS.intersection(given) else []
    yield from (word for word in names if not _NO_NAME.search(word))


def _patched(text: str) -> tuple[str, ...]:
    if "*** Begin Patch" not in text:
        return ()
    paths = (path.strip() for path in (*_PATCHED.findall(text), *_MOVED.findall(text)))
    return tuple(dict.fromkeys(paths))[:_MAX_PATCHED]


def succeeded(output: str, *, said: bool | None = None, not_run: tuple[str, ...] = ()) -> bool | None:
    """Return True if a command succeeded, False if it failed, and `None` if this is unknown.

    The exit status in its `output` decides; without one, the agent's own word `said`. A call whose output begins with
    one of `not_run` was not carried out.
    """
    status, _ = status_and_body(output)
    if status is not None:
        return None if status in _NOT_FOUND else status == 0
    if output.startswith((*not_run, _IN_BACKGROUND)):
        return None
    return said


def error_note(output: str) -> Masked:
    """Return the exit status and the first line of the error in the output of a failed call."""
    status, body = status_and_body(output)
    lines = (_ERROR_TAG.sub("", found[0]).strip() for found in islice(_LINE.finditer(body), _MAX_LINES))
    said = next((line for line in lines if line and not (len(line) < 60 and line.startswith(_HEADERS))), "")
    if status is None:
        return _line(said or "failed", NOTE_CHARACTERS)
    return _line(f"exit {status}: {said}" if said else f"exit {status}", NOTE_CHARACTERS)


def status_and_body(output: str) -> tuple[int | None, str]:
    """Return the exit status in the header of a shell command's output (or `None`), and the rest of the output."""
    header, marker, body = output[:_HEADER_CHARACTERS].partition("\nOutput:")
    if marker and (found := _STATUS.findall(header)):  # the last one: the command stands above it
        return int(found[-1]), body
    if first := _STATUS.match(output):
        return int(first[1]), output[first.end() :]
    return None, output


def _shell(arguments: Mapping[str, Any]) -> Masked:
    command = command_of(arguments)
    if "*** Begin Patch" in command:
        return _patch(command)
    command = without_ours(command)
    return _line(f"run {command}") if command else NOTHING


def _patch(text: str) -> Masked:
    paths = dict.fromkeys(path.strip() for path in _PATCHED.findall(text))
    return _line("edit " + ", ".join(paths)) if paths else NOTHING


def _first(arguments: Mapping[str, Any], *names: str) -> str:
    return next(
        (str(arguments[name]) for name in names if isinstance(arguments.get(name), str) and arguments[name]), ""
    )


def _line(text: str, limit: int = ACTION_CHARACTERS) -> Masked:
    line = _known_line if len(text) <= _KNOWN_CHARACTERS else _new_line
    return line(text, limit)


def _new_line(text: str, limit: int) -> Masked:
    return shorten(mask(text.replace("\0", "")), limit)


#: Maximum length of texts with a cached action line. Equal files and commands recur: two lines of five are found in the
#: cache.
_KNOWN_CHARACTERS = 512
_known_line = lru_cache(maxsize=1024)(_new_line)


# Where commands do more than look.

#: A command line without any of these stays in the directory of its shell.
_GOES = re.compile(r"\b(?:cd|pushd)\s|\s-C|\s--[a-z]|[\s>\"'=]/|\.\./|>")
#: Arguments of calls for the directory in which they run; below, options of programs for the directory.
_PLACED = ("workdir", "cwd", "dir_path", "directory", "working_directory")
_INTO = {"-C", "--directory", "--prefix", "--cwd", "--work-tree", "--git-dir", "--project", "--manifest-path"}
#: Programs that write where their last argument says; below, all programs that write where arguments say.
_COPY = {"cp", "mv", "install", "rsync", "ln"}
_WRITE = {*_COPY, "tee", "touch", "mkdir", "rm", "patch", "chmod"}
_GIT_WORKS = {
    "add", "am", "apply", "checkout", "cherry-pick", "clean", "commit", "init", "merge", "mv", "pull", "push", "rebase",
    "reset", "restore", "revert", "rm", "stash", "submodule", "switch", "tag", "worktree",
}  # fmt: skip
_OUTPUT_FILE = re.compile(r"1?>>?[^&]*$")
_NO_PATH = re.compile(r"[*?$`{}~<>|]")
_MAX_PLACES = 8


def worked_in(arguments: Mapping[str, Any], began: str, cwd: str) -> tuple[str, ...]:
    """Return the places outside the directory `began` in which a call, made in `cwd`, changes something."""
    line, given = command_of(arguments), next(filter(None, map(arguments.get, _PLACED)), "")
    here = _joined(cwd, given) if isinstance(given, str) else ""
    if not line or (here == began and not _GOES.search(line)):
        return ()
    found = dict.fromkeys(one for one in _places(line, here) if one not in ("", began))
    return tuple(islice(found, _MAX_PLACES))


def _places(line: str, here: str) -> Iterator[str]:
    for program, *given in simple_commands(line)[:_MAX_COMMANDS]:
        if program in ("cd", "pushd"):
            here = _joined(here, next((word for word in given if word[:1] != "-"), "~"))
            continue
        words = [part for word in given for part in (word.split("=", 1) if word[:2] == "--" else (word,))]
        yield from (_joined(here, word[word.rindex(">") + 1 :] or after) for word, after in pairwise([*given, ""])
                    if _OUTPUT_FILE.match(word))  # fmt: skip
        if not _works((program, *given)):
            continue
        there = next((_joined(here, into) for option, into in pairwise(words) if option in _INTO), here)
        paths = [word for word in given if word[:1] != "-"]
        paths = [path for path in (paths[-1:] if program in _COPY else paths) if path.startswith(("/", "../"))]
        named = [_joined(there, path) for path in paths]
        yield from named if named and _writes(program, given) else (there,)


def _works(words: tuple[str, ...]) -> bool:
    program, *given = words
    if program == "git":
        return not _GIT_WORKS.isdisjoint(given[:6])
    return _writes(program, given) or not is_aside(program)


def _writes(program: str, given: list[str]) -> bool:
    return program in _WRITE or (program in ("sed", "perl") and any(word.startswith("-i") for word in given))


def _joined(here: str, path: str) -> str:
    """Return the absolute path of `path` relative to `here`, without ``..``; empty if only a shell can resolve it."""
    path = path.strip("\"'")
    if _NO_PATH.search(path) or "\0" in (joined := os.path.join(here, path)) or not joined.startswith("/"):  # noqa: PTH118 - text
        return ""
    return os.path.normpath(joined)
