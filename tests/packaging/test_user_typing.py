"""A script that uses every public verb passes `mypy --strict`, as an editor of its author would run it."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import freshet

SCRIPT = Path(__file__).parent / "user_script.py"
OF_ENGINES = {
    *("engine", "lost_commit", "lost_commits", "repair", "repair_lost_commit", "repair_hash_indexes"),
    *("merge_metrics", "uncommitted_row_count", "last_committed_identifier", "without_log"),
}
"""What scripts hardly call: repairs, and what engines ask."""


def test_the_script_has_every_public_name_and_verb() -> None:
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(freshet.__all__) - imported == {"__version__"}
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for kind in (freshet.Catalog, freshet.Table, freshet.TableTags, freshet.TableScan):
        public = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
        assert public - called - OF_ENGINES == set(), kind


@pytest.mark.slow
def test_mypy_strict(tmp_path: Path) -> None:
    """Freshet is found as an installed package is, on the path of the interpreter: its errors are not the user's."""
    shutil.copy(SCRIPT, tmp_path / "script.py")
    others = "[mypy-pyspark.*,polars.*,duckdb.*]\nfollow_imports = skip\n"  # to read them takes most of the time
    (tmp_path / "mypy.ini").write_text(f"[mypy]\n{others}")
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unreachable", "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(freshet.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
