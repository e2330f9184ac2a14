"""The pictures of README and site, made from text: `python -m tests.docs.pictures` (`make reference`).

They are committed, and a test compares them with what they are made from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from tests.docs.drawing import draw
from tests.docs.page import ROOT
from tests.docs.terminal import RECORDING, terminal

FOLDER: Final = ROOT / "docs" / "pictures"


def pictures() -> dict[Path, str]:
    """The SVG that each file is to hold."""
    drawn = {
        source.with_suffix(".svg"): draw(yaml.safe_load(source.read_text(encoding="utf-8")), source.name)
        for source in sorted(FOLDER.glob("*.yaml"))
    }
    return {**drawn, RECORDING.with_suffix(".svg"): terminal(RECORDING.read_text(encoding="utf-8"))}


def main() -> None:
    for path, text in pictures().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
