"""Formats: what a raw record means, as Spark column expressions.

Every format turns (key, value) into the columns of `record_columns.RecordColumns`: a skip or dead-letter reason, a row
kind, the row as a map of its fields, the row before an update, and the metadata that `select` sees. Values stay JSON
values there; `typed_value` turns them into the declared types.
"""
