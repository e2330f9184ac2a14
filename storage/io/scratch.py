"""Names for spill files, in a scratch folder that is made when the first one is needed."""

from __future__ import annotations

import threading

from freshet.storage.io.env import Env


class Scratch:
    """The scratch folder of one writer; may be shared by threads."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._folder: str | None = None
        self._count = 0

    def new_path(self) -> str:
        """A path that no spill file has had."""
        with self._lock:
            if self._folder is None:
                self._folder = self._env.scratch_folder()
            self._count += 1
            return f"{self._folder}/run-{self._count}.arrow"

    def release(self) -> None:
        """Removes the folder with all spill files."""
        with self._lock:
            if self._folder is not None:
                self._env.release_scratch(self._folder)
                self._folder = None
