"""What object stores do beyond the contract of all stores: faults, rights, credentials, keys, uploads."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from obstore.store import MemoryStore

from freshet.storage.exceptions import AlreadyExistsError, InvalidRequestError, NotFoundError, RetryableError
from freshet.storage.io import object_file_io, object_stores
from freshet.storage.io.file_io import Created, FileIO
from freshet.storage.io.object_file_io import CREATES_MAX, ObjectFileIO
from freshet.storage.io.object_files import PART_BYTES
from freshet.storage.io.registry import open_file_io
from tests.kit.s3_server import ACCESS_KEY, SECRET_KEY, S3Place, free_port, new_bucket
from tests.kit.store_proxy import AFTER, BEFORE, StoreProxy, is_create, of_key, through

PROBE = object_stores.PROBE_PREFIX


@pytest.fixture
def proxy(s3: S3Place) -> Iterator[StoreProxy]:
    with StoreProxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def io(s3: S3Place, proxy: StoreProxy) -> ObjectFileIO:
    """Through the proxy; the store has been found to keep conditions."""
    found = ObjectFileIO(through(s3, proxy).store_options)
    assert found.create_exclusive(f"{s3.root}/first", b"") is Created.WON
    proxy.clear()
    return found


def boto(place: S3Place) -> boto3.client:
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    return boto3.client("s3", endpoint_url=place.endpoint, region_name="us-east-1", **keys)


def keys_of(place: S3Place, prefix: str = "") -> list[str]:
    return [
        found["Key"] for found in boto(place).list_objects_v2(Bucket=place.bucket, Prefix=prefix).get("Contents", [])
    ]


# creates


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_store_is_asked_again_with_the_same_create(
    s3: S3Place, proxy: StoreProxy, io: ObjectFileIO, status: int
) -> None:
    """Also where it has done what it gave no answer to: one object, and WON."""
    proxy.answer(status, "SlowDown", is_create, times=2)
    assert io.create_exclusive(f"{s3.root}/a", b"x") is Created.WON
    claims = [request.headers["x-amz-meta-freshet-claim"] for request in proxy.requests if is_create(request)]
    assert len(claims) == 3 and len({*claims}) == 1


@pytest.mark.parametrize("where", [BEFORE, AFTER])
def test_a_create_without_an_answer_is_won_once(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO, where: str) -> None:
    proxy.cut(is_create, where, times=1)
    assert io.create_exclusive(f"{s3.root}/a", b"x") is Created.WON
    assert io.create_exclusive(f"{s3.root}/a", b"x") is Created.LOST
    assert len([request for request in proxy.requests if is_create(request)]) == (3 if where == BEFORE else 2)


def test_a_create_that_another_has_won_meanwhile_is_lost(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO) -> None:
    """The bytes are the same, the ids are not."""
    held = proxy.hold(is_create, times=1)
    with ThreadPoolExecutor(1) as threads:
        ours = threads.submit(io.create_exclusive, f"{s3.root}/a", b"x")
        held.arrived()
        assert ObjectFileIO(s3.store_options).create_exclusive(f"{s3.root}/a", b"x") is Created.WON
        held.release()
        assert ours.result() is Created.LOST


def test_a_store_that_stays_silent_leaves_a_create_unknown(
    s3: S3Place, proxy: StoreProxy, io: ObjectFileIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_file_io, "_CREATE_WAIT_S", 0.001)
    proxy.cut(is_create, BEFORE)
    assert io.create_exclusive(f"{s3.root}/a", b"x") is Created.UNKNOWN
    assert len([request for request in proxy.requests if is_create(request)]) == CREATES_MAX
    assert io.asked_again(f"{s3.root}/a", b"x") is Created.UNKNOWN


def test_a_create_that_is_refused_is_an_error(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO) -> None:
    proxy.answer(403, "AccessDenied", is_create)
    with pytest.raises(InvalidRequestError, match="cannot create .*the user lacks the right.*403 AccessDenied"):
        io.create_exclusive(f"{s3.root}/a", b"x")
    assert len(proxy.requests) == 1


def test_a_create_that_is_refused_after_one_without_an_answer_is_unknown(
    s3: S3Place, proxy: StoreProxy, io: ObjectFileIO
) -> None:
    """The first one may arrive yet, so its files are needed."""
    proxy.cut(is_create, BEFORE, times=1)
    proxy.answer(403, "AccessDenied", is_create)
    assert io.create_exclusive(f"{s3.root}/a", b"x") is Created.UNKNOWN


def test_a_store_without_conditions_is_refused_before_the_first_claim(s3: S3Place, proxy: StoreProxy) -> None:
    proxy.drop_header("If-None-Match")
    io = ObjectFileIO(through(s3, proxy).store_options)
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=f"{s3.root} at {proxy.endpoint} ignores the condition"):
            io.create_exclusive(f"{s3.root}/a", b"x")
    assert keys_of(s3) == []


def test_the_condition_is_checked_once_for_a_bucket_and_a_process(s3: S3Place, proxy: StoreProxy) -> None:
    io = ObjectFileIO(through(s3, proxy).store_options)
    assert io.create_exclusive(f"{s3.root}/f/a", b"x") is Created.WON
    assert [request.method for request in proxy.requests if PROBE in request.key].count("PUT") == 2
    with proxy.counted() as requests:
        assert ObjectFileIO(through(s3, proxy).store_options).create_exclusive(f"{s3.root}/f/b", b"x") is Created.WON
    assert [request.key for request in requests] == ["f/b"]
    assert keys_of(s3) == ["f/a", "f/b"]


# faults and rights


@pytest.mark.dear("hundreds of requests")
def test_five_percent_of_errors_pass_unnoticed(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO) -> None:
    proxy.answer(503, "SlowDown", share=0.05)
    proxy.answer(500, share=0.05)
    for number in range(40):
        path = f"{s3.root}/{number}"
        assert io.create_exclusive(path, b"x") is Created.WON
        io.overwrite(path, b"y")
        assert io.read_bytes(path) == b"y"
    assert {*(request.status for request in proxy.requests)} >= {200, 500, 503}


def test_a_store_that_stays_busy_is_named_with_the_request(s3: S3Place, proxy: StoreProxy) -> None:
    io = ObjectFileIO({**through(s3, proxy).store_options, "s3.attempts.maximum": "1"})
    proxy.answer(503, "SlowDown")
    with pytest.raises(RetryableError, match=f"GET {proxy.endpoint}/{s3.bucket}/a answered 503 SlowDown.*try again"):
        io.read_bytes(f"{s3.root}/a")


def test_a_full_store_is_worth_another_try(s3: S3Place, proxy: StoreProxy) -> None:
    io = ObjectFileIO({**through(s3, proxy).store_options, "s3.attempts.maximum": "1"})
    proxy.answer(507, "InsufficientStorage")
    for write in (io.overwrite, io.create_exclusive):
        with pytest.raises(RetryableError, match="the store is full .*507 InsufficientStorage.*free some space"):
            write(f"{s3.root}/a", b"x")


@pytest.mark.parametrize("path", ["s3:/bucket/a", "s3:///a", "s3://"])
def test_a_location_without_a_bucket_is_named(path: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{path} names no bucket"):
        ObjectFileIO({}).read_bytes(path)


def test_nothing_listens(s3: S3Place) -> None:
    io = ObjectFileIO(
        {**s3.store_options, "s3.endpoint": f"http://127.0.0.1:{free_port()}", "s3.attempts.maximum": "1"}
    )
    with pytest.raises(RetryableError, match="got no answer .Connection refused.*check the endpoint"):
        io.exists(f"{s3.root}/a")


def test_a_server_without_tls(s3: S3Place) -> None:
    endpoint = s3.endpoint.replace("http:", "https:")
    io = ObjectFileIO({**s3.store_options, "s3.endpoint": endpoint, "s3.attempts.maximum": "1"})
    with pytest.raises(RetryableError, match="does not speak TLS"):
        io.exists(f"{s3.root}/a")


def test_a_bucket_that_is_missing_is_named(s3: S3Place) -> None:
    io = ObjectFileIO(s3.store_options)
    calls = (io.read_bytes, io.exists_prefix, lambda path: list(io.entries(path)), lambda path: io.overwrite(path, b""))
    for call in calls:
        with pytest.raises(InvalidRequestError, match="s3://no-such-bucket.*there is no such bucket.*create it"):
            call("s3://no-such-bucket/a")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("InvalidAccessKeyId", "does not know this access key"),
        ("SignatureDoesNotMatch", "does not belong to the access key"),
        ("RequestTimeTooSkewed", "the clock of this machine"),
        ("ExpiredToken", "credentials have expired"),
    ],
)
def test_refused_credentials_say_why(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO, code: str, words: str) -> None:
    """Also to a HEAD, whose answer has no reason in it."""
    proxy.answer(403, code)
    for call in (io.exists, io.read_bytes, io.exists_prefix):
        with pytest.raises(InvalidRequestError, match=words):
            call(f"{s3.root}/a")


@pytest.mark.slow
def test_wrong_keys_at_a_server_that_checks_them(versitygw: S3Place) -> None:
    options, path = versitygw.store_options, f"{versitygw.root}/a"
    for wrong, words in (
        ({"s3.secret-key": "another"}, "secret key does not belong to the access key.*SignatureDoesNotMatch"),
        ({"s3.access-key": "another"}, "does not know this access key"),
    ):
        io = ObjectFileIO({**options, **wrong})
        for call in (io.exists, io.read_bytes, io.exists_prefix, lambda path, io=io: io.create_exclusive(path, b"")):
            with pytest.raises(InvalidRequestError, match=words) as caught:
                call(path)
            assert SECRET_KEY not in str(caught.value) and "another" not in str(caught.value)
    with pytest.raises(InvalidRequestError, match="there is no such bucket"):
        ObjectFileIO(options).create_exclusive("s3://no-such-bucket/a", b"")


def test_without_the_right_to_list_a_missing_key_is_missing(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO) -> None:
    io.overwrite(f"{s3.root}/there", b"x")
    proxy.answer(403, "AccessDenied", lambda request: "list-type" in request.query)
    proxy.answer(403, "AccessDenied", of_key("gone"))
    assert io.exists(f"{s3.root}/there")
    assert not io.exists(f"{s3.root}/gone")
    with pytest.raises(NotFoundError, match="s3:ListBucket"):
        io.read_bytes(f"{s3.root}/gone")
    with pytest.raises(InvalidRequestError, match="lacks the right"):
        io.exists_prefix(f"{s3.root}/there")


def test_a_key_that_may_not_be_read_is_not_missing(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO) -> None:
    proxy.answer(403, "AccessDenied", of_key("secret"))
    with pytest.raises(InvalidRequestError, match="the store refuses these credentials"):
        io.exists(f"{s3.root}/secret")


def test_secrets_are_in_no_text(s3: S3Place, proxy: StoreProxy) -> None:
    io = ObjectFileIO({**through(s3, proxy).store_options, "s3.attempts.maximum": "0"})
    proxy.answer(403, f"Bad{SECRET_KEY}", of_key("refused"))
    proxy.answer(503, SECRET_KEY, of_key("busy"))
    texts = [repr(io), repr(io._stores), repr(io._stores.open(f"{s3.root}/a"))]
    for path in (f"{s3.root}/refused", f"{s3.root}/busy", "s3://no-such-bucket/a"):
        with pytest.raises((InvalidRequestError, RetryableError)) as caught:
            io.read_bytes(path)
        texts.append(str(caught.value))
    assert not [text for text in texts if SECRET_KEY in text]
    with pytest.raises(TypeError, match="holds credentials"):
        pickle.dumps(io)


# credentials


PROGRAM = """
import json, pathlib
count = pathlib.Path({count!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
print(json.dumps({{"Version": 1, "AccessKeyId": f"KEY{{number}}", "SecretAccessKey": "SK", "SessionToken": "T"}}))
"""


def test_credentials_that_expire_are_got_anew_from_the_profile(
    s3: S3Place, proxy: StoreProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that a profile names gives others; threads share them, creates and reads go on."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(count=str(tmp_path / "count")))
    config = tmp_path / "config"
    config.write_text(f"[profile mine]\ncredential_process = {sys.executable} {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    options = {key: text for key, text in through(s3, proxy).store_options.items() if "key" not in key}
    io = ObjectFileIO(options)
    assert io.create_exclusive(f"{s3.root}/a", b"x") is Created.WON
    expired = {"KEY1"}
    proxy.answer(403, "ExpiredToken", lambda request: request.access_key in expired)
    assert io.create_exclusive(f"{s3.root}/b", b"x") is Created.WON
    expired.add("KEY2")
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(io.exists, [f"{s3.root}/a"] * 8)] == [True] * 8
    assert (tmp_path / "count").read_text() == "3"
    monkeypatch.setenv("AWS_PROFILE", "another")
    with pytest.raises(InvalidRequestError, match="profile another"):
        ObjectFileIO(options).exists(f"{s3.root}/a")


def test_endpoint_and_keys_may_come_from_the_environment(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    found = ObjectFileIO({})
    found.overwrite(f"{s3.root}/a", b"x")
    assert found.read_bytes(f"{s3.root}/a") == b"x"


def test_missing_credentials_are_named(s3: S3Place, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is asked for its role at last."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", proxy.endpoint)
    proxy.answer(404, "NotFound", lambda request: request.bucket == "latest")
    with pytest.raises(InvalidRequestError, match="no credentials were found.*set AWS_ACCESS_KEY_ID"):
        ObjectFileIO({"s3.endpoint": s3.endpoint}).read_bytes(f"{s3.root}/a")


def test_a_profile_without_boto3_names_the_extra(s3: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.storage.io.object_stores.find_spec", lambda name: None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    with pytest.raises(InvalidRequestError, match="freshet-lake.s3."):
        ObjectFileIO({"s3.endpoint": s3.endpoint}).exists(f"{s3.root}/a")


# keys and listings


ODD = ["a b", "a%20b", "ü/é", "a=b+c", "x#y?z", "a~b*c", 'q"{}|', "dt=2026-01-01 10:00:00/x", "back\\slash", "%2F"]


def test_keys_are_what_others_list(s3: S3Place) -> None:
    io, paths = ObjectFileIO(s3.store_options), [f"{s3.root}/w/{name}" for name in ODD]
    for path in paths:
        io.overwrite(path, path.encode())
    assert keys_of(s3, "w/") == sorted(f"w/{name}" for name in ODD)
    assert [io.read_bytes(path) for path in paths] == [path.encode() for path in paths]
    assert {entry.name for entry in io.entries(f"{s3.root}/w")} == {name.split("/")[0] for name in ODD}
    assert io.delete_all(paths).deleted_count == len(ODD) and keys_of(s3) == []


def test_s3a_is_the_same_place(s3: S3Place) -> None:
    io = ObjectFileIO(s3.store_options)
    io.overwrite(f"{s3.root}/a", b"x")
    assert io.read_bytes(f"s3a://{s3.bucket}/a") == b"x"


def test_marks_of_empty_folders_are_folders(s3: S3Place) -> None:
    """As the S3A client of Hadoop makes them: keys with a slash at the end."""
    io, client = ObjectFileIO(s3.store_options), boto(s3)
    for key in ("wh/", "wh/empty.db/", "wh/full.db/", "wh/full.db/t/"):
        client.put_object(Bucket=s3.bucket, Key=key, Body=b"")
    io.overwrite(f"{s3.root}/wh/full.db/t/f", b"")
    found = {entry.name: entry.is_folder for entry in io.entries(f"{s3.root}/wh")}
    assert found == {"empty.db": True, "full.db": True}
    assert [entry.name for entry in io.entries(f"{s3.root}/wh/full.db/t")] == ["f"]
    assert io.exists_prefix(f"{s3.root}/wh/empty.db")
    io.delete_prefix(f"{s3.root}/wh/empty.db")
    assert not io.exists_prefix(f"{s3.root}/wh/empty.db")
    io.delete_prefix(f"{s3.root}/wh/full.db")
    assert keys_of(s3) == ["wh/"]


def test_files_of_several_buckets_are_deleted(s3: S3Place, s3_endpoint: str) -> None:
    other, io = new_bucket(s3_endpoint), ObjectFileIO(s3.store_options)
    paths = [f"{root}/{name}" for name in "ab" for root in (s3.root, other.root)]
    for path in paths:
        io.overwrite(path, b"x")
    assert io.delete_all(paths).deleted_count == 4
    assert keys_of(s3) == keys_of(other) == []


def test_a_store_without_bulk_deletes(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO) -> None:
    proxy.answer(501, "NotImplemented", lambda request: "delete" in request.query)
    paths = [f"{s3.root}/d/{number}" for number in range(5)]
    for path in paths:
        io.overwrite(path, b"x")
    assert io.delete_all(paths[:3]).deleted_count == 3
    io.delete_prefix(f"{s3.root}/d")
    assert keys_of(s3, "d/") == []


# uploads


def test_large_files_are_uploads_that_show_nothing_before_their_end(
    s3: S3Place, proxy: StoreProxy, io: ObjectFileIO
) -> None:
    data = os.urandom(1024) * 1024 * 20
    output = io.open_output(f"{s3.root}/large")
    for start in range(0, len(data), 300_000):
        output.write(data[start : start + 300_000])
    assert not io.exists(f"{s3.root}/large") and output.tell() == len(data)
    output.close()
    assert io.read_bytes(f"{s3.root}/large") == data
    parts = [request for request in proxy.requests if "partNumber" in request.query]
    assert len(parts) == -(-len(data) // PART_BYTES)
    again = io.open_output(f"{s3.root}/large")
    with pytest.raises(AlreadyExistsError):
        again.write(data)
    again.abort()


def test_an_upload_that_is_given_up_leaves_nothing(s3: S3Place, proxy: StoreProxy, io: ObjectFileIO) -> None:
    output = io.open_output(f"{s3.root}/aborted")
    output.write(bytes(3 * PART_BYTES))
    output.abort()
    proxy.answer(403, "AccessDenied", lambda request: request.query.get("partNumber") == "2")
    output = io.open_output(f"{s3.root}/refused")
    with pytest.raises(InvalidRequestError, match="lacks the right"):
        output.write(bytes(20 * PART_BYTES))
    output.abort()
    left = boto(s3).list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])
    assert [*map(str, left)] == [] and keys_of(s3) == ["first"]


# processes, threads


FORKS = """
import multiprocessing, os, sys, time
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import EnvSettings, process_env

def put(name, root, options):
    process_env(root, EnvSettings(catalog=tuple(options.items()))).file_io.overwrite(f"{root}/{name}", b"x")

if __name__ == "__main__":
    root, options = sys.argv[1], dict(text.split("=", 1) for text in sys.argv[2:])
    put("parent", root, options)
    child = os.fork()
    if child == 0:
        try:
            put("child", root, options)
        except InvalidRequestError as error:
            os._exit(7 if "forked" in str(error) and "spawn" in str(error) else 8)
        os._exit(9)
    print("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    spawned = multiprocessing.get_context("spawn").Process(target=put, args=("spawned", root, options))
    spawned.start()
    spawned.join()
    print("spawn", spawned.exitcode)
"""


def test_a_forked_child_is_refused_and_a_spawned_one_works(s3: S3Place, tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(FORKS)
    options = [f"{key}={text}" for key, text in s3.store_options.items()]
    found = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": found}
    done = subprocess.run(
        [sys.executable, str(program), s3.root, *options], capture_output=True, text=True, timeout=300, env=env
    )
    assert done.stdout.split("\n")[:2] == ["fork 7", "spawn 0"], done.stderr
    assert keys_of(s3) == ["parent", "spawned"]


def test_threads_share_a_store(s3: S3Place) -> None:
    io, start = ObjectFileIO(s3.store_options), threading.Barrier(8)

    def use(number: int) -> Created:
        start.wait()
        io.overwrite(f"{s3.root}/{number}", b"x")
        assert io.read_bytes(f"{s3.root}/{number}") == b"x"
        return io.create_exclusive(f"{s3.root}/one", str(number).encode())

    with ThreadPoolExecutor(8) as threads:
        assert sorted(outcome.name for outcome in threads.map(use, range(8))) == ["LOST"] * 7 + ["WON"]


# stores that are not run here


@pytest.mark.parametrize("root", ["gs://bucket", "az://container", "abfss://container@account.dfs.core.windows.net"])
def test_other_stores_run_the_same_code_and_warn(
    root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a store in memory, behind the same client library."""
    memory = MemoryStore()
    monkeypatch.setattr(object_stores, "open_client", lambda place, **settings: memory)
    monkeypatch.setattr(object_file_io, "_NEVER_RUN", set())
    io: FileIO = open_file_io(root, {})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not io.exists(f"{root}/w/a")
        assert io.create_exclusive(f"{root}/w/a", b"x") is Created.WON
        assert io.create_exclusive(f"{root}/w/a", b"y") is Created.LOST
        output = io.open_output(f"{root}/w/big")
        output.write(bytes(2 * PART_BYTES + 1))
        output.close()
    assert caplog.text.count("was never run against this service") == 1 and root in caplog.text
    assert io.size(f"{root}/w/big") == 2 * PART_BYTES + 1
    assert sorted(entry.name for entry in io.entries(f"{root}/w")) == ["a", "big"]
    io.delete_prefix(f"{root}/w")
    assert not io.exists_prefix(f"{root}/w")
