"""A drawing of boxes and arrows as SVG, from a description in YAML: `docs/pictures/NAME.yaml`.

    title: what the drawing shows, for people who do not see it
    size: [width, height]
    boxes: {name: {at: [x, y], size: [width, height], kind: work, lines: [title, more, …]}}
    arrows: [{from: name.side, to: name.side, label: …, dashed: true}]   sides: left, right, top, bottom
    notes: [{at: [x, y], lines: […], anchor: start | middle | end}]

All lengths are in pixels at full size. A side may say where on it an arrow begins: `commit.bottom@0.25`. An arrow that
is neither level nor upright turns once or twice. Words in backticks are code. The colours follow the reader's scheme,
light or dark; the background is the drawing's own, so that a page of the other scheme does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

FONT_PX: Final = 14
LINE_PX: Final = 19
CODE_WIDTH: Final = 0.61
"""Of an em, for each letter; 0.52 is a generous mean of those of a proportional font."""
TEXT_WIDTH: Final = 0.52
BOX_MARGIN_PX: Final = 8

SCHEMES: Final = {
    "light": {
        "card": "#ffffff", "edge": "#d0d7de", "ink": "#1b1f24", "faint": "#535b65", "line": "#57606a",
        "work": "#d7f2ec", "work-edge": "#0b7a6b", "kept": "#dcebfb", "kept-edge": "#2867b2",
        "proof": "#fdeec2", "proof-edge": "#9a6a00", "lost": "#fde2dd", "lost-edge": "#b3392b",
        "reader": "#ece4fa", "reader-edge": "#6d46b8", "outside": "#eef1f4", "outside-edge": "#6b7580",
        "group": "#ffffff", "group-edge": "#97a3b0",
    },
    "dark": {
        "card": "#14181f", "edge": "#333b46", "ink": "#eef2f6", "faint": "#a9b4c0", "line": "#97a3b0",
        "work": "#123a35", "work-edge": "#3fc1ab", "kept": "#15304f", "kept-edge": "#6cabf0",
        "proof": "#42330c", "proof-edge": "#e0b040", "lost": "#4a1f1a", "lost-edge": "#f0897b",
        "reader": "#2f2348", "reader-edge": "#b497f0", "outside": "#262c35", "outside-edge": "#909ba7",
        "group": "#14181f", "group-edge": "#535b65",
    },
}  # fmt: skip
KINDS: Final = tuple(name for name in SCHEMES["light"] if f"{name}-edge" in SCHEMES["light"])


class DrawingError(Exception):
    """A description that cannot be drawn well: a text wider than its box, an arrow to nowhere."""


def draw(description: Mapping[str, Any], name: str) -> str:
    """The SVG of a description; `name` stands in errors."""
    width, height = description["size"]
    boxes = description.get("boxes", {})
    for key, box in boxes.items():
        if box.get("kind", "work") not in KINDS:
            raise DrawingError(f"{name}: {key} is of no kind that there is: {', '.join(KINDS)}")
        room = box["size"][0] - 2 * BOX_MARGIN_PX
        for line in box.get("lines", ()):
            if text_width(line) > room:
                raise DrawingError(f"{name}: {key}: {line!r} takes {text_width(line):.0f} px and has {room}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(description["title"])}">',
        f"<title>{escape(description['title'])}</title>",
        f"<style>{_style()}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" class="tip"/></marker></defs>',
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" class="card"/>',
    ]
    for box in boxes.values():
        parts += _box(box)
    labels = []
    for arrow in description.get("arrows", ()):
        points = _road(boxes, arrow, name)
        dashed = " dashed" if arrow.get("dashed") else ""
        road = " ".join(f"{x:g},{y:g}" for x, y in points)
        parts.append(f'<polyline points="{road}" class="arrow{dashed}" marker-end="url(#tip)"/>')
        if arrow.get("label"):
            labels += _label(arrow, points)
    parts += labels
    for note in description.get("notes", ()):
        x, y = note["at"]
        for line in note["lines"]:
            reach = x + text_width(line) * {"start": 1, "middle": 0.5, "end": 0}[note.get("anchor", "start")]
            if reach > width - BOX_MARGIN_PX:
                raise DrawingError(f"{name}: the note {line!r} ends at {reach:.0f} px of {width}")
        parts += _lines(note["lines"], x, y, note.get("anchor", "start"), strong=bool(note.get("strong")))
    return "\n".join([*parts, "</svg>"]) + "\n"


def text_width(line: str) -> float:
    """The width of a line of text in pixels, rather too large than too small."""
    return sum(
        len(words) * FONT_PX * (CODE_WIDTH if is_code else TEXT_WIDTH) for words, is_code in _code_and_words(line)
    )


def _style() -> str:
    names = {scheme: ";".join(f"--{key}:{value}" for key, value in SCHEMES[scheme].items()) for scheme in SCHEMES}
    kinds = "".join(f".{kind}{{fill:var(--{kind});stroke:var(--{kind}-edge)}}" for kind in KINDS)
    return (
        f":root{{{names['light']}}}@media(prefers-color-scheme:dark){{:root{{{names['dark']}}}}}"
        f"text{{font:{FONT_PX}px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--ink)}}"
        ".faint{fill:var(--faint)}.strong{font-weight:600}"
        f".code{{font-family:ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace;font-size:{FONT_PX - 1}px}}"
        ".card{fill:var(--card);stroke:var(--edge)}.arrow{fill:none;stroke:var(--line);stroke-width:1.6}"
        ".dashed{stroke-dasharray:5 4}.tip{fill:var(--line)}rect{stroke-width:1.4}"
        ".gap{fill:var(--card)}" + kinds
    )


def _box(box: Mapping[str, Any]) -> Iterator[str]:
    (x, y), (width, height) = box["at"], box["size"]
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{box.get("round", 6)}" '
        f'class="{box.get("kind", "work")}"/>'
    )
    lines = box.get("lines", ())
    at = y + height / 2 - (len(lines) - 1) * LINE_PX / 2 + FONT_PX * 0.35
    yield from _lines(lines, x + width / 2, at, "middle", strong=True)


def _lines(lines: Sequence[str], x: float, y: float, anchor: str, *, strong: bool) -> Iterator[str]:
    for number, line in enumerate(lines):
        is_first = strong and not number
        classes = "strong" if is_first else "faint"
        yield (
            f'<text x="{x:g}" y="{y + number * LINE_PX:g}" text-anchor="{anchor}" class="{classes}">'
            f"{_spans(line)}</text>"
        )


def _spans(line: str) -> str:
    return "".join(
        f'<tspan class="code">{escape(words)}</tspan>' if is_code else escape(words)
        for words, is_code in _code_and_words(line)
    )


def _code_and_words(line: str) -> list[tuple[str, bool]]:
    return [(words, bool(number % 2)) for number, words in enumerate(line.split("`")) if words]


def _label(arrow: Mapping[str, Any], points: list[tuple[float, float]]) -> Iterator[str]:
    middle = len(points) // 2
    (x, y), (to_x, to_y) = points[middle - 1], points[middle]
    move_x, move_y = arrow.get("move", (0, 0))
    x, y, half = (x + to_x) / 2 + move_x, (y + to_y) / 2 + move_y, text_width(arrow["label"]) / 2 + 5
    yield f'<rect x="{x - half:g}" y="{y - 9:g}" width="{2 * half:g}" height="18" class="gap"/>'
    yield f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" class="faint">{_spans(arrow["label"])}</text>'


def _road(boxes: Mapping[str, Any], arrow: Mapping[str, Any], name: str) -> list[tuple[float, float]]:
    (x, y, side), (to_x, to_y, _) = (_end(boxes, arrow[end], name) for end in ("from", "to"))
    if abs(x - to_x) < 1 or abs(y - to_y) < 1:
        return [(x, y), (to_x, to_y)]
    _, _, to_side = _end(boxes, arrow["to"], name)
    is_upright, to_upright = side in ("top", "bottom"), to_side in ("top", "bottom")
    if is_upright != to_upright:
        return [(x, y), (x, to_y) if is_upright else (to_x, y), (to_x, to_y)]
    part = arrow.get("turn", 0.5)
    if is_upright:
        between = y + (to_y - y) * part
        return [(x, y), (x, between), (to_x, between), (to_x, to_y)]
    between = x + (to_x - x) * part
    return [(x, y), (between, y), (between, to_y), (to_x, to_y)]


def _end(boxes: Mapping[str, Any], text: str, name: str) -> tuple[float, float, str]:
    match = re.fullmatch(r"(?P<box>\w+)\.(?P<side>left|right|top|bottom)(?:@(?P<part>[\d.]+))?", text)
    if match is None or match["box"] not in boxes:
        raise DrawingError(f"{name}: {text} is no side of a box")
    (x, y), (width, height) = boxes[match["box"]]["at"], boxes[match["box"]]["size"]
    part = float(match["part"] or 0.5)
    side = match["side"]
    if side in ("left", "right"):
        return x + (width if side == "right" else 0), y + height * part, side
    return x + width * part, y + (height if side == "bottom" else 0), side
