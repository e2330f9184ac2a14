"""The stores of schemas, snapshots and manifests, and the live files they tell of."""
