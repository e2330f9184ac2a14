"""Where a demo writes: into a folder of its own, never over what another has put there."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.jobs.demo.stage import OUTPUT, play
from freshet.pipeline.exceptions import InvalidRequestError


def _demo(folder: Path) -> bool:
    assert not (folder / "rows").exists(), "the folder is empty when a demo begins"
    (folder / "rows").touch()
    return True


@pytest.fixture(autouse=True)
def _current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)


def test_its_own_folder_is_emptied(tmp_path: Path) -> None:
    assert play(_demo, None, "shop") == 0
    assert play(_demo, None, "shop") == 0
    assert (tmp_path / OUTPUT / "shop" / "rows").exists()


@pytest.mark.parametrize("given", [None, OUTPUT / "shop"])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, given: Path | None) -> None:
    kept = tmp_path / OUTPUT / "shop" / "mine"
    kept.parent.mkdir(parents=True)
    kept.touch()
    with pytest.raises(InvalidRequestError, match=f"{kept.parent} is there already.*--output"):
        play(_demo, given, "shop")
    assert kept.exists()


def test_a_folder_that_is_named_must_be_new() -> None:
    assert play(_demo, Path("here"), "shop") == 0
    with pytest.raises(InvalidRequestError, match="here is there already"):
        play(_demo, Path("here"), "shop")


def test_an_interrupted_demo_has_not_shown_anything(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_folder: Path) -> bool:
        raise KeyboardInterrupt

    assert play(interrupted, None, "join") == 130
    assert "nothing is left running" in capsys.readouterr().out
