"""What `freshet demo` and `freshet demo join` run: change streams from a real broker into tables that Paimon reads.

`shop_demo` and `join_demo` are the demos; `shop` and `join_streams` are their streams, `pipelines/` the files that
run; `live`, `children`, `reader` and `shown_rows` are the processes of the first and what they show. Both share
`kafka_broker`, `paimon_reader` (with `PaimonReader.java`), `child_process` and `stage`.
"""
