"""The default model without its frameworks: a short text -> its vector, a fraction of a second after the start.

Importing PyTorch for a query of ten words takes longer than everything else together. The model is small (BERT, 6
layers of 384), so its forward pass is done here in NumPy on the packaged weights, of which only the needed rows of the
vocabulary are read. The vectors are those of sentence-transformers within 1e-5; it stays the engine for indexing,
where its speed matters, and for all other models.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.embedding import DEFAULT_MODEL, DEFAULT_WEIGHTS_SHA256, packaged_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

LAYERS, HEADS, DIMENSIONS, MAX_TOKENS = 6, 12, 384, 256
_NORM_EPSILON = 1e-12
GELU_ROWS = 32


class LightEmbedder:
    """An `Embedder` of the default model for questions; about 8 ms a text, less where several are given at once."""

    dimensions = DIMENSIONS

    @property
    def model(self) -> str:
        """The same name as sentence-transformers' vectors have: they can be compared."""
        return f"{DEFAULT_MODEL}@{DEFAULT_WEIGHTS_SHA256[:12]}"

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors, shape (len(texts), 384), float32.

        Raises:
            ModelUnavailableError: the packaged model is missing or not the expected one.
        """
        from indexer.arrays import np

        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        inputs = [self._inputs(self._tokenizer.encode(text).ids) for text in texts]
        ends = np.cumsum([0, *map(len, inputs)]).tolist()
        spans = [slice(*span) for span in itertools.pairwise(ends)]
        hidden = self._norm(np.concatenate(inputs), "embeddings.LayerNorm")
        for layer in range(LAYERS):
            hidden = self._layer(hidden, spans, f"encoder.layer.{layer}")
        vectors = np.stack([hidden[span].mean(axis=0) for span in spans])
        unit: Matrix = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return unit.astype(np.float32, copy=False)

    @cached_property
    def _folder(self) -> Path:
        return packaged_model()

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer

    @cached_property
    def _weights(self) -> _Tensors:
        return _Tensors(self._folder / "model.safetensors")

    def _inputs(self, ids: Sequence[int]) -> Matrix:
        from indexer.arrays import np

        words = self._weights["embeddings.word_embeddings.weight"][np.array(ids)]
        positions = self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        sentence: Matrix = words + positions + self._weights["embeddings.token_type_embeddings.weight"][0]
        return sentence

    def _layer(self, hidden: Matrix, spans: Sequence[slice], name: str) -> Matrix:
        """The tokens of all texts go through each matrix at once; those of one text (a span) attend to each other."""
        attended = self._attention(hidden, spans, f"{name}.attention.self")
        attended = self._linear(attended, f"{name}.attention.output.dense")
        hidden = self._norm(attended + hidden, f"{name}.attention.output.LayerNorm")
        inner = _gelu(self._linear(hidden, f"{name}.intermediate.dense"))
        return self._norm(self._linear(inner, f"{name}.output.dense") + hidden, f"{name}.output.LayerNorm")

    def _attention(self, hidden: Matrix, spans: Sequence[slice], name: str) -> Matrix:
        from indexer.arrays import np

        size = DIMENSIONS // HEADS
        parts = [
            self._linear(hidden, f"{name}.{part}").reshape(-1, HEADS, size).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        ]
        joined = np.empty_like(hidden)
        for span in spans:
            query, key, value = (part[:, span] for part in parts)
            weights = query @ key.transpose(0, 2, 1) / math.sqrt(size)
            weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            joined[span] = (weights @ value).transpose(1, 0, 2).reshape(-1, DIMENSIONS)
        return joined

    def _linear(self, hidden: Matrix, name: str) -> Matrix:
        result: Matrix = hidden @ self._weights[f"{name}.weight"].T
        result += self._weights[f"{name}.bias"]
        return result

    def _norm(self, hidden: Matrix, name: str) -> Matrix:
        from indexer.arrays import np

        centred = hidden - hidden.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + _NORM_EPSILON)
        result: Matrix = centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return result


class _Tensors:
    """The tensors of a safetensors file, where they lie: nothing is copied, and only what is used is read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
            self._tensors: dict[str, Any] = json.loads(file.read(header))
            self._start = 8 + header
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __getitem__(self, name: str) -> Matrix:
        from indexer.arrays import np

        tensor = self._tensors[name]
        begin, end = tensor["data_offsets"]
        values = np.frombuffer(self._bytes, np.dtype("<f4"), (end - begin) // 4, self._start + begin)
        return values.reshape(tensor["shape"])


def _gelu(x: Matrix) -> Matrix:
    """X · Φ(x), a few rows at a time: what is made on the way then stays in the processor's cache."""
    from indexer.arrays import np

    return np.concatenate([_gelu_of_few(x[first : first + GELU_ROWS]) for first in range(0, len(x), GELU_ROWS)])


def _gelu_of_few(x: Matrix) -> Matrix:
    """With the error function after Abramowitz and Stegun 7.1.26 (error below 1.5e-7)."""
    from indexer.arrays import np

    z = np.abs(x) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    error = np.sign(x) * (1 - series * np.exp(-z * z))
    return (0.5 * x * (1 + error)).astype(np.float32, copy=False)
