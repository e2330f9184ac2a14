"""Catalogs by their names, as texts: from a file of the user, and from environment variables, which go before it.

    lake:                                             in ~/.config/freshet/catalogs.yaml
      warehouse: s3://bucket/lake
      s3.secret-key: env:LAKE_SECRET
    FRESHET_CATALOG__LAKE__S3__ENDPOINT=https://…     of the same catalog: `__` is a dot, `_` a dash

The file is below XDG_CONFIG_HOME, else below ~/.config; FRESHET_CATALOGS_FILE names another. All of it are texts:
`true` and `010` are as they are written. `catalogs:NAME#KEY` is a reference to one of them, which each process looks
up. No message shows a value.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError

CATALOGS_FILE_VARIABLE: Final = "FRESHET_CATALOGS_FILE"
CATALOG_PREFIX: Final = "FRESHET_CATALOG__"
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


@dataclass(frozen=True, slots=True)
class CatalogText:
    """What is said of one catalog; `variables` are the names of those that say so, by option."""

    name: str
    options: Mapping[str, str] = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)


class CatalogsFile(Frozen):
    """The catalogs that have names. `path` is the file, None where there is none."""

    path: str | None
    catalogs: Mapping[str, CatalogText]
    is_open_to_others: bool = False
    """Other users of this machine can read the file."""

    def find(self, name: str) -> CatalogText | None:
        """The catalog of a name; variables spell it in capitals, with `_` for what they cannot hold."""
        if name in self.catalogs:
            return self.catalogs[name]
        return next((each for key, each in self.catalogs.items() if _in_capitals(key) == _in_capitals(name)), None)


def read_catalogs(environment: Mapping[str, str]) -> CatalogsFile:
    """The catalogs that an environment knows. Raises `InvalidRequestError` for a file that cannot be read or is of
    another form."""
    path, is_named = _path(environment)
    found: dict[str, dict[str, str]] = {}
    is_open = False
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                is_open = bool(os.fstat(file.fileno()).st_mode & _READABLE_BY_OTHERS)
                found = _parsed(file.read(), path)
        except (FileNotFoundError, NotADirectoryError) as error:
            if is_named:
                raise _refused(path, f"is not there, and {CATALOGS_FILE_VARIABLE} names it") from error
            path = None
        except (OSError, UnicodeDecodeError) as error:
            raise _refused(path, f"cannot be read: {error}") from error
    variables = _of_variables(environment)
    names = list(found)
    for name in variables:
        if name not in map(_in_capitals, found):
            names.append(name.lower())
    catalogs = {name: _catalog(name, found.get(name, {}), variables.get(_in_capitals(name), {})) for name in names}
    return CatalogsFile(path, catalogs, is_open)


def _catalog(name: str, written: Mapping[str, str], variables: Mapping[str, tuple[str, str]]) -> CatalogText:
    options = {**written, **{key: text for key, (_, text) in variables.items()}}
    return CatalogText(name, options, {key: variable for key, (variable, _) in variables.items()})


def _path(environment: Mapping[str, str]) -> tuple[str | None, bool]:
    """The file, and whether it was named; None where there is neither a name nor a home folder."""
    named = environment.get(CATALOGS_FILE_VARIABLE)
    if named:
        return os.path.abspath(os.path.expanduser(named)), True
    home = environment.get("XDG_CONFIG_HOME") or (f"{environment['HOME']}/.config" if "HOME" in environment else None)
    return None if home is None else f"{home}/freshet/catalogs.yaml", False


def _of_variables(environment: Mapping[str, str]) -> dict[str, dict[str, tuple[str, str]]]:
    """(variable, text) by option, by the name of the catalog in capitals."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for variable, text in sorted(environment.items()):
        if variable.startswith(CATALOG_PREFIX):
            name, _, key = variable.removeprefix(CATALOG_PREFIX).partition("__")
            if not (name and key):
                raise InvalidRequestError(
                    f"the environment variable {variable} names no option of a catalog: write {CATALOG_PREFIX}NAME__KEY"
                )
            option = key.lower().replace("__", ".").replace("_", "-")
            found.setdefault(name.upper(), {})[option] = (variable, text)
    return found


def _in_capitals(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name.upper())


def _parsed(text: str, path: str) -> dict[str, dict[str, str]]:
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise _refused(path, f"is not YAML{line}: {getattr(error, 'problem', None) or 'it cannot be parsed'}") from None
    if node is None:
        return {}
    catalogs = _pairs(node, path, "names of catalogs, each with its options")
    return {name: _texts(name, value, path) for name, value in catalogs.items()}


def _texts(name: str, node: Any, path: str) -> dict[str, str]:
    options = _pairs(node, path, f"options of the catalog {name}, KEY: VALUE")
    for key, value in options.items():
        import yaml

        if not isinstance(value, yaml.ScalarNode):
            raise _refused(path, f"line {_line(value)}: {name}.{key} is one text")
    return {key: str(value.value) for key, value in options.items()}


def _pairs(node: Any, path: str, wanted: str) -> dict[str, Any]:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        raise _refused(path, f"line {_line(node)}: expected {wanted}")
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in found:
            twice = isinstance(key, yaml.ScalarNode)
            raise _refused(path, f"line {_line(key)}: {f'{key.value} is given twice' if twice else 'a key is a text'}")
        found[str(key.value)] = value
    return found


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _refused(path: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"the file of catalogs {path} {reason}")
