"""CPU time of the decoder alone, without Spark and without a broker: what a record costs, and what a bad one does.

    python -m bench.decode_bench [--records 40000] [--rounds 3] [VARIANT …]

| variant | records |
|---|---|
| plain, wide, schema | as in `cdc_records`: ten columns, a hundred, ten with the schema next to each payload |
| input | plain into a table with `changelog-producer: input`, whose updates are two rows |
| any | plain, and `only: any`: the table of a record is not checked |
| avro, avro-wide | plain and wide in Avro (`debezium-avro`), decimals as bytes, schemas in a registry |
| avro-cut-N | N % of those end too early |
| canal, canal-N, maxwell | the same changes as messages of Canal (of up to N rows) and Maxwell; costs are per row |
| tables-N | plain, N % of them of another table with other fields, and `only` says which one is read |
| misfit-N | N % hold a text in an INT column (it fits no form) |
| large-N | N % hold a number beyond INT |
| decimal-N | N % hold a text in a DECIMAL column that is no number |
| null-N | N % have NULL in the key |
| cut-N | N % end too early |
| break-N | N % have a raw line break within a text |
| utf8-N | N % have an octet that is no UTF-8 |
| select | plain with expressions for half of the columns, as in `cdc_bench` |
| expect-N | plain with four rules of `expect`, one of which N % break: they become dead letters |

Prints one JSON line per variant: µs of CPU per record, ns per byte, records per second by the clock, the best of the
rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from bench.avro_records import avro_records
from bench.binlog_records import canal_records, maxwell_records
from bench.cdc_bench import SELECTED
from bench.cdc_records import columns_of, records
from freshet.pipeline.decode.decoder import RecordDecoder
from tests.kit.schema_registry import SchemaRegistry
from tests.pipeline.avro_records import avro_pipeline
from tests.pipeline.records import RAW_SCHEMA, decoder_of, pipeline_of

VARIANTS: Final = (
    "plain", "any", "wide", "schema", "input", "canal", "canal-8", "maxwell", "tables-0", "tables-1", "tables-50",
    "avro", "avro-wide", "avro-cut-1",
    "misfit-1", "misfit-10", "large-10", "decimal-1", "decimal-10", "null-10", "cut-1", "cut-10", "break-10",
    "utf8-1", "utf8-10", "select", "expect-0", "expect-1", "expect-10",
)  # fmt: skip
_BATCH: Final = 20_000
_ONLY: Final[dict[str, dict[str, object]]] = {"any": {"only": "any"}, "tables": {"only": {"table": "orders"}}}
_RULES: Final = {
    "total_positive": {"sql": "total >= 0"},
    "some": {"sql": "quantity >= 0"},
    "known_status": {"sql": "status IN ('new', 'paid', 'packed', 'sent', 'delivered', 'returned')", "or": "drop"},
    "in_a_city": {"sql": "city IS NOT NULL AND length(city) > 1", "or": "stop"},
}
_BREAKS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "tables": lambda value: value.replace(b'"table":"orders"', b'"table":"users"').replace(b'"note":', b'"mail":'),
    "misfit": lambda value: re.sub(b'"quantity":[0-9]+', b'"quantity":"many"', value),
    "large": lambda value: value.replace(b'"quantity":', b'"quantity":999999999'),
    "decimal": lambda value: value.replace(b'"total":"', b'"total":"much '),
    "null": lambda value: re.sub(b'"id":[0-9]+', b'"id":null', value),
    "expect": lambda value: value.replace(b'"quantity":', b'"quantity":-'),
    "cut": lambda value: value[:-7],
    "break": lambda value: value.replace(b'"note":"', b'"note":"\n'),
    "utf8": lambda value: value.replace(b'"note":"', b'"note":"\xff'),
}


def main() -> None:
    """Measures the variants asked for."""
    parser = argparse.ArgumentParser(description="CPU time of the decoder")
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("variants", nargs="*", default=VARIANTS)
    arguments = parser.parse_args()
    with SchemaRegistry() as registry:
        for variant in arguments.variants:
            print(json.dumps(_measured(variant, arguments.records, arguments.rounds, registry)), flush=True)


def _measured(variant: str, count: int, rounds: int, registry: SchemaRegistry) -> dict[str, object]:
    batches, size_bytes = _batches(variant, count, registry)
    decoder = _decoder(variant, registry)
    least, least_s = (min(of) for of in zip(*(_seconds(decoder, batches) for _ in range(rounds + 1)), strict=True))
    return {
        "variant": variant,
        "us_per_record": round(least / count * 1e6, 2),
        "ns_per_byte": round(least / size_bytes * 1e9, 2),
        "records_per_s": round(count / least_s),
    }


def _seconds(decoder: RecordDecoder, batches: list[pa.RecordBatch]) -> tuple[float, float]:
    """Of CPU, and by the clock."""
    started, started_s = time.process_time(), time.perf_counter()
    for _ in decoder(iter(batches)):
        pass
    return time.process_time() - started, time.perf_counter() - started_s


def _decoder(variant: str, registry: SchemaRegistry) -> RecordDecoder:
    options = {"bucket": 2, **({"changelog-producer": "input"} if variant == "input" else {})}
    kind = variant.partition("-")[0]
    if kind == "avro":
        columns = columns_of("wide" if variant == "avro-wide" else "plain")
        return decoder_of(avro_pipeline(registry, columns, options=options))
    keys = {"format": f"{kind}-json"} if kind in ("canal", "maxwell") else _ONLY.get(kind, {})
    expect = _RULES if kind == "expect" else None
    if kind == "select":
        keys = {"select": SELECTED}
    return decoder_of(pipeline_of(columns_of(variant), options=options, expect=expect, **keys))


def _batches(variant: str, count: int, registry: SchemaRegistry) -> tuple[list[pa.RecordBatch], int]:
    kind, _, percent = variant.removeprefix("avro-").partition("-")
    spoil = _BREAKS.get(kind)
    found = _records(kind, percent, count)
    if variant.startswith("avro"):
        found = avro_records(registry, count, "wide" if kind == "wide" else "plain")
    rows = []
    for number, (key, value) in enumerate(found):
        if spoil is not None and number * 7919 % 100 < int(percent):
            value = spoil(value)
        rows.append((b'{"id":%d}' % key, value, "t", key % 2, number, 0, None, 0))
    size_bytes = sum(len(row[1]) for row in rows)
    columns = [pa.array(column, each.type) for column, each in zip(zip(*rows, strict=True), RAW_SCHEMA, strict=True)]
    whole = pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)
    return [whole.slice(start, _BATCH) for start in range(0, len(rows), _BATCH)], size_bytes


def _records(kind: str, number: str, count: int) -> Iterator[tuple[int, bytes]]:
    if kind == "canal":
        return canal_records(count, int(number or 1))
    if kind == "maxwell":
        return maxwell_records(count)
    return records(count, kind if kind in ("wide", "schema") else "plain")


if __name__ == "__main__":
    main()
