"""The rules of the house as tests: who may import whom, one owner per library, one door to the world.

    jobs | front door -> pipeline -> { logstore, storage }        logstore -> storage.model, exceptions, logs, options
    inside storage, logstore and pipeline: layers, lower ones first; a module imports its own unit and lower layers
    and no cycles anywhere

Names here are those below `freshet`: storage.model is what code imports as freshet.storage.model.

A rule that breaks names the file, the line and the rule. New modules are placed by adding them to a table here.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "freshet"
PACKAGES = ("storage", "logstore", "pipeline", "jobs")
FRONT_DOOR = "__init__.py"
# Whether the front door is ours, and modules that are loaded when they are used: every package may import these.
BASE = ("_arrow_avro.py", "_distribution.py", "_frozen.py", "_garbage.py", "_version.py")
IMPORTING_CALLS = ("import_module", "optional_library")

MAY_IMPORT = {
    "storage": {"storage"},
    "logstore": {"logstore", "storage.model", "storage.exceptions", "storage.logs", "storage.options"},
    "pipeline": {"pipeline", "logstore", "storage"},
    "freshet": {"storage", "logstore", "pipeline"},
    "_arrow_avro": set(),
    "_distribution": set(),
    "_frozen": set(),
    "_garbage": set(),
    "_version": set(),
    "jobs": {"jobs", "pipeline", "logstore", "storage"},
}

# Units of storage: its folders and the modules at its top. Units of one set may import one another.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(units.split())
    for units in (
        "exceptions",
        "model paths",
        "options",
        "codec io logs",
        "casts filters",
        "schema",
        "catalogs",
        "metadata",
        "files",
        "merge",
        "scan commit",
        "cleaning lookup",
        "tags",
        "place_index",
        "changelog",
        "changes",
        "compact",
        "write",
        "describe maintenance system_tables table_logs table_session",
        "edits status",
        "table_engine",
        "readable_table",
        "editable_table",
        "table",
        "catalog",
        "sql",
    )
)
PIPELINE_LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(units.split())
    for units in (
        "errors exceptions",
        "config",
        "expressions",
        "decode",
        "postgres",
        "identity",
        "query",
        "spark",
        "checks",
        "sources local",
        "sync",
        "running",
        "report",
        "commands",
    )
)
LOGSTORE_LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(units.split()) for units in ("exceptions", "protocol", "reading writing", "topic_logs", "kafka")
)
# Besides the order: scans never commit, commits never scan; what makes files neither commits nor removes old ones.
NEVER = {"scan": {"commit"}, "cleaning": {"scan"}} | {
    unit: {"scan", "commit", "cleaning", "tags"} for unit in ("lookup", "changelog", "compact", "write")
}
NEVER |= {"reading": {"writing"}, "writing": {"reading"}}
NEVER |= {"changes": {"commit", "cleaning"}, "commit": {"scan", "changes"}}

# Library -> where it may be imported (a file, or a folder ending in a slash).
OWNERS = {
    "pyspark": [f"pipeline/{room}/" for room in ("spark", "sources", "running", "commands")] + ["jobs/"],
    "pyspark.sql.datasource": ["pipeline/sources/"],
    "confluent_kafka": ["logstore/kafka/", "jobs/demo/"],
    "pyarrow.parquet": ["storage/files/parquet/", "jobs/demo/paimon_reader.py"],
    "pyarrow.orc": ["storage/files/orc/"],
    "pyarrow.dataset": ["pipeline/commands/edits.py"],
    "pyarrow.fs": ["storage/io/local_file_io.py"],
    "fastavro": ["storage/codec/avro_file.py", "storage/files/avro/", "pipeline/decode/avro/schemas.py"],
    "polars_avro": ["_arrow_avro.py"],
    "pyroaring": ["storage/codec/roaring_bitmaps.py"],
    "datasketches": ["storage/codec/sketches.py"],
    "sqlglot": [
        "storage/filters/filter_text.py",
        "storage/edits/clauses.py",
        "storage/edits/expression.py",
        "storage/sql/",
        "pipeline/expressions/grammar.py",
        "pipeline/expressions/translator.py",
    ],
    # opened in one place, locked; a relation for a connection of the caller's own in the other
    "duckdb": ["storage/scan/locked_duckdb.py", "storage/scan/frame_outputs.py"],
    "sqlalchemy": ["storage/catalogs/jdbc_database.py"],
    "psycopg": ["storage/catalogs/jdbc_database.py", "pipeline/postgres/"],
    "sqlite3": ["storage/catalogs/jdbc_database.py"],
    "obstore": ["storage/io/object_file_io.py", "storage/io/object_stores.py", "storage/io/object_errors.py"],
    "boto3": ["storage/io/object_stores.py"],
    "botocore": ["storage/io/object_stores.py"],
    "rocksdict": ["storage/lookup/rocks_store.py", "storage/place_index/index_database.py"],
    "yaml": ["pipeline/config/pipeline_file.py", "storage/io/catalogs_file.py"],
    "pydantic_settings": ["pipeline/config/pipeline_file.py"],
    "tomllib": ["pipeline/spark/jars.py"],
    "typer": ["pipeline/commands/"],
    "rich": ["pipeline/commands/"],
    "prometheus_client": ["pipeline/running/metrics.py"],
    "testcontainers": [],
}

# What is one format's own: everyone else asks the port, storage.files.file_format, of which one module has them all.
FILE_FORMATS = ("parquet", "orc", "avro")
FILE_FORMAT_REGISTRY = "storage/files/formats.py"

# What pipeline and jobs see of storage, module by module as their imports name them.
BORDER = {
    # the façades, with what their methods take and give
    "catalog",
    "table",
    "table_engine",
    "sql.run",
    # values
    "exceptions",
    "options",
    "model.arrow_types",
    "model.data_type",
    "model.display",
    "model.row_kind",
    "model.schema",
    "model.sql_type",
    # one function each: the bucket of a row, the gathering of rows, the door to scratch space
    "codec.bucket_function",
    "merge.gather",
    "io.env",
    # expressions of `select`
    "scan.locked_duckdb",
}
BORDER_MAX = 16
# What the methods of the façades take and give, by the module that has it, and the rule of partitions that a decoder
# applies to rows: these names and no others.
GIVEN = {
    "casts.casts": {"possible_loss"},
    "changes.changelog": {"BetweenMode", "Changelog"},
    "changes.stream": {"ChangeStream", "SplitStream"},
    "changes.stream_request": {"StreamRequest"},
    "codec.partition_names": {"FOLDER_NAME_BYTES_MAX", "FolderRule", "folder_rule"},
    "commit.lost_commits": {"LostCommit"},
    "edits.edit_commit": {"EditResult"},
    "lookup.lookup_metrics": {"LookupMetrics"},
    "maintenance.background_compaction": {"BackgroundUnit", "alone_together"},
    "maintenance.partition_choice": {"PartitionText", "PartitionValue"},
    "maintenance.rescale": {"RescaleResult"},
    "maintenance.table_compaction": {"CompactionBudget", "CompactionResult", "Elsewhere", "Piece"},
    "place_index.index_database": {"KeyShare", "is_rocksdb_installed"},
    "scan.table_scan": {"TableScan"},
    "schema.change": {"AddColumn", "ChangeType", "SchemaChange"},
    "status.report": {"ReportedTable"},
    "status.finding": {"Finding", "Rule", "Severity", "Sign", "cannot_be_read", "findings_of"},  # of pipelines too
    "status.table_status": {"Batches", "LastHour", "LevelStatus", "TableDetail", "TableStatus"},
    "system_tables.system_table": {"SystemScan"},
    "write.commit_compaction": {"CompactionLimit"},
    "write.dynamic_router": {"KeyAssigner"},
    "write.moving_router": {"KeyMover", "MovedRows"},
}

# Extras of pyproject.toml that a package may import from; storage must do without.
MAY_NEED = {
    "storage": ["jdbc", "s3", "rocksdb"],
    "logstore": ["kafka", "avro"],
    "pipeline": ["spark", "kafka", "avro", "postgres", "metrics"],
    "jobs": ["spark", "kafka"],
    "freshet": ["spark"],
    "_arrow_avro": ["avro"],
}

# Libraries that may be there or not: what they are is told to editors, or they are used where they run the process.
OPTIONAL = {
    "storage/scan/frame_outputs.py": {"pandas", "polars"},
    "storage/io/shown_work.py": {"IPython"},
}

# Storage meets the world in these files only.
DOORS = {
    "storage/io/env.py",
    "storage/io/local_file_io.py",
    "storage/io/local_folders.py",
    "storage/io/local_errors.py",
    "storage/io/object_file_io.py",
    "storage/io/object_stores.py",
    "storage/io/memory_file_io.py",
    "storage/io/catalogs_file.py",  # a user's own file, on the local disk
    "storage/catalogs/jdbc_database.py",  # a database is not a store of files
    "storage/io/local_cache.py",  # lies on the local disk whatever the table's file io is, as spilled data do
    "storage/io/background.py",  # the priority of its own thread
    "storage/io/spill_file.py",  # scratch files lie on the local disk whatever the table's file io is
}
TAKES_BACK = {
    "storage/metadata/branch_store.py",
    "storage/metadata/manifest_store.py",
    "storage/metadata/deletion_vector_store.py",
    "storage/catalogs/jdbc.py",
    "storage/catalogs/claims.py",
    "storage/catalogs/filesystem.py",  # the folder of a table or of a database, or a link in its place
    "storage/commit/claim.py",
    "storage/commit/packed_changelogs.py",
    "storage/edits/rollback.py",
    "storage/files/rolling_file_writer.py",
    "storage/write/task_writer.py",
}
"""They remove what they have made a moment ago; whatever else goes of a table goes by its `Removal`."""
NAMED_TWICE = {
    "InvalidRequestError",  # of storage and of pipelines: users meet both, as one kind of error
}
"""Public classes of two modules that have one name; no others do."""
NAMELESS = {"Of", "As", "Those", "That", "See"}
"""First words of a docstring that leave open what it is about."""
WORLD_MODULES = {"random", "secrets", "shutil", "socket", "subprocess", "tempfile", "uuid", "glob", "fcntl"}
WORLD_CALLS = re.compile(
    r"open|io\.open|time\.(time|time_ns|sleep)|(datetime\.)?(datetime|date)\.(now|utcnow|today)"
    r"|os\.(?!cpu_count|path\.(join|basename|dirname|split)|sched_getaffinity|getpid|fspath)\w[\w.]*"
    r"|(pa|pyarrow)\.(OSFile|memory_map|create_memory_map)|(pathlib\.)?Path(\.\w+)?"
)


@dataclass(frozen=True)
class Module:
    """One file of the packages; `path` is relative to src/freshet, with slashes."""

    path: str
    tree: ast.Module

    @property
    def name(self) -> str:
        path = "freshet.py" if self.path == FRONT_DOOR else self.path
        return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def package(self) -> str:
        return self.name.split(".")[0]

    def imports(self) -> Sequence[tuple[int, str]]:
        """(line, module) of every import, ours without `freshet.`; `from a import b` is `a.b` for modules."""
        return _imports(self.tree)

    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree, walked once for all rules."""
        return _nodes(self.tree)


@functools.cache
def _nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@functools.cache
def _imports(tree: ast.Module) -> list[tuple[int, str]]:
    return list(_each_import(_nodes(tree)))


def _each_import(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, _below_freshet(alias.name)) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in IMPORTING_CALLS:
            if node.args and isinstance(node.args[0], ast.Constant):
                yield node.lineno, _below_freshet(node.args[0].value)
        elif isinstance(node, ast.ImportFrom):
            base = _below_freshet("." * node.level + (node.module or ""))
            for alias in node.names:
                is_module = base.split(".")[0] in PACKAGES and _is_module(f"{base}.{alias.name}")
                yield (
                    node.lineno,
                    f"{base}.{alias.name}" if is_module or base in ("pyarrow", "pyspark.sql") else base,
                )


@functools.cache
def _is_module(name: str) -> bool:
    path = SOURCES.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def _below_freshet(name: str) -> str:
    """`storage.x` for freshet.storage.x, and `top-level.storage.x` for what only an unlucky path would find."""
    if name.startswith("freshet."):
        return name.removeprefix("freshet.")
    return f"top-level.{name}" if name.split(".")[0] in PACKAGES else name


def _module(path: str, source: str) -> Module:
    return Module(path, ast.parse(source))


@functools.cache
def _modules() -> list[Module]:
    files = [file for package in PACKAGES for file in sorted((SOURCES / package).rglob("*.py"))]
    files += [SOURCES / name for name in (FRONT_DOOR, *BASE)]
    return [_module(file.relative_to(SOURCES).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def _under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def wrong_directions(module: Module) -> Iterator[str]:
    """Imports that point the wrong way between packages."""
    for line, name in module.imports():
        if name.startswith("."):
            yield f"{module.path}:{line} imports relatively; name the package"
        elif name.startswith("top-level."):
            yield f"{module.path}:{line} imports {name.removeprefix('top-level.')}; the import name begins with freshet"
        elif name.split(".")[0] in (*PACKAGES, "freshet", "tests") and not any(
            _under(name, allowed) for allowed in MAY_IMPORT[module.package]
        ):
            yield f"{module.path}:{line} imports {name}; allowed are {sorted(MAY_IMPORT[module.package])}"


def _border_crossings(module: Module) -> Iterator[tuple[int, str]]:
    """(line, module of storage) of what pipeline and jobs import from there."""
    if module.package in ("pipeline", "jobs"):
        for line, name in module.imports():
            if _under(name, "storage"):
                yield line, name.removeprefix("storage").removeprefix(".") or "storage itself"


def _given(module: Module) -> Iterator[tuple[int, str, str]]:
    """(line, module of storage, name) of what pipeline and jobs import of `GIVEN`."""
    for node in module.nodes() if module.package in ("pipeline", "jobs") else ():
        inner = _below_freshet(getattr(node, "module", None) or "").removeprefix("storage.")
        if isinstance(node, ast.ImportFrom) and inner in GIVEN:
            yield from ((node.lineno, inner, alias.name) for alias in node.names)


def crossed_borders(module: Module) -> Iterator[str]:
    """What pipeline and jobs take from the inside of storage: by an import, or through the store of a table."""
    for line, inner in _border_crossings(module):
        if inner not in BORDER and inner not in GIVEN:
            yield f"{module.path}:{line} imports storage.{inner}; use one of {', '.join(sorted(BORDER))}"
    for line, inner, name in _given(module):
        if name not in GIVEN[inner]:
            yield f"{module.path}:{line} imports {name} of storage.{inner}; no method of a table gives it"
    if module.package in ("pipeline", "jobs"):
        for node in module.nodes():
            if isinstance(node, ast.Attribute) and node.attr == "store":
                yield f"{module.path}:{node.lineno} reaches through {ast.unparse(node)}; give Table a method for it"


def wrong_layers(module: Module) -> Iterator[str]:
    """Imports inside storage, logstore and pipeline that point upwards."""
    layers = {"storage": LAYERS, "pipeline": PIPELINE_LAYERS, "logstore": LOGSTORE_LAYERS}.get(module.package)
    if layers is None or module.name == module.package:
        return
    unit = module.name.split(".")[1]
    rank = {unit: index for index, layer in enumerate(layers) for unit in layer}
    if unit not in rank:
        yield f"{module.path} belongs to no layer; add {unit!r} to those in {Path(__file__).name}"
        return
    never = NEVER.get(unit, ())
    for line, name in module.imports():
        if not name.startswith(f"{module.package}."):
            continue
        target = name.split(".")[1]
        if target == unit:
            continue
        if rank.get(target, len(layers)) > rank[unit] or target in never:
            yield f"{module.path}:{line} imports {name}; {unit} lies below {target}"


PROCESSES = ("pipeline.query.wire", "pipeline.query.task", "pipeline.query.driver")
"""What travels, what a worker does, what the driver does: each imports those before it alone."""


def wrong_processes(module: Module) -> Iterator[str]:
    """Imports inside the batches of a query that point to what another process does."""
    here = next((index for index, room in enumerate(PROCESSES) if _under(module.name, room)), None)
    if here is None:
        return
    for line, name in module.imports():
        for room in PROCESSES[here + 1 :]:
            if _under(name, room):
                yield f"{module.path}:{line} imports {name}, which is of another process"


def foreign_owners(module: Module) -> Iterator[str]:
    """Libraries used outside the file that owns them."""
    for line, name in module.imports():
        for library, owners in OWNERS.items():
            owned = any(
                module.path == owner or (owner.endswith("/") and module.path.startswith(owner)) for owner in owners
            )
            if _under(name, library) and not owned:
                yield f"{module.path}:{line} imports {name}; {library} belongs to {owners or 'the tests'}"


def known_formats(module: Module) -> Iterator[str]:
    """A format of data files used outside its own folder and the registry."""
    for line, name in module.imports():
        for of in FILE_FORMATS:
            folder = f"storage/files/{of}/"
            if _under(name, f"storage.files.{of}") and not module.path.startswith((folder, FILE_FORMAT_REGISTRY)):
                yield f"{module.path}:{line} imports {name}; formats of files are reached by storage.files.formats"


def hidden_imports(module: Module) -> Iterator[str]:
    """Imports inside functions of what is loaded with the module anyway: one stands there for what a start can do
    without (tests/packaging/test_light_start.py)."""
    here = frozenset().union(*map(_loaded_with, _loaded_first(module.tree)))
    for function in module.nodes():
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for line, name in _each_import([node for node in ast.walk(function) if not isinstance(node, ast.Call)]):
                if name in here:
                    yield f"{module.path}:{line} imports {name} inside {function.name}(), and it is loaded at the top"


@functools.cache
def _loaded_with(name: str) -> frozenset[str]:
    """The modules that are loaded where this one is, it included; of libraries only those that are named."""
    found, waiting = {name}, [name]
    while waiting:
        tree = _trees().get(waiting.pop())
        new = set(_loaded_first(tree)) - found if tree is not None else set()
        found |= new
        waiting += new
    return frozenset(found)


@functools.cache
def _trees() -> dict[str, ast.Module]:
    return {module.name: module.tree for module in _modules()}


@functools.cache
def _loaded_first(tree: ast.Module) -> list[str]:
    """What a module imports where it is loaded."""
    nodes: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not is_for_types and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes.append(node)
            waiting += ast.iter_child_nodes(node)
    return [name for _, name in _each_import(nodes)]


def side_doors(module: Module) -> Iterator[str]:
    """Files, clock, ids and randomness that do not go through Env."""
    if module.package != "storage" or module.path in DOORS:
        return
    for line, name in module.imports():
        if name.split(".")[0] in WORLD_MODULES:
            yield f"{module.path}:{line} imports {name}; the world is reached through storage.io.env.Env"
    for node in module.nodes():
        if isinstance(node, ast.Call) and WORLD_CALLS.fullmatch(called := ast.unparse(node.func)):
            yield f"{module.path}:{node.lineno} calls {called}(); the world is reached through storage.io.env.Env"


def removals_behind_links(module: Module) -> Iterator[str]:
    """Removals of files of tables that would follow a link out of them."""
    if module.path.startswith("storage/io/") or module.path in TAKES_BACK:
        return
    for node in module.nodes():
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if re.fullmatch(r"(.*\.)?_?file_io\.delete(_all|_prefix)?", called):
            yield f"{module.path}:{node.lineno} calls {called}(); files of a table are removed by TableStore.removal"


def broad_excepts(module: Module) -> Iterator[str]:
    """`except Exception` that does not end by raising."""
    for node in module.nodes():
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = "" if node.type is None else ast.unparse(node.type)
        if caught in ("", "Exception", "BaseException") and not isinstance(node.body[-1], ast.Raise):
            yield f"{module.path}:{node.lineno} catches everything; name the errors, or raise at the end"


def nameless_docstrings(module: Module) -> Iterator[str]:
    """Docstrings that do not begin with what they are about."""
    for node in module.nodes():
        text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module) else None
        if text and text.split()[0] in NAMELESS:
            yield f"{module.path}:{node.body[0].lineno} begins with {text.split()[0]}; name the noun first"


def prints(module: Module) -> Iterator[str]:
    """`print` in a library."""
    if module.package not in ("storage", "logstore"):
        return
    for node in module.nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{module.path}:{node.lineno} prints; a library returns values or logs"


@functools.cache
def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def undeclared_libraries(module: Module) -> Iterator[str]:
    """Third-party imports that pyproject.toml does not name: they would be missing after `pip install .`.

    Extras count where they may be needed: tables work without any.
    """
    project = _project()
    requirements = list(project["dependencies"])
    for extra in MAY_NEED.get(module.package, ()):
        requirements += project["optional-dependencies"][extra]
    declared = {re.split(r"[^\w-]", requirement)[0].lower().replace("-", "_") for requirement in requirements}
    # PyYAML is yaml, backports.zstd is backports; pyspark brings py4j and boto3 botocore; compression is standard since
    # Python 3.14.
    known = declared | {"backports", "yaml", "compression"} | set(MAY_IMPORT)
    known |= {"py4j"} if "pyspark" in declared else set()
    known |= {"botocore"} if "boto3" in declared else set()
    for line, name in module.imports():
        top = name.split(".")[0]
        if top in OPTIONAL.get(module.path, ()):
            continue
        if top and top != "top-level" and top not in sys.stdlib_module_names and top.lower() not in known:
            yield f"{module.path}:{line} imports {top}; pyproject.toml does not name it for {module.package}"


RULES: list[Callable[[Module], Iterator[str]]] = [
    wrong_directions,
    crossed_borders,
    wrong_layers,
    wrong_processes,
    foreign_owners,
    known_formats,
    hidden_imports,
    side_doors,
    removals_behind_links,
    broad_excepts,
    nameless_docstrings,
    prints,
    undeclared_libraries,
]


@pytest.mark.dear("the first of them parses the whole source")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Module], Iterator[str]]) -> None:
    broken = [finding for module in _modules() for finding in rule(module)]
    assert not broken, "\n".join(broken)


def test_no_import_cycles() -> None:
    modules = {module.name: module for module in _modules()}
    graph = {
        name: {target for target in _imported_at_run_time(module) if target in modules and target != name}
        for name, module in modules.items()
    }
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError and names the cycle
    assert set(order) >= set(modules)


def classes_named_twice(modules: Sequence[Module]) -> set[str]:
    """The names that several public classes have."""
    names = [
        node.name
        for module in modules
        for node in module.nodes()
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    return {name for name, count in Counter(names).items() if count > 1}


def test_one_class_name_is_one_class() -> None:
    assert classes_named_twice(_modules()) == NAMED_TWICE
    twice = [_module("storage/a.py", "class Row: ..."), _module("logstore/b.py", "class Row: ...\nclass _Own: ...")]
    assert classes_named_twice([*twice, _module("jobs/c.py", "class _Own: ...\nclass Rows: ...")]) == {"Row"}


def test_the_border_is_as_narrow_as_it_says() -> None:
    """Sixteen modules at most and the names of others, and each one on the lists is imported."""
    used = {inner for module in _modules() for _, inner in _border_crossings(module)}
    assert used == BORDER | GIVEN.keys()
    assert len(BORDER) <= BORDER_MAX
    names = {(inner, name) for module in _modules() for _, inner, name in _given(module)}
    assert names == {(inner, name) for inner, names in GIVEN.items() for name in names}


def test_the_drawing_of_storage_shows_its_imports() -> None:
    """Each import between rooms has a path of arrows in storage/README.md, and each arrow is an import."""
    text = (SOURCES / "storage/README.md").read_text(encoding="utf-8")
    drawing = text.partition("```mermaid")[2].partition("```")[0]
    drawn = {
        (source, target)
        for source, targets in re.findall(r"^ *(\w+) --> (.+)$", drawing, re.MULTILINE)
        for target in targets.split(" & ")
    }
    imported = {
        (module.name.split(".")[1], name.split(".")[1])
        for module in _modules()
        if module.package == "storage" and module.name != "storage"
        for _, name in module.imports()
        if name.startswith("storage.")
    }
    imported = {(source, target) for source, target in imported if source != target}
    missing = {edge for edge in imported if edge[1] not in _reached(edge[0], drawn)}
    assert not missing, f"add to the drawing in storage/README.md, Rooms: {sorted(missing)}"
    assert drawn <= imported, f"take out of the drawing in storage/README.md, Rooms: {sorted(drawn - imported)}"


def _reached(start: str, edges: set[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        source = waiting.pop()
        new = {target for origin, target in edges if origin == source} - found
        found |= new
        waiting += new
    return found


def test_packages_are_there() -> None:
    """An empty list of modules would make every rule above pass."""
    assert {module.package for module in _modules()} >= {"storage", "pipeline"}
    assert len(_modules()) > 50


def _imported_at_run_time(module: Module) -> set[str]:
    """Modules that are imported elsewhere than under `if TYPE_CHECKING:`."""
    guarded = {
        inner
        for node in module.nodes()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in range(node.lineno, (node.body[-1].end_lineno or node.lineno) + 1)
    }
    return {name for line, name in module.imports() if line not in guarded}


BAD = [
    (wrong_directions, "storage/x.py", "from freshet.pipeline import config"),
    (wrong_directions, "storage/x.py", "import freshet.logstore.log_record"),
    (wrong_directions, "logstore/x.py", "from freshet.storage.table import Table"),
    (wrong_directions, "pipeline/x.py", "from tests.kit import notation"),
    (wrong_directions, "storage/x.py", "from .paths import TablePaths"),
    (wrong_directions, "storage/x.py", "from storage.paths import TablePaths"),
    (wrong_directions, "jobs/x.py", "import pipeline"),
    (crossed_borders, "pipeline/x.py", "from freshet.storage.scan.planner import plan_scan"),
    (crossed_borders, "pipeline/x.py", "from freshet.storage.options.declaration import IMMUTABLE_KEYS"),
    (crossed_borders, "pipeline/x.py", "from freshet.storage import Table"),
    (crossed_borders, "pipeline/x.py", "from freshet.storage.scan.table_scan import plan_scan"),
    (crossed_borders, "jobs/x.py", "import freshet.storage.lookup"),
    (crossed_borders, "pipeline/x.py", "table.store.snapshots.latest()"),
    (wrong_processes, "pipeline/query/wire/x.py", "from freshet.pipeline.query.task.write_task import WriteTask"),
    (wrong_processes, "pipeline/query/task/x.py", "from freshet.pipeline.query.driver.engine import Engine"),
    (foreign_owners, "pipeline/query/driver/x.py", "from pyspark.sql import DataFrame"),
    (wrong_layers, "storage/model/x.py", "from freshet.storage.codec.binary_row import encode_row"),
    (wrong_layers, "storage/merge/x.py", "from freshet.storage.write.task_writer import TaskWriter"),
    (wrong_layers, "storage/scan/x.py", "from freshet.storage.commit.committer import Committer"),
    (wrong_layers, "storage/merge/x.py", "def f():\n    from freshet.storage.table import Table"),
    (wrong_layers, "storage/commit/x.py", "from freshet.storage.cleaning.expire import expire_after_commit"),
    (wrong_layers, "storage/brand_new.py", ""),
    (wrong_layers, "logstore/brand_new.py", ""),
    (wrong_layers, "logstore/reading/x.py", "from freshet.logstore.kafka.log_client import KafkaLogClient"),
    (wrong_layers, "logstore/reading/x.py", "from freshet.logstore.writing.publisher import LogPublisher"),
    (wrong_layers, "pipeline/brand_new.py", ""),
    (wrong_layers, "pipeline/query/driver/x.py", "from freshet.pipeline.sources.raw_frame import raw_frame"),
    (wrong_layers, "pipeline/query/driver/x.py", "from freshet.pipeline.sync.sync_tables import SyncTables"),
    (foreign_owners, "storage/scan/x.py", "import pyarrow.parquet as pq"),
    (foreign_owners, "storage/scan/x.py", "from pyarrow import parquet"),
    (foreign_owners, "storage/commit/x.py", "import fastavro"),
    (foreign_owners, "storage/x.py", "from pyspark.sql import DataFrame"),
    (foreign_owners, "pipeline/x.py", "from confluent_kafka import Consumer"),
    (foreign_owners, "pipeline/running/runner.py", "import yaml"),
    (foreign_owners, "storage/edits/x.py", "optional_library('duckdb', 'x').connect()"),
    (foreign_owners, "pipeline/x.py", "import duckdb"),
    (
        known_formats,
        "storage/files/data_file_reader.py",
        "from freshet.storage.files.parquet.reader import ParquetReader",
    ),
    (known_formats, "storage/merge/x.py", "import freshet.storage.files.parquet.writer"),
    (hidden_imports, "pipeline/x.py", "import json\ndef f():\n    import json"),
    (hidden_imports, "pipeline/x.py", "import freshet.storage.catalog\ndef f():\n    import pyarrow"),
    (side_doors, "storage/write/x.py", "import uuid"),
    (side_doors, "storage/write/x.py", "from random import random"),
    (side_doors, "storage/write/x.py", "open('x')"),
    (side_doors, "storage/write/x.py", "time.time()"),
    (side_doors, "storage/write/x.py", "datetime.datetime.now()"),
    (side_doors, "storage/write/x.py", "os.rename(a, b)"),
    (side_doors, "storage/write/x.py", "Path(a)"),
    (removals_behind_links, "storage/cleaning/x.py", "store.env.file_io.delete_all(paths)"),
    (removals_behind_links, "storage/metadata/x.py", "self._file_io.delete(path)"),
    (broad_excepts, "pipeline/x.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (broad_excepts, "pipeline/x.py", "try:\n    f()\nexcept:\n    pass"),
    (nameless_docstrings, "pipeline/x.py", 'def f() -> int:\n    """Of a worker."""'),
    (prints, "storage/x.py", "print(1)"),
    (undeclared_libraries, "storage/x.py", "import pandas"),
    (undeclared_libraries, "storage/x.py", "import pyspark"),
    (undeclared_libraries, "logstore/x.py", "from pyspark.sql import Row"),
]
GOOD = [
    (wrong_directions, "logstore/x.py", "from freshet.storage.model.row_kind import RowKind"),
    (wrong_directions, "pipeline/x.py", "from freshet.storage.table import Table"),
    (crossed_borders, "pipeline/x.py", "from freshet.storage.options import IMMUTABLE_KEYS"),
    (crossed_borders, "pipeline/x.py", "from freshet.storage.table import Table"),
    (crossed_borders, "pipeline/x.py", "from freshet.storage.scan.table_scan import TableScan"),
    (crossed_borders, "logstore/x.py", "from freshet.storage.model.split import Split"),
    (wrong_layers, "storage/write/x.py", "from freshet.storage.merge.chosen_row import Deduplicate"),
    (wrong_layers, "pipeline/query/driver/x.py", "from freshet.pipeline.identity.batch_identity import is_same_input"),
    (foreign_owners, "storage/files/parquet/reader.py", "import pyarrow.parquet as pq"),
    (known_formats, "storage/files/formats.py", "from freshet.storage.files.parquet.reader import ParquetReader"),
    (known_formats, "storage/merge/x.py", "from freshet.storage.files.file_format import FileReader"),
    (hidden_imports, "storage/x.py", "import freshet.storage.catalog\ndef f():\n    import duckdb"),
    (side_doors, "storage/io/env.py", "import uuid"),
    (side_doors, "storage/write/x.py", "time.perf_counter()"),
    (removals_behind_links, "storage/cleaning/x.py", "store.removal.delete_all(paths)"),
    (broad_excepts, "pipeline/x.py", "try:\n    f()\nexcept Exception:\n    g()\n    raise"),
    (nameless_docstrings, "pipeline/x.py", 'def f() -> int:\n    """The id of a worker."""'),
    (prints, "pipeline/x.py", "print(1)"),
    (undeclared_libraries, "storage/x.py", "import yaml, pyarrow.compute"),
    (undeclared_libraries, "pipeline/x.py", "import pyspark, py4j, confluent_kafka"),
]


@pytest.mark.parametrize(("rule", "path", "source"), BAD, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_broken_rule_is_found(rule: Callable[[Module], Iterator[str]], path: str, source: str) -> None:
    assert list(rule(_module(path, source)))


@pytest.mark.parametrize(("rule", "path", "source"), GOOD, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_kept_rule_is_quiet(rule: Callable[[Module], Iterator[str]], path: str, source: str) -> None:
    assert not list(rule(_module(path, source)))
