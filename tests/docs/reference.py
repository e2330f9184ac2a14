"""The reference pages of the site, made from the code: `python -m tests.docs.reference` (`make reference`).

They are committed, so that the repository reads as well, and a test compares them.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import freshet
from freshet.pipeline.commands import command_line
from freshet.pipeline.commands.command_list import PANELS
from tests.docs.page import ROOT
from tests.kit import metric_list, option_list, option_statuses, postgres_type_list, system_table_list

FOLDER: Final = ROOT / "docs" / "reference"
MADE: Final = "This page is made from the code (`make reference`); do not edit it."
REFERENCE_FILES: Final = {
    "Records into a table": "reference.yaml",
    "A database into tables": "reference-sync.yaml",
    "A PostgreSQL database": "reference-postgres.yaml",
    "A table into a table": "reference-table.yaml",
}
_CONTROL: Final = re.compile(r"\s+")
_SENTENCES: Final = re.compile(r"(?<=[.:])\s+(?=[A-Z`])")
_ABOUT: Final = re.compile(r"(?:With |Where |If )?`(?P<name>\w+)`")


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = [
        f"# Commands\n\n{MADE} `freshet COMMAND --help` shows the same in a terminal. Exit codes are in "
        "[Errors and exit codes](errors.md); `--debug`, anywhere in a call, adds the traceback of an error.\n"
    ]
    for panel, listed in PANELS.items():
        parts.append(f"\n## {panel}\n")
        parts += [_command(name) for name in listed]
    return "".join(parts)


def _command(name: str) -> str:
    command = command_line._loaded(name)
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    words = " ".join(_argument(each) for each in arguments)
    lines = [f"\n### freshet {name}\n\n`{f'freshet {name} {words}'.rstrip()}`\n\n{_markdown(command.help)}\n"]
    rows = [(each, "/".join([*each.opts, *each.secondary_opts])) for each in command.params if each.help]
    if rows:
        lines.append("\n| | |\n|---|---|\n")
    for each, text in rows:
        default = f" Default: `{each.default}`." if isinstance(each.default, str | int | float) and each.default else ""
        lines.append(f"| `{text}` | {_cell(each.help)}{default if 'efault' not in each.help else ''} |\n")
    return "".join(lines)


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().rstrip(".")
    text = f"{name}…" if argument.nargs != 1 else name
    return text if argument.required else f"[{text}]"


def pipeline_keys_page() -> str:
    """The annotated pipeline files."""
    parts = [
        f"# Keys of pipeline files\n\n{MADE} `freshet check FILE` says what is wrong with a file, with the line.\n"
    ]
    for title, name in REFERENCE_FILES.items():
        text = (ROOT / "conf" / name).read_text(encoding="utf-8")
        parts.append(f"\n## {title}\n\n`conf/{name}`:\n\n```yaml\n{text}```\n")
    return "".join(parts)


def python_page() -> str:
    """Every public name of `freshet`."""
    parts = [f"# Python API\n\n{MADE} Everything is imported from `freshet`.\n"]
    names = [name for name in freshet.__all__ if not name.startswith("__")]
    objects = {name: getattr(freshet, name) for name in names}
    functions = [name for name in names if inspect.isroutine(objects[name])]
    errors = [name for name in names if _is_error(objects[name])]
    constants = [name for name in names if isinstance(objects[name], str)]
    classes = [name for name in names if name not in {*functions, *errors, *constants}]
    for name in sorted(classes, key=lambda each: (each not in ("Catalog", "Table"), each)):
        parts.append(f"\n## {name}\n\n{_markdown(inspect.getdoc(objects[name]))}\n")
        if inspect.isclass(objects[name]):
            parts += _members(objects[name])
    parts.append("\n## Functions\n")
    parts += [_function(name, objects[name], "###") for name in functions]
    parts.append("\n## Errors\n\n| | |\n|---|---|\n")
    parts += [f"| `{name}` | {_cell(inspect.getdoc(objects[name]) or '')} |\n" for name in errors]
    parts.append("\n## Columns\n\n| | |\n|---|---|\n")
    parts += [f"| `{name}` | `{objects[name]}` |\n" for name in constants]
    return "".join(parts)


def _members(found: type) -> Iterator[str]:
    properties = []
    bases = [each for each in found.__mro__ if each.__module__.startswith("freshet.")]
    members = {name: member for each in reversed(bases) for name, member in vars(each).items()}
    for name, member in members.items():
        if name.startswith("_") or not inspect.getdoc(member):
            continue
        if isinstance(member, property):
            properties.append(f"| `{name}` | {_cell(inspect.getdoc(member) or '')} |\n")
        elif isinstance(member, staticmethod | classmethod) or inspect.isfunction(member):
            yield _function(f"{found.__name__}.{name}", getattr(member, "__func__", member), "###")
    if properties:
        yield f"\n### Properties of {found.__name__}\n\n| | |\n|---|---|\n" + "".join(properties)


def _function(name: str, function: Callable[..., Any], heading: str) -> str:
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    text, about = _parted(_markdown(inspect.getdoc(function)), {each.name for each in parameters})
    names = ", ".join(_with_marks(parameters))
    result = _type_text(signature.return_annotation)
    parts = [f"\n{heading} {name}\n\n`{name.split('.')[-1]}({names}) -> {result}`\n\n{text}\n"]
    rows = [
        {
            "parameter": f"`{each.name}`",
            "type": f"`{_type_text(each.annotation)}`",
            "default": "" if each.default is each.empty else _cell(f"`{each.default!r}`"),
            "what": _cell(about.get(each.name, "")),
        }
        for each in parameters
    ]
    columns = [column for column in rows[0] if any(row[column] for row in rows)] if rows else []
    if columns:
        parts.append(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
        parts += [f"| {' | '.join(row[column] for column in columns)} |\n" for row in rows]
    return "".join(parts)


def _parted(text: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """A docstring without what it says of single parameters, and that: sentences that begin with a parameter, with
    those that follow them in their paragraph, up to another parameter or to what is raised.
    """
    kept: list[str] = []
    about: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", text):
        if not kept:
            first, *clauses = re.split(r"; (?=`\w+` )", paragraph)
            found = [_ABOUT.match(clause) for clause in clauses]
            if clauses and all(match and match["name"] in names for match in found):
                about.update({match["name"]: clause for match, clause in zip(found, clauses, strict=True) if match})
                paragraph = f"{first.rstrip('.')}."
            kept.append(paragraph)
            continue
        if re.match(r"\s|[*-] |[|`]{2}", paragraph):
            kept.append(paragraph)
            continue
        stays, current = [], None
        for sentence in _SENTENCES.split(paragraph):
            found = _ABOUT.match(sentence)
            if found and found["name"] in names:
                current = found["name"]
            elif sentence.startswith("Raises") or names & set(re.findall(r"`(\w+)`", sentence)):
                current = None
            if current:
                about[current] = f"{about.get(current, '')} {sentence}"
            else:
                stays.append(sentence)
        if stays:
            kept.append(" ".join(stays))
    return "\n\n".join(kept), about


def _with_marks(parameters: list[inspect.Parameter]) -> Iterator[str]:
    is_marked = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not is_marked:
            is_marked = True
            yield "*"
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        yield stars + each.name


def _type_text(annotation: object) -> str:
    """An annotation as a cell of a table has it: without bars."""
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("'", "").replace(" | ", " or ")


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _markdown(text: str | None) -> str:
    return textwrap.dedent(text or "").strip()


def _cell(text: str) -> str:
    return _CONTROL.sub(" ", text).strip().replace("|", "\\|")


PAGES: Final = {
    "commands.md": commands_page,
    "pipeline-keys.md": pipeline_keys_page,
    "python-api.md": python_page,
    "table-options.md": option_list.markdown,
    "paimon-options.md": option_statuses.markdown,
    "postgres-types.md": postgres_type_list.markdown,
    "system-tables.md": system_table_list.markdown,
    "metrics.md": metric_list.markdown,
}


def main() -> None:
    for name, page in PAGES.items():
        Path(FOLDER / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
