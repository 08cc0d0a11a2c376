"""Requests about users, ACLs, quotas and tokens get Kafka's own refusals, so tools go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.broker.apis.asking import Asker, with_broker
from tests.waiting import WAIT_SECONDS

from headrace.protocol.api import REQUESTS, RESPONSES
from headrace.protocol.api.alter_client_quotas import AlterClientQuotasRequest, EntryData
from headrace.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from headrace.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.api.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message
from headrace.testing import BrokerThread

# What judges a broker's age asks for these.
LISTED = (*range(29, 32), 17, 36, *range(38, 42), *range(48, 52))

CODES: list[tuple[Message, Callable[[Any], object], object]] = [
    (REQUESTS[ApiKey.SASL_HANDSHAKE](), lambda it: it.error_code, ErrorCode.ILLEGAL_SASL_STATE),
    (REQUESTS[ApiKey.SASL_AUTHENTICATE](), lambda it: it.error_code, ErrorCode.ILLEGAL_SASL_STATE),
    (REQUESTS[ApiKey.DESCRIBE_ACLS](), lambda it: it.error_code, ErrorCode.SECURITY_DISABLED),
    (
        CreateAclsRequest(creations=[AclCreation(), AclCreation()]),
        lambda it: [row.error_code for row in it.results],
        [ErrorCode.SECURITY_DISABLED] * 2,
    ),
    (
        DeleteAclsRequest(filters=[DeleteAclsFilter()]),
        lambda it: [row.error_code for row in it.filter_results],
        [ErrorCode.SECURITY_DISABLED],
    ),
    *(
        (
            REQUESTS[key](),
            lambda it: it.error_code,
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        )
        for key in range(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN + 1)
    ),
    (REQUESTS[ApiKey.DESCRIBE_CLIENT_QUOTAS](), lambda it: (it.error_code, it.entries), (0, [])),
    (
        AlterClientQuotasRequest(entries=[EntryData()]),
        lambda it: [row.error_code for row in it.entries],
        [ErrorCode.UNSUPPORTED_VERSION],
    ),
    (
        DescribeUserScramCredentialsRequest(users=[UserName(name="ann")]),
        lambda it: [(row.user, row.error_code) for row in it.results],
        [("ann", ErrorCode.RESOURCE_NOT_FOUND)],
    ),
    (
        DescribeUserScramCredentialsRequest(users=None),
        lambda it: (it.error_code, it.results),
        (0, []),
    ),
    (
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="ann")]),
        lambda it: [(row.user, row.error_code) for row in it.results],
        [("ann", ErrorCode.SECURITY_DISABLED)],
    ),
]


def test_each_request_is_refused_as_kafka_refuses_it(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        for request, read, expected in CODES:
            answer = await asker.ask(request, RESPONSES[request.API_KEY])
            assert read(answer) == expected, request

    with_broker(tmp_path, scenario)


def test_tools_that_judge_a_brokers_age_find_the_keys_listed(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answer = await asker.ask(request, ApiVersionsResponse)
        assert set(LISTED) <= {row.api_key for row in answer.api_keys}

    with_broker(tmp_path, scenario)


def test_an_admin_client_reads_the_refusals(broker: BrokerThread) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    any_acl = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    acl = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:ann", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    # This client does not look at the error of DescribeAcls.
    for asked in (
        *admin.create_acls([acl]).values(),
        *admin.delete_acls([any_acl]).values(),
    ):
        with pytest.raises(KafkaException) as refusal:
            asked.result(WAIT_SECONDS)
        assert refusal.value.args[0].code() == KafkaError.SECURITY_DISABLED
    assert admin.describe_user_scram_credentials().result(WAIT_SECONDS) == {}
