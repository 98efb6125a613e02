"""The workflow that runs elsewhere: it parses, and calls what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from shlex import quote, split

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
JOBS = WORKFLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]


def commands() -> list[list[str]]:
    return [split(line) for _, step in STEPS for line in step.get("run", "").splitlines()]


def test_it_runs_for_each_change():
    triggers = WORKFLOW[True]  # YAML takes `on` for a boolean

    assert {"push", "pull_request", "schedule"} == set(triggers)
    assert {"contents": "read"} == WORKFLOW["permissions"]


def test_every_system_and_version_that_is_promised_is_tried():
    matrix = JOBS["test"]["strategy"]["matrix"]
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")

    assert {"ubuntu", "macos"} == {one.split("-")[0] for one in matrix["os"]}
    assert matrix["python"][0] == least
    assert {least, matrix["python"][-1]} == set(JOBS["first-run"]["strategy"]["matrix"]["python"])
    assert ["3.11", "3.12", "3.13", "3.14"] == matrix["python"], "as text: 3.10 would be a number"


def test_the_whole_suite_runs_as_everywhere():
    assert [".ci/run"] in commands()


def test_the_newest_agents_are_tried_beside_the_pinned_ones():
    job = JOBS["newest"]
    (files,) = [split(words[2].removeprefix("ARGS=")) for words in commands() if words[:2] == ["make", "test"]]

    assert {"SMART_FORK_E2E_AGENTS": "newest"} == job["env"]
    assert [] == [file for file in files if not (ROOT / file).is_file()]


def test_the_light_install_is_tried_wherever_the_full_one_is():
    full, light = (JOBS[name]["strategy"]["matrix"] for name in ("test", "light"))

    assert full == light
    assert ["make", "test-light"] in [split(step.get("run", "")) for step in JOBS["light"]["steps"]]


def test_what_is_published_is_built_and_tried_on_every_system():
    assert JOBS["test"]["strategy"]["matrix"]["os"] == JOBS["dist"]["strategy"]["matrix"]["os"]
    assert ["make", "dist"] in [split(step.get("run", "")) for step in JOBS["dist"]["steps"]]


@pytest.mark.parametrize("words", sorted({*map(tuple, commands())}), ids=" ".join)
def test_what_a_step_runs_exists(words):
    if "/" in words[0]:
        assert os.access(ROOT / words[0], os.X_OK)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= {*targets, *(word for word in words if "=" in word)}


@pytest.mark.parametrize("action", sorted({step["uses"] for _, step in STEPS if "uses" in step}))
def test_actions_are_pinned_to_a_version(action):
    assert re.fullmatch(r"actions/[\w-]+@v\d+(\.\d+)*", action)


@pytest.mark.parametrize(
    ("there", "packaged", "installed"),
    [
        (("chromium-headless-shell",), True, []),
        (("chromium",), True, ["chromium-headless-shell"]),
        (("chromium",), False, []),
        ((), True, ["chromium-headless-shell"]),
        ((), False, ["chromium"]),
    ],
)
def test_the_browser_without_windows_is_installed_where_there_is_a_package_of_it(tmp_path, there, packaged, installed):
    asked = tmp_path / "asked"
    says = {"id": "echo 0", "apt-cache": f"exit {int(not packaged)}", "apt-get": f'echo "$@" >>{quote(str(asked))}'}
    for name in (*says, "tmux", "npm", "fzf", *there):
        (tmp_path / name).write_text(f"#!/bin/sh\n{says.get(name, '')}\n")
        (tmp_path / name).chmod(0o755)
    asked.touch()

    subprocess.run([shutil.which("bash"), ROOT / ".ci/programs"], env={"PATH": str(tmp_path)}, check=True)

    assert installed == [line.split()[-1] for line in asked.read_text().splitlines() if line.startswith("install")]


def test_files_that_steps_name_exist():
    named = [path for _, step in STEPS for path in step.get("with", {}).get("cache-dependency-path", "").split()]
    named += re.findall(r"hashFiles\('([^']+)'\)", (ROOT / ".github/workflows/ci.yml").read_text())

    assert named
    assert [] == [path for path in named if not (ROOT / path).exists()]
