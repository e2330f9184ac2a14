"""One micro-batch: routing, the task of a bucket, the commit."""
