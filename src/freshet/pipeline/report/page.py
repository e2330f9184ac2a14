"""A report as one HTML file: our script makes it of the document, which it holds as JSON.

Names and values come from strangers. They are text wherever they are shown: the script makes elements and their text,
and never reads HTML. Beside that the policy of the page allows no script and no style but those whose hashes it names,
and nothing to be loaded, sent or framed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Freshet report</title>
<style>{library_style}</style>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#tables">Skip to the tables</a>
<main id="report"><noscript>This report is drawn by a script that it brings along; let it run.</noscript></main>
<script type="application/json" id="document">{document}</script>
<!-- uPlot
{licence}-->
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""
_IN_SCRIPTS: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(document: Mapping[str, Any]) -> str:
    """The file of a document, in ASCII but for the script and style of ours."""
    text = json.dumps(document, separators=(",", ":")).translate(_IN_SCRIPTS)
    return _PAGE.format(policy=policy(), document=text, **_assets())


def policy() -> str:
    """The content security policy."""
    assets = _assets()
    scripts = " ".join(_hash(assets[name]) for name in ("library", "script"))
    styles = " ".join(_hash(assets[name]) for name in ("library_style", "style"))
    return f"default-src 'none'; script-src {scripts}; style-src {styles}; base-uri 'none'; form-action 'none'"


@cache
def _assets() -> Mapping[str, str]:
    folder = files(__package__)
    names = {
        "library": "uPlot.iife.min.js",
        "library_style": "uPlot.min.css",
        "licence": "uPlot.LICENSE",
        "script": "report.js",
        "style": "report.css",
    }
    return {name: folder.joinpath(file).read_text("utf-8") for name, file in names.items()}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
