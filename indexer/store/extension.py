"""sqlite-vec in a connection. Its file is loaded by its path: its Python module would import NumPy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import apsw

from indexer.errors import IndexerError

_PACKAGE, _FILE = "sqlite_vec", "vec0"


class VectorsUnavailableError(IndexerError):
    """sqlite-vec cannot be loaded, so vectors can neither be searched nor kept."""

    code = "vectors_unavailable"
    usual_hint = "Reinstall smart-fork with its dependencies, or `sqlite-vec` alone; search uses words only until then."

    def __init__(self, reason: str) -> None:
        super().__init__(f"sqlite-vec cannot be loaded: {reason}")


def load(db: apsw.Connection) -> None:
    """Let this connection read and write vec0 tables.

    Raises:
        VectorsUnavailableError: there is no such file, or it is none for this system.
    """
    path = loadable()
    try:
        db.enable_load_extension(enable=True)
        try:
            db.load_extension(str(path))
        finally:
            db.enable_load_extension(enable=False)
    except apsw.Error as error:
        raise VectorsUnavailableError(str(error)) from error


def is_loaded(db: apsw.Connection) -> bool:
    """Whether this connection knows vec0 tables."""
    return bool(db.execute("SELECT count(*) FROM pragma_module_list WHERE name = 'vec0'").get)


def loadable() -> Path:
    """The file without its ending, which SQLite adds.

    Raises:
        VectorsUnavailableError: the package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise VectorsUnavailableError(f"the package {_PACKAGE} is not installed")
    return Path(spec.submodule_search_locations[0]) / _FILE
