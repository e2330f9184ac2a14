"""Options of stores as Paimon and Hadoop spell them, and what the client is given."""

from __future__ import annotations

from datetime import timedelta

import pytest

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.object_stores import azure_config, google_config
from freshet.storage.io.s3_options import s3_settings


@pytest.mark.parametrize("prefix", ["s3.", "s3a.", "fs.s3a."])
@pytest.mark.parametrize("access", ["access-key", "access.key"])
def test_spellings_mean_the_same(prefix: str, access: str) -> None:
    options = {f"{prefix}{access}": "AK", f"{prefix}secret.key": "SK", f"{prefix}session.token": "T"}
    settings = s3_settings({**options, f"{prefix}endpoint": "http://h:1", f"{prefix}path-style-access": "true"})
    assert settings.credentials == {"access_key_id": "AK", "secret_access_key": "SK", "token": "T"}
    assert (settings.endpoint, settings.is_virtual_host) == ("http://h:1", False)
    assert settings.client["allow_http"] and settings.config["region"] == "us-east-1"
    assert "SK" not in repr(settings) and "AK" not in repr(settings)


def test_endpoints_have_a_scheme_and_maybe_a_region() -> None:
    assert s3_settings({"s3.endpoint": "h:1"}).endpoint == "https://h:1"
    assert s3_settings({"s3.endpoint": "h:1", "s3.connection.ssl.enabled": "false"}).endpoint == "http://h:1"
    assert s3_settings({"s3.endpoint": "s3.eu-west-1.amazonaws.com"}).config["region"] == "eu-west-1"
    assert s3_settings({"s3.endpoint": "h", "s3.endpoint.region": "x-1"}).config["region"] == "x-1"
    assert s3_settings({"s3.path.style.access": "false"}).is_virtual_host


def test_settings_of_connections_and_encryption() -> None:
    settings = s3_settings(
        {
            "s3.connection.establish.timeout": "5000",
            "fs.s3a.connection.timeout": "30s",
            "fs.s3a.attempts.maximum": "4",
            "s3.proxy.host": "p",
            "s3.proxy.port": "3128",
            "s3.proxy.username": "me",
            "s3.proxy.password": "a@b",
            "fs.s3a.server-side-encryption-algorithm": "SSE-KMS",
            "fs.s3a.server-side-encryption.key": "arn:key",
            "fs.s3a.multiobjectdelete.enable": "false",
            "fs.s3a.fast.upload.buffer": "disk",
        }
    )
    assert settings.client["connect_timeout"] == timedelta(seconds=5)
    assert settings.client["read_timeout"] == timedelta(seconds=30)
    assert settings.client["proxy_url"] == "http://me:a%40b@p:3128"
    assert settings.retries_max == 4
    assert settings.config == {
        "server_side_encryption": "aws:kms",
        "sse_kms_key_id": "arn:key",
        "disable_bulk_delete": True,
    }


def test_credential_providers_of_java() -> None:
    provider = "s3.aws.credentials.provider"
    assert s3_settings({provider: "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}).config == {
        "skip_signature": True
    }
    assert s3_settings({provider: "com.amazonaws.auth.profile.ProfileCredentialsProvider"}).wants_profile
    keys = {"s3.access-key": "AK", "s3.secret-key": "SK"}
    simple = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    assert s3_settings({**keys, provider: simple}).credentials["access_key_id"] == "AK"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"s3.acess-key": "x"}, "s3.acess-key is not known.*s3.access.key"),
        ({"s3.access-key": "x"}, "belong together"),
        ({"s3.session-token": "x"}, "belong together"),
        ({"s3.endpoint": "a", "fs.s3a.endpoint": "b"}, "s3.endpoint and fs.s3a.endpoint mean the same"),
        ({"s3.endpoint": "http://AK:SK@h:1"}, "^option s3.endpoint: credentials do not belong into an endpoint"),
        ({"s3.path.style.access": "yes"}, "s3.path.style.access is yes; give true or false"),
        ({"s3.connection.timeout": "soon"}, "give milliseconds"),
        ({"s3.attempts.maximum": "many"}, "whole number"),
        ({"s3.encryption.algorithm": "ROT13"}, "AES256"),
        ({"s3.encryption.key": "k"}, "needs s3.encryption.algorithm"),
        ({"s3.aws.credentials.provider": "com.example.Mine"}, "Mine is a class of Java.*profile"),
        ({"s3.aws.credentials.provider": "x.SimpleAWSCredentialsProvider"}, "asks for s3.access-key"),
        ({"s3.assumed.role.arn": "arn:x"}, "not supported; name the role in a profile"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        s3_settings(options)


def test_options_of_google_and_azure() -> None:
    assert google_config({"fs.gs.auth.service.account.json.keyfile": "/k", "gs.project.id": "p"}) == {
        "service_account": "/k"
    }
    with pytest.raises(InvalidRequestError, match="gs.keyfile is not known.*gs.auth.service.account.json.keyfile"):
        google_config({"gs.keyfile": "/k"})
    assert azure_config({"fs.azure.account.key.mine.dfs.core.windows.net": "K"}) == {
        "account_key": "K",
        "account_name": "mine",
    }
    with pytest.raises(InvalidRequestError, match="azure.key is not known.*azure.account.key"):
        azure_config({"azure.key": "K"})
