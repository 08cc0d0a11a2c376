"""`headrace txn`: list, describe and abort transactions, and find those that hang."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import PartitionsOption, YesOption, confirm
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.common.parsing import now_ms, parse_duration_ms, parse_selection, show_duration
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.client.admin.transactions import Transaction

app = typer.Typer(
    help="List, describe and abort transactions, and find those that hang.", no_args_is_help=True
)

LIST_COLUMNS = ("id", "state", "producer", "running", "partitions", "coordinator")
LIST_JSON_COLUMNS = ("id", "state", "producer", "running_ms", "partitions", "coordinator")
PARTITION_COLUMNS = ("topic", "partition", "start")
HANGING_COLUMNS = ("topic", "partition", "start", "producer", "epoch", "last")


class TxnState(StrEnum):
    """States of a transaction, by Kafka's names."""

    empty = "Empty"
    ongoing = "Ongoing"
    prepare_commit = "PrepareCommit"
    prepare_abort = "PrepareAbort"
    complete_commit = "CompleteCommit"
    complete_abort = "CompleteAbort"
    epoch_fence = "PrepareEpochFence"
    dead = "Dead"


@app.command("list")
@with_groups
def list_transactions(
    *,
    state: Annotated[
        list[TxnState] | None,
        typer.Option(case_sensitive=False, help="Only those in this state; may be repeated."),
    ] = None,
    producer: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Only those of this producer id; may be repeated."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only those open for longer, such as 10m."),
    ] = None,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """List transactional ids with their transactions."""
    from headrace.client.admin import transactions

    at_least_ms = parse_duration_ms(longer_than, "--longer-than") if longer_than else None
    with kafka.cluster() as cluster:
        found = transactions.list_transactions(cluster, state or (), producer or ())
    at_ms = now_ms()
    rows = [_row(row, at_ms) for row in found if _is_longer(row, at_ms, at_least_ms)]
    show_rows(rows, LIST_JSON_COLUMNS if output is Output.json else LIST_COLUMNS, output)


def _is_longer(row: Transaction, at_ms: int, at_least_ms: int | None) -> bool:
    if at_least_ms is None:
        return True
    running_ms = row.running_ms(at_ms)
    return running_ms is not None and running_ms > at_least_ms


def _row(row: Transaction, at_ms: int) -> dict[str, object]:
    running_ms = row.running_ms(at_ms)
    return {
        "id": row.id,
        "state": row.state,
        "producer": row.producer,
        "running": None if running_ms is None else show_duration(running_ms),
        "running_ms": running_ms,
        "partitions": len(row.partitions),
        "coordinator": row.coordinator.node_id,
    }


@app.command()
@with_groups
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...", show_default=False)],
    *,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Show the state, the producer and the partitions of transactions."""
    from headrace.client.admin.transactions import describe_transaction, read_producers

    with kafka.cluster() as cluster:
        found = [describe_transaction(cluster, name) for name in names]
        producers = read_producers(cluster, (key for row in found for key in row.partitions))
    starts = {
        (*key, producer.producer_id): producer.current_txn_start_offset
        for key, rows in producers.items()
        for producer in rows
        if producer.current_txn_start_offset >= 0
    }
    details = [_detail(row, starts) for row in found]
    if output is Output.json:
        show_json(details)
        return
    for index, (row, detail) in enumerate(zip(found, details, strict=True)):
        if index:
            print()
        print("  ".join(f"{name} {word}" for name, word in _words(row).items() if word is not None))
        if row.partitions:
            show_rows(detail["partitions"], PARTITION_COLUMNS, output)


def _detail(row: Transaction, starts: dict[tuple[str, int, int], int]) -> dict[str, Any]:
    return {
        "id": row.id,
        "state": row.state,
        "producer": row.producer,
        "epoch": row.epoch,
        "timeout_ms": row.timeout_ms,
        "started_ms": row.started_ms,
        "coordinator": row.coordinator._asdict(),
        "partitions": [
            {
                "topic": topic,
                "partition": partition,
                "start": starts.get((topic, partition, row.producer)),
            }
            for topic, partition in row.partitions
        ],
    }


def _words(row: Transaction) -> dict[str, object]:
    running_ms = row.running_ms(now_ms())
    return {
        "transaction": row.id,
        "state": row.state,
        "producer": row.producer,
        "epoch": row.epoch,
        "timeout": None if row.timeout_ms is None else show_duration(row.timeout_ms),
        "started": None if row.started_ms is None else show_time(row.started_ms),
        "running": None if running_ms is None else show_duration(running_ms),
        "coordinator": row.coordinator,
    }


@app.command()
@with_groups
def hanging(
    *,
    topic: PartitionsOption = None,
    longer_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Only those without a record for longer; no transaction may last longer than "
            "the broker's transaction.max.timeout.ms, 15m by default.",
        ),
    ] = "15m",
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Find transactions that are open in a partition but unknown to every coordinator."""
    from headrace.client.admin.aborts import find_hanging

    before_ms = now_ms() - parse_duration_ms(longer_than, "--longer-than")
    selection = parse_selection(topic, "--topic")
    with kafka.cluster() as cluster:
        found = find_hanging(cluster, selection, before_ms)
    rows = [{**row._asdict(), "last": show_time(row.last_ms)} for row in found]
    show_rows(rows, HANGING_COLUMNS, output)
    if rows and output is Output.table:
        first = rows[0]
        print(
            f"end one with: headrace txn abort --topic {first['topic']} "
            f"--partition {first['partition']} --start-offset {first['start']}"
        )


@app.command()
@with_groups
def abort(
    name: Annotated[
        str | None, typer.Argument(metavar="[TRANSACTIONAL_ID]", show_default=False)
    ] = None,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="The topic of a hanging transaction.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Its partition.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="The offset at which it starts there.")
    ] = None,
    yes: YesOption = False,
    kafka: KafkaOptions,
) -> None:
    """Abort a transaction by its id and fence its producer, or a hanging one by its partition."""
    from headrace.client.admin.aborts import (
        check_hanging,
        check_open,
        fence,
        find_producer,
        write_marker,
    )
    from headrace.client.admin.transactions import describe_transaction

    place = (topic, partition, start_offset)
    if name is not None and place == (None, None, None):
        with kafka.cluster() as cluster:
            found = describe_transaction(cluster, name)
            check_open(found)
            confirm(f"Abort {name} and fence its producer?", yes)
            epoch = fence(cluster, found)
        print(f"aborted {name}: producer {found.producer} is fenced by epoch {epoch}")
    elif name is None and topic and partition is not None and start_offset is not None:
        key = (topic, partition)
        with kafka.cluster() as cluster:
            producer = find_producer(cluster, key, start_offset)
            check_hanging(cluster, key, producer)
            confirm(f"Abort the transaction at {topic}:{partition} offset {start_offset}?", yes)
            write_marker(cluster, key, producer)
        print(f"aborted the transaction of producer {producer.producer_id} in {topic}:{partition}")
    else:
        raise CliError(
            "which transaction is not clear",
            "give either TRANSACTIONAL_ID, or --topic, --partition and --start-offset together",
            2,
        )
