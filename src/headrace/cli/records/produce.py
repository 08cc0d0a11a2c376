"""`headrace produce`: one record per line of standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from headrace.cli.common.connection import KafkaOptions, explain
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.records.lines import LineOptions, read_records

FLUSH_TIMEOUT_SECONDS = 60.0
QUEUE_FULL_WAIT_SECONDS = 1.0


class Compression(StrEnum):
    """Codecs of record batches."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    """When a record counts as written: never asked, in the page cache, synced to disk."""

    zero = "0"
    one = "1"
    all = "all"


@with_groups
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    *,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="What parts key and value."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of every record.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of every record; repeatable."
        ),
    ] = None,
    partition: Annotated[
        int, typer.Option("--partition", "-p", help="Write to this one; -1 goes by the key.")
    ] = -1,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Codec of the batches.")
    ] = Compression.none,
    acks: Annotated[
        Acks, typer.Option(help="all: synced to disk; 1: written; 0: not confirmed.")
    ] = Acks.all,
    empty_is_null: Annotated[
        bool, typer.Option("--null", "-Z", help="Empty keys and values are null (tombstones).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", "-J", help="Lines as `headrace consume -J` prints them.")
    ] = False,
    kafka: KafkaOptions,
) -> None:
    """Write one record per line of standard input."""
    lines = LineOptions(
        key=key,
        key_separator=key_separator,
        headers=tuple(header or ()),
        partition=partition,
        empty_is_null=empty_is_null,
        as_json=as_json,
    )
    config = {
        "compression.type": compression.value,
        "acks": acks.value,
        **kafka.config(),
    }
    sent = _send(topic, read_records(sys.stdin.buffer, lines), config, kafka)
    if sys.stderr.isatty():
        print(f"{sent} records written to {topic}", file=sys.stderr)


def _send(
    topic: str, records: Iterable[dict[str, Any]], config: dict[str, Any], kafka: KafkaOptions
) -> int:
    """Send every record and return how many, after the broker has confirmed them."""
    with kafka.errors():
        from confluent_kafka import Producer

        producer = Producer(config)
        failures: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        sent = 0
        try:
            for record in records:
                _enqueue(producer, topic, record, delivered)
                sent += 1
                if failures:
                    break
        finally:
            # Also after a bad line: the records before it were accepted and must not be lost.
            unconfirmed = producer.flush(FLUSH_TIMEOUT_SECONDS)
    if failures:
        message, hint = explain(failures[0], kafka.bootstrap)
        raise CliError(f"{len(failures)} of {sent} records were not written: {message}", hint)
    if unconfirmed:
        raise CliError(
            f"{unconfirmed} of {sent} records are not confirmed", "is the broker running?"
        )
    return sent


def _enqueue(producer: Any, topic: str, record: dict[str, Any], delivered: Any) -> None:
    while True:
        try:
            producer.produce(topic, on_delivery=delivered, **record)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(QUEUE_FULL_WAIT_SECONDS)
