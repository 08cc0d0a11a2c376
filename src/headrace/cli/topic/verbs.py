"""`headrace topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import (
    REQUEST_TIMEOUT_SECONDS,
    BootstrapOption,
    PropertyOption,
    admin_client,
    client_errors,
)
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.common.pairs import parse_pairs
from headrace.cli.topic.details import DETAIL_COLUMNS, read_details

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

NamesArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
]


@app.command()
def create(
    names: NamesArgument,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 is the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Copies of each partition; -1 is the broker's default.")
    ] = -1,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is no error.")
    ] = False,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Create topics."""
    settings = parse_pairs(config, "--config")
    admin = admin_client(bootstrap, properties)
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
        with client_errors(bootstrap):
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
def list_topics(
    *,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the broker's own topics.")
    ] = False,
    output: OutputOption = Output.table,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """List topics."""
    topics = _topics(admin_client(bootstrap, properties), bootstrap)
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
def describe(
    names: NamesArgument,
    *,
    output: OutputOption = Output.table,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Show the id, the changed settings and the partitions of topics."""
    admin = admin_client(bootstrap, properties)
    _check_known(names, admin, bootstrap)
    with client_errors(bootstrap):
        details = read_details(admin, names)
    if output is Output.json:
        show_json(details)
        return
    for index, detail in enumerate(details):
        if index:
            print()
        settings = " ".join(f"{name}={value}" for name, value in detail["config"].items())
        print(f"topic {detail['topic']}  id {detail['id']}  {settings}".rstrip())
        show_rows(detail["partitions"], DETAIL_COLUMNS, output)


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number; it can only grow.")
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Back to the default."),
    ] = None,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Change the settings of a topic, or give it more partitions."""
    settings = parse_pairs(config, "--config")
    if partitions is None and not settings and not delete_config:
        raise CliError("nothing to change", "give --partitions, --config or --delete-config", 2)
    admin = admin_client(bootstrap, properties)
    _check_known([name], admin, bootstrap)
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
    with client_errors(bootstrap):
        if changes:
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
            _wait(admin.incremental_alter_configs([resource]))
        if partitions is not None:
            _wait(admin.create_partitions([NewPartitions(name, partitions)]))
    print(f"altered {name}")


@app.command()
def delete(
    names: NamesArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Delete topics and their data."""
    admin = admin_client(bootstrap, properties)
    _check_known(names, admin, bootstrap)
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Delete {', '.join(names)} and all their data?", abort=True)
    futures = admin.delete_topics(names, request_timeout=REQUEST_TIMEOUT_SECONDS)
    for name, future in futures.items():
        with client_errors(bootstrap):
            future.result()
        print(f"deleted {name}")


def _topics(admin: AdminClient, bootstrap: str) -> dict[str, Any]:
    with client_errors(bootstrap):
        topics: dict[str, Any] = admin.list_topics(timeout=REQUEST_TIMEOUT_SECONDS).topics
        return topics


def _check_known(names: list[str], admin: AdminClient, bootstrap: str) -> None:
    # Asked for all topics, because asking for one by name could make it.
    known = _topics(admin, bootstrap)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "headrace topic list shows what there is"
            raise CliError(f"there is no topic {name!r}", hint)


def _wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(REQUEST_TIMEOUT_SECONDS)
