"""`catalog:` of a pipeline file and the names of catalogs in it: what is refused where, and whose options count."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.pipeline.config.catalogs import (
    catalog_options_of,
    prefixed,
    source_options,
    target_catalog,
    target_location,
)
from freshet.pipeline.config.model import PipelineConfig, TableSourceConfig
from freshet.pipeline.config.pipeline_file import parse_pipeline
from freshet.pipeline.query.driver.table_setup import check_table, open_or_create
from freshet.storage.catalog import Catalog
from freshet.storage.catalogs.given import CATALOG_OPTIONS_VARIABLE
from freshet.storage.io.catalogs_file import CATALOGS_FILE_VARIABLE

TEXT = """\
name: copy
sources:
  - table: {warehouse: "FROM", name: a.b}
table: {warehouse: "TO", name: a.c, columns: {id: BIGINT}, primary_key: [id], options: {bucket: 1}}
checkpoint: /c
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "catalogs.yaml"
    file.write_text("lake: {warehouse: 's3://b/lake', s3.endpoint: 'http://lake'}\nbad: {s3.endpoint: x}\n")
    monkeypatch.setenv(CATALOGS_FILE_VARIABLE, str(file))
    monkeypatch.delenv(CATALOG_OPTIONS_VARIABLE, raising=False)


def parsed(more: str = "", *, to: str = "/w", source: str = "/from") -> tuple[PipelineConfig | None, list[str]]:
    text = TEXT.replace("TO", to).replace("FROM", source) + more
    config, problems = parse_pipeline(text, "p.yaml", {"SECRET": "s3cret"})
    return config, [str(each) for each in problems]


def good(more: str = "", *, to: str = "/w", source: str = "/from") -> PipelineConfig:
    config, problems = parsed(more, to=to, source=source)
    assert config is not None, problems
    return config


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("catalog: {s3.secret-key: s3cret}", "p.yaml:6: catalog.s3.secret-key: holds a secret"),
        ("catalog: {s3.secret-key: '${SECRET}'}", "give s3.secret-key=env:NAME"),
        ("catalog: {uri: 'jdbc:postgresql://me:s3cret@db/lake'}", "catalog.uri: holds a secret"),
        ("catalog: {s3.endpont.: x, metastor: s3cret}", "catalog.metastor: is no option of a catalog or of a store"),
        ("catalog: [s3cret]", "catalog: wants keys and values"),
    ],
)
def test_options_are_refused_by_their_line_without_their_values(more: str, message: str) -> None:
    _, problems = parsed(more)
    assert any(message in each for each in problems), problems
    assert "s3cret" not in str(problems)


def test_no_text_of_a_file_shows_a_secret(tmp_path: Path) -> None:
    """One that was made without the rules, as a program may."""
    given = {"name": "a.c", "warehouse": "/w", "columns": {"id": "BIGINT"}}
    config = PipelineConfig.model_validate(
        {"name": "n", "sources": [], "table": given, "checkpoint": "/c", "catalog": {"s3.secret-key": "s3cret"}}
    )
    assert "s3cret" not in f"{config!r}{config.model_dump_json()}{config.without_secrets('a s3cret b')}"


def test_a_source_takes_of_the_files_options_what_its_store_takes() -> None:
    options = "catalog: {s3.endpoint: 'http://x', commit.coordination: single-writer}"
    config = good(options, to="s3://b/w", source="s3://c/w")
    assert source_options(config, _source(config)) == {
        "s3.endpoint": "http://x",
        "commit.coordination": "single-writer",
    }
    config = good(options, to="s3://b/w")
    assert source_options(config, _source(config)) == {"commit.coordination": "single-writer"}
    own = TEXT.replace("name: a.b", "name: a.b, catalog: {s3.region: eu}").replace("FROM", "s3://c/w")
    own_config, problems = parse_pipeline(own.replace("TO", "s3://b/w") + options, "p.yaml", {})
    assert own_config is not None, problems
    assert source_options(own_config, _source(own_config)) == {"s3.region": "eu"}


def test_the_name_of_a_catalog_is_a_warehouse() -> None:
    config = good(to="lake", source="lake")
    assert (config.table.warehouse, target_location(config)) == ("lake", "s3://b/lake")


def test_a_table_that_follows_itself_by_another_name_is_refused() -> None:
    text = TEXT.replace("a.c", "a.b").replace("TO", "lake").replace("FROM", "s3://b/lake/")
    _, problems = parse_pipeline(text, "p.yaml", {})
    assert any("is the table that is written" in str(each) for each in problems)


def test_a_folder_is_what_a_word_means_without_a_catalog(tmp_path: Path) -> None:
    assert good(to="pond").table.warehouse == str(tmp_path / "pond")


def test_a_word_with_two_meanings_is_refused_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    _, problems = parsed(to="lake")
    assert any("p.yaml:4: table.warehouse: 'lake' is a catalog" in each for each in problems), problems
    _, problems = parsed(source="bad")
    assert any("p.yaml:3: sources.0.table.warehouse: catalog bad" in each for each in problems), problems
    assert good(to="./lake").table.warehouse == str(tmp_path / "lake")


def test_a_remedy_names_the_options(tmp_path: Path) -> None:
    options = "catalog: {commit.coordination: single-writer}"
    open_or_create(good(options, to=str(tmp_path / "w")))
    text = TEXT.replace("TO", str(tmp_path / "w")).replace("id: BIGINT", "id: BIGINT, n: INT").replace("FROM", "/from")
    config, _ = parse_pipeline(text + options, "p.yaml", {})
    assert config is not None
    command = f"freshet sql {tmp_path}/w --catalog-option commit.coordination=single-writer"
    assert check_table(config)[0].endswith(f'{command} "ALTER TABLE a.c ADD COLUMN n INT"')


def test_a_database_keeps_the_tables_of_a_file(tmp_path: Path) -> None:
    options = f"catalog: {{uri: 'jdbc:sqlite:{tmp_path}/c.db', catalog-key: k}}"
    open_or_create(good(options, to=str(tmp_path / "w")))
    assert (tmp_path / "c.db").exists()
    assert Catalog(tmp_path / "w").has_table("a.c")  # its files are where a folder has them
    other = {"uri": f"jdbc:sqlite:{tmp_path}/c.db", "catalog-key": "other"}
    assert not Catalog(tmp_path / "w", options=other).has_table("a.c")
    (tmp_path / "catalogs.yaml").write_text(f"base: {{uri: 'jdbc:sqlite:{tmp_path}/c.db', warehouse: '{tmp_path}/w'}}")
    assert target_catalog(good("catalog: {catalog-key: k}", to="base")).has_table("a.c")


def test_options_of_a_frame_are_the_catalogs_with_a_prefix_or_by_their_name() -> None:
    options = {
        "uri": "jdbc:sqlite:/c",
        "catalog.metastore": "jdbc",
        "warehouse": "/w",
        "s3.region": "eu",
        "filter": "x",
    }
    found = {"uri": "jdbc:sqlite:/c", "metastore": "jdbc", "s3.region": "eu"}
    assert catalog_options_of(options, frozenset({"warehouse", "filter"})) == found
    assert catalog_options_of(prefixed(found), frozenset({"uri"})) == found


def _source(config: PipelineConfig) -> TableSourceConfig:
    found = config.sources[0].table
    assert found is not None
    return found
