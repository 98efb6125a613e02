"""Embedding of many texts in another process, which starts and ends as needed."""

import os
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Pipe
from pathlib import Path

import numpy as np
import psutil
import pytest

import indexer
from indexer.default_embedder import FEW_TEXTS, DefaultEmbedder, LightEmbedder, ProcessEmbedder, answer
from indexer.embedder import ModelUnavailableError
from tests.support.executables import shebang

PYTHON = sys.executable
TEXTS = [f"{number} failed uploads" for number in range(FEW_TEXTS)]


class Lengths:
    """A model that returns only the length of a text."""

    model, dimensions = "lengths", 1

    def embed(self, texts):
        if "" in texts:
            raise ModelUnavailableError("nothing has no length")
        return np.array([[len(text)] for text in texts], np.float32)


@pytest.fixture
def line():
    ours, its = Pipe()
    thread = threading.Thread(target=answer, args=(its, Lengths(), 30.0))
    thread.start()
    yield ours
    ours.close()
    thread.join()


@pytest.fixture
def embedder(line, monkeypatch):
    """An embedder with a thread in place of its process."""
    monkeypatch.setattr("indexer.default_embedder._start", lambda _: (line, None))
    return ProcessEmbedder()


def children():
    return set(psutil.Process().children())


def gone(child):
    child.wait()  # of a process that the embedder's own thread may have waited for already
    return not psutil.pid_exists(child.pid)


#: The process with a model that is there immediately, given what Python is.
QUICK = """import sys
sys.argv[1:4] = []  # -P -m indexer.default_embedder
import numpy as np
from indexer import default_embedder
class Lengths:
    def __init__(self, model): pass
    def embed(self, texts):
        while "for ever" in texts: pass
        return np.array([[len(text)] for text in texts], np.float32)
default_embedder.SentenceTransformerEmbedder = Lengths
default_embedder.main()
"""


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Embedding processes are real, but have nothing to load."""
    program = tmp_path / "python"
    program.write_text(shebang() + QUICK)
    program.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(Path(indexer.__file__).parent.parent))
    monkeypatch.setattr("indexer.default_embedder.sys.executable", str(program))


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_process_that_was_killed_is_started_again():
    before = children()
    embedder = ProcessEmbedder()
    first = embedder.embed(TEXTS)
    (child,) = children() - before
    os.kill(child.pid, signal.SIGKILL)
    assert gone(child)

    assert (embedder.embed(TEXTS) == first).all()
    (child,) = children() - before
    del embedder
    assert gone(child)


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_process_that_had_nothing_to_do_has_ended_and_another_one_goes_on():
    before = children()
    embedder = ProcessEmbedder(idle=0.0)  # it ends when there is nothing to do just then
    first = embedder.embed(TEXTS)
    for child in children() - before:
        assert gone(child)

    assert (embedder.embed(TEXTS) == first).all()


@pytest.mark.usefixtures("quick")
def test_it_ends_in_the_middle_of_what_it_embeds_when_its_parent_is_told_to_end(tmp_path):
    code = """
import orjson, psutil, signal, sys
from indexer.default_embedder import ProcessEmbedder
sys.executable = sys.argv[1]
embedder = ProcessEmbedder()
embedder.embed(["warm"])
print(psutil.Process().children()[0].pid, flush=True)
embedder._connection.send_bytes(orjson.dumps(["for ever"] + ["retry " * 100] * 20_000))  # until it has taken nearly all
print("sent", flush=True)
signal.pause()
"""
    with subprocess.Popen([PYTHON, "-c", code, str(tmp_path / "python")], stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        assert b"sent\n" == parent.stdout.readline()
        parent.terminate()

        assert -signal.SIGTERM == parent.wait(60)
        assert [] == psutil.wait_procs([child], timeout=60)[1]


def test_who_waits_for_one_that_is_closed_is_told_so_and_no_other_is_started(monkeypatch):
    ours, its = Pipe()
    life, lifeline = Pipe(duplex=False)
    starts = []

    def start(_):
        starts.append(1)
        return ours, lifeline

    def work():
        its.recv_bytes()
        embedder.close()
        with pytest.raises(EOFError):
            life.recv_bytes()
        its.close()

    monkeypatch.setattr("indexer.default_embedder._start", start)
    embedder = ProcessEmbedder()
    process = threading.Thread(target=work)
    process.start()

    with pytest.raises(ModelUnavailableError, match="ended"):
        embedder.embed(TEXTS)
    process.join()
    ours.close()
    life.close()
    assert [1] == starts


def test_few_texts_start_no_process_in_a_process_that_stays():
    before = children()

    assert DefaultEmbedder(background=True).embed(TEXTS[1:]).shape == (FEW_TEXTS - 1, 384)
    assert children() <= before


def test_vectors_come_as_they_were_made(embedder):
    assert embedder.embed(["a", "bcd", "ü東"]).tolist() == [[1.0], [3.0], [2.0]]
    assert embedder.dimensions == 1


def test_what_goes_wrong_there_is_said_here_and_the_next_texts_are_embedded(embedder):
    with pytest.raises(ModelUnavailableError, match="nothing has no length"):
        embedder.embed([""])

    assert embedder.embed(["a"]).tolist() == [[1.0]]


def test_nobody_who_asks_ends_it():
    ours, its = Pipe()
    answer(its, Lengths(), 0.0)  # returns

    ours.close()
    answer(its, Lengths(), 30.0)  # as well


def test_its_name_is_the_same_as_that_of_the_other_forms():
    assert ProcessEmbedder().model == DefaultEmbedder().model


@pytest.mark.full
@pytest.mark.usefixtures("quick")
def test_many_texts_are_embedded_in_a_process_that_was_begun_few_do_not_wait_for_it_and_it_ends_by_itself():
    """The process stays while it has work, and then frees its memory."""
    begins_embeds_and_ends([[len(text)] for text in TEXTS])


@pytest.mark.full
@pytest.mark.thorough  # to load PyTorch takes nearly all of it
def test_so_does_one_with_the_real_model():
    many = begins_embeds_and_ends(None)
    assert float((many * LightEmbedder().embed(TEXTS)).sum(axis=1).min()) > 0.999


def begins_embeds_and_ends(expected):
    before, nice = children(), os.getpriority(os.PRIO_PROCESS, 0)
    embedder = DefaultEmbedder()
    embedder.begin()
    embedder.begin()
    (child,) = children() - before

    assert embedder.embed(TEXTS[1:]).shape == (FEW_TEXTS - 1, 384)
    many, again = embedder.embed(TEXTS), embedder.embed(TEXTS)
    assert (many == again).all()
    assert ({child}, nice) == (children() - before, child.nice())  # somebody waits for it
    assert expected is None or expected == many.tolist()
    del embedder  # with it our end of the line
    assert gone(child)
    return many


@pytest.mark.full
@pytest.mark.usefixtures("quick")
def test_a_process_that_was_begun_ends_when_it_is_no_longer_wanted():
    before = children()
    embedder = DefaultEmbedder()
    embedder.begin()
    (child,) = children() - before

    embedder.close()

    assert gone(child)


def test_where_no_process_can_be_begun_the_light_engine_embeds(monkeypatch, caplog):
    def refused(*_):
        raise OSError("no more processes")

    monkeypatch.setattr("indexer.default_embedder._start", refused)
    monkeypatch.setattr("indexer.default_embedder.has_frameworks", lambda: True)
    embedder = DefaultEmbedder()
    embedder.begin()

    assert (embedder.embed(TEXTS) == LightEmbedder().embed(TEXTS)).all()
    assert "died twice" in caplog.text
    with pytest.raises(ModelUnavailableError, match="died twice"):
        ProcessEmbedder().embed(TEXTS)
