"""Who a query is and what its batches read: checkpoint, topics, digests, batches that are missing."""
