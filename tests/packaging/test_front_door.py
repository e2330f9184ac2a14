"""What `import freshet` gives where Spark is not installed, in a process of its own: this one may have loaded it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import freshet

WITHOUT_SPARK = "import sys; sys.modules['pyspark'] = None\n"


def run(program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(freshet.__file__).parents[1])}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.dear("two processes import everything")
def test_everything_that_is_there_can_be_imported_at_once() -> None:
    done = run(f"{WITHOUT_SPARK}from freshet import *\nprint(Catalog.__name__, col('id') == 1, 'register' in dir())")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Catalog ")
    assert done.stdout.endswith(" False\n")
    done = run("from freshet import *\nprint(register.__name__, table_sink.__name__)")
    assert done.stdout == "register table_sink\n", done.stderr


def test_the_extra_of_a_name_that_needs_spark_is_told() -> None:
    done = run(f"{WITHOUT_SPARK}from freshet import table_sink")
    assert "freshet.table_sink needs pyspark" in done.stderr
    assert "pip install '.[spark]'" in done.stderr


@pytest.mark.slow
def test_members_can_be_listed() -> None:
    done = run(f"{WITHOUT_SPARK}import freshet, inspect\nprint('Catalog' in dict(inspect.getmembers(freshet)))")
    assert done.stdout == "True\n", done.stderr
