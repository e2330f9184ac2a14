"""Reads pipeline files: YAML, environment references, every problem with its file, line and nearest valid key.

    text --compose--> nodes with lines --expand ${NAME}--> values --pydantic--> PipelineConfig --rules--> checked

`${NAME}` is replaced by the environment variable, `${NAME:-default}` by the default where it is not set or empty; a
`$$` stands for one dollar sign. All problems of all files are raised together as one `ConfigurationError`. No secret
ever stands in a message.

This module alone knows YAML, and it alone reads files or the environment. Source: design §3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from freshet.pipeline.config.model import (
    FILE_OPTIONS,
    FilesConfig,
    PipelineConfig,
    SourceConfig,
    TableConfig,
    TriggerConfig,
)
from freshet.pipeline.config.rules import Place, contradictions, decides_meaning, nearest, warnings
from freshet.pipeline.exceptions import ConfigurationError, Problem

__all__ = ["PipelineConfig", "load_pipeline", "load_pipelines", "warnings"]

_REFERENCE: Final = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PLAIN_MESSAGES: Final = {
    "missing": "is missing",
    "string_type": "wants text",
    "dict_type": "wants keys and values",
    "model_type": "wants keys and values",
    "model_attributes_type": "wants keys and values",
    "tuple_type": "wants a list",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}


def load_pipeline(path: str | Path, env: Mapping[str, str] | None = None) -> PipelineConfig:
    """Reads one pipeline file; raises `ConfigurationError` with every problem found."""
    return load_pipelines([path], env)[0]


def load_pipelines(paths: Sequence[str | Path], env: Mapping[str, str] | None = None) -> list[PipelineConfig]:
    """Reads several pipeline files that will share one Spark session; `env` defaults to the process's environment."""
    env = os.environ if env is None else env
    problems: list[Problem] = []
    configs: list[tuple[str, PipelineConfig]] = []
    for path in map(str, paths):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(f"cannot be read: {error}", path))
            continue
        config, found = parse_pipeline(text, path, env)
        problems += found
        if config is not None:
            configs.append((path, config))
    problems += _between_files(configs)
    if problems:
        raise ConfigurationError(problems)
    return [config for _, config in configs]


def parse_pipeline(text: str, path: str, env: Mapping[str, str]) -> tuple[PipelineConfig | None, list[Problem]]:
    """Reads the text of one file; the config is None when there are problems."""
    document = _Document(path, env)
    try:
        tree = document.read(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = f"is not YAML: {getattr(error, 'problem', None) or error}"
        return None, [Problem(message, path, mark.line + 1 if mark else None)]
    if not isinstance(tree, dict):
        return None, [Problem("wants the keys of a pipeline (name, sources, table, …) at its top", path, 1)]
    try:
        config = PipelineConfig.model_validate(tree)
    except ValidationError as error:
        found = [document.problem(_place(item["loc"]), _message(item)) for item in error.errors()]
        return None, [*document.problems, *found]
    found = [document.problem(place, message) for place, message in contradictions(config)]
    problems = [*document.problems, *found]
    return (None if problems else config), problems


@dataclass
class _Document:
    """One file's values and the line of each key."""

    path: str
    env: Mapping[str, str]
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def read(self, text: str) -> Any:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else self._value(loader, node, ())
        finally:
            loader.dispose()

    def problem(self, place: Place, message: str) -> Problem:
        """A problem at the innermost key of `place` that stands in the file."""
        line = next((self.lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in self.lines), None)
        name = ".".join(str(part) for part in place)
        return Problem(f"{name}: {message}" if name else message, self.path, line)

    def _value(self, loader: yaml.SafeLoader, node: yaml.Node, place: Place) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            return self._mapping(loader, node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*place, index)) for index, item in enumerate(node.value)]
        value = loader.construct_object(node)
        return self._expand(value, place) if isinstance(value, str) else value

    def _mapping(self, loader: yaml.SafeLoader, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node))
            inner = (*place, key)
            if key in result:
                self.problems.append(Problem(f"the key {key!r} stands twice", self.path, key_node.start_mark.line + 1))
            self.lines[inner] = key_node.start_mark.line + 1
            result[key] = self._value(loader, value_node, inner)
        return result

    def _expand(self, text: str, place: Place) -> str:
        def replacement(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            value = self.env.get(match[1]) or match[2]
            if value is None:
                self.problems.append(
                    self.problem(place, f"the environment variable {match[1]} is not set; set it or write a default "
                                 f"as ${{{match[1]}:-…}}")
                )  # fmt: skip
                return ""
            return value

        return _REFERENCE.sub(replacement, text)


def _place(loc: Iterable[str | int]) -> Place:
    return tuple(part for part in loc if part != "[key]")


def _message(item: Mapping[str, Any]) -> str:
    kind = str(item["type"])
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(item['loc'][-1]), _keys_beside(item['loc']))}"
    if kind == "string_pattern_mismatch":
        return f"does not have the form wanted ({item['ctx']['pattern']})"
    return _PLAIN_MESSAGES.get(kind) or str(item["msg"])


def _keys_beside(loc: Sequence[str | int]) -> list[str]:
    """The valid keys of the model in which an unknown key stood."""
    model: type[BaseModel] = PipelineConfig
    if loc[0] == "sources":
        model = FilesConfig if "files" in loc[:-1] else SourceConfig
    elif loc[0] == "table" and len(loc) > 1:
        model = TableConfig
    elif loc[0] == "trigger" and len(loc) > 1:
        model = TriggerConfig
    names = [str(info.alias or name) for name, info in model.model_fields.items()]
    return [*names, *FILE_OPTIONS] if model is FilesConfig else names


def _between_files(configs: Sequence[tuple[str, PipelineConfig]]) -> Iterator[Problem]:
    questions: tuple[tuple[str, Callable[[PipelineConfig], str]], ...] = (
        ("name", lambda config: config.name),
        ("checkpoint", lambda config: config.checkpoint.rstrip("/")),
    )
    for key, question in questions:
        owners: dict[str, str] = {}
        for path, config in configs:
            other = owners.setdefault(question(config), path)
            if other != path:
                yield Problem(f"{key}: the same as in {other}; each pipeline needs its own", path)
    tables: dict[tuple[str, str], tuple[TableConfig, str]] = {}
    for path, config in configs:
        wanted = config.table
        known_table, other = tables.setdefault((wanted.warehouse.rstrip("/"), wanted.name), (wanted, path))
        if _definition(known_table) != _definition(wanted):
            yield Problem(f"table: {wanted.name} is described otherwise in {other}; both files must say the same", path)
    settings: dict[str, tuple[object, str]] = {}
    for path, config in configs:
        for key, value in config.spark.items():
            known, other = settings.setdefault(key, (value, path))
            if known != value:
                yield Problem(f"spark.{key}: differs from {other}, but both share one Spark session", path)


def _definition(table: TableConfig) -> object:
    """What all who write one table must agree on."""
    meaning = {key: value for key, value in table.options.items() if decides_meaning(key)}
    columns = [(field.name, str(field.type)) for field in table.fields]
    return columns, table.primary_key, table.partition_by, meaning
