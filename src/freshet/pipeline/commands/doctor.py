"""The command `doctor`: what is wrong with pipelines, with tables, and with this machine."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import typer

from freshet._distribution import DISTRIBUTION
from freshet._frozen import Frozen
from freshet.pipeline.commands.arguments import (
    PIPELINE_FILES,
    AsJson,
    CatalogOption,
    Places,
    catalog_options,
    files_or_warehouse,
    open_catalog,
    refuse_none,
)
from freshet.pipeline.commands.output import complain, print_json, say
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.table_arguments import options_text
from freshet.pipeline.exceptions import PipelineError
from freshet.pipeline.spark.jars import java_problem
from freshet.storage.exceptions import StorageError
from freshet.storage.model.display import one_line, plural, printable
from freshet.storage.status.finding import Finding, Rule, Severity, Sign, findings_of

if TYPE_CHECKING:
    from freshet.pipeline.config.model import PipelineConfig
    from freshet.pipeline.running.pipeline_findings import Topics

EXIT_FOUND: Final = 3
"""Something is wrong, and more than a note."""
WIDTH: Final = 100
SHOWN_MAX: Final = 15
"""Findings of a warehouse, two lines each."""
_MACHINE: Final = "this machine"

_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:\[[^]]*\])?((?:[<>]=?[\d.]+,?)+)")
_BOUND: Final = re.compile(r"([<>]=?)([\d.]+)")


def doctor(
    places: Places,
    catalog_option: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with pipelines and tables: how bad, by how much, why, and the command that mends it. Changes
    nothing.

    Reads files alone, so it works where nothing runs; of pipeline files it asks Kafka too, how long it keeps what they
    have not read. Looks at this machine besides: its libraries, and Java. Exit code 3 where an error or a warning is
    found; 0 where nothing is, or notes alone.
    """
    found = sorted([*_machine_findings(), *_found(places, catalog_option)], key=attrgetter("severity.rank"))
    if as_json:
        print_json({"findings": [each.facts() for each in found]})
    else:
        is_warehouse = len(places) == 1 and not places[0].endswith(PIPELINE_FILES)
        say("\n".join(_in_short(found) if is_warehouse else _in_full(found)))
    if any(each.asks_to_act for each in found):
        raise typer.Exit(EXIT_FOUND)


def _found(places: Sequence[str], catalog_option: Sequence[str] | None) -> list[Finding]:
    files, warehouse, table = files_or_warehouse(places, "doctor")
    if files:
        from freshet.pipeline.config.pipeline_file import load_pipelines
        from freshet.pipeline.running.pipeline_findings import pipeline_findings

        return pipeline_findings(load_pipelines(files), _topics)
    catalog = open_catalog(warehouse, catalog_option)
    if table is None:
        refuse_none(catalog)
    found = catalog.doctor(warehouse=warehouse) if table is None else catalog.table(table).doctor(warehouse=warehouse)
    arguments = options_text(catalog_options(catalog_option))
    return [each.with_arguments(arguments) for each in found]


def _topics(config: PipelineConfig, now_ms: int) -> Topics:
    """Where the topics of a pipeline cannot be asked it says so, and the rest is found all the same."""
    from freshet.pipeline.identity.checkpoint_folder import as_folder
    from freshet.pipeline.local.store_checkpoint import pipeline_checkpoint
    from freshet.pipeline.running.pipeline_findings import Topics

    if all(source.kafka is None for source in config.sources) and not config.table.written_options.has_log:
        return Topics()
    reach, kafka = (spark_part(name, "freshet.pipeline.checks") for name in ("topic_reach", "kafka_reach"))
    try:
        folder = as_folder(config.checkpoint) or pipeline_checkpoint(config)
        clients = kafka.Clusters()
        return Topics(reach.topic_reaches(config, folder, clients, now_ms), reach.log_reach(config, clients))
    except (OSError, ValueError, StorageError, PipelineError) as error:
        complain(f"{config.name}: its topics were not looked at: {config.without_secrets(str(error))}")
        return Topics()


def _in_full(found: Sequence[Finding]) -> Iterator[str]:
    yield _head(found)
    for each in found:
        yield _line(each)
        for text in (each.cause, each.remedy):
            yield from textwrap.wrap(one_line(text), WIDTH, initial_indent="  ", subsequent_indent="  ")
        if each.command is not None:
            yield f"  $ {printable(each.command)}"


def _in_short(found: Sequence[Finding]) -> Iterator[str]:
    """A screen of many tables: without causes, and without notes where there is worse."""
    to_act = [each for each in found if each.asks_to_act]
    shown = (to_act or found)[:SHOWN_MAX]
    yield _head(found)
    for each in shown:
        yield _line(each)
        if each.command is not None:
            yield f"  $ {printable(each.command)}"
    if len(shown) < len(found):
        rest = found[len(shown) :]
        more = "more" if any(each.asks_to_act for each in rest) else "note" if len(rest) == 1 else "notes"
        yield f"and {len(rest):,} {more}; --json has them all"
    if found:
        yield "causes and remedies: name a table"


def _head(found: Sequence[Finding]) -> str:
    return plural(len(found), "finding") if found else "nothing is wrong"


def _line(each: Finding) -> str:
    return f"{each.severity.upper()} {printable(each.table)}: {each.name} ({each.evidence:,} {each.unit})"


class _Machine(Frozen):
    """What is wrong here."""

    misfits: tuple[str, ...]
    java: str | None


def _machine_findings() -> list[Finding]:
    """What is wrong with this machine."""
    java = java_problem() if find_spec("pyspark") is not None else None
    facts = _Machine(tuple(misfits(requires_of(DISTRIBUTION))), java)
    return sorted(findings_of(_MACHINE_RULES, facts, _MACHINE), key=attrgetter("severity.rank"))


def requires_of(distribution: str) -> list[str]:
    """Its requirements; none of a checkout that was not installed."""
    try:
        return requires(distribution) or []
    except PackageNotFoundError:
        return []


def misfits(requirements: list[str]) -> Iterator[str]:
    """Libraries that are installed in a version that is not asked for, such as `pyarrow 19.0.0, not >=23.0.0,<27`."""
    for text in dict.fromkeys(each.split(";")[0].replace(" ", "") for each in requirements):
        found = _REQUIREMENT.fullmatch(text)
        try:
            installed = None if found is None else version(found[1])
        except PackageNotFoundError:
            continue
        if found is not None and installed is not None and not _fits(installed, found[2]):
            yield f"{found[1]} {installed}, not {found[2]}"


def _fits(installed: str, bounds: str) -> bool:
    numbers = _numbers(installed)
    for sign, text in _BOUND.findall(bounds):
        bound = _numbers(text)
        width = max(len(numbers), len(bound))
        left, right = (each + (0,) * (width - len(each)) for each in (numbers, bound))
        if not {">=": left >= right, ">": left > right, "<=": left <= right, "<": left < right}[sign]:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _misfits(machine: _Machine) -> Sign | int:
    return Sign(len(machine.misfits), {"misfits": "; ".join(machine.misfits)}) if machine.misfits else 0


def _java(machine: _Machine) -> Sign | int:
    return Sign(1, {"problem": machine.java}) if machine.java else 0


_MACHINE_RULES: Final = (
    Rule(
        "libraries do not fit",
        Severity.ERROR,
        _misfits,
        "libraries of another version",
        "{misfits}",
        "Install Freshet again into an environment of its own: other versions write other files, or fail",
    ),
    Rule(
        "Java does not fit",
        Severity.WARNING,
        _java,
        "Java that Spark cannot start with",
        "{problem}",
        "Or run pipelines without Spark (run_on: local)",
    ),
)
