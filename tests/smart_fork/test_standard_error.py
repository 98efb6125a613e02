"""Tests of a server's standard error: it is passed on to a reader, and no writer waits for the reader."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from smart_fork.system.standard_error import MAX_PIECES, nonblocking_stderr

TALKS = """
import subprocess, sys
from smart_fork.system.standard_error import nonblocking_stderr
with nonblocking_stderr():
    print("ours", file=sys.stderr)
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('of a program\\\\n')"], check=True)
    for _ in range({lines}):
        sys.stderr.write("x" * 65535 + "\\n")
print("the end", file=sys.stderr)
print("done", flush=True)
"""


@pytest.fixture
def _packages(monkeypatch, request):
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))


@pytest.mark.usefixtures("_packages")
def test_what_is_written_is_passed_on_in_its_order_with_that_of_programs_and_all_by_the_end():
    done = subprocess.run([sys.executable, "-c", TALKS.format(lines=1)], capture_output=True, text=True, check=True)

    ours, program, long, end = done.stderr.splitlines()
    assert ("ours", "of a program", 65535, "the end") == (ours, program, len(long), end)


@pytest.mark.usefixtures("_packages")
def test_who_writes_more_than_anybody_reads_goes_on():
    source, target = os.pipe()
    code = TALKS.replace('print("the end", file=sys.stderr)\n', "").format(lines=2 * MAX_PIECES)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=target, text=True, check=True)
    os.close(target)

    assert "done\n" == done.stdout
    assert os.read(source, 5) == b"ours\n"
    os.close(source)


@pytest.mark.usefixtures("_packages")
def test_a_reader_who_is_gone_ends_nothing():
    source, target = os.pipe()
    os.close(source)
    code = TALKS.replace('print("the end", file=sys.stderr)\n', "").format(lines=3)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=target, text=True, check=True)
    os.close(target)

    assert "done\n" == done.stdout


def test_a_file_is_written_without_a_thread(capfd):
    with nonblocking_stderr():
        os.write(2, b"straight\n")

    assert "straight\n" == capfd.readouterr().err
