"""In CI whatever a test needs and does not find is a failure; elsewhere the test is skipped and says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.components import missing

ROOT = Path(__file__).parents[1]
PASSES = "import pytest\ndef test_a(): pass\n@pytest.mark.xfail(strict=True)\ndef test_b(): assert False"
SKIPPED = {
    "needs": "from tests.kit.components import missing\ndef test_a(): missing('Flink', 'make venv-flink')",
    "skips": "import pytest\ndef test_a(): pytest.skip('no Flink')",
    "fixture": "import pytest\n@pytest.fixture\ndef flink(): pytest.skip('no Flink')\ndef test_a(flink): pass",
    "mark": "import pytest\n@pytest.mark.skipif(True, reason='no Flink')\ndef test_a(): pass",
    "module": "import pytest\npytest.importorskip('flink_that_is_nowhere')",
    "module level": "import pytest\npytest.skip('no Flink', allow_module_level=True)",
}


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    for number, text in enumerate([*SKIPPED.values(), PASSES]):
        (folder / f"test_{number}.py").write_text(text + "\n")
    program = [sys.executable, "-m", "pytest", "-p", "tests.kit.components", "-rfE", "-c", "/dev/null", "."]
    others = {name: value for name, value in os.environ.items() if name != "CI"}
    program.append("--continue-on-collection-errors")
    environment = {**others, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.dear("runs pytest in a process of its own")
def test_what_is_skipped_elsewhere_fails_in_ci(tmp_path: Path) -> None:
    """What passes or is expected to fail is the same everywhere."""
    done = run(tmp_path)
    assert "1 passed, 6 skipped, 1 xfailed" in done.stdout, done.stdout
    assert done.returncode == 0
    done = run(tmp_path, CI="true")
    assert "2 failed, 1 passed, 1 xfailed, 4 errors" in done.stdout, done.stdout
    assert done.returncode == 1
    for name, number in zip(SKIPPED, range(len(SKIPPED)), strict=True):
        lines = [line for line in done.stdout.splitlines() if f"test_{number}.py" in line]
        assert any("FAILED" in line or "ERROR" in line for line in lines), name
    assert done.stdout.count("in CI nothing is") >= len(SKIPPED)


def test_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="polars is missing: make frames"):
        missing("polars", "make frames")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="polars is missing: make frames .in CI nothing is skipped"):
        missing("polars", "make frames")
