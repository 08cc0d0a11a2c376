"""Requests about users, ACLs, quotas and tokens, which this broker does not have. It responds as
Apache Kafka does on a plain listener without an authorizer.

SaslHandshake (17), v0-1; DescribeAcls, CreateAcls and DeleteAcls (29-31), v0-3; SaslAuthenticate
(36), v0-2; Create-, Renew-, Expire- and DescribeDelegationToken (38-41), v1-3, v1-2, v1-2, v1-3;
Describe- and AlterClientQuotas (48, 49), v0-1; Describe- and AlterUserScramCredentials (50, 51),
v0.

They are served because clients and tools infer a broker's version from the APIs that it lists.
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)
from headrace.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headrace.protocol.api.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headrace.protocol.api.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headrace.protocol.api.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headrace.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.protocol.api.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from headrace.protocol.api.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from headrace.protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headrace.protocol.api.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from headrace.protocol.api.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from headrace.protocol.api.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headrace.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

NO_AUTHORIZER = "No Authorizer is configured."
NO_QUOTAS = "This broker has no quotas."
NO_USERS = "This broker has no users."


def _always(request: type[Message], version_min: int, version_max: int, response: Message) -> None:
    """Serve an API that has the same response for every request."""

    @serves(request, version_min, version_max)
    def refuse(_node: Node, _ctx: Context, _request: Message) -> Message:
        return response


# A plain listener has no mechanism to offer, and nobody has to log in.
_NO_SASL = ErrorCode.ILLEGAL_SASL_STATE
_always(SaslHandshakeRequest, 0, 1, SaslHandshakeResponse(error_code=_NO_SASL))
_always(
    SaslAuthenticateRequest,
    0,
    2,
    SaslAuthenticateResponse(
        error_code=_NO_SASL,
        error_message="SaslAuthenticate is not expected on a listener without SASL.",
    ),
)
# There is no authorizer that would keep ACLs, and no quota is set.
_always(
    DescribeAclsRequest,
    0,
    3,
    DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER),
)
_always(
    DescribeClientQuotasRequest, 0, 1, DescribeClientQuotasResponse(error_message=None, entries=[])
)
# Tokens are for users who have logged in, and nobody has.
_NO_TOKENS = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_always(CreateDelegationTokenRequest, 1, 3, CreateDelegationTokenResponse(error_code=_NO_TOKENS))
_always(RenewDelegationTokenRequest, 1, 2, RenewDelegationTokenResponse(error_code=_NO_TOKENS))
_always(ExpireDelegationTokenRequest, 1, 2, ExpireDelegationTokenResponse(error_code=_NO_TOKENS))
_always(
    DescribeDelegationTokenRequest, 1, 3, DescribeDelegationTokenResponse(error_code=_NO_TOKENS)
)


@serves(CreateAclsRequest, 0, 3)
def create_acls(node: Node, ctx: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Each is refused: there is no authorizer."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


@serves(DeleteAclsRequest, 0, 3)
def delete_acls(node: Node, ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Each filter is refused, as in CreateAcls."""
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


@serves(AlterClientQuotasRequest, 0, 1)
def alter_client_quotas(
    node: Node, ctx: Context, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Each is refused: a quota that is stored but not enforced would mislead."""
    return AlterClientQuotasResponse(
        entries=[
            EntryResult(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                error_message=NO_QUOTAS,
                entity=entry.entity,
            )
            for entry in request.entries
        ]
    )


@serves(DescribeUserScramCredentialsRequest, 0, 0)
def describe_user_scram_credentials(
    node: Node, ctx: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """There are no credentials; users that are asked for by name are not found."""
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(
                user=user.name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message="Attempt to describe a user credential that does not exist: "
                + user.name,
            )
            for user in request.users or ()
        ],
    )


@serves(AlterUserScramCredentialsRequest, 0, 0)
def alter_user_scram_credentials(
    node: Node, ctx: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Each is refused: nobody can log in."""
    users = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user, error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_USERS
            )
            for user in users
        ]
    )
