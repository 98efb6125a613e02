"""The tokens of a text, told by the model's own tokenizer with as much of its vocabulary as the text needs.

To hand it all of the 30,000 words takes longer than to embed a question.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer


class Vocabulary:
    """A tokenizer of the WordPiece kind, from its `tokenizer.json`; a text has `limit` tokens at most."""

    def __init__(self, file: Path, limit: int) -> None:
        self._settings: dict[str, Any] = orjson.loads(file.read_bytes())
        self._model: dict[str, Any] = self._settings["model"]
        self._words: dict[str, int] = self._model["vocab"]
        self._special: dict[str, int] = {one["content"]: one["id"] for one in self._settings["added_tokens"]}
        self._limit = limit
        self._splitting = self._knowing({})

    def ids(self, text: str) -> list[int]:
        """The numbers of its tokens, with those that begin and end it."""
        splitting = self._splitting
        plain = splitting.normalizer.normalize_str(text)
        words = {word for word, _ in splitting.pre_tokenizer.pre_tokenize_str(plain)}
        needed = {piece: self._words[piece] for word in words for piece in self._pieces(word)}
        found: list[int] = self._knowing(needed).encode(text).ids
        return found

    def _pieces(self, word: str) -> Iterator[str]:
        """What it may be made of: the longest beginning is taken first, so a word that is known is one piece."""
        if word in self._words:
            yield word
        elif len(word) <= self._model["max_input_chars_per_word"]:
            for start in range(len(word)):
                prefix = self._model["continuing_subword_prefix"] if start else ""
                for end in range(start + 1, len(word) + 1):
                    if (piece := prefix + word[start:end]) in self._words:
                        yield piece

    def _knowing(self, words: dict[str, int]) -> Tokenizer:
        model = {**self._model, "vocab": self._special | words}
        tokenizer = Tokenizer.from_str(orjson.dumps({**self._settings, "model": model}).decode())
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._limit)
        return tokenizer
