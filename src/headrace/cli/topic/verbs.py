"""`headrace topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import REQUEST_TIMEOUT_SECONDS, KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import TopicArgument, TopicsArgument, YesOption, confirm
from headrace.cli.common.output import Output, OutputOption, show_each, show_rows
from headrace.cli.common.parsing import parse_pairs
from headrace.cli.topic.details import DETAIL_COLUMNS, read_details
from headrace.client.admin.errors import not_found

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
]


@app.command()
@with_groups
def create(
    names: TopicsArgument,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 is the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Copies of each partition; -1 is the broker's default.")
    ] = -1,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Skip topics that exist already.")
    ] = False,
    kafka: KafkaOptions,
) -> None:
    """Create topics."""
    settings = parse_pairs(config, "--config")
    admin = kafka.admin()
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    futures = admin.create_topics(
        [
            NewTopic(
                name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                config=settings,
            )
            for name in names
        ],
        request_timeout=REQUEST_TIMEOUT_SECONDS,
    )
    for name, future in futures.items():
        with kafka.errors():
            try:
                future.result()
            except KafkaException as problem:
                exists = problem.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
                if not (exists and if_not_exists):
                    raise
                print(f"{name} exists")
                continue
        print(f"created {name}")


@app.command("list")
@with_groups
def list_topics(
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Also internal topics.")] = False,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """List topics."""
    topics = _topics(kafka.admin(), kafka)
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
        }
        for name, topic in sorted(topics.items())
        if internal or not name.startswith("__")
    ]
    show_rows(rows, ("topic", "partitions", "replicas"), output)


@app.command()
@with_groups
def describe(
    names: TopicsArgument,
    *,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Show the id, the changed settings and the partitions of topics."""
    admin = kafka.admin()
    _check_known(names, admin, kafka)
    with kafka.errors():
        details = read_details(admin, names)
    show_each(details, output, _show_topic)


def _show_topic(detail: dict[str, Any]) -> None:
    settings = " ".join(f"{name}={value}" for name, value in detail["config"].items())
    print(f"topic {detail['topic']}  id {detail['id']}  {settings}".rstrip())
    show_rows(detail["partitions"], DETAIL_COLUMNS, Output.table)


@app.command()
@with_groups
def alter(
    name: TopicArgument,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number; it can only grow.")
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Set it back to the default."),
    ] = None,
    kafka: KafkaOptions,
) -> None:
    """Change the settings of a topic, or give it more partitions."""
    settings = parse_pairs(config, "--config")
    if partitions is None and not settings and not delete_config:
        raise CliError("nothing to change", "give --partitions, --config or --delete-config", 2)
    admin = kafka.admin()
    _check_known([name], admin, kafka)
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        ResourceType,
    )

    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ] + [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
        for key in delete_config or []
    ]
    with kafka.errors():
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
            _wait(admin.incremental_alter_configs([resource]))
        if partitions is not None:
            _wait(admin.create_partitions([NewPartitions(name, partitions)]))
    print(f"altered {name}")


@app.command()
@with_groups
def delete(
    names: TopicsArgument,
    *,
    yes: YesOption = False,
    kafka: KafkaOptions,
) -> None:
    """Delete topics and their data."""
    admin = kafka.admin()
    _check_known(names, admin, kafka)
    confirm(f"Delete {', '.join(names)} and all their data?", yes)
    futures = admin.delete_topics(names, request_timeout=REQUEST_TIMEOUT_SECONDS)
    for name, future in futures.items():
        with kafka.errors():
            future.result()
        print(f"deleted {name}")


def _topics(admin: AdminClient, kafka: KafkaOptions) -> dict[str, Any]:
    with kafka.errors():
        topics: dict[str, Any] = admin.list_topics(timeout=REQUEST_TIMEOUT_SECONDS).topics
        return topics


def _check_known(names: list[str], admin: AdminClient, kafka: KafkaOptions) -> None:
    # Asked for all topics, because asking for one by name could create it.
    known = _topics(admin, kafka)
    for name in names:
        if name not in known:
            raise not_found("topic", name, known, "headrace topic list")


def _wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(REQUEST_TIMEOUT_SECONDS)
