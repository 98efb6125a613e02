"""Programs that tests write run wherever the checkout lies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.written_programs import first_lines


def test_one_runs_where_the_interpreter_lies_in_a_folder_with_blanks_and_a_quote(tmp_path, monkeypatch):
    folder = tmp_path / "it's é"
    folder.mkdir()
    (folder / "python").symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    program = tmp_path / "program"
    program.write_text(f"{first_lines('-IS')}import sys\nprint(sys.argv[1:], sys.flags.isolated)\n")
    program.chmod(0o700)

    done = subprocess.run([program, "a b", "--c"], capture_output=True, text=True, check=True)

    assert "['a b', '--c'] 1\n" == done.stdout


def test_no_other_names_the_interpreter_itself():
    tests = Path(__file__).parent
    begins = "#!" + "{"
    assert [] == [path.name for path in tests.rglob("*.py") if begins in path.read_text(encoding="utf-8")]
