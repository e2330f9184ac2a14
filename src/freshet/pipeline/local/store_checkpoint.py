"""The checkpoint of a query that runs here, wherever the file puts it: a local disk, or an object store.

In a store it is read and written as tables are, with the options of the catalog: a file is created by a conditional
put, so that the lock of a batch is the store's own. `s3a://b/c`, as Spark calls it, is `s3://b/c`: the same objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlparse
from uuid import uuid4

from freshet.pipeline.config.catalogs import store_options
from freshet.pipeline.config.model import PipelineConfig
from freshet.pipeline.exceptions import ConfigurationError, Problem
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint, WritableCheckpoint, local_folder, uri_above
from freshet.storage.exceptions import InvalidRequestError, NotFoundError, StorageError
from freshet.storage.io.env import Env, open_env

STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")


class StoreCheckpoint:
    """A checkpoint in an object store; names are those below it.

    A store that does not answer raises as tables have it (`RetryableError` and the like), one that refuses `OSError`.
    """

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        """`options` are those of the store."""
        self._root, self._options = location.rstrip("/"), options
        with self._refused():
            self._env: Env = open_env(self._root, options)
        self._files = self._env.file_io

    def place(self, *names: str) -> str:
        """`CheckpointFolder.place`."""
        return "/".join([self._root, *names])

    def read(self, *names: str) -> str | None:
        """`CheckpointFolder.read`."""
        with self._refused():
            try:
                return self._files.read_bytes(self.place(*names)).decode("utf-8")
            except NotFoundError:
                return None

    def replace(self, name: str, text: str) -> None:
        """`CheckpointFolder.replace`."""
        with self._refused():
            self._files.overwrite(self.place(name), text.encode())

    def numbers(self, *names: str) -> list[int]:
        """`CheckpointFolder.numbers`."""
        return [int(each) for each in self.names(*names) if each.isdecimal()]

    def create(self, *names: str, text: str) -> bool:
        """`WritableCheckpoint.create`.

        Where no answer came, the bytes say whose file is there. Two runs of one batch may both have it that way; each
        plan has its time, so that one of them ends at the next batch.
        """
        with self._refused():
            return self._env.create(self.place(*names), text.encode())

    def repeat(self, name: str, *names: str, text: str) -> bool:
        """`WritableCheckpoint.repeat`."""
        return self.create(*names[:-1], name, text=text)

    def delete(self, *names: str) -> None:
        """`WritableCheckpoint.delete`."""
        with self._refused():
            self._files.delete(self.place(*names))

    def forget(self, folder: str, numbers: Sequence[int]) -> None:
        """`WritableCheckpoint.forget`: by one request, beside the batches."""
        paths = [self.place(folder, str(number)) for number in numbers]

        def forget() -> None:
            self._files.delete_all(paths)

        if paths:
            self._env.run_later(f"forget {paths[-1]}", forget)

    def names(self, *names: str) -> list[str]:
        """`WritableCheckpoint.names`."""
        with self._refused():
            return [each.name for each in self._files.entries(self.place(*names)) if not each.is_folder]

    def above(self) -> StoreCheckpoint | None:
        """`CheckpointFolder.above`."""
        above = uri_above(self._root)
        return None if above is None else StoreCheckpoint(above, self._options)

    def write_problem(self) -> str | None:
        """`CheckpointFolder.write_problem`."""
        name = f".freshet-check-{uuid4()}"
        try:
            self.create(name, text="")
            self.delete(name)
        except (OSError, StorageError) as error:
            return str(error)
        return None

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except InvalidRequestError as error:
            raise OSError(str(error)) from error


def pipeline_checkpoint(config: PipelineConfig) -> WritableCheckpoint:
    """The checkpoint of a pipeline file. Raises `ConfigurationError` where this engine cannot keep it there."""
    location = config.checkpoint
    folder = local_folder(location)
    if folder is not None:
        return LocalCheckpoint(folder)
    scheme = urlparse(location).scheme
    if scheme not in STORES:
        known = ", ".join(f"{each}://" for each in STORES)
        text = (
            f"without Spark a checkpoint is kept on a local disk or at {known}, not at {scheme}://. Name a path there: "
            "a copy of the folder, as it is, goes on where it stopped. Or run the pipeline on Spark (run_on: spark)"
        )
        raise ConfigurationError([config.origin.placed(Problem(("checkpoint",), text))])
    try:
        return StoreCheckpoint(location, store_options(config, location))
    except (OSError, StorageError) as error:
        problem = Problem(("checkpoint",), config.without_secrets(f"{location} cannot be reached: {error}"))
        raise ConfigurationError([config.origin.placed(problem)]) from error
