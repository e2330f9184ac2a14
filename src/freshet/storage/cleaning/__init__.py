"""Taking away what nothing names any more: snapshots and changelogs that expire, and orphan files."""
