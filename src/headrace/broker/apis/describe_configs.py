"""DescribeConfigs (key 32), v1-4. v1: sources and synonyms. v2: quotas. v3: types and
documentation. v4: flexible.

Every setting of a topic or a broker has its value, its source, and its synonyms: the values of all
sources, the deciding one first. Sensitive values are never sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.apis.metadata import unknown_topic_error
from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.config import Scope, Setting, Source, Synonym, topic_settings, topic_synonyms
from headrace.config.changes import ResourceType
from headrace.config.kinds import text_of
from headrace.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headrace.protocol.errors import ErrorCode, KafkaError


@serves(DescribeConfigsRequest, 1, 4)
def describe_configs(
    node: Node, ctx: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe the settings of topics and brokers."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            result.configs = list(_describe(node, resource))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        for config in result.configs:
            if not request.include_synonyms:
                config.synonyms = []
            if not request.include_documentation:
                config.documentation = None
        results.append(result)
    return DescribeConfigsResponse(results=results)


def check_broker(node: Node, name: str) -> int | None:
    """The broker that a resource names, None for all; raises KafkaError if it is another one."""
    if not name:
        return None
    this_node = node.cluster.node_id
    if name != str(this_node):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {this_node} or empty string, but received {name}",
        )
    return this_node


def _describe(
    node: Node, resource: DescribeConfigsResource
) -> Iterable[DescribeConfigsResourceResult]:
    name = resource.resource_name
    wanted = set(resource.configuration_keys or ())
    if resource.resource_type == ResourceType.TOPIC:
        return _describe_topic(node, name, wanted)
    if resource.resource_type == ResourceType.BROKER:
        if check_broker(node, name) is None:
            return _describe_all_brokers(node, wanted)
        return _describe_broker(node, wanted)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def _describe_topic(
    node: Node, name: str, wanted: set[str]
) -> Iterable[DescribeConfigsResourceResult]:
    topic = node.catalog.get(name)
    if topic is None:
        raise KafkaError(unknown_topic_error(name))
    settings = topic_settings(node.settings, topic.config)
    for row in settings.rows:
        if not wanted or row.name in wanted:
            synonyms = topic_synonyms(node.settings, settings, row)
            # Every setting of a topic can change while it is in use.
            yield _entry(row, settings.text(row.name), synonyms, read_only=False)


def _describe_broker(node: Node, wanted: set[str]) -> Iterable[DescribeConfigsResourceResult]:
    settings = node.settings
    for row in settings.rows:
        if not wanted or row.name in wanted:
            synonyms = [
                Synonym(row.name, value, source)
                for source, value in settings.candidates(row.name)
                if value is not None
            ]
            yield _entry(
                row,
                settings.text(row.name),
                synonyms,
                read_only=row.scope is Scope.READ_ONLY,
            )


def _describe_all_brokers(node: Node, wanted: set[str]) -> Iterable[DescribeConfigsResourceResult]:
    """The settings that were set for all brokers."""
    source = Source.DYNAMIC_DEFAULT_BROKER
    for name, value in node.settings.layer(source).items():
        if not wanted or name in wanted:
            row = node.settings.rows.row(name)
            yield _entry(row, text_of(value), [Synonym(name, value, source)], read_only=False)


def _entry(
    row: Setting, value: str | None, synonyms: list[Synonym], *, read_only: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=None if row.sensitive else value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        is_sensitive=row.sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=synonym.name,
                value=None if row.sensitive else text_of(synonym.value),
                source=synonym.source,
            )
            for synonym in synonyms
        ],
        config_type=row.kind,
        documentation=row.doc,
    )
