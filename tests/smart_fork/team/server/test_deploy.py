"""The examples in ``deploy/``: each starts a real server with its own command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from smart_fork.team.server.postgres_process import OWNER
from tests.smart_fork.team.server.test_serve import Running, certificate

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("team-servers")]

DEPLOY = Path(__file__).resolve().parents[4] / "deploy"
UNIT = (DEPLOY / "smart-fork-team.service").read_text()


def options_of(words):
    """Return the options of ``smart-fork team serve`` in a command, without the options that a test replaces."""
    assert words[:3][-2:] == ["team", "serve"]
    assert Path(words[0]).name == "smart-fork"
    kept = []
    options = iter(words[3:])
    for word in options:
        if word in ("--listen", "--data", "--run-as", "--tls-cert", "--tls-key"):
            next(options)
        else:
            kept.append(word)
    return kept


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "smart-fork-team.service"
    unit.write_text(UNIT.replace("/opt/smart-fork/bin/smart-fork", "/bin/true"))

    said = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in said.stderr.splitlines() if unit.name in line] == []
    assert 0 == said.returncode


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_the_command_of_the_unit_starts_a_server(database, base, tmp_path, open_folder, installed):
    certificate(tmp_path, "localhost")
    [command] = re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)
    running = Running(
        open_folder / "unit", installed, *options_of(shlex.split(command)), "--dsn", database.conninfo(OWNER, base),
        "--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"),
    )  # fmt: skip
    try:
        known = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        known.check_hostname = False
        with urllib.request.urlopen(f"{running.told['url']}/healthz", context=known, timeout=60) as answer:  # noqa: S310
            assert 200 == answer.status
    finally:
        running.close()


def test_the_container_starts_a_server_that_its_own_check_finds_healthy(database, base, open_folder, installed):
    [entry] = re.findall(r"^ENTRYPOINT (\[.+\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["server"]
    words = [*json.loads(entry), *service["command"]]
    filled = {key: value.replace("${FORKS_PASSWORD:?}", "p@ss/w#rd") for key, value in service["environment"].items()}
    assert {"host": "database", "user": "postgres", "dbname": "postgres"} == conninfo_to_dict(
        filled["SMART_FORK_TEAM_DSN"]
    )
    assert "p@ss/w#rd" == filled["PGPASSWORD"]
    running = Running(  # as interpreters of its own, which most tests leave out
        open_folder / "container", installed, *options_of(words), "--dsn", database.conninfo(OWNER, base),
        start=subprocess.Popen,
    )  # fmt: skip
    try:
        kind, python, *check = service["healthcheck"]["test"]
        assert ("CMD", "python") == (kind, python)
        check = [word.replace("http://127.0.0.1:8770", running.told["url"]) for word in check]
        subprocess.run([sys.executable, *check], check=True, env={"PATH": os.defpath}, timeout=60)
    finally:
        running.close()


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="no docker compose here",
)
def test_compose_accepts_its_file():
    subprocess.run(
        ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"], check=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "FORKS_PASSWORD": "invented"},
    )  # fmt: skip
