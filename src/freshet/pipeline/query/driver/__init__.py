"""What runs on the driver of a query: the protocol of a batch, commits, checks; no engine is named here."""
