"""The smallest pipeline file that runs: JSON files of a folder into a table with one column."""

from __future__ import annotations

from typing import Final

TEXT: Final = """\
name: orders
sources:
  - files: {path: "FOLDER/in"}
    format: json
table: {warehouse: "FOLDER/w", name: s.t, columns: {id: BIGINT}, primary_key: [id], options: {bucket: 1}}
trigger: {available_now: true}
checkpoint: "FOLDER/c"
"""
"""`FOLDER` is to be replaced."""
