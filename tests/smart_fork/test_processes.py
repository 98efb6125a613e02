"""Tests of running other programs, with real ones."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

import smart_fork
from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing
from smart_fork.system.processes import Processes
from tests.smart_fork.forks import eventually, python

ROOT = Path(smart_fork.__file__).parent.parent
HOSTILE = ["--help", "$(touch pwned)", "`touch pwned`", "; touch pwned", "a\nb", "'\"\\", "ü😀", ""]


@pytest.fixture
def processes() -> Processes:
    return Processes()


def test_a_process_is_told_as_it_is_though_another_one_had_its_number():
    """Process ids are reused soon, and psutil's own iterator would report the start of the earlier process."""
    with subprocess.Popen(python("input()"), stdin=subprocess.PIPE) as process:
        began = psutil.Process(process.pid).create_time()
        (known,) = (one for one in psutil.process_iter() if one.pid == process.pid)
        known._create_time = began - 100  # whoever had the number before

        assert [began] == [one.create_time() for one in Processes.each() if one.pid == process.pid]
        process.communicate(b"\n")
    assert process.pid not in [one.pid for one in Processes.each()]


def test_a_program_gets_its_arguments_input_directory_and_environment_and_nothing_else(processes, tmp_path):
    """F-104."""
    code = "import os,sys; print([sys.argv[1:], sys.stdin.read(), os.getcwd(), os.environ.get('A'), os.environ.get('HOME')])"

    done = processes.run(python(code, *HOSTILE), cwd=tmp_path, env={"A": "1"}, timeout=90, input=b"in")

    assert [HOSTILE, "in", str(tmp_path), "1", None] == eval(done.text)  # noqa: S307
    assert [] == list(tmp_path.iterdir())
    assert done.ok


def test_a_failure_is_an_answer_with_what_the_program_said(processes):
    done = processes.run(python("import sys; sys.exit('no such thing')"), timeout=90)

    assert (1, False, "no such thing") == (done.returncode, done.ok, done.complaint)


def test_a_missing_program_is_named(processes):
    with pytest.raises(ProgramMissing, match="no-such-program is not installed"):
        processes.run(["no-such-program"], timeout=1)
    with pytest.raises(ProgramMissing):
        processes.replace(["no-such-program"], cwd=Path.cwd(), env={"PATH": os.environ["PATH"]})


def test_a_program_that_may_not_be_run_is_not_called_missing(processes, tmp_path):
    (tmp_path / "locked").write_text("#!/bin/sh\n")

    with pytest.raises(ProgramFailed, match="locked cannot be started: "):
        processes.run(["locked"], env={"PATH": str(tmp_path)}, timeout=1)


def test_a_missing_directory_is_not_taken_for_a_missing_program(processes, tmp_path):
    gone = tmp_path / "gone"
    with pytest.raises(NotFound, match="gone"):
        processes.run(["true"], cwd=gone, timeout=1)
    with pytest.raises(NotFound, match="gone"):
        processes.start(["true"], cwd=gone, env={}, log=tmp_path / "log")
    with pytest.raises(NotFound, match="gone"):
        processes.replace(["true"], cwd=gone, env={})


def test_what_cannot_be_started_is_a_failure_of_that_program(processes, tmp_path):
    with pytest.raises(ProgramFailed, match="cannot be started"):
        processes.run(["true", "x" * 10_000_000], timeout=1)
    with pytest.raises(ProgramFailed, match="cannot be started"):
        processes.run(["true", "a\0b"], timeout=1)


def test_a_program_that_is_late_is_ended_with_everything_it_started(processes, tmp_path):
    pid_file = tmp_path / "pid"
    for seconds in (1, 10, 60):  # on a busy machine it may be ended before it has started anything
        with pytest.raises(ProgramFailed, match=f"did not answer within {seconds} seconds"):
            processes.run(["sh", "-c", f'sleep 600 & echo $! >"{pid_file}"; wait'], timeout=seconds)
        if pid_file.exists() and pid_file.read_text():
            break

    grandchild = int(pid_file.read_text())
    eventually(lambda: not running(grandchild))


def test_a_program_whose_output_a_hanging_server_has_is_late_all_the_same(processes, tmp_path):
    """The program tmux gives its output to its server, which the program cannot end."""
    begun, stop = tmp_path / "begun", tmp_path / "stop"
    server = f"os.setsid(); Path({str(begun)!r}).touch(); [time.sleep(0.1) for _ in range(6000) if not Path({str(stop)!r}).exists()]"
    hangs = f"import os, time; from pathlib import Path\nif os.fork(): time.sleep(600)\nelse: {server}"
    try:
        for seconds in (2, 20):  # on a busy machine it may be ended before it has started anything
            with pytest.raises(ProgramFailed, match="did not answer"):
                processes.run(python(hangs), timeout=seconds)
            if begun.exists():
                break
        assert begun.exists()
    finally:
        stop.touch()


def test_a_server_that_was_silent_is_asked_once_and_again_where_it_is_waited_for_longer(processes, monkeypatch):
    started = Mock(wraps=subprocess.Popen)
    monkeypatch.setattr("smart_fork.system.processes.subprocess.Popen", started)
    for whom in ("one", "one", "other"):
        with pytest.raises(ProgramFailed, match=r"did not answer within 0\.5 seconds"):
            processes.run(["sleep", "600"], timeout=0.5, whom=whom)

    assert started.call_count == 2
    assert "sleep" in Processes.not_asked_again()
    assert processes.run(["sleep", "0"], timeout=60, whom="one").ok


@pytest.mark.usefixtures("interruptible")
def test_a_program_ends_with_everything_it_started_where_whoever_waits_for_it_is_interrupted(tmp_path):
    pid_file = tmp_path / "pid"
    waits = (
        "import sys; sys.path.insert(0, sys.argv[1]); from smart_fork.system.processes import Processes; "
        "does = 'read line; sleep 600 & echo $! >\"' + sys.argv[2] + '\"; wait'; "  # what it reads comes from who waits by now
        "Processes().run(['sh', '-c', does], input=b'go\\n', timeout=600)"
    )
    with subprocess.Popen(python(waits, str(ROOT), str(pid_file)), stderr=subprocess.PIPE) as waiting:
        eventually(lambda: pid_file.exists() and pid_file.read_text())
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate()

    assert b"KeyboardInterrupt" in said
    eventually(lambda: not running(int(pid_file.read_text())))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_a_program_ends_with_everything_it_started_where_whoever_waits_for_it_is_killed(tmp_path, number):
    pid_file = tmp_path / "pid"
    waits = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); "  # nohup has hang-ups ignored
        "sys.path.insert(0, sys.argv[1]); from smart_fork.system.processes import Processes; "
        "does = 'read line; sleep 600 & echo $! >\"' + sys.argv[2] + '\"; wait'; "  # what it reads comes from who waits by now
        "Processes().run(['sh', '-c', does], input=b'go\\n', timeout=600)"
    )
    with subprocess.Popen(python(waits, str(ROOT), str(pid_file))) as waiting:
        eventually(lambda: pid_file.exists() and pid_file.read_text())
        waiting.send_signal(number)

    assert -number == waiting.returncode
    eventually(lambda: not running(int(pid_file.read_text())))


def test_a_program_that_a_thread_waits_for_ends_with_the_process_that_leaves_without_waiting(tmp_path):
    """For example, the service ends while a search program computes embeddings."""
    pid_file = tmp_path / "pid"
    leaves = (
        "import os, sys, threading; sys.path.insert(0, sys.argv[1]); from smart_fork.system.processes import Processes; "
        "does = 'read line; sleep 600 & echo $! >\"' + sys.argv[2] + '\"; wait'; "  # what it reads comes from who waits by now
        "args, kwargs = (['sh', '-c', does],), {'input': b'go\\n', 'timeout': 600}; "
        "threading.Thread(target=Processes().run, args=args, kwargs=kwargs, daemon=True).start(); "
        "sys.stdin.read(); os._exit(0)"
    )
    with subprocess.Popen(python(leaves, str(ROOT), str(pid_file)), stdin=subprocess.PIPE) as leaving:
        eventually(lambda: pid_file.exists() and pid_file.read_text())
        eventually(lambda: len(psutil.Process(leaving.pid).children()) == 2)  # the program, and what ends it
        leaving.communicate()

    eventually(lambda: not running(int(pid_file.read_text())))


def test_nothing_is_left_of_a_program_that_has_ended(processes):
    before = set(psutil.Process().children(recursive=True))  # of tests in this process
    processes.run(["true"], timeout=600)

    assert set() == set(psutil.Process().children(recursive=True)) - before


@pytest.mark.usefixtures("interruptible")
def test_a_program_that_is_just_being_started_ends_with_ctrl_c(processes, monkeypatch):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)
            signal.raise_signal(signal.SIGINT)  # whoever starts it does not have it yet

    monkeypatch.setattr("smart_fork.system.processes.subprocess.Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        processes.run(python("import time; time.sleep(600)"), timeout=60)

    assert -signal.SIGKILL == started[0].wait(60)
    assert signal.default_int_handler is signal.getsignal(signal.SIGINT)


def test_ctrl_c_after_a_program_has_ended_ends_nobody_who_has_its_number_by_now(processes, monkeypatch):
    communicate, ended = subprocess.Popen.communicate, []

    def interrupted(process, *args, **options):
        communicate(process, *args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    monkeypatch.setattr("smart_fork.system.processes.os.killpg", lambda *told: ended.append(told))
    with pytest.raises(KeyboardInterrupt):
        processes.run(["true"], timeout=60)

    assert [] == ended


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_started_program_is_detached_and_writes_into_a_private_file(processes, tmp_path):
    log = tmp_path / "log"
    code = "import os,sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read())); print('bad', file=sys.stderr)"

    pid = processes.start(python(code), cwd=tmp_path, env={}, log=log)

    eventually(lambda: not processes.alive(pid))
    assert {"True ''", "bad"} == set(log.read_text().splitlines())
    assert 0o600 == stat.S_IMODE(log.stat().st_mode)


def test_a_running_program_is_alive_and_an_ended_one_is_not(processes, tmp_path):
    code = "import os; os.read(os.open('fifo', os.O_RDONLY), 1)"
    os.mkfifo(tmp_path / "fifo")
    pid = processes.start(python(code), cwd=tmp_path, env={}, log=tmp_path / "log")

    assert processes.alive(pid)
    with (tmp_path / "fifo").open("wb") as fifo:
        fifo.write(b"x")
    eventually(lambda: not processes.alive(pid))
    assert processes.alive(1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_what_has_ended_and_was_not_waited_for_is_not_alive(processes):
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not processes.alive(child.pid)
    child.wait()


def test_a_log_is_never_written_through_a_link(processes, tmp_path):
    """X-002."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "precious")

    with pytest.raises(ProgramFailed):
        processes.start(["true"], cwd=tmp_path, env={}, log=tmp_path / "log")

    assert (tmp_path / "precious").read_text() == "mine"


def test_replacing_becomes_the_program(tmp_path):
    code = (
        "import sys; from pathlib import Path; from smart_fork.system.processes import Processes\n"
        "Processes().replace(sys.argv[2:], cwd=Path(sys.argv[1]), env={'A': '1'})"
    )
    inner = python("import os,sys; print(os.getcwd(), os.environ['A'], sys.argv[1])", "$(x)")
    root = Path(__file__).resolve().parents[2]
    env = os.environ | {"PYTHONPATH": str(root)}

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *inner], env=env, capture_output=True, text=True, check=True
    )

    assert f"{tmp_path} 1 $(x)\n" == done.stdout


def test_a_process_keeps_the_environment_that_it_was_started_with(tmp_path):
    """X-003: the environment identifies a worker's process, even if its id was reused."""
    pid = Processes().start(
        ["sleep", "600"], cwd=tmp_path, env={"MARK": "w-1", "PATH": "/usr/bin:/bin"}, log=tmp_path / "log"
    )

    assert "w-1" == Processes().environment(pid)["MARK"]
    Processes().end(pid, force=False)
    eventually(lambda: Processes().environment(pid) is None)
    Processes().end(pid, force=True)  # what has ended is stays


def test_what_does_not_listen_is_ended_with_its_group(tmp_path):
    code = "trap '' TERM; sleep 600 & echo $!; while :; do wait; done"
    pid = Processes().start(["sh", "-c", code], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, log=tmp_path / "log")
    child = int(eventually((tmp_path / "log").read_text))

    Processes().end(pid, force=True)

    eventually(lambda: Processes().environment(pid) is None and Processes().environment(child) is None)


def test_a_process_that_is_just_becoming_another_program_keeps_its_environment(tmp_path, monkeypatch):
    """Linux shows no environment for a moment. The process must not be taken for another one."""
    pid = Processes().start(
        ["sleep", "600"], cwd=tmp_path, env={"MARK": "w-1", "PATH": "/usr/bin:/bin"}, log=tmp_path / "log"
    )
    shown = [{}, {}, {"MARK": "w-1"}]
    monkeypatch.setattr("psutil.Process.environ", lambda _self: shown.pop(0))
    monkeypatch.setattr("smart_fork.system.processes._LOOK_SECONDS", 0)

    assert {"MARK": "w-1"} == Processes().environment(pid)
    assert [] == shown
    Processes().end(pid, force=True)
