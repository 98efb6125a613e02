"""Embedding models of sentence-transformers, and rerankers. No framework is imported before a text is embedded."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from indexer import state_db
from indexer.environment import Setting
from indexer.errors import IndexerError, install_extra
from indexer.safe_files import private_dir, replace_file, state_home

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import CrossEncoder, SentenceTransformer


log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
#: SHA-256 of the weights in the packaged default model. Other weights under its name are refused.
DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
#: Texts embedded in one call on a processor. Small batches of texts of similar length are fastest.
BATCH = 16
#: Texts embedded in one call on a GPU, where large batches are fastest.
GPU_BATCH = 128
#: Texts that are embedded on the GPU and on the processor, and the smallest cosine with which the GPU is used.
TRIAL_TEXTS, MIN_COSINE = ("retry the upload", "make the button blue and move it to the right of the menu"), 0.999
#: Time limit of the check whether a model can be downloaded.
DOWNLOAD_SECONDS = 5.0


class ModelUnavailableError(IndexerError):
    """The embedding model cannot be loaded. The message says what to do."""

    code = "model_unavailable"


class Embedder(Protocol):
    """The interface of an embedding model, which turns texts into vectors."""

    @property
    def model(self) -> str:
        """Return the model's exact name. Vectors can be compared if their models have the same name."""

    @property
    def dimensions(self) -> int:
        """Return the length of a vector. This loads the model."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a unit vector for each text: float32, shape (len(texts), dimensions).

        Raises:
            ModelUnavailableError: the model cannot be loaded.
        """


def has_frameworks() -> bool:
    """Return True if sentence-transformers, an optional dependency, is installed."""
    return find_spec("sentence_transformers") is not None


def without_frameworks(setting: str, name: str) -> ModelUnavailableError:
    """Return an error: the variable `setting` chooses the model `name`, but sentence-transformers is not installed."""
    return ModelUnavailableError(
        f"{setting} names {name}, which needs sentence-transformers, and this is the light install, without it. "
        f"Add it: `{install_extra('sentence-transformers')}`. Or unset {setting}"
    )


class SentenceTransformerEmbedder:
    """A sentence-transformers model that is loaded on first use. Only one thread at a time computes.

    It runs on a GPU if the GPU and the processor give equal vectors, else on the processor, with `threads` or one
    thread for each core. There, several texts are embedded with bfloat16 matrix products if possible: twice as fast,
    with a cosine of 0.9999 to full precision, so that both vectors fit into one index.
    """

    def __init__(self, name: str | None = None, *, threads: int | None = None) -> None:
        self._threads = threads
        self._name = name or Setting.MODEL.text() or DEFAULT_MODEL
        self._loaded: SentenceTransformer | None = None
        self._device = ""
        self._lock = threading.Lock()

    @cached_property
    def model(self) -> str:
        if self._name == DEFAULT_MODEL:
            return f"{DEFAULT_MODEL}@{DEFAULT_WEIGHTS_SHA256[:12]}"
        folder = Path(self._name).expanduser()
        return f"{folder.resolve()}@{_stamp(folder)}" if folder.is_dir() else self._name

    @cached_property
    def dimensions(self) -> int:
        return int(self.embed(["how long?"]).shape[1])

    @property
    def precision(self) -> str:
        """Return the number format, "bfloat16" or "float32", for embedding several texts on this processor."""
        return "bfloat16" if _has_bfloat16() else "float32"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._lock:
            model = self._load()
            if self._device != PROCESSOR:
                try:
                    return _on_gpu(model, texts)
                except Exception as error:  # noqa: BLE001 - drivers fail in any way
                    model = self._leave_gpu(error)
            return _on_processor(model, texts, fast=len(texts) > 1 and self.precision == "bfloat16")

    def _load(self) -> SentenceTransformer:
        if self._loaded is None:
            silence_libraries()
            with loading():
                self._loaded = self._from_disk() if self._name == DEFAULT_MODEL else self._unless_absent()
            self._device = self._device or best_device()
            if self._device != PROCESSOR:
                try:
                    _move(self._loaded, self._device)
                except Exception as error:  # noqa: BLE001 - as above
                    return self._leave_gpu(error)
        return self._loaded

    def _leave_gpu(self, error: Exception) -> SentenceTransformer:
        """Load the model again, on the processor, and use it there from now on. `error` is the failure of the GPU."""
        log.warning("%s cannot be used (%s): passages are embedded on the processor", self._device, error)
        self._device, self._loaded = PROCESSOR, None
        return self._load()

    def _unless_absent(self) -> SentenceTransformer:
        """Load a model that a person has chosen. If loading failed within the last hour, fail immediately."""
        if not has_frameworks():  # seen in no time, and not remembered: it may be installed any moment
            raise without_frameworks("SMART_FORK_MODEL", self._name)
        if why := known_absence(self.model):
            raise ModelUnavailableError(why)
        try:
            loaded = self._from_disk()
        except ModelUnavailableError as error:
            note_absence(self.model, str(error))
            raise
        forget_absence()
        return loaded

    def _from_disk(self) -> SentenceTransformer:
        if self._name.startswith(("/", "~", ".")) and not Path(self._name).expanduser().is_dir():
            raise ModelUnavailableError(f"the model {self._name} is not there: no such folder")
        # One program for each shape of a batch is kept, up to a thousand: a process that stays would grow for hours.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ModelUnavailableError(
                f"sentence-transformers cannot be imported ({error}); reinstall smart-fork"
            ) from error
        if self._threads is not None:
            import torch

            torch.set_num_threads(self._threads)
        if self._name != DEFAULT_MODEL:
            return load(SentenceTransformer, self._name)
        return load(SentenceTransformer, str(packaged_model()))


def _on_processor(model: SentenceTransformer, texts: Sequence[str], *, fast: bool) -> NDArray[np.float32]:
    import numpy as np
    import torch

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=fast):
        vectors = model.encode(list(texts), batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _on_gpu(model: SentenceTransformer, texts: Sequence[str]) -> NDArray[np.float32]:
    """Embed texts on the GPU in full precision. Raise an error if the results are not finite numbers."""
    import numpy as np

    vectors = model.encode(list(texts), batch_size=GPU_BATCH, normalize_embeddings=True, show_progress_bar=False)
    if not np.isfinite(vectors).all():
        raise ArithmeticError("its vectors are not finite numbers")
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _move(model: SentenceTransformer, device: str) -> None:
    """Move `model` to `device`. Raise an error if the vectors there differ from those of the processor."""
    expected = _on_processor(model, TRIAL_TEXTS, fast=False)
    model.to(device)
    if float((_on_gpu(model, TRIAL_TEXTS) * expected).sum(axis=1).min()) < MIN_COSINE:
        raise ArithmeticError("its vectors differ from the processor's")
    log.info("passages are embedded on %s", device)


def load(kind: Callable[..., T], name: str) -> T:
    """Return the model, of class `kind`, in the folder or with the name `name`. It is downloaded if necessary.

    Raises:
        ModelUnavailableError: the model can be neither loaded nor downloaded.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        try:
            return kind(str(folder), device="cpu", local_files_only=True)
        except Exception as error:
            raise ModelUnavailableError(f"the model in {folder} cannot be loaded: {error}") from error
    try:
        return kind(name, device="cpu", local_files_only=True)
    except (OSError, ValueError):
        pass  # not downloaded yet
    try:
        from huggingface_hub import HfApi

        HfApi().model_info(name, timeout=DOWNLOAD_SECONDS)  # the library would retry for minutes
        return kind(name, device="cpu")
    except Exception as error:
        raise ModelUnavailableError(f"the model {name} can be neither found nor downloaded: {_why(error)}") from error


def _why(error: Exception) -> str:
    """Return a short reason why a model could not be downloaded, unlike the long messages of huggingface_hub."""
    kind = type(error).__name__
    if kind == "OfflineModeIsEnabled":
        return "downloading is switched off (HF_HUB_OFFLINE)"
    if kind in ("RepositoryNotFoundError", "HFValidationError"):
        return "no model has that name"
    if isinstance(error, ConnectionError | TimeoutError) or "Connect" in kind or "Timeout" in kind:
        return "the download server cannot be reached"
    return f"{kind} during the download"


def packaged_model() -> Path:
    """Return the folder of the packaged default model, after its weights are verified.

    Raises:
        ModelUnavailableError: the package is missing, or its weights are not the expected ones.
    """
    spec = find_spec("smart_fork_minilm")  # hatch_build.py makes it
    if spec is None or spec.origin is None:
        raise ModelUnavailableError(
            "the packaged model is missing; reinstall smart-fork, or set SMART_FORK_MODEL to a folder"
        )
    folder = Path(spec.origin).with_name("model")
    try:
        expected = _are_expected(folder / "model.safetensors")
    except OSError as error:
        raise ModelUnavailableError(f"the packaged model cannot be read: {error}; reinstall smart-fork") from error
    if not expected:
        raise ModelUnavailableError(f"the weights in {folder} differ from {DEFAULT_MODEL}; reinstall smart-fork")
    return folder


def _are_expected(weights: Path) -> bool:
    """Return True if the file has the default model's weights. Hashing 90 MB is slow, so the result is remembered."""
    facts = weights.stat()
    seen = f"{DEFAULT_WEIGHTS_SHA256} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino} {weights}"
    note = state_home() / "weights-checked"
    with suppress(OSError, ValueError):
        if note.read_text(encoding="utf-8") == seen:
            return True
    if _digest(weights, seen) != DEFAULT_WEIGHTS_SHA256:
        return False
    with suppress(OSError):  # where nothing can be kept it is read each time
        private_dir(note.parent)
        replace_file(note, [seen.encode()], durable=False)
    return True


@cache
def _digest(weights: Path, _facts: str) -> str:
    with weights.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _has_bfloat16() -> bool:
    """Return True if the processor multiplies numbers in bfloat16 natively. Emulation is slower than full precision."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _stamp(folder: Path) -> str:
    """Return a digest of names, sizes and times of a model's files, which changes with the model."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.blake2b(repr(facts).encode("utf-8", "replace"), digest_size=6).hexdigest()


def silence_libraries() -> None:
    """Switch off the progress bars and warnings that the libraries print while they load a model."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


# Where a model computes: on the GPU that PyTorch has, else on the processor.


PROCESSOR = "cpu"


def best_device() -> str:
    """Return the device that ``SMART_FORK_DEVICE`` names, else the fastest one, by PyTorch's name."""
    if chosen := Setting.DEVICE.text().lower():
        return chosen
    import torch

    try:
        if torch.cuda.is_available():  # AMD's as well
            return "cuda"
        if torch.backends.mps.is_available():
            return "mps"
    except Exception as error:  # noqa: BLE001 - a driver that is half installed: there is no GPU then
        log.warning("no GPU can be used: %s", error)
    return PROCESSOR


# A model that could not be loaded, remembered: to try again takes long, and nothing has changed meanwhile.

_ABSENCE_FACT = "missing model"
#: For this time, loading a missing model is not tried again, unless the settings change, or `doctor` or `index run` is
#: run.
ABSENCE_SECONDS = 3600.0
#: Environment variables that decide, beside its name, from where a model is loaded.
_VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTPS_PROXY", "SENTENCE_TRANSFORMERS_HOME")


def known_absence(model: str) -> str:
    """Return why `model` could not be loaded within the last hour, with the same settings; empty if unknown."""
    try:
        note = state_db.fact(_ABSENCE_FACT)
    except OSError:
        return ""
    holds = note and note["settings"] == _settings(model) and 0 <= time.time() - note["at"] < ABSENCE_SECONDS
    return str(note["why"]) if holds else ""


def note_absence(model: str, why: str) -> None:
    """Store for an hour why `model` could not be loaded, so that other processes do not try."""
    with suppress(OSError):
        state_db.keep(_ABSENCE_FACT, {"settings": _settings(model), "why": why, "at": time.time()})


def forget_absence() -> None:
    """Forget that a model could not be loaded, so that the next process tries again."""
    with suppress(OSError):
        state_db.keep(_ABSENCE_FACT, None)


def _settings(model: str) -> list[str]:
    return [model, *(os.environ.get(name, "") for name in _VARIABLES)]


# Whoever waits is told that a model is being loaded, whatever it was that needed one.

#: The stage of an index run (see `indexer.log_changes.Progress`) while a model is loaded.
LOADING_STAGE = "loading"
_told: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("told", default=None)


@contextmanager
def reporting_loading(progress: Callable[[str, int, int], None] | None) -> Iterator[None]:
    """Call `progress` while a model is loaded within this block and this context (a thread or task)."""
    before = _told.set(progress)
    try:
        yield
    finally:
        _told.reset(before)


@contextmanager
def loading() -> Iterator[None]:
    """Mark this block as the loading of a model, which may take seconds. `reporting_loading` reports it."""
    progress = _told.get()
    if progress is not None:
        progress(LOADING_STAGE, 0, 1)
    yield
    if progress is not None:
        progress(LOADING_STAGE, 1, 1)


#: A reranker: gets a question and texts, and returns for each text the probability that it answers the question, 0 to
#: 1. It raises an error if it cannot.
Rerank = Callable[[str, Sequence[str]], Sequence[float]]


def configured_reranker() -> Rerank | None:
    """Return this process's reranker, which ``SMART_FORK_RERANKER`` names; `None` if the variable is not set."""
    name = Setting.RERANKER.text()
    return _reranker(name) if name else None


class CrossEncoderReranker:
    """A reranker (a model that scores how well a text answers a question) of sentence-transformers, on the CPU.

    It is loaded on first use, and one thread at a time computes.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loaded: CrossEncoder | ModelUnavailableError | None = None
        self._lock = threading.Lock()

    def __call__(self, intent: str, texts: Sequence[str]) -> list[float]:
        """Return for each text the probability that it answers `intent`."""
        with self._lock:
            model = self._load()
            from torch.nn import Sigmoid

            # Some are saved to give probabilities and some to give logits; asked like this, all give probabilities.
            pairs = [(intent, text) for text in texts]
            scores = model.predict(pairs, activation_fn=Sigmoid(), show_progress_bar=False)
        if scores.shape != (len(texts),):
            raise ModelUnavailableError(f"{self._name} is not a reranker: it does not give one score for a passage")
        return [float(score) for score in scores]

    def _load(self) -> CrossEncoder:
        if self._loaded is None:
            silence_libraries()
            try:
                with loading():
                    self._loaded = _cross_encoder(self._name)
            except ModelUnavailableError as error:  # no later question waits for the same
                self._loaded = error
        if isinstance(self._loaded, ModelUnavailableError):
            raise self._loaded
        return self._loaded


def _cross_encoder(name: str) -> CrossEncoder:
    if not has_frameworks():
        raise without_frameworks("SMART_FORK_RERANKER", name)
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise ModelUnavailableError(f"sentence-transformers cannot be imported ({error})") from error
    model: CrossEncoder = load(CrossEncoder, name)
    if not _scores_pairs(model):
        raise ModelUnavailableError(f"{name} is not a reranker: it was not trained to score pairs of texts")
    return model


def _scores_pairs(model: CrossEncoder) -> bool:
    """Return True if the model scores pairs of texts. An embedding model loads as well, but its scores are random."""
    architectures = (model.config and model.config.architectures) or ()
    return len(model) > 1 or not architectures or any("SequenceClassification" in name for name in architectures)


_reranker = cache(CrossEncoderReranker)
