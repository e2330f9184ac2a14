"""A store that cannot be opened without its settings: `kit:` locations are files below a folder, behind a password.

    with kit_store(folder) as settings:       the password by the name of an environment variable
        env = open_env("kit://b/w", settings)
    in_fresh_process(function, *arguments)    what the function gives, called in a new Python process

A process that takes the local disk for the store, or has other settings, finds no file.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import pytest

from freshet.storage.io import registry
from freshet.storage.io.env_settings import EnvSettings
from freshet.storage.io.file_io import FileIO, FileStatus
from freshet.storage.io.local_file_io import LocalFileIO

SCHEME: Final = "kit"
VARIABLE: Final = "FRESHET_TEST_STORE_PASSWORD"
PASSWORD: Final = "f09-open-sesame"

T = TypeVar("T")


@contextmanager
def kit_store(folder: Path) -> Iterator[EnvSettings]:
    """The store in a folder is known in this process: how it is reached, from any process that has the password."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "SCHEMES", SCHEMES)
        patch.setenv(VARIABLE, PASSWORD)
        settings = {"kit.folder": str(folder), "kit.password": f"env:{VARIABLE}"}
        yield EnvSettings.of(settings, str(folder / "scratch"))


class KitFileIO:
    """Local files under other names; every call of a `FileIO`, whatever those are."""

    def __init__(self, folder: str, local: Any = None) -> None:
        self._local = LocalFileIO() if local is None else local
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._local, name)
        if not callable(member):
            return KitFileIO(self._folder, member) if name == "folders" else member

        def call(*arguments: Any, **named: Any) -> Any:
            if name == "entries":
                return iter([self._outside(each) for each in self._local.entries(self._inside(arguments[0]))])
            inner = [self._inside(argument) for argument in arguments]
            return self._outside(member(*inner, **{key: self._inside(value) for key, value in named.items()}))

        return call

    def _inside(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(f"{SCHEME}://"):
            return f"{self._folder}/{value.removeprefix(f'{SCHEME}://')}"
        return [self._inside(part) for part in value] if isinstance(value, list | tuple) else value

    def _outside(self, value: Any) -> Any:
        if isinstance(value, FileStatus):
            return replace(value, path=f"{SCHEME}:/{value.path.removeprefix(self._folder)}")
        return [self._outside(part) for part in value] if isinstance(value, list) else value


def _opened(_location: str, settings: Mapping[str, str]) -> FileIO:
    assert settings.get("kit.password") == PASSWORD, "the store was opened without the settings of its table"
    assert settings.keys() == {"kit.folder", "kit.password"}, "the store was given what it does not take"
    return KitFileIO(settings["kit.folder"])


SCHEMES: Final = MappingProxyType(
    {**registry.SCHEMES, SCHEME: registry.Store(_opened, ("kit.*",), needs_coordination=False)}
)


def in_fresh_process(function: Callable[..., T], *arguments: Any) -> T:
    """What a function of a module gives in a new process, in another folder and with the password."""
    with ProcessPoolExecutor(1, _NEW, _begin, (os.environ | {VARIABLE: PASSWORD},)) as process:
        return process.submit(function, *arguments).result()


_NEW: Final = multiprocessing.get_context("forkserver")
_NEW.set_forkserver_preload([__name__])  # has imported what most of them need, and done nothing else


def _begin(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir("/")
    registry.SCHEMES = SCHEMES  # type: ignore[misc]
