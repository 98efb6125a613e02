"""The start of the program ``smart-fork``.

Some commands are answered here immediately. Other frequent commands are handed over to a waiting process with all
modules imported (see `preload`). This process runs the rest itself.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

#: Commands that a waiting process can run: what people and agents wait for.
_HANDED_OVER = frozenset(
    """
    find search recall why fork list show resume continue branch lineage export excise new spawn active read message
    wait close stop compare worktrees project status agents hook mcp forget choices
    """.split()  # noqa: SIM905 - easier to read than so many quotes
)
#: Switches the preloader off, as all switches of `indexer.environment`; to import that takes as long as all else here.
VARIABLE = "SMART_FORK_PRELOAD"
_OFF = ("0", "false", "no", "off", "never")


def main() -> None:
    """Run the command of `sys.argv` in the fastest way: by a quick answer, in a waiting process, or in this process."""
    _open_what_is_closed()
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "mcp":
        from smart_fork.cli.mcp_handshake import serve

        if (begun := serve(sys.argv[2:])) is not None:
            sys.argv[2:] = begun
    if "_SMART_FORK_COMPLETE" in os.environ or sys.argv[1:] in (["welcome"], ["statusline"]):
        _answer_quickly(sys.argv[1:])
    if command not in _HANDED_OVER or not may_hand_over():
        run(os._exit)
    from smart_fork.cli.preload.client import run as hand_over

    if (status := hand_over(sys.argv)) is not None:
        os._exit(status)
    if command == "mcp":
        _preload_meanwhile()
    run(_end_and_preload)


def may_hand_over() -> bool:
    """Return True if this process may hand commands over to a preloader (a process with all modules imported).

    That needs Linux, because macOS forbids to fork a process that has used its frameworks. Python must have been
    started without options such as ``-W error``.
    """
    options = sys.warnoptions or sys._xoptions or sys.flags.optimize  # noqa: SLF001 - its documented name
    return sys.platform == "linux" and not options and os.environ.get(VARIABLE, "").strip().lower() not in _OFF


def run(end: Callable[[int], NoReturn]) -> None:
    """Run the command of `sys.argv` in this process, then call `end` with its exit status.

    The garbage collector is set to run rarely: nearly all objects are modules and records that stay. With Python's
    default it took a twentieth of a command's time.
    """
    gc.set_threshold(100_000, 20, 20)
    from smart_fork.cli.main import main as command_line

    try:
        command_line()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _leave(ended.code, end)
        raise


def _end_and_preload(status: int) -> NoReturn:
    from smart_fork.cli.preload.client import start_preloader

    start_preloader()
    os._exit(status)


def _preload_meanwhile() -> None:
    """Start a preloader (which runs later commands faster) in a thread, while this process serves MCP."""
    import threading

    from smart_fork.cli.preload.client import start_preloader

    threading.Thread(target=start_preloader, name="preload", daemon=True).start()


def _open_what_is_closed() -> None:
    """Reopen closed standard streams on /dev/null so that no file gets descriptor 0-2."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays


def _leave(status: int, end: Callable[[int], NoReturn]) -> None:
    """Flush the output and call `end`, without Python's cleanup of modules.

    The cleanup would take an eighth of a search's time, and could abort the process if a thread still uses the
    embedding model.
    """
    import contextlib
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other name for these two
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # what stderr has not taken is lost, and says nothing of what was done
        sys.stderr.flush()
    end(status)


def _answer_quickly(asked: list[str]) -> None:
    """If `asked` is ``statusline`` or ``welcome``, or a shell asks for completions, answer and end this process."""
    from smart_fork.cli import quick_answers

    if asked == ["statusline"]:
        quick_answers.print_segment()
    if asked == ["welcome"]:
        quick_answers.print_welcome()
    if (found := quick_answers.completions(os.environ)) is not None:
        sys.stdout.buffer.write(found[0].encode())
        sys.stdout.buffer.flush()
        os._exit(found[1])
