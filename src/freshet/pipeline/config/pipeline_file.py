"""Reads pipeline files: YAML, environment references, every problem with its file, line and nearest valid key.

    text --compose--> nodes with lines --expand ${NAME}--> values --pydantic--> PipelineConfig --rules--> checked

Folders that are relative paths are taken against the current folder, `~` is the home folder.

`${NAME}` is replaced by the environment variable, `${NAME:-default}` by the default where it is not set or empty; a
`$$` is one dollar sign. All problems of all files are raised together as one `ConfigurationError`. No message has a
secret in it.

Keys are the text as written, and of plain values only `true` and `false` are booleans: YAML 1.1 would make
booleans of columns named `no` or `on`, and other numbers of `010` and `1_000`. Plain whole numbers are numbers (they
may be part of JSON), everything else is text.

This module alone knows YAML, and it alone reads files or the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from freshet.pipeline.config.catalogs import target_location
from freshet.pipeline.config.expectations import Expectation
from freshet.pipeline.config.model import (
    FILE_OPTIONS,
    TABLE_SOURCE_OPTIONS,
    FilesConfig,
    MaxDeadLetters,
    PipelineConfig,
    PostgresConfig,
    SourceConfig,
    TableConfig,
    TableSourceConfig,
)
from freshet.pipeline.config.only_tables import OnlyTables
from freshet.pipeline.config.origin import Origin
from freshet.pipeline.config.rules import contradictions, decides_meaning, warnings
from freshet.pipeline.config.sections import CompactionConfig, MetricsConfig, TriggerConfig
from freshet.pipeline.config.source_options import nearest
from freshet.pipeline.config.sync import SyncConfig, SyncPipelineConfig, TableRule
from freshet.pipeline.config.sync_rules import RENAMED, as_written, misplaced_keys, sync_contradictions
from freshet.pipeline.exceptions import ConfigurationError, KeyPath, Problem
from freshet.storage.catalog import absolute_place
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import absolute_path

__all__ = ["PipelineConfig", "load_pipeline", "load_pipelines", "warnings"]

_REFERENCE: Final = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
DEPTH_MAX: Final = 50
"""Levels of keys in a pipeline file; more can only be an alias that contains itself."""
VALUES_MAX: Final = 100_000
"""Keys and values of a pipeline file, with what its aliases repeat."""

_TOO_DEEP: Final = f"is nested more than {DEPTH_MAX} deep, or an alias contains itself"

_SOURCE_FOLDERS: Final = (
    ("files", "path"),
    ("files", "sourceArchiveDir"),
    ("files", "options", "sourceArchiveDir"),
)

_PLAIN_MESSAGES: Final = {
    "missing": "is missing",
    "string_type": "wants text",
    "dict_type": "wants keys and values",
    "model_type": "wants keys and values",
    "model_attributes_type": "wants keys and values",
    "tuple_type": "wants a list",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "bool_type": "wants true or false",
}


_EXPECT: Final = {"expect": Expectation}
_MODELS: Final[Mapping[type[BaseModel], Mapping[str, type[BaseModel]]]] = {
    PipelineConfig: {
        "sources": SourceConfig, "sync": SyncConfig, "table": TableConfig, "trigger": TriggerConfig,
        "max_dead_letters": MaxDeadLetters, "compaction": CompactionConfig, "metrics": MetricsConfig,
    },
    SourceConfig: {"files": FilesConfig, "table": TableSourceConfig, "postgres": PostgresConfig, "only": OnlyTables},
    SyncConfig: {"source": SourceConfig, "tables": TableRule},
    TableConfig: _EXPECT,
    TableRule: _EXPECT,
}  # fmt: skip
"""The sections of a file, by the section that they are in."""

_OPTIONS: Final = {FilesConfig: FILE_OPTIONS, TableSourceConfig: TABLE_SOURCE_OPTIONS}
"""What is written next to the keys of a section."""


class _Loader(yaml.SafeLoader):
    """YAML whose plain scalars are true, false, null, whole numbers and text, and which is not nested without end."""

    levels = 0

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 - as PyYAML calls it
        """A bracket: so many are not even looked through."""
        if self.flow_level > 2 * DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node with all that is in it."""
        self.levels += 1
        if self.levels > 2 * DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.levels -= 1
        return node


_Loader.yaml_implicit_resolvers = {}

for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"0|-?[1-9][0-9]{0,17}", "-0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def load_pipeline(path: str | Path, env: Mapping[str, str] | None = None) -> PipelineConfig:
    """Reads one pipeline file; raises `ConfigurationError` with every problem found."""
    return load_pipelines([path], env)[0]


def load_pipelines(paths: Sequence[str | Path], env: Mapping[str, str] | None = None) -> list[PipelineConfig]:
    """Reads several pipeline files that will share one Spark session; `env` defaults to the process's environment."""
    configs, problems = read_pipelines(paths, env)
    if problems:
        raise ConfigurationError(problems)
    return configs


def read_pipelines(
    paths: Sequence[str | Path], env: Mapping[str, str] | None = None
) -> tuple[list[PipelineConfig], list[Problem]]:
    """The files that can be read, and what is wrong with them and the others."""
    env = os.environ if env is None else env
    problems: list[Problem] = []
    configs: list[tuple[str, PipelineConfig]] = []
    known: set[Path] = set()
    for path in map(str, paths):
        resolved = Path(path).resolve()
        if resolved in known:
            problems.append(Problem((), "is named twice; name each pipeline file once", path=path))
            continue
        known.add(resolved)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem((), f"cannot be read: {error}", path=path))
            continue
        config, found = parse_pipeline(text, path, env)
        problems += found
        if config is not None:
            configs.append((path, config))
    problems += _between_files(configs)
    return [config for _, config in configs], problems


def parse_pipeline(text: str, path: str, env: Mapping[str, str]) -> tuple[PipelineConfig | None, list[Problem]]:
    """Reads the text of one file; the config is None when there are problems."""
    document = _Document(path, env)
    try:
        tree = document.read(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = f"is not YAML: {getattr(error, 'problem', None) or error}"
        return None, [Problem((), message, path=path, line=mark.line + 1 if mark else None)]
    if not isinstance(tree, dict):
        return None, [
            Problem((), "wants the keys of a pipeline (name, sources, table, …) at its top", path=path, line=1)
        ]
    if "sync" in tree and (misplaced := list(misplaced_keys(tree))):
        return None, [*document.problems, *map(Origin(path, document.lines).placed, misplaced)]
    try:
        model = SyncPipelineConfig if "sync" in tree else PipelineConfig
        config = model.model_validate(_with_absolute_folders(tree))
    except ValidationError as error:
        wrong = [Problem(_key_path(item["loc"]), _message(item)) for item in error.errors()]
        if "sync" in tree:
            wrong = list(as_written(wrong))
            wrong = [each for each in wrong if not _is_hollow(each, wrong)]
        return None, [*document.problems, *map(document.origin.placed, wrong)]
    contradicting = contradictions(config)
    if isinstance(config, SyncPipelineConfig):
        contradicting = sync_contradictions(config)
    found = [document.origin.placed(each) for each in contradicting]
    problems = [*document.problems, *found]
    config.read_from(document.origin)
    return (None if problems else config), problems


def _is_hollow(problem: Problem, problems: Sequence[Problem]) -> bool:
    """True where a list is called empty since all that it has is wrong, and is said to be."""
    keys = problem.key_path
    return any(each is not problem and each.key_path[: len(keys)] == keys for each in problems)


def _with_absolute_folders(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file with its folders from the root on; what is of another shape stays for the checks.

    A checkpoint in S3 gets the scheme by which Spark knows it.
    """
    found = dict(tree)
    _make_absolute(found, "checkpoint")
    if isinstance(checkpoint := found.get("checkpoint"), str):
        found["checkpoint"] = re.sub("^s3:", "s3a:", checkpoint, count=1, flags=re.IGNORECASE)
    _make_absolute(found, "table", "warehouse", absolute=absolute_place)
    _make_absolute(found, "warehouse", absolute=absolute_place)
    if isinstance(sources := found.get("sources"), list):
        found["sources"] = [dict(source) if isinstance(source, Mapping) else source for source in sources]
        for source in found["sources"]:
            _make_absolute(source, "table", "warehouse", absolute=absolute_place)
            for keys in _SOURCE_FOLDERS:
                _make_absolute(source, *keys)
    return found


def _make_absolute(values: Any, *keys: str, absolute: Callable[[str], str] = absolute_path) -> None:
    """Replaces one folder, and the mappings on the way to it by copies."""
    *path, last = keys
    for key in path:
        if not isinstance(values, dict) or not isinstance(values.get(key), Mapping):
            return
        inner = dict(values[key])
        values[key] = inner
        values = inner
    if isinstance(values, dict) and isinstance(text := values.get(last), str):
        with suppress(InvalidRequestError):  # no such home folder, …: the rules report what is wrong with the text
            values[last] = absolute(text)


@dataclass
class _Document:
    """One file's values and the line of each key."""

    path: str
    env: Mapping[str, str]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def origin(self) -> Origin:
        """Where this file's values come from."""
        return Origin(self.path, self.lines, RENAMED if ("sync",) in self.lines else ())

    def read(self, text: str) -> Any:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_size(node, {})
            return self._value(loader, node, ())
        finally:
            loader.dispose()

    def _value(self, loader: _Loader, node: yaml.Node, key_path: KeyPath) -> Any:
        self.lines.setdefault(key_path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            return self._mapping(loader, node, key_path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*key_path, index)) for index, item in enumerate(node.value)]
        value = loader.construct_object(node)
        return self._expand(value, key_path) if isinstance(value, str) else value

    def _mapping(self, loader: _Loader, node: yaml.MappingNode, key_path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem((), "a key is a text", path=self.path, line=key_node.start_mark.line + 1))
                continue
            key = key_node.value
            inner = (*key_path, key)
            if key in result:
                self.problems.append(
                    Problem((), f"the key {key!r} is given twice", path=self.path, line=key_node.start_mark.line + 1)
                )
            self.lines[inner] = key_node.start_mark.line + 1
            result[key] = self._value(loader, value_node, inner)
        return result

    def _expand(self, text: str, key_path: KeyPath) -> str:
        def replacement(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            value = self.env.get(match[1]) or match[2]
            if value is None:
                text = (
                    f"the environment variable {match[1]} is not set; set it or write a default as ${{{match[1]}:-…}}"
                )
                self.problems.append(self.origin.placed(Problem(key_path, text)))
                return ""
            return value

        return _REFERENCE.sub(replacement, text)


def _check_size(node: yaml.Node, known: dict[int, tuple[int, int]], above: int = 0) -> tuple[int, int]:
    """How many keys and values a node is, and levels, with its aliases written out. Raises `YAMLError` for too many."""
    if isinstance(node, yaml.ScalarNode):
        return 1, 0
    found = known.get(id(node))
    if found is None and above <= DEPTH_MAX:
        inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        sizes = [_check_size(part, known, above + 1) for part in inner]
        found = known[id(node)] = 1 + sum(size for size, _ in sizes), max((1, *(1 + deep for _, deep in sizes)))
    if found is None or above + found[1] > DEPTH_MAX:
        raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=node.start_mark)
    if found[0] > VALUES_MAX:
        many = f"has more than {VALUES_MAX:,} values where its aliases are written out"
        raise yaml.MarkedYAMLError(problem=many, problem_mark=node.start_mark)
    return found


def _key_path(loc: Iterable[str | int]) -> KeyPath:
    return tuple(part for part in loc if part != "[key]")


def _message(item: Mapping[str, Any]) -> str:
    kind = str(item["type"])
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(item['loc'][-1]), _sibling_keys(item['loc']))}"
    if kind == "value_error":
        return str(item["ctx"]["error"])
    return _PLAIN_MESSAGES.get(kind) or str(item["msg"])


def _sibling_keys(loc: Sequence[str | int]) -> list[str]:
    """The valid keys of the model that an unknown key was given to."""
    model: type[BaseModel] = PipelineConfig
    for key in loc[:-1]:
        model = _MODELS.get(model, {}).get(str(key), model)
    names = [str(info.alias or name) for name, info in model.model_fields.items()]
    return [*names, *_OPTIONS.get(model, ())]


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
                yield Problem((key,), f"the same as in {other}; each pipeline needs its own", path=path)
    folders = {config.checkpoint.rstrip("/") + "/": path for path, config in configs}
    for folder, path in folders.items():
        for above, other in folders.items():
            if folder != above and folder.startswith(above):
                yield Problem(("checkpoint",), f"lies in that of {other}, {above}; choose one beside it", path=path)
    tables: dict[tuple[str, str], tuple[TableConfig, str]] = {}
    for path, config in configs:
        wanted = config.table
        known_table, other = tables.setdefault((target_location(config), wanted.name), (wanted, path))
        if _definition(known_table) != _definition(wanted):
            yield Problem(
                ("table",), f"{wanted.name} is described otherwise in {other}; both files must say the same", path=path
            )
    settings: dict[str, tuple[object, str]] = {}
    for path, config in configs:
        for key, value in config.spark.items():
            known, other = settings.setdefault(key, (value, path))
            if known != value:
                yield Problem(("spark", key), f"differs from {other}, but both share one Spark session", path=path)


def _definition(table: TableConfig) -> object:
    """What all who write one table must agree on."""
    meaning = {key: value for key, value in table.options.items() if decides_meaning(key)}
    columns = [(field.name, str(field.type)) for field in table.fields]
    return columns, table.primary_key, table.partition_by, meaning
