"""A page as a browser shows it: Chromium without a window, and what is in the page once its scripts have run."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from tests.kit.components import missing

_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000")
_EMPTY = frozenset({"meta", "br", "input", "link", "img"})


class Node:
    """An element: its name, attributes, and the elements and texts in it."""

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Node | str] = []

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    def all(self, tag: str | None = None, **attributes: str | None) -> list[Node]:
        """The elements below with these attributes (`data_fact` is data-fact; None: whatever the value)."""
        wanted = {name.replace("_", "-").strip("-"): value for name, value in attributes.items()}
        found: list[Node] = []
        for child in self.children:
            if isinstance(child, Node):
                fits = all(k in child.attributes and v in (None, child.attributes[k]) for k, v in wanted.items())
                found += [child] if fits and tag in (None, child.tag) else []
                found += child.all(tag, **attributes)
        return found

    def one(self, tag: str | None = None, **attributes: str | None) -> Node:
        """The only such element."""
        (found,) = self.all(tag, **attributes)
        return found


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in _EMPTY:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        while len(self.open) > 1 and self.open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def with_script(page: str, script: str) -> str:
    """The page with one more script, which its policy allows."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    return page.replace("</body>", f"<script>{script}</script></body>", 1)


def looked_at(page: str, folder: Path, *options: str, fragment: str = "") -> tuple[Node, list[str]]:
    """The page in a window of 1280 × 900 unless options say otherwise, and what the browser complained of."""
    file = folder / "page.html"
    file.write_text(page, "utf-8")
    return look(f"{file.as_uri()}{fragment}", folder, *options)


def look(address: str, folder: Path, *options: str) -> tuple[Node, list[str]]:
    """The same of an address."""
    done = run(folder, "--enable-logging=stderr", "--window-size=1280,900", *options, "--dump-dom", address)
    tree = _Tree()
    tree.feed(done.stdout)
    return tree.open[0], re.findall(r"CONSOLE[^\"]*\"(.*)\", source", done.stderr)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Chromium with a profile of its own."""
    command = [_program(), *_OPTIONS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=180, check=True)


def _program() -> str:
    names: Sequence[str] = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    return found or missing("chromium", "apt-get install chromium")
