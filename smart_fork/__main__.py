"""The program: ``smart-fork``, and ``python -m smart_fork``."""

from __future__ import annotations

import os
import sys

#: Commands that end as soon as they have answered.
_QUICK = frozenset({"find", "fork", "list", "show", "branch", "new", "resume", "continue", "active"})
#: Commands that ask the index what is worth its tokens.
_BUDGETED = frozenset({"fork", "branch"})


def main() -> None:
    """Run the command. What agents and shells wait for is decided on before anything large is imported."""
    _open_what_is_closed()
    if sys.argv[1:2] == ["mcp"]:
        from smart_fork.front.first_answers import serve

        serve(sys.argv[2:])
    if "_SMART_FORK_COMPLETE" in os.environ or sys.argv[1:] in (["welcome"], ["statusline"]):
        _at_once(sys.argv[1:])
    if sys.argv[1:2] and sys.argv[1] in _QUICK:
        _expect_little_garbage()
    if sys.argv[1:2] and sys.argv[1] in _BUDGETED and _has_budget(sys.argv[2:]):
        _begin_with_the_question()
    from smart_fork.cli import main as command_line

    try:
        command_line()
    except SystemExit as end:
        if isinstance(end.code, int):
            _leave(end.code)
        raise


def _open_what_is_closed() -> None:
    """Whoever closed stdin, stdout or stderr wants nothing of it: a file that we open must not take its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays


def _expect_little_garbage() -> None:
    """Nearly all that such a command makes are modules, which stay: to look through them for garbage again and again
    takes a twentieth of its time.
    """
    import gc

    gc.set_threshold(100_000)


def _has_budget(arguments: list[str]) -> bool:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(option.partition("=")[0] == "--budget" for option in options)


def _begin_with_the_question() -> None:
    """Have what compares with the question loaded while all else is imported, unless somebody else has it already."""
    state = os.environ.get("SMART_FORK_HOME") or os.path.expanduser("~/.smart-fork")  # noqa: PTH111 - nothing imported
    if os.environ.get("SMART_FORK_MODEL") or os.path.exists(f"{state}/service.json"):  # noqa: PTH110
        return
    from indexer.question_process import begin

    begin()


def _leave(status: int) -> None:
    """End as Python does, but without taking down what was imported: that takes an eighth of the time of a question.

    And a thread may still be in the model, whose libraries then abort the process.
    """
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no other name for these two
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _at_once(asked: list[str]) -> None:
    """Answer what is asked every few seconds, and end; come back where that needs the whole command line."""
    if asked == ["welcome"]:
        from smart_fork.terminal.welcome import main as welcome

        welcome()
    if asked == ["statusline"]:
        from smart_fork.terminal.statusline import main as statusline

        statusline()
    from smart_fork.terminal.completion import answer

    if (found := answer(os.environ)) is not None:
        sys.stdout.buffer.write(found[0].encode())
        sys.stdout.buffer.flush()
        os._exit(found[1])


if __name__ == "__main__":
    main()
