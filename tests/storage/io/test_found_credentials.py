"""Credentials of S3 that are found: web identities, roles, programs, as a table is written and read with them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import InvalidRequestError, RetryableError
from freshet.storage.io.object_file_io import ObjectFileIO
from freshet.storage.io.object_files import PART_BYTES
from tests.kit.s3_server import S3Place
from tests.kit.store_proxy import StoreProxy, through
from tests.kit.token_service import TokenService

TOKEN = "web.identity+token/of=tests"
ROLE = "arn:aws:iam::123456789012:role/lake"
VARIABLES = """ACCESS_KEY_ID SECRET_ACCESS_KEY SESSION_TOKEN PROFILE REGION DEFAULT_REGION ENDPOINT_URL ENDPOINT_URL_S3
    ENDPOINT_URL_STS WEB_IDENTITY_TOKEN_FILE ROLE_ARN CA_BUNDLE"""

PROFILES = """
[profile keys]
aws_access_key_id = BASE
aws_secret_access_key = base/secret+of=tests
[profile role]
role_arn = {role}
source_profile = keys
region = us-east-1
[profile web]
role_arn = {role}
web_identity_token_file = {folder}/token
region = us-east-1
[profile program]
credential_process = {python} {folder}/program.py
[profile without-region]
role_arn = {role}
source_profile = keys
"""
PROGRAM = """
import json, pathlib, sys
text = pathlib.Path({file!r}).read_text()
sys.exit("vault is sealed") if not text else print(text)
"""


@pytest.fixture
def proxy(s3: S3Place) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def home(s3: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with profiles and a token; nothing of the machine's."""
    for name in VARIABLES.split():
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "program.py").write_text(PROGRAM.format(file=str(tmp_path / "printed")))
    (tmp_path / "config").write_text(PROFILES.format(role=ROLE, folder=tmp_path, python=sys.executable))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return tmp_path


@pytest.fixture
def sts(s3: S3Place, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenService]:
    """For the web identity of the environment."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "none"))
    with TokenService(s3.endpoint, home) as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.endpoint)
        monkeypatch.setenv("AWS_CA_BUNDLE", service.authority)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        yield service


def store_options_of(s3: S3Place, proxy: StoreProxy) -> dict[str, str]:
    return {key: text for key, text in through(s3, proxy).store_options.items() if "-key" not in key}


def options_of(s3: S3Place, proxy: StoreProxy) -> dict[str, str]:
    return {**store_options_of(s3, proxy), "commit.coordination": "exclusive-put"}


def written_and_read(s3: S3Place, proxy: StoreProxy, name: str) -> Table:
    table = Catalog(s3.root, options=options_of(s3, proxy)).create_table(
        f"db.{name}", schema={"id": "BIGINT"}, primary_keys=["id"], options={"bucket": 1}
    )
    with table.writer("u") as writer:
        writer.write([{"id": 1}])
        writer.commit()
    read = Catalog(s3.root, options=options_of(s3, proxy)).table(f"db.{name}")
    assert read.scan().to_arrow().to_pylist() == [{"id": 1}]
    return table


def printed(number: int, **more: str) -> str:
    found = {"AccessKeyId": f"KEY{number}", "SecretAccessKey": "SK", "SessionToken": "T", **more}
    return json.dumps({"Version": 1, **found})


@pytest.mark.dear("boto3 reads its own data of services")
def test_a_web_identity_of_the_environment(s3: S3Place, proxy: StoreProxy, sts: TokenService, home: Path) -> None:
    """The token is read again for each session; one that the store has forgotten is replaced."""
    table = written_and_read(s3, proxy, "t")
    assert {request.access_key for request in proxy.requests} <= {*sts.issued}
    assert all("x-amz-security-token" in request.headers for request in proxy.requests)
    before = {*sts.issued}
    proxy.answer(400, "ExpiredToken", lambda request: request.access_key in before)
    (home / "token").write_text("another")
    with table.writer("u") as writer:
        writer.write([{"id": 2}])
        writer.commit()
    assert table.scan().to_arrow().num_rows == 2
    assert "another" in sts.tokens and {*sts.issued} > before


@pytest.mark.parametrize("refusal", [(403, "AccessDenied"), (400, "ExpiredTokenException"), (500, "InternalFailure")])
def test_what_sts_refuses_is_not_missing(
    s3: S3Place, proxy: StoreProxy, sts: TokenService, refusal: tuple[int, str]
) -> None:
    written_and_read(s3, proxy, "t")
    sts.refusal = refusal
    kind = RetryableError if refusal[0] == 500 else InvalidRequestError
    io = ObjectFileIO({**store_options_of(s3, proxy), "s3.attempts.maximum": "1"})
    path = f"{s3.root}/db.db/t/snapshot/snapshot-1"
    for call in (io.exists, io.read_bytes, io.exists_prefix, lambda path: io.create_exclusive(path, b"")):
        with pytest.raises(kind, match=rf"STS gives no credentials.*{refusal[0]} {refusal[1]}.*AWS_ROLE_ARN") as caught:
            call(path)
        assert TOKEN not in f"{caught.value}{caught.value.__cause__}"


def test_web_identities_without_https_or_a_token(
    s3: S3Place, proxy: StoreProxy, sts: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3 takes those that the client of stores does not."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    written_and_read(s3, proxy, "t")
    assert {request.access_key for request in proxy.requests} and not sts.issued
    monkeypatch.setattr("freshet.storage.io.object_stores.find_spec", lambda name: None)
    io = ObjectFileIO(store_options_of(s3, proxy))
    with pytest.raises(InvalidRequestError, match=r"does not begin with https:.*install freshet-lake\[s3\]"):
        io.exists(f"{s3.root}/a")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.endpoint)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/token")
    io = ObjectFileIO(store_options_of(s3, proxy))
    with pytest.raises(InvalidRequestError, match=r"/no/such/token.*AWS_WEB_IDENTITY_TOKEN_FILE"):
        io.create_exclusive(f"{s3.root}/a", b"")


@pytest.mark.dear("boto3 reads its own data of services")
@pytest.mark.parametrize("profile", ["role", "web"])
def test_a_profile_with_a_role(s3: S3Place, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    monkeypatch.setenv("AWS_PROFILE", profile)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint)
    written_and_read(s3, proxy, "t")
    keys = {request.access_key for request in proxy.requests}
    assert "BASE" not in keys and None not in keys
    assert all("x-amz-security-token" in request.headers for request in proxy.requests)


def test_what_a_profile_lacks_is_named(s3: S3Place, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "without-region")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint)
    with pytest.raises(InvalidRequestError, match=r"profile of AWS.*specify a region\); check ~/.aws/config"):
        ObjectFileIO({"s3.endpoint": proxy.endpoint}).create_exclusive(f"{s3.root}/a", b"")
    monkeypatch.setenv("AWS_PROFILE", "role")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(RetryableError, match=r"profile of AWS.*EndpointConnectionError"):
        ObjectFileIO({"s3.endpoint": proxy.endpoint}).exists(f"{s3.root}/a")


@pytest.mark.dear("boto3 reads its own data of services")
def test_a_program_whose_keys_are_replaced(
    s3: S3Place, proxy: StoreProxy, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store knows the old ones no more; the program has new ones, or fails for a while."""
    monkeypatch.setenv("AWS_PROFILE", "program")
    (home / "printed").write_text(printed(1))
    table, gone = written_and_read(s3, proxy, "t"), {"KEY1"}
    proxy.answer(403, "InvalidAccessKeyId", lambda request: request.access_key in gone)
    (home / "printed").write_text("")
    with pytest.raises(RetryableError, match=r"gives no credentials.*vault is sealed"):
        table.writer("u")
    (home / "printed").write_text(printed(2))
    with table.writer("u") as writer:
        writer.write([{"id": 2}])
        writer.commit()
    assert table.scan().to_arrow().num_rows == 2


def test_an_upload_whose_credentials_expire_is_worth_another_try(
    s3: S3Place, proxy: StoreProxy, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "program")
    (home / "printed").write_text(printed(1))
    io = ObjectFileIO(store_options_of(s3, proxy))
    proxy.answer(
        400, "ExpiredToken", lambda request: request.access_key == "KEY1" and request.query.get("partNumber") == "2"
    )

    def upload() -> None:
        output = io.open_output(f"{s3.root}/large")
        output.write(bytes(3 * PART_BYTES))
        output.close()

    with pytest.raises(RetryableError, match=r"have expired.*try again"):
        upload()
    (home / "printed").write_text(printed(2))
    upload()
    assert io.size(f"{s3.root}/large") == 3 * PART_BYTES
