"""The commands with qmd as search program: an index run has it read and embed the exports, and reports its errors."""

from __future__ import annotations

import json

import pytest

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"


def test_it_has_qmd_read_and_embed_once_each(world, shop, qmd, run):
    world.claude(shop, RETRY, DONE)

    done = run("index", "run", "--json")

    argvs = [call["argv"] for call in qmd.calls]
    assert (done.code, json.loads(done.out)["engine"]) == (0, "qmd")
    assert [argvs.count([command]) for command in ("update", "embed")] == [1, 1]
    assert argvs.index(["update"]) < argvs.index(["embed"])


def test_without_vectors_it_is_not_asked_for_any(world, shop, qmd, run):
    world.claude(shop, RETRY, DONE)

    assert run("index", "run", "--no-vectors").code == 0
    assert ["embed"] not in [call["argv"] for call in qmd.calls]


@pytest.mark.slow
def test_a_failure_to_embed_is_an_error_though_words_are_found(world, shop, qmd, run):
    knows = world.claude(shop, RETRY, DONE)
    qmd.answers("embed", stderr="no models", code=1)

    done = run("index", "run")

    assert done.code == 1
    assert "qmd has words but no embeddings: qmd embed failed: no models" in done.err
    assert world.ids(RETRY, shop) == [knows]


def test_without_the_program_it_is_an_error_and_the_own_index_is_there(world, shop, qmd, run, monkeypatch):
    knows = world.claude(shop, RETRY, DONE)
    (world.home / "bin" / "qmd").unlink()

    assert run("index", "run").code == 1
    monkeypatch.setenv("SMART_FORK_ENGINE", "builtin")
    assert world.ids(RETRY, shop) == [knows]


def test_the_command_says_what_to_do_where_it_is_not_there(world, shop, qmd, run):
    world.claude(shop, RETRY, DONE)
    (world.home / "bin" / "qmd").unlink()

    found = run("find", RETRY)

    assert found.code == 1
    assert "npm install -g @tobilu/qmd" in found.err
