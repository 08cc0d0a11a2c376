"""`headrace txn abort`: abort a transaction that its producer does not end."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import YesOption, confirm


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
