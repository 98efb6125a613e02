"""Installing and removing the service, with a launchctl and a systemctl that only note their calls."""

from __future__ import annotations

import os
import plistlib
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service import installation
from smart_fork.cli.service.installation import install, installed, look, settings_for, supervisor
from smart_fork.cli.service.instance import note_start, wanted_port
from smart_fork.cli.service.supervisors import LABEL, UNIT, Launchd, Systemd
from smart_fork.errors import ProgramFailed, ProgramMissing, SmartForkError
from tests.smart_fork.service.service_files import HOSTILE, FakeLaunchd, FakeSystemd, settings

ME = f"gui/{os.getuid()}"


@pytest.fixture
def mac(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")


@pytest.fixture
def linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")


def missing(argv, **_):
    raise ProgramMissing(f"{argv[0]} is not installed")


def launchd(fake: FakeLaunchd) -> Launchd:
    return Launchd(fake, fake.sleep)


class TestLaunchd:
    def test_it_is_enabled_before_it_is_loaded(self, home, mac):
        """F-200, F-204: bootstrap refuses a disabled job."""
        fake = FakeLaunchd()
        fake.disabled.add(LABEL)
        keeper = launchd(fake)

        assert [] == install(keeper, settings(home))

        path = home / f"Library/LaunchAgents/{LABEL}.plist"
        assert [("enable", f"{ME}/{LABEL}"), ("bootstrap", ME, str(path))] == fake.changes
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)
        assert settings(home) == installed(keeper)
        assert 0o700 == stat.S_IMODE((home / "plain/logs").stat().st_mode)

    def test_one_that_runs_is_booted_out_first_and_waited_for(self, home, mac):
        """F-202: bootout answers before the job is gone, and bootstrap would fail then."""
        fake = FakeLaunchd(LABEL, slow=5)
        keeper = launchd(fake)

        install(keeper, settings(home))

        assert ["bootout", "enable", "bootstrap"] == [one[0] for one in fake.changes]
        assert {LABEL} == fake.loaded

    def test_one_that_does_not_stop_is_an_error_and_nothing_is_written(self, home, mac):
        fake = FakeLaunchd(LABEL, slow=10_000)
        keeper = launchd(fake)

        with pytest.raises(ProgramFailed, match="did not stop"):
            install(keeper, settings(home))
        assert not keeper.path.exists()
        assert ["bootout"] == [one[0] for one in fake.changes]

    def test_another_agent_for_the_same_service_is_stopped_and_its_file_kept(self, home, mac):
        """F-202."""
        fake = FakeLaunchd("com.old", "com.other")
        keeper = launchd(fake)
        keeper.path.parent.mkdir(parents=True)
        old = keeper.path.with_name("com.old.plist")
        old.write_bytes(plistlib.dumps({"Label": "com.old", "ProgramArguments": ["/usr/bin/smart-fork", "serve"]}))
        other = keeper.path.with_name("com.other.plist")
        other.write_bytes(plistlib.dumps({"Label": "com.other", "ProgramArguments": ["/usr/bin/other", "serve"]}))
        keeper.path.with_name("broken.plist").write_bytes(b"<")
        keeper.path.with_name("folder.plist").mkdir()
        before = old.read_bytes()

        notes = install(keeper, settings(home))

        assert [("bootout", f"{ME}/com.old"), ("disable", f"{ME}/com.old")] == fake.changes[:2]
        assert before == old.read_bytes()
        assert {"com.other", LABEL} == fake.loaded
        assert ["com.old" in note and str(old) in note for note in notes] == [True]

    def test_without_a_session_at_the_screen_nothing_is_changed(self, home, mac):
        fake = FakeLaunchd(fails={"print": "Could not find domain"})

        with pytest.raises(ProgramFailed, match="Could not find domain") as caught:
            install(launchd(fake), settings(home))
        assert "Log in" in caught.value.hint
        assert [] == fake.changes
        assert [] == list(home.rglob("*"))

    def test_a_failed_start_says_what_launchd_said(self, home, mac):
        fake = FakeLaunchd(fails={"bootstrap": "Bootstrap failed: 5: Input/output error"})

        with pytest.raises(ProgramFailed, match="5: Input/output error"):
            install(launchd(fake), settings(home))

    def test_removing_keeps_the_logs(self, home, mac):
        """F-203."""
        fake = FakeLaunchd()
        keeper = launchd(fake)
        install(keeper, settings(home))
        crash_log = settings(home).crash_log
        crash_log.write_text("boom")

        keeper.uninstall()

        assert not keeper.path.exists()
        assert set() == fake.loaded
        assert ("bootout", f"{ME}/{LABEL}") == fake.changes[-1]
        assert "boom" == crash_log.read_text()

    def test_removing_nothing_succeeds(self, home, mac):
        """F-203."""
        fake = FakeLaunchd()

        launchd(fake).uninstall()

        assert [] == fake.changes

    def test_removing_stops_one_whose_file_is_gone(self, home, mac):
        fake = FakeLaunchd(LABEL)

        launchd(fake).uninstall()

        assert set() == fake.loaded

    @pytest.mark.parametrize(
        ("said", "how"),
        [
            ("\tstate = running\n\tpid = 42\n\tlast exit code = (never exited)\n", (True, 42, "")),
            ("\tstate = not running\n\tlast exit code = 78: EX_CONFIG\n", (False, None, "78: EX_CONFIG")),
            ("\tstate = spawn scheduled\n\tlast exit code = 1\n", (False, None, "1")),
            ("something new", (False, None, "")),
        ],
    )
    def test_how_it_is(self, home, mac, said, how):
        fake = FakeLaunchd()
        keeper = launchd(fake)
        install(keeper, settings(home))
        fake.said = said

        state = look(keeper)

        assert (True, *how) == tuple(getattr(state, key) for key in ("loaded", "running", "pid", "ended"))
        assert (8766, str(home / "plain/logs")) == (state.port, state.logs)


class TestSystemd:
    def test_it_is_read_enabled_and_started(self, home, linux):
        """F-207."""
        fake = FakeSystemd()
        keeper = Systemd(fake)

        assert [] == install(keeper, settings(home))

        assert [
            ("daemon-reload",), ("reset-failed", UNIT), ("enable", UNIT), ("restart", UNIT),
        ] == fake.changes  # fmt: skip
        assert home / ".config/systemd/user" / UNIT == keeper.path
        assert 0o600 == stat.S_IMODE(keeper.path.stat().st_mode)
        assert settings(home) == installed(keeper)

    def test_whoever_does_not_linger_is_told(self, home, linux):
        notes = install(Systemd(FakeSystemd({"loginctl": (0, "Linger=no", "")})), settings(home))

        assert ["enable-linger" in note for note in notes] == [True]

    def test_without_a_user_manager_nothing_is_written(self, home, linux):
        """F-206: for example in a container."""
        fake = FakeSystemd({"show": (1, "", "Failed to connect to bus: No medium found")})

        with pytest.raises(ProgramFailed, match="No medium found") as caught:
            install(Systemd(fake), settings(home))
        assert "containers" in caught.value.hint
        assert [] == fake.changes
        assert [] == list(home.rglob("*"))

    def test_where_nobody_can_say_whether_it_lingers_there_is_no_note(self, home, linux, monkeypatch):
        keeper = Systemd(FakeSystemd())
        answers = keeper._processes.run
        monkeypatch.setattr(
            keeper._processes, "run", lambda argv, **how: (missing if argv[0] == "loginctl" else answers)(argv, **how)
        )

        assert [] == install(keeper, settings(home))

    def test_the_manager_is_found_where_nobody_says_where(self, home, linux, monkeypatch):
        """XDG_RUNTIME_DIR is missing in a cron job, or after `su`."""
        fake = FakeSystemd()
        runtime = f"/run/user/{os.getuid()}"
        monkeypatch.setattr(Path, "is_dir", lambda path, there=Path.is_dir: str(path) == runtime or there(path))

        Systemd(fake).reach()

        assert runtime == fake.env["XDG_RUNTIME_DIR"]

    @pytest.mark.parametrize("verb", ["daemon-reload", "enable", "restart"])
    def test_a_step_that_fails_is_named(self, home, linux, verb):
        with pytest.raises(ProgramFailed, match=f"systemctl --user {verb}.* failed: no such thing"):
            install(Systemd(FakeSystemd({verb: (1, "", "no such thing")})), settings(home))

    def test_removing_keeps_the_logs(self, home, linux):
        """F-203."""
        fake = FakeSystemd()
        keeper = Systemd(fake)
        install(keeper, settings(home))
        fake.ran.clear()

        keeper.uninstall()

        assert [("disable", "--now", UNIT), ("daemon-reload",), ("reset-failed", UNIT)] == fake.changes
        assert not keeper.path.exists()
        assert settings(home).crash_log.parent.is_dir()

    def test_removing_nothing_succeeds_without_systemd(self, home, linux):
        """F-203."""
        fake = FakeSystemd({"show": (1, "", "")})

        Systemd(fake).uninstall()

        assert [("stop", UNIT)] == fake.ran, "its file may have been removed by hand"

    def test_removing_nothing_succeeds_where_systemd_is_not_installed(self, home, linux, monkeypatch):
        """F-203."""
        keeper = Systemd(FakeSystemd())
        monkeypatch.setattr(keeper._processes, "run", missing)

        keeper.uninstall()

    def test_what_could_not_be_stopped_is_not_removed(self, home, linux):
        fake = FakeSystemd()
        keeper = Systemd(fake)
        install(keeper, settings(home))
        fake.answers["show"] = (1, "", "No medium found")

        with pytest.raises(ProgramFailed):
            keeper.uninstall()
        assert keeper.path.exists()

    def test_the_unit_goes_where_the_manager_looks(self, home, monkeypatch):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "cfg"))
        assert home / "cfg/systemd/user" / UNIT == Systemd(FakeSystemd()).path
        monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
        assert home / ".config/systemd/user" / UNIT == Systemd(FakeSystemd()).path

    @pytest.mark.parametrize(
        ("said", "how"),
        [
            ("LoadState=loaded\nActiveState=active\nMainPID=42\nResult=success\nExecMainStatus=0", (True, 42, "")),
            ("LoadState=loaded\nActiveState=failed\nMainPID=0\nResult=start-limit-hit\nExecMainStatus=1",
             (False, None, "start-limit-hit, status 1")),
            ("", (False, None, "")),
        ],
    )  # fmt: skip
    def test_how_it_is(self, home, linux, said, how):
        fake = FakeSystemd()
        keeper = Systemd(fake)
        install(keeper, settings(home))
        fake.answers["show"] = (0, said, "")

        state = look(keeper)

        assert how == tuple(getattr(state, key) for key in ("running", "pid", "ended"))


def both(home: Path) -> list[Launchd | Systemd]:
    return [launchd(FakeLaunchd()), Systemd(FakeSystemd())]


@pytest.mark.parametrize("which", [0, 1], ids=["launchd", "systemd"])
class TestBoth:
    @pytest.fixture
    def keeper(self, home, which, monkeypatch):
        monkeypatch.setattr(sys, "platform", ["darwin", "linux"][which])
        return both(home)[which]

    @pytest.mark.parametrize("name", HOSTILE)
    def test_hostile_names_arrive(self, keeper, home, name):
        """F-205."""
        wanted = settings(home, name)

        install(keeper, wanted)

        assert wanted == installed(keeper)
        assert wanted.crash_log.parent.is_dir()
        assert {
            "program": wanted.program,
            "program_found": False,
            "port": 8766,
            "logs": str(wanted.crash_log.parent),
        }.items() <= look(keeper).as_json().items()

    def test_a_reinstall_keeps_what_was_set(self, keeper, home):
        install(keeper, settings(home, environment={"SMART_FORK_INDEX_CRON": "6h", "LANG": "de"}, port=5111))

        again = settings_for(keeper, env={"HOME": str(home), "PATH": ""})

        assert (5111, "6h", "de") == (
            again.port,
            *(again.environment[name] for name in ("SMART_FORK_INDEX_CRON", "LANG")),
        )

    def test_the_port_is_kept_for_a_service_that_is_started_by_hand(self, keeper, home):
        """F-210."""
        wanted = settings(home, port=5111)

        install(keeper, wanted)

        assert 5111 == wanted_port({}, state=wanted.state)

    def test_one_that_gave_up_starts_again_when_it_is_installed(self, keeper, home):
        wanted = settings(home)
        while note_start(wanted.state):
            pass

        install(keeper, wanted)

        assert note_start(wanted.state)

    def test_one_that_was_started_by_hand_is_stopped(self, keeper, home, monkeypatch):
        """Otherwise the new service would find the old one running, and end."""
        wanted = settings(home)
        monkeypatch.setenv("SMART_FORK_HOME", str(wanted.state))
        wanted.state.mkdir(parents=True)
        code = "import signal; from smart_fork.cli.service import instance; print(instance.hold(), flush=True); signal.pause()"
        with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as by_hand:
            assert b"True\n" == by_hand.stdout.readline()

            install(keeper, wanted)

            assert -signal.SIGTERM == by_hand.wait(120)

    def test_a_damaged_file_is_replaced_and_the_loss_told(self, keeper, home, caplog):
        install(keeper, settings(home, environment={"SMART_FORK_INDEX_CRON": "6h"}))
        (state_home() / "service-settings.json").write_bytes(b"\xff<x")

        assert installed(keeper) is None
        assert look(keeper).installed
        assert "1h" == settings_for(keeper, env={"HOME": str(home), "PATH": ""}).environment["SMART_FORK_INDEX_CRON"]
        assert "nothing of them is kept" in caplog.text

    def test_root_for_somebody_else_is_refused(self, keeper, home, monkeypatch):
        monkeypatch.setattr(installation.os, "geteuid", lambda: 0)
        monkeypatch.setenv("SUDO_USER", "me")

        with pytest.raises(SmartForkError, match="not for root"):
            install(keeper, settings(home))
        assert [] == list(home.rglob("*"))

    def test_the_other_systems_file_is_only_printed(self, keeper, home, which):
        """F-206."""
        other = both(home)[1 - which]

        with pytest.raises(SmartForkError, match=r"nothing was installed") as caught:
            install(other, settings(home))
        assert "print" in caught.value.hint
        assert [] == list(home.rglob("*"))
        assert other.written(settings(home))

    def test_without_the_systems_program_nothing_is_written(self, keeper, home, monkeypatch):
        monkeypatch.setattr(keeper._processes, "run", missing)

        with pytest.raises(ProgramMissing):
            install(keeper, settings(home))
        assert [] == list(home.rglob("*"))


def test_a_system_with_neither_is_told_so(monkeypatch):
    """F-206."""
    monkeypatch.setattr(sys, "platform", "freebsd14")

    with pytest.raises(SmartForkError, match="Neither launchd nor systemd is on freebsd14"):
        supervisor()
    assert "launchd" == supervisor("launchd").name


class TestTwoHomes:
    """Two homes: each has its own unit, label and port, and does not touch the other's."""

    @pytest.fixture
    def at(self, home, monkeypatch):
        def move(name: str) -> Path:
            monkeypatch.setenv("SMART_FORK_HOME", str(home / name))
            return home / name

        return move

    def test_with_launchd(self, home, mac, at):
        fake, keepers, kept = FakeLaunchd(), [], []
        for name in (".smart-fork", "second", "third"):
            at(name)
            keepers.append(launchd(fake))
            install(keepers[-1], settings_for(keepers[-1], env=program_in(home)))
            kept.append(installed(keepers[-1]))

        labels = [keeper.path.stem for keeper in keepers]
        assert LABEL == labels[0]
        assert set(labels) == fake.loaded
        assert 3 == len({one.port for one in kept})
        assert [home / name for name in (".smart-fork", "second", "third")] == [one.state for one in kept]

        at("second")
        launchd(fake).uninstall()
        assert {labels[0], labels[2]} == fake.loaded
        assert [True, False, True] == [keeper.path.exists() for keeper in keepers]
        assert not any(verb == "disable" for verb, *_ in fake.ran)

    def test_with_systemd(self, home, linux, at):
        fakes, keepers, ports = [], [], []
        for name in (".smart-fork", "second"):
            at(name)
            fakes.append(FakeSystemd())
            keepers.append(Systemd(fakes[-1]))
            install(keepers[-1], settings_for(keepers[-1], env=program_in(home)))
            ports.append(installed(keepers[-1]).port)

        units = [keeper.path.name for keeper in keepers]
        assert UNIT == units[0] != units[1]
        assert 2 == len(set(ports))
        keepers[1].uninstall()
        keepers[1].uninstall()
        assert keepers[0].path.exists()
        assert units[0] not in str(fakes[1].ran)

    def test_where_home_is_another_than_the_one_of_the_login_the_unit_says_so(self, home, linux, monkeypatch):
        monkeypatch.setattr("smart_fork.cli.service.unit_settings.login_home", lambda: home / "login")
        keeper = Systemd(FakeSystemd())

        assert UNIT != keeper.path.name
        assert str(home / ".smart-fork") == settings_for(keeper, env=program_in(home)).environment["SMART_FORK_HOME"]


def program_in(home: Path) -> dict[str, str]:
    """Return an environment with an installed smart-fork and the current home."""
    program = home / "bin/smart-fork"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return {"PATH": str(program.parent), "HOME": str(home), "SMART_FORK_HOME": os.environ["SMART_FORK_HOME"]}
