"""`freshet` on the package index is another project's: what happens where its `freshet/__init__` and ours meet."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import freshet

OURS = Path(freshet.__file__).parent
THEIRS = "class Freshet: pass\n__all__ = ['Freshet']\n"
REMEDY = "pip uninstall freshet-lake freshet, then install the one you need"


def run(site: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Python with these site packages and the libraries of this one; path files, of editable installs, are not read."""
    path = [str(site), sysconfig.get_path("purelib")]
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {path}; {program}"]
    return subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Site packages with our files, but for `freshet/__init__.py`."""
    (tmp_path / "freshet").mkdir()
    for entry in OURS.iterdir():
        if entry.name not in ("__init__.py", "__pycache__"):
            (tmp_path / "freshet" / entry.name).symlink_to(entry)
    return tmp_path


def installed(site: Path, name: str, version: str) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")


COMMAND = "pipeline.commands.command_line"


@pytest.mark.parametrize("module", ["storage.catalog", "logstore.topic_logs", COMMAND, "__main__", "jobs.run_pipeline"])
def test_our_modules_refuse_the_init_of_the_other_project(module: str, site: Path) -> None:
    init = site / "freshet" / "__init__.py"
    init.write_text(THEIRS, encoding="utf-8")
    installed(site, "freshet", "9.8.7")
    done = run(site, f"import freshet; assert freshet.Freshet; import freshet.{module}")
    assert f"ImportError: the distribution 'freshet' 9.8.7 overwrote {init} of 'freshet-lake'" in done.stderr
    assert REMEDY in done.stderr


def test_an_init_that_uninstalling_the_other_project_removed(site: Path) -> None:
    done = run(site, "import freshet.storage.catalog")
    assert "has no __init__.py beside it: uninstalling the distribution 'freshet'" in done.stderr
    assert REMEDY in done.stderr


def test_our_init_over_that_of_the_other_project(site: Path) -> None:
    """Ours works; who asks for a name of the other project learns why it is not there."""
    (site / "freshet" / "__init__.py").symlink_to(OURS / "__init__.py")
    (site / "freshet" / "flow.py").write_text("", encoding="utf-8")
    installed(site, "freshet", "9.8.7")
    installed(site, "freshet-lake", "1.2.3")
    done = run(site, "from freshet import Catalog, __version__, flow, storage; print(__version__)")
    assert done.stdout == "1.2.3\n", done.stderr
    done = run(site, "from freshet import Freshet")
    assert "'freshet-lake' overwrote freshet/__init__.py of the distribution 'freshet' 9.8.7" in done.stderr
    assert REMEDY in done.stderr


def test_a_name_that_nobody_has_is_an_attribute_error() -> None:
    assert not hasattr(freshet, "_nothing")
    with pytest.raises(AttributeError, match="module 'freshet' has no name '__nothing__'"):
        freshet.__getattr__("__nothing__")
