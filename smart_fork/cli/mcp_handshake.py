"""Answers to an MCP client's first requests, from a file and with almost nothing imported.

The complete server takes a second to import. Tools that an agent has not listed by then are missing in its first
request to the model. Most agents never call a tool, so only a request without an answer in the file starts the server.
"""

from __future__ import annotations

import json
import os
import sys
from binascii import b2a_base64

TYPE_CHECKING = False  # `typing` takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, BinaryIO

#: The file with ready answers to a client's first requests. ``scripts/catalogue.py`` writes it.
CATALOGUE = os.path.join(os.path.dirname(__file__), "mcp.json")  # noqa: PTH118, PTH120 - pathlib takes longer than we
#: The environment variable that sets which tools are listed if no option does.
VARIABLE = "SMART_FORK_TOOLS"
FEW, ALL = "few", "all"
#: The keys with which a client introduces itself in a protocol without a handshake.
_ENVELOPE, _OF_THE_CLIENT = "io.modelcontextprotocol", ("protocolVersion", "clientInfo", "clientCapabilities")
#: Keys of JSON-RPC messages: each message has one of them.
_SPEAK = {"method", "result", "error"}


def serve(options: Sequence[str]) -> list[str] | None:
    """Answer requests on stdin until one comes that has no answer in the catalogue (a file of ready answers).

    Return the arguments that start the complete MCP server with the unanswered input; `None` if `options` are not known
    here. If the client closes stdin, end this process.
    """
    tools = wanted(options)
    if tools is None:
        return None
    lines = _Input()
    try:
        with open(CATALOGUE, "rb") as file:  # noqa: PTH123
            catalogue = json.load(file)
        hello, rest = greet(lines, sys.stdout.buffer, catalogue, tools)
    except BrokenPipeError:  # nobody listens any more
        os._exit(0)
    except KeyboardInterrupt:
        os._exit(130)
    if rest is None:
        os._exit(0)
    return ["--tools", tools, "--begun", encoded_start(hello or b"", rest + lines.rest)]


def encoded_start(hello: bytes, rest: bytes) -> str:
    """Encode the start of an MCP conversation as a command-line argument for the complete MCP server.

    `hello` is the answered ``initialize`` request, `rest` the unanswered input after it.
    """
    return f"{b2a_base64(hello, newline=False).decode()}.{b2a_base64(rest, newline=False).decode()}"


class _Input:
    """An iterator over the lines of stdin. `rest` is the input after the last line that it has yielded."""

    def __init__(self) -> None:
        self.rest = b""

    def __iter__(self) -> Iterator[bytes]:
        while piece := os.read(0, 1 << 16):
            self.rest += piece
            while b"\n" in self.rest:
                line, _, self.rest = self.rest.partition(b"\n")
                yield line + b"\n"
        if self.rest:
            line, self.rest = self.rest, b""
            yield line


def wanted(options: Sequence[str]) -> str | None:
    """Return the tools to list, `FEW` or `ALL`; `None` if `options` are anything but a valid ``--tools``."""
    said = [word for option in options for word in option.split("=", 1)]
    if not said:
        return ALL if os.environ.get(VARIABLE, "").strip().lower() == ALL else FEW
    return said[1] if len(said) == 2 and said[0] == "--tools" and said[1] in (FEW, ALL) else None


def greet(
    lines: Iterable[bytes], out: BinaryIO, catalogue: dict[str, Any], tools: str
) -> tuple[bytes | None, bytes | None]:
    """Answer the requests in `lines` on `out` from the `catalogue`, until one has no answer there.

    Return the line of the ``initialize`` request, if any, and the first unanswered line; `None` if `lines` ended.
    """
    known: dict[str, dict[str, Any]] = {
        "ping": {},
        "tools/list": {"tools": listed(catalogue, tools)},
        "prompts/list": {"prompts": catalogue["prompts"]},
        "resources/list": {"resources": catalogue["resources"]},
        "resources/templates/list": {"resourceTemplates": catalogue["resourceTemplates"]},
    }
    discovered = catalogue["discovered"]
    #: The further keys of each answer in a protocol without a handshake.
    modern = {name: discovered[name] for name in ("cacheScope", "resultType", "ttlMs", "_meta")}
    of_all = {method: known[method] | modern for method in ("tools/list", "prompts/list")}
    of_all["server/discover"] = discovered
    hello = None
    for line in lines:
        message = _message(line)
        if message is None:
            from smart_fork.system.json_rpc import RpcMessage

            if (answer := RpcMessage.refusal(line)) is not None:
                _say(answer.line, out)
            continue
        if "id" not in message or "method" not in message:
            continue  # only a request is answered, and there is nobody yet who could be told anything
        method, params = message["method"], message.get("params") or {}
        if hello is None and method in of_all and _introduces_client(params, discovered):
            _answer(message["id"], of_all[method], out)
            continue
        if (method == "initialize") is (hello is None) and _is_plain(method, params) and _is_clean(line, params):
            if method == "initialize":
                hello = line
                known[method] = _welcome(catalogue, params["protocolVersion"])
            result = known.get(method)
            if result is not None:
                _answer(message["id"], result, out)
                continue
        return hello, line
    return hello, None


def _answer(number: str | int, result: dict[str, Any], out: BinaryIO) -> None:
    said = {"jsonrpc": "2.0", "id": number, "result": result}
    _say(json.dumps(said, separators=(",", ":")).encode(), out)


def _say(line: bytes, out: BinaryIO) -> None:
    out.write(line + b"\n")
    out.flush()


def listed(catalogue: dict[str, Any], tools: str) -> list[dict[str, Any]]:
    """Return the MCP tools of the `catalogue` that `tools` selects: `FEW`, or `ALL`."""
    return [one for one in catalogue["tools"] if tools == ALL or one["name"] in catalogue["few"]]


def _welcome(catalogue: dict[str, Any], version: str) -> dict[str, Any]:
    versions = catalogue["versions"]
    return {"protocolVersion": version if version in versions else versions[-1], **catalogue["welcome"]}


def _is_plain(method: str, params: dict[str, Any]) -> bool:
    """Return True if the `params` of a request are only the usual ones, so that a ready answer fits."""
    if method != "initialize":
        return not params.keys() - {"_meta"}
    who = params.get("clientInfo")
    return (
        isinstance(params.get("protocolVersion"), str)
        and isinstance(params.get("capabilities"), dict)
        and isinstance(who, dict)
        and isinstance(who.get("name"), str)
        and isinstance(who.get("version"), str)
    )


def _introduces_client(params: dict[str, Any], discovered: dict[str, Any]) -> bool:
    """Return True if `params` name the client and a supported protocol version, as without ``initialize``."""
    meta = params.get("_meta")
    if params.keys() != {"_meta"} or not isinstance(meta, dict):
        return False
    version, client, abilities = (meta.get(f"{_ENVELOPE}/{name}") for name in _OF_THE_CLIENT)
    who = isinstance(client, dict) and isinstance(client.get("name"), str) and isinstance(client.get("version"), str)
    return who and isinstance(abilities, dict) and version in discovered["supportedVersions"]


def _is_clean(line: bytes, params: dict[str, Any]) -> bool:
    """Return True if every JSON parser accepts `line`, even one that rejects lone surrogates, NaN or deep nesting."""
    try:
        json.dumps(params, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return line.count(b"{") + line.count(b"[") < 100


def _message(line: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC message in `line`; `None` if the line is not a valid one."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not message.keys() & _SPEAK:
        return None
    number, method, params = message.get("id", 0), message.get("method", ""), message.get("params", {})
    known = isinstance(number, (str, int)) and not isinstance(number, bool)
    return message if known and isinstance(method, str) and isinstance(params, (dict, type(None))) else None
