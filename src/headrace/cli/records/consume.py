"""`headrace consume`: records to standard output, by group or from positions."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.records.formats import Formatter, compile_format, format_json
from headrace.cli.records.positions import parse_positions
from headrace.cli.records.reading import ConsumeOptions, consume_config, run_consume


@with_groups
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    *,
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", help="Read as a member of this group and commit."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Only this partition; may be repeated."),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "--offset",
            metavar="OFFSET",
            help="Where to start: beginning, end, N, -N (before the end), s@MS (from that time); "
            "e@MS ends at a time.",
            show_default="beginning",
        ),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end of every partition.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=0, help="Stop after this many records.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="%s value, %k key, %h headers, %t topic, %p partition, %o offset, %T time in ms, "
            "%S and %K lengths, \\n \\t \\xNN.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Print key, TEXT, value."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object a line.")] = False,
    kafka: KafkaOptions,
) -> None:
    """Print records, by default all values from the beginning, and wait for more."""
    options = ConsumeOptions(
        topics=tuple(topics),
        formatter=_formatter(template, key_separator, as_json),
        group=group,
        partitions=tuple(partition or ()),
        positions=parse_positions(offset or []),
        count=count,
        exit_at_end=exit_at_end,
    )
    if group is not None:
        _check_group_options(options, offset or [])
    config = consume_config(options, kafka.config())
    run_consume(options, config, kafka)


def _formatter(template: str | None, key_separator: str | None, as_json: bool) -> Formatter:
    if sum((template is not None, key_separator is not None, as_json)) > 1:
        raise CliError("-f, -K and -J exclude each other", "give only one of them", 2)
    if as_json:
        return format_json
    if key_separator is not None:
        literal = key_separator.replace("\\", "\\\\").replace("%", "%%")
        return compile_format(f"%k{literal}%s\\n")
    return compile_format("%s\\n" if template is None else template)


def _check_group_options(options: ConsumeOptions, offsets: list[str]) -> None:
    if options.partitions:
        raise CliError(
            "--partition cannot be used with --group, which assigns partitions", "leave it out", 2
        )
    if not set(offsets) <= {"beginning", "end"}:
        raise CliError(
            "--offset with --group must be beginning or end",
            "it is where a new group starts; others continue from their committed offsets",
            2,
        )
