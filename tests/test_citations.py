"""What code and documents cite is in the repository: FORMAT.md, MERGING.md and their sections, and linked files; pages
that must stay short do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STORAGE = ROOT / "src" / "freshet" / "storage"
FOLDERS = ("src/freshet", "tests", "bench", "conf", "docker", "docs")
PLACES = (ROOT, ROOT / "tests", *(ROOT / "src" / "freshet" / room for room in ("storage", "pipeline", "logstore")))
README_LINES_MAX = 150
PAGES = {"FORMAT.md": STORAGE / "FORMAT.md", "MERGING.md": STORAGE / "MERGING.md"}

HEADING = re.compile(r"^#{2,4} (?P<number>\d+(?:\.\d+)*)\.? ", re.MULTILINE)
CITED = re.compile(r"(?P<page>FORMAT\.md|MERGING\.md)\)?\s+(?P<sections>§[\d.]+(?:(?:\s*[,;–-]| and| to)\s*§?[\d.]+)*)")
LINK = re.compile(r"\]\((?P<target>[^)#:\s]+)(?:#[^)]*)?\)")
MODULE = re.compile(r"`((?:[a-z_0-9]+/)+[A-Za-z_0-9]+)(?:\.py|\.md)?`")
NOT_HERE = re.compile(r"(?i)\b(table format|lsm semantics|real parts|design) §|\bstyle anchors\b|\blog-store\.md\b")


def _files(*endings: str) -> list[Path]:
    found = [ROOT / "README.md"] if ".md" in endings else []
    for folder in FOLDERS:
        found += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings and path.is_file()]
    return [path for path in found if path != Path(__file__) and path not in PAGES.values()]


@pytest.mark.parametrize("page", PAGES)
def test_cited_sections_are_there(page: str) -> None:
    sections = {match["number"] for match in HEADING.finditer(PAGES[page].read_text(encoding="utf-8"))}
    assert len(sections) > 20
    cited = 0
    missing = []
    for path in _files(".py", ".md", ".java"):
        for match in CITED.finditer(path.read_text(encoding="utf-8")):
            if match["page"] != page:
                continue
            for number in re.findall(r"\d+(?:\.\d+)*", match["sections"]):
                cited += 1
                if number not in sections:
                    missing.append(f"{path.relative_to(ROOT)}: {page} §{number}")
    assert not missing, "\n".join(missing)
    assert cited > 20


def test_nothing_cites_what_is_not_in_the_repository() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in _files(".py", ".md", ".java", ".yaml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NOT_HERE.search(line)
    ]
    assert not found, "\n".join(found)


def test_links_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {match['target']}"
        for path in [*_files(".md"), *PAGES.values()]
        for match in LINK.finditer(path.read_text(encoding="utf-8"))
        if not (path.parent / match["target"]).exists()
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("room", ["storage", "pipeline", "logstore"])
def test_the_readme_of_a_room_is_short(room: str) -> None:
    lines = (ROOT / "src" / "freshet" / room / "README.md").read_text(encoding="utf-8").count("\n")
    assert lines <= README_LINES_MAX, "move what explains to docs/, and leave a link"


def test_every_area_of_decisions_is_in_the_index_and_every_decision_is_dated() -> None:
    folder = ROOT / "docs" / "decisions"
    areas = {path.name for path in folder.glob("*.md")} - {"index.md"}
    assert areas == set(LINK.findall((folder / "index.md").read_text(encoding="utf-8")))
    for name in areas:
        titles, dates = (
            re.findall(pattern, (folder / name).read_text(encoding="utf-8"), re.MULTILINE)
            for pattern in (r"^## .+$", r"^\*[A-Z][a-z]+ 20\d\d · `.+`\*$")
        )
        assert len(titles) == len(dates) > 0, name


def test_cited_modules_are_there() -> None:
    """Pages say where the code is; decisions are dated records, whose code may have moved since."""
    cited = 0
    missing = []
    for path in _files(".md"):
        if (path.is_relative_to(ROOT / "docs") and path.parent.name != "decisions") or path.name == "README.md":
            for name in MODULE.findall(path.read_text(encoding="utf-8")):
                cited += 1
                places = [place / f"{name}{ending}" for place in PLACES for ending in ("", ".py", ".md")]
                if not any(place.exists() for place in places):
                    missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert not missing, "\n".join(missing)
    assert cited > 100
