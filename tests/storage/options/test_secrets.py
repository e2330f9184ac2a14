"""What is secret among options, by one definition, and that no text of a table shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet import Catalog, InvalidRequestError, SetOption, Table, sql
from freshet.storage.options import HIDDEN, is_secret, resolved_option, shown_options, without_secrets
from freshet.storage.options.declaration import OPTIONS
from freshet.storage.options.declared.unsupported import ENGINE_KEYS, FORMAT_KEYS, MOVED_OUT
from freshet.storage.options.secrets import is_secret_key

SECRETS = {
    "s3.secret-key": "hunter2",
    "s3.access-key": "hunter2",
    "s3.session.token": "hunter2",
    "fs.s3a.access.key": "hunter2",
    "fs.oss.accessKeySecret": "hunter2",
    "fs.azure.account.key.lake.blob.core.windows.net": "hunter2",
    "kafka.sasl.jaas.config": 'PlainLoginModule required username="me" password="hunter2";',
    "kafka.sasl.password": "hunter2",
    "kafka.ssl.key.pem": "hunter2",
    "kafka.ssl.keystore.key": "hunter2",
    "kafka.schema.registry.basic.auth.user.info": "me:hunter2",
    "jdbc.password": "hunter2",
    "rest.token": "hunter2",
    "header.Authorization": "Bearer hunter2",
}
WITHIN = {
    "uri": "jdbc:postgresql://db/lake?user=me&password=hunter2&ssl=true",
    "lock.uri": "jdbc:mysql://me:hunter2@db:3306/lake",
    "spark.source": "jdbc:sqlserver://db;user=me;password=hunter2;encrypt=true",
    "hive.source": "jdbc:oracle:thin:me/hunter2@db:1521",
    "data-file.note": "s3://me:hunter2@bucket/lake",
}


@pytest.mark.parametrize(("key", "text"), {**SECRETS, **WITHIN}.items())
def test_secrets_and_texts_with_one_in_them_are_hidden(key: str, text: str) -> None:
    assert is_secret(key, text)
    assert "hunter2" not in shown_options({key: text})[key]
    assert HIDDEN in shown_options({key: text})[key]
    assert "hunter2" not in without_secrets(f"refused: {text}!", {key: text})


def test_of_a_text_only_the_password_is_hidden() -> None:
    shown = shown_options(WITHIN)
    assert shown["uri"] == "jdbc:postgresql://db/lake?user=me&password=***&ssl=true"
    assert shown["lock.uri"] == "jdbc:mysql://***@db:3306/lake"
    assert shown["spark.source"] == "jdbc:sqlserver://db;user=me;password=***;encrypt=true"
    assert shown["hive.source"] == "jdbc:oracle:thin:me/***@db:1521"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("fields.password.aggregate-function", "last_value"),
        ("file-index.bloom-filter.secret.fpp", "0.1"),
        ("fs.s3a.aws.credentials.provider", "Provider"),
        ("kafka.ssl.keystore.location", "keys.pem"),
        ("kafka.security.protocol", "SASL_SSL"),
        ("kafka.bootstrap.servers", "a:9092,b:9092"),
        ("spark.source", "abfss://container@account.dfs.core.windows.net/lake"),
        ("s3.endpoint", "http://store:9000"),
    ],
)
def test_what_is_no_secret_is_shown(key: str, text: str) -> None:
    assert not is_secret(key, text)
    assert shown_options({key: text}) == {key: text}


def test_no_option_of_the_format_or_of_engines_is_taken_for_a_secret() -> None:
    keys = {*OPTIONS, *MOVED_OUT, *FORMAT_KEYS, *ENGINE_KEYS}
    assert len(keys) > 400
    assert {key for key in keys if is_secret_key(key)} == set()


def test_no_text_of_a_table_shows_a_secret(tmp_path: Path) -> None:
    table = table_with(tmp_path, SECRETS | WITHIN)
    table = table.with_options({"kafka.sasl.username": "me", "kafka.ssl.key.password": "hunter2"})
    described = table.describe()
    assert all(key in described for key in SECRETS)
    assert described.count(HIDDEN) == len(SECRETS) + len(WITHIN)
    for value in (table, table.options, table.schema, table.store, table.store.handle, table.scan()):
        assert "hunter2" not in f"{described} {value!r} {value}"


def table_with(warehouse: Path, options: dict[str, str]) -> Table:
    """A table of another program, which may have any options."""
    made = Catalog(warehouse).create_table("db.t", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1})
    file = Path(made.location) / "schema" / "schema-0"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["options"] |= options
    file.write_text(json.dumps(content), encoding="utf-8")
    return Table.open(made.location)


STORED = {key: text for key, text in SECRETS.items() if key.startswith("kafka.")} | {
    "kafka.ssl.key.password": "hunter2",
    "kafka.sasl.oauthbearer.client.secret": "hunter2",
    "kafka.bootstrap.servers": "sasl://me:hunter2@broker:9092",
}


@pytest.mark.parametrize("key", STORED)
def test_a_secret_is_no_option_of_a_table(tmp_path: Path, key: str) -> None:
    """By no verb and in no language, while the name of a variable is one."""
    catalog, text = Catalog(tmp_path), STORED[key]
    table = catalog.create_table("db.t", schema={"id": "BIGINT"})
    quoted = text.replace("'", "\\'")
    calls = (
        lambda: catalog.create_table("db.new", schema={"id": "BIGINT"}, options={key: text}),
        lambda: table.alter(SetOption(key, text)),
        lambda: sql(f"CREATE TABLE db.new (id BIGINT) TBLPROPERTIES ('{key}' = '{quoted}')", catalog),
        lambda: sql(f"ALTER TABLE db.t SET TBLPROPERTIES ('{key}' = '{quoted}')", catalog),
        lambda: table.alter(SetOption(key, "env:HOME")) if is_secret(key, "env:HOME") else refuse(),
    )
    for call in calls:
        with pytest.raises(InvalidRequestError, match="env:KAFKA_NAME") as caught:
            call()
        assert caught.value.option == key
        assert "hunter2" not in str(caught.value)
    table.alter(SetOption(key, "env:KAFKA_GIVEN"))
    assert "env:KAFKA_GIVEN" in table.describe() or "env:KAFKA_GIVEN" in catalog.table("db.t").describe()
    files = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("schema-*")]
    assert len(files) == 2 and "hunter2" not in "".join(files)


def refuse() -> None:
    """A text that is no secret."""
    raise InvalidRequestError("env:KAFKA_NAME", option="kafka.bootstrap.servers")


def test_a_variable_is_looked_up() -> None:
    assert resolved_option("kafka.sasl.password", "plain", {}) == "plain"
    assert resolved_option("kafka.sasl.password", "env:KAFKA_P", {"KAFKA_P": "x"}) == "x"
    with pytest.raises(InvalidRequestError, match="KAFKA_P, which this process does not have"):
        resolved_option("kafka.sasl.password", "env:KAFKA_P", {})
    with pytest.raises(InvalidRequestError, match="begin with KAFKA_"):
        resolved_option("kafka.sasl.password", "env:AWS_SECRET_ACCESS_KEY", {"AWS_SECRET_ACCESS_KEY": "x"})
