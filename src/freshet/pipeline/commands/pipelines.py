"""Commands around pipeline files: run, check, jars, prepare. What needs Spark or Kafka is loaded when it is called."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from freshet.pipeline.checks.local_engine import local_remarks
from freshet.pipeline.checks.preflight import problems_before_start, warnings_before_start
from freshet.pipeline.commands.arguments import Adopt, AsJson, PipelineFiles, RunsOn, SkipRecord, record_places
from freshet.pipeline.commands.command_run import needs_kafka, on_one_engine
from freshet.pipeline.commands.engine_jobs import started
from freshet.pipeline.commands.failure_report import NO_FAILURE, Refusals, failure_facts, report_failure
from freshet.pipeline.commands.output import complain, print_json, say
from freshet.pipeline.commands.publishing import address_of, published
from freshet.pipeline.commands.spark_part import spark_part
from freshet.pipeline.config.catalogs import adopting
from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.config.pipeline_file import load_pipelines, read_pipelines
from freshet.pipeline.config.sections import interval_ms, spark_interval
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import ConfigurationError, InvalidRequestError, Problem
from freshet.pipeline.identity.checkpoint_folder import as_folder
from freshet.pipeline.query.driver.table_setup import with_table
from freshet.pipeline.running.signals import when_asked_to_stop
from freshet.storage.exceptions import StorageError

if TYPE_CHECKING:
    from freshet.pipeline.checks.record_samples import Records


def run(
    files: PipelineFiles,
    on: RunsOn = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes of a run without Spark. Default: the cores.", show_default=False),
    ] = None,
    progress: Annotated[
        Literal["text", "json"],
        typer.Option(
            help="What is printed for each batch: a line for people (text; without Spark one a second), or one JSON "
            "object (json)."
        ),
    ] = "text",
    wait_for_topics: Annotated[
        str, typer.Option(help="How long to wait for topics that are not there, such as '30 s'; 0: not at all.")
    ] = "5 min",
    restart: Annotated[
        int,
        typer.Option(
            min=0,
            help="How often in a row a pipeline is started again that fails of what may pass (brokers or store away, "
            "disk full, a lost conflict), after 2 s, 4 s, 8 s and so on. A batch more ends the row, or ten minutes.",
        ),
    ] = 5,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going",
            help="Let the other pipelines go on when one fails for good, or is refused at the start (exit code 2 at "
            "the end). Default: it ends all.",
        ),
    ] = False,
    accept_loss_of: Annotated[
        str | None,
        typer.Option(
            metavar="N..M",
            help="Go on although the table, or one of a sync: pipeline, does not hold the batches N to M, which were "
            "rolled back on purpose. One pipeline file.",
        ),
    ] = None,
    skip_record: SkipRecord = None,
    adopt: Adopt = False,
    metrics_port: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Publish metrics of all pipelines by HTTP at /metrics, and the probes /ready and /live, whatever "
            "metrics: of the files says. Default host: 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run pipelines, in one Spark session or without Spark, until they end or are asked to stop.

    SIGTERM or Ctrl-C let the batches that run finish; a second one stops at once.
    """
    wait_s = _seconds("--wait-for-topics", wait_for_topics)
    refusals = Refusals(keeps_going=keep_going)
    configs = refusals.left(*read_pipelines(files))
    configs = refusals.left(*on_one_engine(configs, on))
    is_local = all(config.is_local for config in configs)
    if workers is not None and not is_local:
        raise InvalidRequestError("--workers is of a run without Spark (--on local); on Spark: spark.master: local[N]")
    configs = [adopting(config) if adopt else config for config in configs]
    if accept_loss_of is not None:
        configs = _accepting_loss(configs, accept_loss_of)
    places = record_places(skip_record)
    configs = [config.skipping(places) for config in configs] if places else configs
    place = None if metrics_port is None else address_of(metrics_port)
    complain(start_text(configs))
    with started(configs, workers) as pool, published(configs, place) as totals:
        for config in configs:
            _warn(config, warnings_before_start(config))
        configs = refusals.left(configs, [each for config in configs for each in problems_before_start(config)])
        engine = spark_part("local_running" if is_local else "running")
        stop = threading.Event()
        with when_asked_to_stop(stop.set):
            if not _kafka_is_there(configs, wait_s, stop):
                return
        configs = refusals.left(configs, _kafka_problems(configs))
        if places:
            spark_part("brokers").refuse_wrong_places(configs, places)
        engine.run_pipelines(pool, configs, progress=progress, restarts=restart, refusals=refusals, totals=totals)
    refusals.raise_any()


def start_text(configs: Sequence[PipelineConfig]) -> str:
    """What a run waits for before its first batch."""
    name = configs[0].name if len(configs) == 1 else f"{len(configs)} pipelines"
    kind = "brokers" if needs_kafka(configs) else "databases" if _reads_databases(configs) else "files"
    looked_at = f"tables and {kind}"
    engine = "" if all(config.is_local for config in configs) else ", then starting Spark (up to a minute)"
    return f"{name}: looking at {looked_at}{engine}"


def _accepting_loss(configs: Sequence[PipelineConfig], text: str) -> list[PipelineConfig]:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text.strip())
    first, last = (0, -1) if found is None else (int(found[1]), int(found[2] or found[1]))
    if last < first:
        raise InvalidRequestError(f"--accept-loss-of {text!r}: write the first and the last batch, such as 17..19")
    if len(configs) != 1:
        raise InvalidRequestError("--accept-loss-of is about the batches of one pipeline; run its file alone")
    return [configs[0].accepting_loss(first, last)]


def check(
    files: PipelineFiles,
    on: RunsOn = None,
    no_spark: Annotated[
        bool,
        typer.Option(
            "--no-spark", help="Do not start Spark to analyse the expressions of select, nor look for its Java."
        ),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask neither Kafka brokers nor schema registries.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with pipeline files. Starts no pipeline and writes nothing."""
    facts: list[dict[str, object]] = []
    routes: dict[str, list[dict[str, object]]] = {}
    try:
        configs, differing = on_one_engine(load_pipelines(files), on)
        if differing:
            raise ConfigurationError(differing)
        from freshet.pipeline.spark.jars import java_problem

        no_spark = no_spark or all(config.is_local for config in configs)
        warnings = [_warn(each, warnings_before_start(each)) for each in configs]
        facts = [
            {"pipeline": each.name, "table": each.table.name, "warnings": found}
            for each, found in zip(configs, warnings, strict=True)
        ]
        if not no_spark and (java := java_problem()) is not None:
            text = f"this machine cannot run it: {java}"
            complain(f"warning: {text}")
            for found in warnings:
                found.append(text)
        problems = _problems(configs, no_spark=no_spark, offline=offline)
        if not problems:
            for each, found in zip(configs, warnings, strict=True):
                if not offline and needs_kafka([each]):
                    found += _warn(each, spark_part("brokers").waiting_texts(each, each.checkpoint))
                if not offline and _reads_databases([each]):
                    from freshet.pipeline.checks.postgres_reach import database_warnings

                    found += _warn(each, database_warnings(each))
                if isinstance(each, SyncPipelineConfig):
                    routes[each.name], refused = ([], []) if offline else _routes(each, found)
                    problems += refused
                else:
                    from freshet.pipeline.checks.record_samples import left_out_warnings

                    found += _warn(each, left_out_warnings(each, _no_records if offline else _kafka_records))
    except ConfigurationError as error:
        problems = list(error.problems)
    failure = ConfigurationError(problems) if problems else None
    if as_json:
        for fact in facts:
            fact["routes"] = routes.get(str(fact["pipeline"]))
        print_json({"pipelines": facts, **(NO_FAILURE if failure is None else failure_facts(failure))})
        if failure is not None:
            raise typer.Exit(report_failure(failure, []))
        return
    for fact in facts:
        for route in routes.get(str(fact["pipeline"]), []):
            say(f"  {route['source']} -> {route['target'] or '-'}: {route['text']}")
        is_many = fact["pipeline"] in routes
        if failure is None:
            say(f"{fact['pipeline']}: ok, {'the ledger is' if is_many else 'into'} {fact['table']}")
    if failure is not None:
        raise failure


def _problems(configs: list[PipelineConfig], *, no_spark: bool, offline: bool) -> list[Problem]:
    problems = [problem for config in configs for problem in problems_before_start(config)]
    if not offline and needs_kafka(configs):
        problems += spark_part("brokers").broker_problems(configs)
        problems += spark_part("brokers").offset_problems(configs, say=complain)
    if not offline and _reads_databases(configs):
        from freshet.pipeline.checks.postgres_reach import database_problems
        from freshet.pipeline.local.postgres_offset import going_on_problems
        from freshet.pipeline.sync.database_targets import targets_of

        problems += database_problems(configs)
        problems += [] if problems else going_on_problems(configs, targets_of)
    if _reads_avro(configs):
        registries = spark_part("registries")
        problems += [] if offline else registries.registry_problems(configs)
    logged = [] if offline else _logged(configs)
    if logged:
        problems += spark_part("brokers").log_problems(logged)
    for config in configs:
        if as_folder(config.checkpoint) is None and not config.is_local:
            complain(f"{config.name}: {config.checkpoint} was not looked at: only Spark can reach it, and run does so")
    if all(config.is_local for config in configs):
        problems += spark_part("local_running").look_at_checkpoints(configs, offline=offline)
        for text in [] if problems else local_remarks(configs):
            complain(text)
    elif any(config.table.expect or any(source.select for source in config.sources) for config in configs):
        if no_spark:
            complain("the expressions of select were not analysed: that needs Spark (--no-spark)")
        else:
            problems += spark_part("running").analyse_select(configs)
    return problems


def _kafka_is_there(configs: list[PipelineConfig], wait_s: float, stop: threading.Event) -> bool:
    """Waits for brokers and topics; False when it was asked to stop meanwhile."""
    if _reads_avro(configs):
        spark_part("registries")  # says what is not installed; tasks wait for the registry itself
    if needs_kafka(configs):
        brokers = spark_part("brokers")
        if not brokers.wait_for_brokers(configs, say=complain, stop=stop):
            return False
        return bool(brokers.wait_for_topics(configs, wait_s=wait_s, say=complain, stop=stop))
    return True


def _kafka_problems(configs: list[PipelineConfig]) -> list[Problem]:
    """What is wrong with the topics that are read, and with those of logs."""
    problems: list[Problem] = []
    if needs_kafka(configs):
        problems += spark_part("brokers").offset_problems(configs, say=complain)
    if _reads_databases(configs):
        from freshet.pipeline.checks.postgres_reach import database_problems

        problems += database_problems(configs)
    logged = _logged(configs)
    if logged:
        problems += spark_part("brokers").log_problems(logged, asks_for_silence=False)
    return problems


def _seconds(option: str, text: str) -> float:
    try:
        return interval_ms(spark_interval(text)) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"{option}: {error}") from error


def jars(
    s3: Annotated[
        bool,
        typer.Option(
            "--s3",
            help="With Hadoop's S3A too, for checkpoints and source files at s3a:// (690 MB). Tables do not need it.",
        ),
    ] = False,
) -> None:
    """Print the jars that Spark needs, as --jars takes them; they are fetched once per machine."""
    from freshet.pipeline.spark.jars import S3A_GROUP, SPARK_GROUP, ensure_jars

    groups = (SPARK_GROUP, S3A_GROUP) if s3 else (SPARK_GROUP,)
    say(",".join(str(jar) for group in groups for jar in ensure_jars(group)))


def prepare() -> None:
    """Make what this machine needs once, so that pipelines start sooner: the jars and an archive of Java's classes."""
    spark_part("preparing").prepare_machine(complain)


def _reads_databases(configs: Sequence[PipelineConfig]) -> bool:
    return any(source.postgres is not None for config in configs for source in config.sources)


def _reads_avro(configs: list[PipelineConfig]) -> bool:
    return any(source.is_avro for config in configs for source in config.sources)


def _logged(configs: list[PipelineConfig]) -> list[PipelineConfig]:
    """The files whose table has a log, with the options of the table where it is there."""
    known = map(_known, configs)
    return [config for config in known if config.table.written_options.has_log]


def _known(config: PipelineConfig) -> PipelineConfig:
    try:
        return with_table(config)
    except (StorageError, OSError):
        return config  # reported elsewhere


def _routes(config: SyncPipelineConfig, warnings: list[str]) -> tuple[list[dict[str, object]], list[Problem]]:
    """Where the records of each source table go, and what of it stops a run."""
    part = spark_part("routing_report", "freshet.pipeline.sync")
    routed = part.routed_tables(config)
    if routed is None:
        warnings += _warn(config, ["the brokers could not be asked where their records go"])
        return [], []
    warnings += _warn(config, part.warnings_of_toast(config, routed))
    refused = [config.origin.placed(Problem(("sync", "tables"), text)) for text in part.refusals(config, routed)]
    return [{"source": each.source, "target": each.target, "text": each.text} for each in routed], refused


def _kafka_records(source: SourceConfig) -> Records | None:
    if source.kafka is None:
        return None
    from freshet.pipeline.checks.record_samples import RECORDS_MAX

    records: Records | None = spark_part("brokers").sample_records(source, RECORDS_MAX)
    return records


def _no_records(source: SourceConfig) -> Records | None:
    return None


def _warn(config: PipelineConfig, warnings: Iterable[str]) -> list[str]:
    """Prints the warnings of a pipeline, and gives them."""
    found = list(warnings)
    for text in found:
        complain(f"{config.name}: warning: {text}")
    return found
