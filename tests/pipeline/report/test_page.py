"""The file of a report: one, without outside assets, whose policy names its scripts, whatever the names are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import pytest

from freshet.pipeline.report.page import page, policy

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029",
    "x\udcff",
    "{policy}{document}",
    "\x1b[2J\x00",
    "&lt;b&gt;",
)


def document(text: str) -> dict[str, Any]:
    status: dict[str, Any] = {"pipelines": [], "tables": []}
    return {"place": text, "status": status, "findings": [], "details": {text: {text: [text]}}, "dead_letters": []}


def document_in(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="document">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_is_given_is_in_it_and_opens_nothing(text: str) -> None:
    made = page(document(text))
    assert document_in(made) == document(text)
    plain = page(document("x"))
    for mark in ("<script", "</script", "<!--", "-->", "<style", "\x1b", "\x00"):
        assert made.count(mark) == plain.count(mark), mark
    made.encode()


def test_its_policy_names_what_is_in_it_and_nothing_else() -> None:
    made = page(document("x"))
    scripts, styles = (
        re.findall(r"<script>(.*?)</script>", made, re.DOTALL),
        re.findall(r"<style>(.*?)</style>", made, re.DOTALL),
    )
    assert (len(scripts), len(styles)) == (2, 2)
    said = dict(each.split(" ", 1) for each in policy().split("; "))
    for found, kind in ((scripts, "script-src"), (styles, "style-src")):
        hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in found]
        assert said[kind] == " ".join(f"'sha256-{each}'" for each in hashes)
    assert (said["default-src"], said["base-uri"], said["form-action"]) == ("'none'", "'none'", "'none'")
    assert "unsafe" not in policy() and f'content="{policy()}"' in made


def test_it_loads_nothing_and_reads_no_html() -> None:
    made = page(document("x"))
    assert not re.search(r"""\b(src|href)=["']?(https?:)?//""", made)
    assert not re.search(r"@import|url\(", made)
    script = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)[-1]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|eval|fetch\(|XMLHttp", script)


def test_the_licence_of_the_library_goes_with_it() -> None:
    made = page(document("x"))
    assert "The MIT License" in made and "Copyright (c) 2022 Leon Sorokin" in made
