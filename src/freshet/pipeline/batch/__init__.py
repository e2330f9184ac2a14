"""One micro-batch: routing, the tasks of its buckets, checks, commit, compaction."""
