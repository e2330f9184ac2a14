"""What the site has beside its pages (`hooks` in mkdocs.yml): each page as Markdown at its address with `.md`, and
`llms.txt`, which lists them by the sections of the menu.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_SENTENCE = re.compile(r"^[A-Z*`\[].*?\.(?=\s|$)", re.MULTILINE | re.DOTALL)
_NO_TEXT = re.compile(r"^ *```.*?^ *```$|^<!--.*?-->$|^!\[.*$", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"[*`]|\]\([^)]*\)|\[|\{[^}]*\}")
_menu: list[Any] = []


def on_nav(nav: Any, **_: object) -> Any:
    """Keeps the menu, of which `llms.txt` is made."""
    _menu[:] = nav.items
    return nav


def on_post_page(output: str, page: Any, **_: object) -> str:
    """Says in the head of a page where its Markdown is."""
    name = Path(page.file.src_uri).name
    return output.replace("</head>", f'<link rel="alternate" type="text/markdown" href="{name}"></head>', 1)


def on_post_build(config: Any, **_: object) -> None:
    """Copies the sources of all pages into the site, and writes `llms.txt`."""
    sources, site = Path(config.docs_dir), Path(config.site_dir)
    for source in sorted(sources.rglob("*.md")):
        shutil.copyfile(source, site / source.relative_to(sources))
    sections = [("", [each for each in _menu if each.is_page])]
    sections += [(each.title, list(_pages(each))) for each in _menu if each.is_section]
    listed = [
        (title, [(page.title, page.file.src_uri, (sources / page.file.src_uri).read_text("utf-8")) for page in pages])
        for title, pages in sections
    ]
    (site / "llms.txt").write_text(llms_text(config.site_name, listed), encoding="utf-8")


def llms_text(name: str, sections: Iterable[tuple[str, list[tuple[str, str, str]]]]) -> str:
    """The list of pages; a section is (title, [(title, address, Markdown)]), and that without a title comes first."""
    parts = [f"# {name}\n"]
    for title, pages in sections:
        parts.append(f"\n## {title}\n\n" if title else "\n")
        for page, address, text in pages:
            about = first_sentence(text)
            parts.append(f"- [{page}]({address}){f': {about}' if about else ''}\n")
    return "".join(parts)


def first_sentence(text: str) -> str:
    """The first sentence of a page below its title, without marks; empty where there is none."""
    match = _SENTENCE.search(_NO_TEXT.sub("", text.partition("\n")[2]))
    return " ".join(_MARKS.sub("", match[0]).split()) if match else ""


def _pages(section: Any) -> Iterable[Any]:
    for each in section.children:
        if each.is_section:
            yield from _pages(each)
        elif each.is_page:
            yield each
