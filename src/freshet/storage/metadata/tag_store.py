"""The tags of a table: names of snapshots, each with a copy of the snapshot's file, which outlives it.

Names are used as they are. The folder `tag-success-file`, in which other programs note the tags that they have made,
is no tag.

Source: FORMAT.md §12.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Final

from freshet.storage.codec.metadata_json import decode_tag, encode_tag
from freshet.storage.exceptions import InvalidRequestError, NotFoundError
from freshet.storage.io.env import Env
from freshet.storage.io.file_io import FileStatus, create_or_ask
from freshet.storage.io.removal import Removal
from freshet.storage.model.snapshot import Snapshot
from freshet.storage.model.tag import Tag
from freshet.storage.paths import SUCCESS_FILE_FOLDER, TAG_PREFIX, TablePaths

NAME_BYTES_MAX: Final = 200
"""A file name has 255 at most, and one that is written has more than the name in it for a moment."""


def check_tag_name(name: str) -> None:
    """Raises `InvalidRequestError` for a name that no tag can have."""
    is_name = isinstance(name, str) and name.strip() and name.isprintable() and "/" not in name
    if not is_name or len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequestError(
            f"{name!r} cannot be the name of a tag: it becomes part of the name of a file, so it is printable text "
            f"without /, not blank, of at most {NAME_BYTES_MAX} bytes"
        )
    if TAG_PREFIX + name == SUCCESS_FILE_FOLDER:
        raise InvalidRequestError(
            f"{name!r} cannot be the name of a tag: other programs keep a folder of this name; choose another one"
        )


class TagStore:
    """Tags of one table (or branch)."""

    def __init__(self, env: Env, paths: TablePaths) -> None:
        self._env = env
        self._paths = paths
        self._seen: dict[str, tuple[str, Tag]] = {}
        """Tags by name, with the version of the file."""

    def all(self) -> dict[str, Snapshot]:
        """Tags by name, each with the snapshot it holds; read again only where the file was replaced."""
        return {name: tag.snapshot for name, tag in self.tags().items()}

    def tags(self) -> dict[str, Tag]:
        """The same with the retention of each.

        Where one went while they were read they are listed again: it may have got another name. What is listed twice
        and not there either time is none.
        """
        gone: set[str] = set()
        while True:
            files = self._files()
            unknown = [name for name, status in files if self._seen.get(name, ("", None))[0] != status.version]
            read = dict(zip(unknown, self._env.looks([partial(self.find, name) for name in unknown]), strict=True))
            found: dict[str, tuple[str, Tag]] = {}
            for name, status in files:
                tag = read[name] if name in read else self._seen[name][1]
                if tag is not None:
                    found[name] = (status.version, tag)
            self._seen = found
            before, gone = gone, {name for name, _ in files} - found.keys()
            if gone <= before:
                return {name: tag for name, (_, tag) in found.items()}

    def names(self) -> list[str]:
        """Names of the tags."""
        return [name for name, _ in self._files()]

    def made_ms(self) -> dict[str, int]:
        """When the file of each tag was written."""
        return {name: status.modified_ms for name, status in self._files()}

    def of(self, name: str) -> Snapshot:
        """The snapshot of a tag; `NotFoundError` when there is no such tag."""
        return self.tag(name).snapshot

    def tag(self, name: str) -> Tag:
        """One tag; `NotFoundError` when there is none of this name."""
        found = self.find(name)
        if found is None:
            known = ", ".join(self.names()) or "none"
            path = self._paths.tag(name)
            raise NotFoundError(f"the table has no tag {name!r}; tags there are: {known} ({path})")
        return found

    def find(self, name: str) -> Tag | None:
        """One tag as it is on disk now, None when there is none of this name."""
        path = self._paths.tag(name)
        if path.endswith(f"/{SUCCESS_FILE_FOLDER}"):
            return None
        try:
            data = self._env.file_io.read_bytes(path)
        except NotFoundError:
            return None
        return decode_tag(name, data, path)

    def create(self, tag: Tag) -> bool:
        """Makes a tag if there is none of its name; of two callers one gets True."""
        return create_or_ask(self._env.file_io, self._paths.tag(tag.name), encode_tag(tag))

    def write(self, tag: Tag) -> None:
        """Makes a tag, in the place of one of its name; readers see either."""
        self._env.file_io.overwrite(self._paths.tag(tag.name), encode_tag(tag))

    def remove(self, name: str) -> bool:
        """Removes the file of a tag and nothing else; False when it was not there."""
        return Removal(self._env.file_io, self._paths.location).delete(self._paths.tag(name))

    def _files(self) -> list[tuple[str, FileStatus]]:
        statuses = self._env.file_io.entries(self._paths.tag_folder)
        files = (status for status in statuses if status.name.startswith(TAG_PREFIX) and not status.is_folder)
        return sorted(((status.name.removeprefix(TAG_PREFIX), status) for status in files), key=itemgetter(0))
