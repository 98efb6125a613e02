"""`smart-fork` without arguments at a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from base64 import b64encode

import pytest

from smart_fork.agents.references import Reference
from smart_fork.cli import session_picker
from smart_fork.cli.session_picker import PickerRow, shown, with_fzf, with_numbers
from smart_fork.errors import IndexUnavailable
from tests.smart_fork.world import World
from tests.support.executables import shebang

pytestmark = pytest.mark.slow

RETRY = "add retry with backoff to the uploader"
FIRST, SECOND = "60309e1e-0000-4000-8000-000000000001", "71111111-0000-4000-8000-000000000002"
MAP, UPLOAD = Reference("claude", SECOND), Reference("codex", FIRST)
ROWS = [PickerRow(MAP, ("2 days", "claude"), "draw the map"), PickerRow(UPLOAD, ("12 days", "codex"), RETRY)]
HOSTILE = "'; touch pwned; $(touch pwned) `touch pwned` {1} {q} --bind=enter:execute(touch pwned) \x1b[2J\n\ttwo"


def answers(*said: str):
    given = iter(said)
    return lambda _: next(given)


def search(words: str) -> list[PickerRow]:
    """Return the session about the upload for all words except a few."""
    if words == "no index":
        raise IndexUnavailable("There is no index")
    return ROWS[1:] if words != "nothing" else []


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        (["2"], ("fork", UPLOAD)),
        (["o1"], ("open", MAP)),
        (["Y2"], ("copy", UPLOAD)),
        (["try again when the network fails", "1"], ("fork", UPLOAD)),
        (["nothing", "1"], ("fork", MAP)),
        (["no index", "1"], ("fork", MAP)),
        (["7", "0", "2"], ("fork", UPLOAD)),
        ([""], None),
    ],
)
def test_a_number_chooses_and_words_search(said, chosen):
    assert chosen == with_numbers(ROWS, answers(*said), search)


def test_who_closes_the_input_leaves():
    def closed(_: str) -> str:
        raise EOFError

    assert with_numbers(ROWS, closed, search) is None


def test_the_list_leaves_room_on_the_screen(monkeypatch, capsys):
    monkeypatch.setenv("LINES", "15")
    with_numbers([PickerRow(UPLOAD, ("1 day",), f"title {n}") for n in range(50)], answers(""), search)

    assert 10 == capsys.readouterr().out.count("title")


def test_a_line_has_what_is_known_in_columns_and_then_branch_and_parent():
    fork = PickerRow(MAP, ("> 99 %", "2 days", "claude", ""), "draw the map (maps, fork of 60309e1e)")
    other = PickerRow(UPLOAD, ("3 %", "12 days", "codex", ""), RETRY)

    assert [
        "> 99 %   2 days  claude  draw the map (maps, fork of 60309e1e)",
        f"   3 %  12 days  codex   {RETRY}",
    ] == list(shown([fork, other]))


def program(folder, script: str) -> str:
    """Return a program that stands in for fzf."""
    path = folder / "fzf"
    path.write_text(f"{shebang()}import json, os, sys\nlines = sys.stdin.read().splitlines()\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("key", "action"), [("", "fork"), ("ctrl-o", "open"), ("ctrl-y", "copy")])
def test_fzf_says_which_key_and_which_line(tmp_path, key, action):
    said = f"print({key!r}); print(lines[1])"

    assert (action, UPLOAD) == with_fzf(program(tmp_path, said), ROWS)


def test_who_leaves_fzf_leaves(tmp_path):
    assert with_fzf(program(tmp_path, "sys.exit(130)"), ROWS) is None
    assert with_fzf(program(tmp_path, "print(); print('no line of ours')"), ROWS) is None


def test_fzf_gets_titles_on_lines_and_never_in_its_arguments(world: World, shop, tmp_path, monkeypatch):
    world.claude(shop, HOSTILE, "done", session_id=FIRST)
    monkeypatch.chdir(shop)
    rows = session_picker.rows_for("")
    said = f"open({str(tmp_path / 'told')!r}, 'w').write(json.dumps([sys.argv, lines]))"

    with_fzf(program(tmp_path, said), rows)

    told = (tmp_path / "told").read_text()
    argv, lines = json.loads(told)
    assert "pwned" not in " ".join(argv)
    assert 1 == len(lines)
    assert [f"claude:{FIRST}", "--context=3"] == lines[0].split("\t")[:2]
    assert 2 == lines[0].count("\t")
    assert "\x1b" not in lines[0]


def in_a_terminal(*keys: tuple[bytes, bytes], cwd, env: dict[str, str]) -> tuple[int, bytes]:
    """Run the program in a terminal. Each of `keys` has a text to wait for and the keys to type then."""
    there, here = pty.openpty()
    argv = [sys.executable, "-m", "smart_fork"]
    env = (
        os.environ
        | {
            "TERM": "xterm",
            "PYTHONPATH": os.fspath(session_picker.__file__).removesuffix("/smart_fork/cli/session_picker.py"),
        }
        | env
    )
    fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=here,
        stdout=here,
        stderr=here,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - it is the child's own terminal
    )
    os.close(here)
    seen = b""
    waiting = list(keys)
    while True:
        try:
            seen += os.read(there, 65536)
        except OSError:  # it has ended
            break
        if waiting and waiting[0][0] in seen:
            os.write(there, waiting.pop(0)[1])
    os.close(there)
    return process.wait(), seen


COPIED = b"\x1b]52;c;" + b64encode(f"smart-fork fork {FIRST}".encode())


def test_alone_at_a_terminal_it_lists_and_copies(world: World, shop, tmp_path):
    world.claude(shop, RETRY, "done", session_id=FIRST)
    programs = tmp_path / "bin"
    programs.mkdir()

    code, seen = in_a_terminal((b"quit > ", b"y1\n"), cwd=shop, env={"PATH": str(programs)})

    assert 0 == code
    assert RETRY.encode() in seen
    assert COPIED in seen


def test_what_is_opened_is_shown_as_show_shows_it():
    assert ["show", f"codex:{FIRST}"] == session_picker._do("open", UPLOAD)


def test_the_lines_for_fzf_are_the_sessions_that_answer_and_open_at_the_answer(world: World, shop, run, monkeypatch):
    world.claude(shop, RETRY, "done", session_id=FIRST)
    world.claude(shop, "draw the map", "done", session_id=SECOND)

    def choices(typed: str) -> list[list[str]]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return [line.split("\t") for line in run("choices").out.splitlines()]

    lines = choices(RETRY)

    assert [f"claude:{FIRST}", "--at=0"] == lines[0][:2]
    assert lines[0][2].endswith(f"{RETRY} (main)")
    assert {f"claude:{FIRST}", f"claude:{SECOND}"} == {line[0] for line in choices("")}


@pytest.mark.skipif(not shutil.which("fzf"), reason="fzf is not installed")
def test_what_is_typed_into_the_real_fzf_is_searched(world: World, shop):
    world.claude(shop, RETRY, "This is the answer.", session_id=FIRST)
    for number in range(3):
        world.claude(shop, f"draw map {number}", "done", session_id=SECOND.replace("71111111", f"7111111{number}"))

    code, seen = in_a_terminal((b"draw map 0", RETRY.encode()), (b"This is the answer", b"\x19"), cwd=shop, env={})

    assert 0 == code
    assert COPIED in seen, "the best answer was at the top, with its preview"


@pytest.mark.skipif(not shutil.which("fzf"), reason="fzf is not installed")
def test_a_hostile_title_is_harmless_in_the_real_fzf(world: World, shop):
    world.claude(shop, HOSTILE, "This is the answer.", session_id=FIRST)

    code, seen = in_a_terminal((b"This is the answer", b"\x19"), cwd=shop, env={})

    assert 0 == code
    assert COPIED in seen, "the preview was seen, then the key"
    assert not list(shop.rglob("pwned"))


def test_not_at_a_terminal_it_is_the_help(run):
    done = run()

    assert "Usage" in done.out + done.err
