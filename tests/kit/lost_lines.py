"""The lines that a run would not reach without some of its tests: `python -m tests.kit.lost_lines 'test_rollback'`.

    python -m coverage run -m pytest -m "not slow" tests/storage/edits     notes which test function reached which line
    python -m tests.kit.lost_lines 'test_rollback|test_purge'              a part of a test's name, or of its module's

What is printed a deleted test loses; where nothing is, others reach the same lines, if not with the same values.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from coverage import Coverage, CoverageData

ROOT = Path(__file__).parents[2]


def lost(data: CoverageData, tests: str) -> Iterator[tuple[str, list[int]]]:
    """(file, lines) that only tests reach whose names have the pattern in them."""
    found = re.compile(tests).search
    for file in sorted(data.measured_files()):
        lines = data.contexts_by_lineno(file).items()
        if only := sorted(line for line, names in lines if names and all(map(found, names))):
            yield file, only


def main(tests: str) -> None:
    data = Coverage(config_file=str(ROOT / "pyproject.toml")).get_data()
    data.read()
    for file, lines in lost(data, tests):
        print(f"{Path(file).relative_to(ROOT)}: {', '.join(map(str, lines))}")


if __name__ == "__main__":
    main(sys.argv[1])
