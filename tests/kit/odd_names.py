"""Names that people do not mean: for databases, tables, columns, tags, options, files and all else that has a name."""

from __future__ import annotations

from typing import Final

_FORGED: Final = "x\n\x1b[2Jfreshet: done"
_OUT: Final = (
    "..", "../x", "../../x", "../../../../../../tmp/freshet-odd", "x/..", "x/../../y", "/x", "/tmp/freshet-odd", "./x",
    "x/", "x/y", "//x", "..\\x", "x\\y", "C:\\x", "~", "~/x", "~root", "file:///tmp/freshet-odd", "s3://bucket/x",
    "%2e%2e%2fx", "..%2Fx", "x%00y", "%", "%41", "%zz",
)  # fmt: skip
_DOTS: Final = (".", "...", ".x", "x.", "x..y", "a.b", "a.b.c", ".db", "x.db", "schema-0", "snapshot-1", "LATEST")
_CONTROL: Final = (
    "\0", "x\0y", "\n", "x\ny", "\r", "x\r\ny", "\t", "x\ty", "\x1b[2J", "\x1b]0;x\x07", "x\x08y", "\x7f", "\x85",
    "\u2028", "\u2029", "\ufeff", "\u200b", "\u202e", "x\u202ey", "\u2066x", "\u00ad", "\x9b31m", "\nfreshet: done",
)  # fmt: skip
_HALF: Final = ("\ud800", "\udfff", "x\ud800y", "\udcff", "\ud83d", "\ude00\ud83d")
_BLANK: Final = ("", " ", "  ", " x", "x ", "x y", "\u00a0", "\u3000", "x\u00a0y")
_LONG: Final = ("x" * 200, "x" * 251, "x" * 256, "x" * 5000, "é" * 130, "漢" * 90, "😀" * 70, "x/" * 200, "." * 300)
_FORMS: Final = (
    "é", "e\u0301", "Å", "\u212b", "ﬁ", "ß", "ẞ", "İ", "ı", "Ω", "\u2126", "漢字", "😀", "👨\u200d👩\u200d👧", "ا",
    "שלום", "a\u0300\u0301\u0302",
)  # fmt: skip
_WORDS: Final = (
    "select", "SELECT", "table", "from", "null", "NULL", "None", "true", "default", "DEFAULT", "__DEFAULT_PARTITION__",
    "main", "CON", "nul", "_KEY_x", "_SEQUENCE_NUMBER", "_VALUE_KIND", "_ROW_KIND", "rowkind", "k", "K", "constructor",
    "__proto__", "bucket-0", "sys",
)  # fmt: skip
_MARKS: Final = (
    "-x", "--x", "--help", "--json", "-", "'", '"', "`", "''", "x'y", 'x"y', "x`y", "';--", "'); DROP TABLE t; --",
    "$(x)", "${HOME}", "$x", "x$files", "x$branch_main", "@x", "x@y", "#x", "x#y", "x?y", "x&y", "x;y", "x|y", "<x>",
    "x=y", "a=b/c=d", "*", "?", "[x]", "{x}", "{0}", "%s", "x,y", "x:y", "!x", "(x", "x)", "\\", "0", "1", "-1",
)  # fmt: skip

ODD_NAMES: Final = tuple(
    dict.fromkeys((_FORGED, *_OUT, *_DOTS, *_CONTROL, *_HALF, *_BLANK, *_LONG, *_FORMS, *_WORDS, *_MARKS))
)
FEW_NAMES: Final = ("../x", _FORGED, "\ud800", "", "x" * 5000, "x'y")
"""Some of each kind, for quick tests."""
