"""The proxy between client and store does what tests rely on: it counts, slows down, answers, cuts and holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place
from tests.kit.store_proxy import AFTER, BEFORE, StoreProxy, any_request, is_create, of_key, through
from tests.kit.versitygw import versity_gateway


@pytest.fixture
def proxy(s3: S3Place) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        yield proxy


def client(place: S3Place, secret: str = SECRET_KEY) -> boto3.client:
    config = Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}, connect_timeout=60, read_timeout=60)
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": secret}
    return boto3.client("s3", endpoint_url=place.endpoint, region_name="us-east-1", config=config, **keys)


def test_requests_are_counted_and_bodies_pass(s3: S3Place, proxy: StoreProxy) -> None:
    ours, data = client(through(s3, proxy)), bytes(range(256)) * 20_000
    ours.put_object(Bucket=s3.bucket, Key="a b/c+d", Body=data)
    with proxy.counted() as requests:
        assert ours.get_object(Bucket=s3.bucket, Key="a b/c+d")["Body"].read() == data
        ours.list_objects_v2(Bucket=s3.bucket, Prefix="a b/")
    assert [(request.method, request.key, request.status) for request in requests] == [
        ("GET", "a b/c+d", 200),
        ("GET", "", 200),
    ]
    assert requests[1].query["prefix"] == "a b/"
    assert requests[0].access_key == ACCESS_KEY
    assert proxy.longest_chain() == len(proxy.requests) == 3
    assert proxy.most_in_flight() == 1


def test_requests_at_once_are_no_chain(s3: S3Place, proxy: StoreProxy) -> None:
    """Held together they overlap; one more after them makes the chain longer."""
    ours = client(through(s3, proxy))
    held = proxy.hold(any_request)
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(ours.put_object, Bucket=s3.bucket, Key=f"{n}", Body=b"x") for n in range(3)]
        for _ in calls:
            held.arrived()
        assert not any(call.done() for call in calls)
        held.release()
        assert [call.result()["ResponseMetadata"]["HTTPStatusCode"] for call in calls] == [200] * 3
    assert (proxy.longest_chain(), proxy.most_in_flight()) == (1, 3)
    ours.head_object(Bucket=s3.bucket, Key="1")
    assert proxy.longest_chain() == 2


def test_latency_is_added_to_each(s3: S3Place, proxy: StoreProxy) -> None:
    ours = client(through(s3, proxy))
    proxy.delay_s = 0.2
    start = time.monotonic()
    for _ in range(2):
        ours.put_object(Bucket=s3.bucket, Key="a", Body=b"x")
    assert time.monotonic() - start >= 0.4
    assert all(request.ended - request.started >= 0.2 for request in proxy.requests)


def test_errors_are_answered_for_chosen_requests_and_shares(s3: S3Place, proxy: StoreProxy) -> None:
    ours = client(through(s3, proxy))
    proxy.answer(503, "SlowDown", of_key("slow"), times=1)
    with pytest.raises(ClientError, match="SlowDown"):
        ours.put_object(Bucket=s3.bucket, Key="slow", Body=b"x" * 100_000)
    ours.put_object(Bucket=s3.bucket, Key="slow", Body=b"x")
    proxy.answer(500, share=0.5)
    answers = []
    for _ in range(40):
        try:
            answers.append(ours.head_object(Bucket=s3.bucket, Key="slow")["ResponseMetadata"]["HTTPStatusCode"])
        except ClientError as error:
            answers.append(error.response["ResponseMetadata"]["HTTPStatusCode"])
    assert {*answers} == {200, 500} and 8 < answers.count(500) < 32
    assert [request.status for request in proxy.requests[2:]] == answers


def test_connections_are_cut_before_and_after(s3: S3Place, proxy: StoreProxy) -> None:
    ours = client(through(s3, proxy))
    proxy.cut(of_key("before"), BEFORE)
    proxy.cut(of_key("after"), AFTER)
    for key in ("before", "after"):
        with pytest.raises(BotoCoreError):
            ours.put_object(Bucket=s3.bucket, Key=key, Body=b"x")
    listed = client(s3).list_objects_v2(Bucket=s3.bucket)["Contents"]
    assert [entry["Key"] for entry in listed] == ["after"]
    assert {request.status for request in proxy.requests} == {None}


def test_a_condition_can_be_taken_out(s3: S3Place, proxy: StoreProxy) -> None:
    ours = client(through(s3, proxy))
    create = {"Bucket": s3.bucket, "Key": "a", "Body": b"x", "IfNoneMatch": "*"}
    ours.put_object(**create)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        ours.put_object(**create)
    proxy.drop_header("If-None-Match", is_create)
    ours.put_object(**create)
    assert [request.status for request in proxy.requests] == [200, 412, 200]


def test_many_threads_share_it(s3: S3Place, proxy: StoreProxy) -> None:
    ours, start = client(through(s3, proxy)), threading.Barrier(8)

    def put(number: int) -> None:
        start.wait()
        for step in range(5):
            ours.put_object(Bucket=s3.bucket, Key=f"{number}/{step}", Body=b"x" * 1000)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))
    assert client(s3).list_objects_v2(Bucket=s3.bucket)["KeyCount"] == 40
    assert len(proxy.requests) == 40 and proxy.most_in_flight() > 1


@pytest.mark.slow
def test_versitygw_checks_signatures_and_keeps_objects_through_a_kill(tmp_path: Path) -> None:
    """Also through the proxy, which changes nothing that is signed."""
    with versity_gateway(tmp_path / "buckets") as gateway:
        place = gateway.new_bucket()
        with StoreProxy(place.endpoint) as proxy:
            ours = client(through(place, proxy))
            ours.put_object(Bucket=place.bucket, Key="a b/c=ä", Body=b"x", Metadata={"claim": "1"})
            with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
                client(through(place, proxy), "wrong").put_object(Bucket=place.bucket, Key="b", Body=b"x")
        gateway.kill()
        with pytest.raises(BotoCoreError):
            client(place).head_object(Bucket=place.bucket, Key="a b/c=ä")
        gateway.start()
        assert client(place).get_object(Bucket=place.bucket, Key="a b/c=ä")["Metadata"] == {"claim": "1"}
