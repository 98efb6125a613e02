"""One line for what a tool call did: enough to find it again, never its output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ACTION_CHARACTERS = 240
NOTE_CHARACTERS = 200

_EDITS = {"Edit", "Write", "MultiEdit", "NotebookEdit", "Update", "str_replace_editor", "create_file"}
_SHELLS = {"Bash", "shell", "shell_command", "exec_command", "local_shell", "container.exec", "unified_exec"}
_SILENT = {
    "TodoWrite", "TaskUpdate", "TaskList", "TaskGet", "TaskOutput", "BashOutput", "KillBash", "KillShell", "ToolSearch",
    "write_stdin", "update_plan", "wait", "EnterPlanMode", "view_image",
}  # fmt: skip
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
#: Our command where a shell would run it: not a folder or a package of that name.
_OUR_COMMAND = re.compile(
    r"(?:^|[;&|\n(`]|\b(?:uvx|run|exec|time|env|sudo)\s)\s*(?:\w+=\S*\s+)*"
    r"(?:(?:[^\s;&|]*/)?smart-fork|(?:[^\s;&|]*/)?python[\d.]*\s+-m\s+smart_fork[\w.]*)(?=\s|$)"
)
_STATUS = re.compile(r"^(?:Exit code:?|Process exited with code|exit_code:)\s*(-?\d{1,9})", re.MULTILINE)
_ERROR_TAG = re.compile(r"</?tool_use_error>")
#: How Codex begins the answer of a call that it could not carry out.
_REFUSED = ("exec_command failed for", "failed in sandbox", "error:", "apply_patch verification failed")
#: Codex's header of a shell's output, the command included, is looked for in this many characters.
_HEADER_CHARACTERS = 8000


def is_ours(name: str, namespace: str = "") -> bool:
    """Whether a tool is smart-fork's own, whose calls and answers must never be found again."""
    return _names_us(name) or _names_us(namespace)


def runs_ours(arguments: object) -> bool:
    """Whether these are the arguments of a shell call that runs smart-fork: its output is our own answer again."""
    return isinstance(arguments, Mapping) and _is_our_command(_command(arguments))


def describe(name: str, arguments: Mapping[str, Any]) -> str:
    """The action line of a call, such as ``edit src/a.py`` or ``run pytest -q``; empty for calls that say nothing."""
    if name in _SILENT or is_ours(name):
        return ""
    path = _first(arguments, "file_path", "notebook_path", "path", "filePath")
    if name in _EDITS:
        return _line(f"read {path}" if arguments.get("command") == "view" else f"edit {path}")
    if name == "apply_patch" and (patch := arguments.get("input") or arguments.get("patch")):
        return _patch(str(patch))
    if name in _SHELLS or "command" in arguments or "cmd" in arguments:
        return _shell(arguments)
    if name == "Read":
        return _line(f"read {path}")
    if name in ("Grep", "Glob", "search"):
        return _line(f"search {_first(arguments, 'pattern', 'query')} {path}")
    subject = (
        _first(arguments, "description", "query", "url", "skill", "subject", "message", "prompt", "pattern") or path
    )
    return _line(f"{name} {subject}") if subject else ""


def describe_raw(name: str, text: str) -> str:
    """The action line of a call whose argument is one text: a patch or a script."""
    if not text or is_ours(name) or name in _SILENT:
        return ""
    return _patch(text) or _line(f"run {text}")


def failure_of(output: str) -> str:
    """The note on what Codex gave back from a call, where that says that the call failed; else empty."""
    status, _ = _split(output)
    if status is None:
        return error_note(output) if output.startswith(_REFUSED) else ""
    return error_note(output) if status != 0 else ""


def error_note(output: str) -> str:
    """Exit status and first line of what went wrong, for a failed call."""
    status, body = _split(output)
    lines = (line.strip() for line in _ERROR_TAG.sub("", body[:4000]).splitlines())
    said = next((line for line in lines if line and not _is_header(line)), "")
    if status is None:
        return _line(said, NOTE_CHARACTERS) or "failed"
    return _line(f"exit {status}: {said}" if said else f"exit {status}", NOTE_CHARACTERS)


def _split(output: str) -> tuple[int | None, str]:
    """The exit status in the header of an output, and what stands below; a status further down is somebody else's."""
    header, marker, body = output[:_HEADER_CHARACTERS].partition("\nOutput:")
    if marker and (found := _STATUS.findall(header)):  # the last one: the command stands above it
        return int(found[-1]), body
    if first := _STATUS.match(output):
        return int(first[1]), output[first.end() :]
    return None, output


def _is_header(line: str) -> bool:
    return len(line) < 60 and line.startswith(
        (
            "Chunk ID:",
            "Wall time:",
            "Process exited",
            "Original token count:",
            "Output:",
            "Total output lines:",
        )
    )


def _shell(arguments: Mapping[str, Any]) -> str:
    command = _command(arguments)
    if "*** Begin Patch" in command:
        return _patch(command)
    return "" if _is_our_command(command) else _line(f"run {command}")


def _is_our_command(command: str) -> bool:
    return _names_us(command) and _OUR_COMMAND.search(command) is not None


def _names_us(text: str) -> bool:
    return "smart-fork" in text or "smart_fork" in text


def _command(arguments: Mapping[str, Any]) -> str:
    command = arguments.get("command") or arguments.get("cmd") or ""
    if isinstance(command, list):
        words = [str(word) for word in command[:100]]
        # ["bash", "-lc", "the command"]: the shell in front says nothing.
        command = words[-1] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words)
    return str(command)


def _patch(text: str) -> str:
    paths = dict.fromkeys(path.strip() for path in _PATCHED.findall(text))
    return _line("edit " + ", ".join(paths)) if paths else ""


def _first(arguments: Mapping[str, Any], *names: str) -> str:
    return next(
        (str(arguments[name]) for name in names if isinstance(arguments.get(name), str) and arguments[name]), ""
    )


def _line(text: str, limit: int = ACTION_CHARACTERS) -> str:
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
