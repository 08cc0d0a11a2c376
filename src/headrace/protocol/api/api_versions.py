"""ApiVersions (key 18), v0-5: which versions of which APIs a broker speaks.

v1: throttle time. v3: flexible body, client software, features. v4: features may start at version
0. v5: the client says which cluster and node it expects (KIP-1242). The response header is v0
always.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, key=18, versions="0-5", flexible=3):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")
    cluster_id: str | None = string("5+", nullable="0+", default=None)
    node_id: int = int32("5+", default=-1)


class ApiVersion(Message):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Message):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Message):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, key=18, versions="0-5", flexible=3):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
