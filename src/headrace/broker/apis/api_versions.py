"""ApiVersions (key 18), v0-4. v1: throttle time. v3: flexible, client software, features. v4:
features may start at 0.

An unknown version gets error 35 in the v0 format, with the range of versions of this API (KIP-511).
"""

from __future__ import annotations

import re

from headrace.broker.node import Node
from headrace.broker.registry import APIS, Context, serves
from headrace.coordinator.transactions.coordinator import BUMPING_VERSION
from headrace.protocol.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from headrace.protocol.errors import ErrorCode

TRANSACTION_VERSION = "transaction.version"
FEATURE_ZERO_VERSION = 4
# What KIP-511 allows in a client's name and version.
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def unsupported_version() -> ApiVersionsResponse:
    """The response to a version from the future: only this API, so that the client asks again.

    Given every range, franz-go does not ask again, and misses the features that v0 cannot carry.
    """
    own = [row for row in served() if row.api_key == ApiVersionsRequest.API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


def served() -> list[ApiVersion]:
    """The version range of every API, by key."""
    return [
        ApiVersion(api_key=key, min_version=api.advertised_min, max_version=api.version_max)
        for key, api in sorted(APIS.items())
    ]


@serves(ApiVersionsRequest, 0, 4, unsupported=unsupported_version)
def api_versions(node: Node, ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List the APIs and versions that are served."""
    if ctx.api_version >= 3 and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=served(),
        supported_features=[
            SupportedFeatureKey(
                name=TRANSACTION_VERSION,
                # Clients before v4 refuse a range that starts at 0 (KAFKA-17011).
                min_version=0 if ctx.api_version >= FEATURE_ZERO_VERSION else 1,
                max_version=BUMPING_VERSION,
            )
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(
                name=TRANSACTION_VERSION,
                min_version_level=BUMPING_VERSION,
                max_version_level=BUMPING_VERSION,
            )
        ],
    )
