"""The stores of schemas, snapshots and manifests, and the live files that follow from them."""
