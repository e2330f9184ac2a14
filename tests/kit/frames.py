"""pandas, polars and DuckDB for the tests that need them. They lie in a folder of their own (`make frames`).

Freshet, its tests and Spark's workers run without them: that is how most people have it, and PySpark does other things
where it finds pandas.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tests.kit.components import missing

FOLDER = Path(__file__).parents[2] / ".frames"


def frame_library(name: str) -> Any:
    """One of them, from the folder unless Python finds it elsewhere; from then on this process has it."""
    if FOLDER.is_dir() and str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        missing(name, "make frames")
    finally:
        if str(FOLDER) in sys.path:
            sys.path.remove(str(FOLDER))
