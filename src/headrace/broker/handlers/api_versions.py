"""ApiVersions (key 18), v0-4. v1: throttle time. v3: flexible, client software. v4: as v3.

A version that we do not know is answered with error 35 in the v0 format and our ranges (KIP-511).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.broker.registry import HANDLERS, handles
from headrace.protocol.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.context import Context
    from headrace.broker.node import Node

# What KIP-511 allows in a client's name and version.
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, 0, 4)
def api_versions(node: Node, ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Tell which APIs and versions are served."""
    if ctx.api_version >= 3 and not (
        SOFTWARE.fullmatch(request.client_software_name)
        and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=served())


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version from the future."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served())


def served() -> list[ApiVersion]:
    """The version range of every API, by key."""
    return [
        ApiVersion(api_key=key, min_version=handler.advertised_min, max_version=handler.version_max)
        for key, handler in sorted(HANDLERS.items())
    ]
