"""Requests about users, ACLs, quotas and tokens, which this broker does not have. It responds as
Apache Kafka does on a plain listener without an authorizer.

SaslHandshake (17), v0-1; DescribeAcls, CreateAcls and DeleteAcls (29-31), v0-3; SaslAuthenticate
(36), v0-2; Create-, Renew-, Expire- and DescribeDelegationToken (38-41), v1-3, v1-2, v1-2, v1-3;
Describe- and AlterClientQuotas (48, 49), v0-1; Describe- and AlterUserScramCredentials (50, 51),
v0.

They are served because clients and tools infer a broker's version from the APIs that it lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.registry import serves
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

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.broker.registry import Context

NO_AUTHORIZER = "No Authorizer is configured."
NO_QUOTAS = "This broker has no quotas."
NO_USERS = "This broker has no users."


@serves(SaslHandshakeRequest, 0, 1)
def sasl_handshake(
    node: Node, ctx: Context, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """A plain listener has no mechanism to offer."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@serves(SaslAuthenticateRequest, 0, 2)
def sasl_authenticate(
    node: Node, ctx: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """A plain listener needs no login."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate is not expected on a listener without SASL.",
    )


@serves(DescribeAclsRequest, 0, 3)
def describe_acls(node: Node, ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """There is no authorizer."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


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


@serves(CreateDelegationTokenRequest, 1, 3)
def create_delegation_token(
    node: Node, ctx: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Tokens are for users who have logged in, which nobody can."""
    return CreateDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


@serves(RenewDelegationTokenRequest, 1, 2)
def renew_delegation_token(
    node: Node, ctx: Context, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """See create_delegation_token."""
    return RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


@serves(ExpireDelegationTokenRequest, 1, 2)
def expire_delegation_token(
    node: Node, ctx: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """See create_delegation_token."""
    return ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


@serves(DescribeDelegationTokenRequest, 1, 3)
def describe_delegation_token(
    node: Node, ctx: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """See create_delegation_token."""
    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )


@serves(DescribeClientQuotasRequest, 0, 1)
def describe_client_quotas(
    node: Node, ctx: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """No quota is set."""
    return DescribeClientQuotasResponse(error_message=None, entries=[])


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
