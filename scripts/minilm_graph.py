"""The default model as an ONNX graph: ``python scripts/minilm_graph.py`` writes indexer/minilm.onnx.

The graph holds no weights. It names the place of each in the packaged ``model.safetensors``, whose SHA-256 is checked
before it is used, so that onnxruntime maps that file instead of a second copy of its 90 MB.

Long texts go through it one at a time: on a processor that is faster than batches, whose intermediate results leave the
cache. Short ones go through it together, one behind the other, so that the weights are read once for all of them. None
is padded: a token looks only at those of its own text.

In a product the weights stand on the left, as they lie in the file, and the tokens on the right: what is on the right
is laid out anew each time, and of a question that is far less than of the weights. So what such a product gives has a
row for each feature and a column for each token.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from indexer.embedder import packaged_model

GRAPH = Path(__file__).resolve().parent.parent / "indexer" / "minilm.onnx"
WEIGHTS = "model.safetensors"
LAYERS, HEADS, DIMENSIONS = 6, 12, 384
HEAD = DIMENSIONS // HEADS
#: How far apart tokens of two texts are: exp(-50) is nothing beside 1. With much more, nothing would be numbers so
#: small that a processor takes ten times as long for them.
FAR = 50
#: The first version of ONNX's operators that has Gelu, and the file format that came with it.
OPERATORS, FORMAT = 20, 9


class _Graph:
    """Operators and constants in the order in which they are named."""

    def __init__(self, weights: Path) -> None:
        with weights.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self._places: dict[str, Any] = json.loads(file.read(size))
        self._start = 8 + size
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def weight(self, name: str, *more: int) -> str:
        """A tensor of the weights, where it lies, with `more` dimensions at the end of its shape."""
        begin, end = self._places[name]["data_offsets"]
        shape = [*self._places[name]["shape"], *more]
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", WEIGHTS), ("offset", self._start + begin), ("length", end - begin)):
            tensor.external_data.add(key=key, value=str(value))
        self.constants[name] = tensor
        return name

    def constant(self, name: str, *numbers: int) -> str:
        """A short list of integers."""
        values: NDArray[np.int64] = np.array(numbers, np.int64)
        self.constants[name] = numpy_helper.from_array(values, name)
        return name

    def number(self, name: str, value: float) -> str:
        """A number among those of the model."""
        self.constants[name] = numpy_helper.from_array(np.array(value, np.float32), name)
        return name

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """An operator with one output, whose name is returned."""
        output = name or f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output


def model() -> onnx.ModelProto:
    """Texts -> their unit vectors, shape (texts, 384).

    Each token has its id, its place in its text, and in `texts`, shape (texts, tokens), a 1 in the row of its text.
    """
    graph = _Graph(packaged_model() / WEIGHTS)
    hidden = _embeddings(graph)
    several = graph.add("Greater", graph.add("Shape", "texts", start=0, end=1), graph.constant("one text", 1))
    apart = _apart(graph)
    for layer in range(LAYERS):
        hidden = _layer(graph, hidden, several, apart, f"encoder.layer.{layer}")
    graph.add("LpNormalization", graph.add("MatMul", "texts", hidden), name="vector", axis=-1, p=2)
    given = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["tokens"]),
        helper.make_tensor_value_info("places", TensorProto.INT64, ["tokens"]),
        helper.make_tensor_value_info("texts", TensorProto.FLOAT, ["texts", "tokens"]),
    ]
    vector = helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["texts", DIMENSIONS])
    whole = helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", given, [vector], list(graph.constants.values()))
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPERATORS)], ir_version=FORMAT)


def _embeddings(graph: _Graph) -> str:
    first, second = graph.constant("0", 0), graph.constant("1", 1)
    words = graph.add("Gather", graph.weight("embeddings.word_embeddings.weight"), "ids")
    places = graph.add("Gather", graph.weight("embeddings.position_embeddings.weight"), "places")
    kinds = graph.weight("embeddings.token_type_embeddings.weight")
    kinds = graph.add("Slice", kinds, first, second, first)  # there is one sentence, so all are of the first kind
    return _norm(graph, graph.add("Add", graph.add("Add", words, places), kinds), "embeddings.LayerNorm")


def _apart(graph: _Graph) -> str:
    """For two tokens 0, or where they are of two texts what makes their likeness count nothing."""
    same = graph.add("MatMul", graph.add("Transpose", "texts", perm=[1, 0]), "texts")
    return graph.add("Mul", graph.add("Sub", same, graph.number("same", 1)), graph.number("far", FAR))


def _layer(graph: _Graph, hidden: str, several: str, apart: str, name: str) -> str:
    """One row a token, and so again."""
    attended = _attention(graph, hidden, several, apart, f"{name}.attention.self")
    attended = _linear(graph, attended, f"{name}.attention.output.dense")
    hidden = _norm(graph, graph.add("Add", _turned(graph, attended), hidden), f"{name}.attention.output.LayerNorm")
    inner = graph.add("Gelu", _linear(graph, hidden, f"{name}.intermediate.dense", by_token=True))
    outer = _linear(graph, inner, f"{name}.output.dense")
    return _norm(graph, graph.add("Add", _turned(graph, outer), hidden), f"{name}.output.LayerNorm")


def _attention(graph: _Graph, hidden: str, several: str, apart: str, name: str) -> str:
    """One row a token -> one column a token."""
    split, together = graph.constant("heads", HEADS, HEAD, -1), graph.constant("features", DIMENSIONS, -1)

    def part(which: str, scale: float = 1.0) -> str:
        return graph.add("Reshape", _linear(graph, hidden, f"{name}.{which}", scale, by_token=True), split)

    query = _turned(graph, part("query", 1 / math.sqrt(HEAD)), heads=True)
    likeness = graph.add("MatMul", query, part("key"))
    shares = graph.add(
        "If", several, then_branch=_shares(f"{name}.several", likeness, apart), else_branch=_shares(name, likeness)
    )
    values = graph.add("MatMul", shares, _turned(graph, part("value"), heads=True))
    return graph.add("Reshape", _turned(graph, values, heads=True), together)


def _shares(name: str, likeness: str, *apart: str) -> onnx.GraphProto:
    """How much of each token another one takes over. One text has nothing to keep apart."""
    kept = [helper.make_node("Add", [likeness, *apart], [f"{name}.likeness"])] if apart else []
    nodes = [
        *kept,
        helper.make_node("Softmax", [f"{name}.likeness" if apart else likeness], [f"{name}.shares"], axis=-1),
    ]
    shares = helper.make_tensor_value_info(f"{name}.shares", TensorProto.FLOAT, [HEADS, "tokens", "tokens"])
    return helper.make_graph(nodes, name, [], [shares])


def _linear(graph: _Graph, hidden: str, name: str, scale: float = 1.0, *, by_token: bool = False) -> str:
    """One column a token; `by_token` says that `hidden` has a row for each."""
    weight, bias = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias", 1)
    return graph.add("Gemm", weight, hidden, bias, transB=int(by_token), alpha=scale, beta=scale)


def _turned(graph: _Graph, values: str, *, heads: bool = False) -> str:
    """Rows for columns, in each head."""
    return graph.add("Transpose", values, perm=[0, 2, 1] if heads else [1, 0])


def _norm(graph: _Graph, hidden: str, name: str) -> str:
    weight, bias = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
    return graph.add("LayerNormalization", hidden, weight, bias, axis=-1, epsilon=1e-12)


if __name__ == "__main__":
    GRAPH.write_bytes(model().SerializeToString(deterministic=True))
