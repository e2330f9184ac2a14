"""Fails if a page of the built site loads anything from another place: `python tests/docs/outside_assets.py SITE`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PLACE = r"[\"']?(?:https?:)?//[^\"'\s>]+"
LOADED = re.compile(
    rf"<(?:script|img|iframe|source)\b[^>]*\bsrc={PLACE}"
    rf"|<link\b[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon)\b[^>]*\bhref={PLACE}"
)


def main(folder: str) -> int:
    pages = sorted(Path(folder).rglob("*.html"))
    found = [f"{page}: {match[0]}" for page in pages for match in LOADED.finditer(page.read_text(encoding="utf-8"))]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
