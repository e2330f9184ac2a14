"""A user who may not delete: what was committed stays so, and expiry names the right that is missing."""

from __future__ import annotations

import json
import logging

import boto3
import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io import object_stores
from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place

NO_DELETES = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject"}


@pytest.fixture
def table(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> Table:
    """In a bucket whose policy forbids to delete; its server answers a bulk delete with 200, and a refusal of each."""
    monkeypatch.setattr(object_stores, "_KEPT", set())
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    client = boto3.client("s3", endpoint_url=s3.endpoint, region_name="us-east-1", **keys)
    statement = {**NO_DELETES, "Resource": f"arn:aws:s3:::{s3.bucket}/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    client.put_bucket_policy(Bucket=s3.bucket, Policy=policy)
    options = {"bucket": 1, "snapshot.num-retained.min": 1, "snapshot.num-retained.max": 1}
    return Catalog(s3.root, options=s3.options).create_table(
        "db.t", schema={"id": "BIGINT"}, primary_keys=["id"], options=options
    )


def test_commits_are_made_and_expiry_names_the_right(
    s3: S3Place, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), table.writer("u") as writer:
        for number in range(4):
            writer.write([{"id": number}])
            writer.commit()
        table.store.env.finish_later()
    assert "snapshots were not expired" in caplog.text and "s3:DeleteObject" in caplog.text
    assert [record for record in caplog.get_records("setup") if object_stores.PROBE_PREFIX in record.getMessage()]
    assert sorted(row["id"] for row in table.scan().to_arrow().to_pylist()) == [*range(4)]
    for compacted in (True, False):
        with pytest.raises(InvalidRequestError, match=r"could not be deleted.*lacks the right.*s3:DeleteObject"):
            table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=0)
        if compacted:
            table.compact(full=True)
    assert table.scan().to_arrow().num_rows == 4
    with pytest.raises(InvalidRequestError, match="s3:DeleteObject"):
        Catalog(s3.root, options=s3.options).drop_table("db.t")
