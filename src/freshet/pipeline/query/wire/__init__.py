"""What travels between the driver of a query and its workers: values and bytes, the same on every engine."""
