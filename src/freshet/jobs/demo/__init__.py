"""What `freshet demo` runs: change streams from a real broker into tables that Paimon reads.

`shop_demo`, `join_demo` and `database_demo` are the demos; `shop`, `join_streams` and `source_database` (with
`database/`) are their sources, `pipelines/` the files that run. `live` and `reader` belong to the first,
`postgres_server`, `kafka_connect` and `database_live` to the last. They share `kafka_broker`, `paimon_reader` (with
`PaimonReader.java`), `child_process` and `stage`.
"""
