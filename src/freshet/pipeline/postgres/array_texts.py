"""Arrays as PostgreSQL prints them, `{1,NULL,"a,b"}`, read as lists of texts, all rows of a column at once.

    structure of the bytes, outside of quotes   { , }       found with numpy, quotes by counting them
    what is left of them                        the texts of all elements, one behind the other
    rows with a backslash                       each by itself: a character behind one is no structure

An array of several dimensions, or one that does not begin at 1 (`[0:1]={5,6}`), is no list: it is marked.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.decode.convert.converter import Mask, null_mask

_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{}"\\]+)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_NULL: Final = "NULL"
_QUOTE: Final = ord('"')


class ElementTexts(Frozen):
    """The elements of some rows. `offsets` has a place more than there are rows; rows that are NULL or `bad` have no
    elements."""

    texts: pa.Array
    offsets: npt.NDArray[np.int64]
    nulls: Mask
    bad: Mask | None


def element_texts(arrays: pa.Array, delimiter: str = ",") -> ElementTexts:
    """The elements of a string array of PostgreSQL's arrays."""
    nulls = null_mask(arrays)
    simple = pc.match_substring_regex(arrays, r"^\{[^{}\\]*\}$").fill_null(False).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero(~simple & ~nulls)
    found = _by_structure(arrays if not len(rest) else _only(arrays, simple), delimiter)
    if not len(rest):
        return ElementTexts(*found, nulls, None)
    return _with_each(found, arrays, rest, nulls, delimiter)


def _only(arrays: pa.Array, rows: Mask) -> pa.Array:
    return pc.if_else(pa.array(rows), arrays, pa.scalar(None, arrays.type))


def _by_structure(arrays: pa.Array, delimiter: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The elements of rows without a backslash and without braces in texts, and where those of each row begin."""
    bodies = pc.binary_slice(arrays.cast(pa.binary()).fill_null(b"{}"), 1, -1)
    lengths = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64)
    octets = np.frombuffer(bodies.buffers()[2] or b"", np.uint8)[: lengths.sum()]
    ends = np.cumsum(lengths)
    is_full = lengths > 0
    is_quote = octets == _QUOTE
    is_comma = (octets == ord(delimiter)) & (np.cumsum(is_quote) % 2 == 0)
    commas = np.flatnonzero(is_comma)
    firsts = np.sort(np.concatenate([(ends - lengths)[is_full], commas + 1]))
    is_kept = ~(is_quote | is_comma)
    kept = np.concatenate([[0], np.cumsum(is_kept)])
    offsets = pa.py_buffer(np.append(kept[firsts], kept[-1]).astype(np.int32))
    texts = pa.Array.from_buffers(pa.string(), len(firsts), [None, offsets, pa.py_buffer(octets[is_kept])])
    is_null = pc.equal(texts, _NULL).to_numpy(zero_copy_only=False) & (octets[firsts] != _QUOTE)
    if is_null.any():
        texts = pc.if_else(pa.array(is_null), pa.scalar(None, pa.string()), texts)
    counts = is_full + np.bincount(np.searchsorted(ends, commas, side="right"), minlength=len(lengths))
    return texts, np.concatenate([[0], np.cumsum(counts)])


def _with_each(
    found: tuple[pa.Array, npt.NDArray[np.int64]], arrays: pa.Array, rest: npt.NDArray[np.int64], nulls: Mask, mark: str
) -> ElementTexts:
    """The elements found, with those of other rows."""
    texts, offsets = found
    bad = np.zeros(len(arrays), bool)
    counts = np.diff(offsets)
    others: list[str | None] = []
    places = np.arange(len(texts))
    pieces: list[npt.NDArray[np.int64]] = []
    at = 0
    for row, text in zip(rest.tolist(), arrays.take(pa.array(rest)).to_pylist(), strict=True):
        elements = _each(text, mark)
        pieces += [places[at : offsets[row]], len(texts) + len(others) + np.arange(len(elements or ()))]
        at = int(offsets[row])
        bad[row] = elements is None
        counts[row] = len(elements or ())
        others += elements or ()
    take = np.concatenate([*pieces, places[at:]])
    whole = pa.concat_arrays([texts, pa.array(others, pa.string())]).take(pa.array(take))
    return ElementTexts(whole, np.concatenate([[0], np.cumsum(counts)]), nulls, bad if bad.any() else None)


def _each(text: str, delimiter: str) -> list[str | None] | None:
    """The elements of one array; None where it is no list."""
    if not text.startswith("{"):
        return None
    body, at, found = text[1:-1], 0, list[str | None]()
    while at < len(body):
        match = _ELEMENT.match(body, at)
        if match is None:
            return None  # a brace: of another dimension
        if match[1] is not None:
            found.append(_ESCAPED.sub(r"\1", match[1]))
            at = match.end() + 1
            continue
        end = body.find(delimiter, at)
        word = body[at : len(body) if end < 0 else end]
        if "{" in word or '"' in word:
            return None
        found.append(None if word == _NULL else word)
        at += len(word) + 1
    return found
