"""`headrace dispatch`: run a dispatcher's worker, show its tokens, heal them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.loading import load_object
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.common.parsing import split_address
from headrace.cli.common.processes import start_logging

if TYPE_CHECKING:
    from headrace.dispatch.dispatcher import Dispatcher

METRICS_PORT = 9464
FLUSH_SECONDS = 30.0

app = typer.Typer(help="Jobs that go to idle workers.", no_args_is_help=True)

TopicArgument = Annotated[str, typer.Argument(help="The work topic.", metavar="TOPIC")]
GroupOption = Annotated[
    str | None, typer.Option("--group", help="The workers' group, if it is not the default.")
]


@app.command()
def run(
    target: Annotated[
        str, typer.Argument(help="The dispatcher to run.", metavar="MODULE:DISPATCHER")
    ],
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", help="Brokers instead of those in the code."),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Token store instead of the one in the code."),
    ] = None,
    spool: Annotated[
        str | None,
        typer.Option(metavar="FILE|URL", help="Spool instead of the one in the code."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve metrics for Prometheus at this address."),
    ] = None,
) -> None:
    """Run a dispatcher's worker; Ctrl-C or SIGTERM lets running jobs finish, and keeps the rest.

    Run as many as you like, each with a spool of its own: the nodes share the partitions.
    """
    from headrace.dispatch.metrics import MetricsServer, text

    dispatcher = load_dispatcher(target)
    dispatcher.bootstrap = bootstrap or dispatcher.bootstrap
    dispatcher.tokens = tokens or dispatcher.tokens
    dispatcher.spool = spool or dispatcher.spool
    start_logging()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: dispatcher.request_stop())
    with contextlib.ExitStack() as stack:
        where = ""
        if metrics is not None:
            host, port = split_address(metrics, "--metrics", default_port=METRICS_PORT)
            try:
                server = MetricsServer(
                    host, port, lambda: text(dispatcher.metrics(), dispatcher.topic)
                )
            except OSError as error:
                raise CliError(f"--metrics {metrics}: {error.strerror}") from None
            stack.enter_context(server)
            where = f", metrics at http://{server.address}/metrics"
        print(f"dispatching {dispatcher.topic} on {dispatcher.bootstrap}{where}", flush=True)
        with _errors():
            dispatcher.run()


@app.command()
@with_groups
def status(
    topic: TopicArgument,
    tokens: Annotated[
        str, typer.Option(metavar="URL", help="The token store: redis://HOST/0, sqlite:///FILE.")
    ],
    group: GroupOption = None,
    output: OutputOption = Output.table,
    *,
    kafka: KafkaOptions,
) -> None:
    """Show each partition's token, the waiting nodes, and how much is unfinished."""
    from headrace.dispatch.topic_admin import topic_status

    config = kafka.config()
    with kafka.errors(), _errors():
        found = topic_status(config, topic, tokens, group)
    if output is Output.json:
        show_json(found)
        return
    show_rows(
        found["partitions"], ("partition", "token", "fence", "node", "lease_ms", "backlog"), output
    )
    counts = ", ".join(f"{count} {state}" for state, count in found["tokens"].items() if count)
    print(f"\ntokens: {counts or 'none'}")
    for node, want in found["waiting"].items():
        print(f"{node} waits for {want}")


@app.command()
@with_groups
def heal(
    topic: TopicArgument,
    output: OutputOption = Output.table,
    *,
    kafka: KafkaOptions,
) -> None:
    """Make every node put back the tokens of its partitions; harmless at any time."""
    from headrace.client.producer import Producer
    from headrace.dispatch.topic_admin import TopicAdmin

    config = kafka.config()
    with kafka.errors():
        count = TopicAdmin(config).partitions(topic)
        if not count:
            raise CliError(f"there is no topic {topic}", "headrace topic list")
        with Producer(config) as producer:
            # A record without a value makes the partition's owner give its token back.
            sent = [producer.send(topic, None, partition=number) for number in range(count)]
            for one in sent:
                one.result(FLUSH_SECONDS)
    if output is Output.json:
        show_json({"topic": topic, "partitions": count})
    else:
        print(f"asked the owners of {count} partitions of {topic}")


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn refused options and missing libraries into errors of the command."""
    try:
        yield
    except (ModuleNotFoundError, ValueError) as error:
        raise CliError(str(error)) from None


def load_dispatcher(target: str) -> Dispatcher:
    """The Dispatcher object at MODULE:NAME, with the working directory on the path."""
    from headrace.dispatch.dispatcher import Dispatcher

    name = target.partition(":")[2]
    usage, made = "headrace dispatch run shop:jobs", f"{name} = Dispatcher(...)"
    found = load_object(target, Dispatcher, "a Dispatcher", usage, made)
    if not found.has_worker:
        raise CliError(f"{target} has no worker", f"@{name}.worker")
    return found
