"""`bucket:` locations: a store in the memory of the process whose exclusive creates other programs copy over.

with bucket_store() as files: …
copy_over(table.store, 3)       as a program without conditional puts does: its own snapshot 3 over the one there
commit_foreign(table.store)     the same program, without a race: the next snapshot
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import pytest

from freshet.storage.codec.metadata_json import encode_snapshot
from freshet.storage.io import env, registry
from freshet.storage.io.memory_file_io import MemoryFileIO
from freshet.storage.metadata.live_files import data_manifests
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.snapshot import CommitKind, Snapshot

WAREHOUSE = "bucket://lake/w"
CHOSEN = {"commit.coordination": "exclusive-put"}


@contextmanager
def bucket_store() -> Iterator[MemoryFileIO]:
    """The store is known in this process, and empty."""
    files = MemoryFileIO()
    store = registry.Store(lambda location, options: files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "SCHEMES", MappingProxyType({**registry.SCHEMES, "bucket": store}))
        env._process_env.cache_clear()
        yield files
        env._process_env.cache_clear()


def copy_over(store: TableStore, snapshot_id: int, user: str = "jvm") -> Snapshot:
    """A snapshot of another program upon the one before, which adds nothing, in the place of what is there."""
    before = store.snapshots.find(snapshot_id - 1)
    assert before is not None
    base, base_size = store.manifests.write_manifest_list(data_manifests(store.manifests, before))
    delta, delta_size = store.manifests.write_manifest_list([])
    foreign = replace(
        before,
        id=snapshot_id,
        uuid=str(uuid.uuid4()),
        commit_user=user,
        commit_identifier=1,
        commit_kind=CommitKind.APPEND,
        base_manifest_list=base,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
        delta_record_count=0,
        properties=None,
    )
    store.env.file_io.overwrite(store.paths.snapshot(snapshot_id), encode_snapshot(foreign))
    return foreign


def commit_foreign(store: TableStore, user: str = "jvm") -> Snapshot:
    latest = store.snapshots.latest()
    assert latest is not None
    return copy_over(store, latest.id + 1, user)
