"""Kafka's error codes: the number on the wire, whether to retry, and a text for people."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The value of an `error_code` field; a member goes into a message as it is."""

    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool, text: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.text = text
        return member

    UNKNOWN_SERVER_ERROR = (
        -1,
        False,
        "An unexpected error happened on the broker; its log says more.",
    )
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is outside the range that the partition holds."
    CORRUPT_MESSAGE = 2, True, "The batch fails its CRC, has a wrong size or is otherwise corrupt."
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        True,
        "This broker does not host that partition, or the topic does not exist.",
    )
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "This broker is neither the leader nor, where that would do, a follower of the partition.",
    )
    REQUEST_TIMED_OUT = 7, True, "The request was not completed within its time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available."
    MESSAGE_TOO_LARGE = 10, False, "The batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved on to a newer epoch."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata that goes with an offset is too large."
    NETWORK_EXCEPTION = 13, True, "The connection was lost before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = (
        16,
        True,
        "This broker is not the coordinator for that group or transactional id.",
    )
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "The topic's name is not valid, or the topic must not be used in this way.",
    )
    RECORD_LIST_TOO_LARGE = 18, False, "The batches are larger than a segment can hold."
    NOT_ENOUGH_REPLICAS = (
        19,
        True,
        "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The batch was written, but to fewer replicas than min.insync.replicas asks for.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "The member shares no assignment protocol or protocol type with the group.",
    )
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know that member."
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout is outside group.min/max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; the member must join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorized for that topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorized for that group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorized for the cluster."
    INVALID_TIMESTAMP = (
        32,
        False,
        "The record's timestamp is outside the range that the topic accepts.",
    )
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not supported."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "That version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of that name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "The setting is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or what is possible."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        False,
        "The message format on the broker does not support the request.",
    )
    POLICY_VIOLATION = 44, False, "The request is against a policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "The batch's sequence number does not follow the last one.",
    )
    DUPLICATE_SEQUENCE_NUMBER = (
        46,
        False,
        "The batch is a duplicate of one that was written before.",
    )
    INVALID_PRODUCER_EPOCH = 47, False, "A newer producer of the same id has taken over."
    INVALID_TXN_STATE = 48, False, "The transaction is in a state that does not allow this."
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "The producer id is not the one that belongs to the transactional id.",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "The transaction timeout is above transaction.max.timeout.ms.",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        True,
        "The previous transaction of this producer has not been completed yet.",
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        False,
        "The transaction coordinator that sent this has been replaced.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorized for that transactional id."
    SECURITY_DISABLED = 54, False, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "The operation was not tried, because another one of the batch failed.",
    )
    KAFKA_STORAGE_ERROR = 56, True, "The log directory failed while it was read or written."
    LOG_DIR_NOT_FOUND = 57, False, "The log directory does not exist or is offline."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker holds no state for that producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to someone else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens may not be asked for on this connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorized for that delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The type of the principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group is not empty."
    GROUP_ID_NOT_FOUND = 69, False, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session does not exist."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session's epoch is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener that matches the one in use."
    TOPIC_DELETION_DISABLED = 73, False, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch in the request is older than the partition's."
    UNKNOWN_LEADER_EPOCH = (
        75,
        True,
        "The leader epoch in the request is newer than this broker knows of.",
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The batch's compression is not supported by this version of the API.",
    )
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "The leader's high watermark has not caught up with its election yet.",
    )
    MEMBER_ID_REQUIRED = (
        79,
        False,
        "The member must join again with the id that the coordinator gave it.",
    )
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member with the same group.instance.id has taken over."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition has the right leader already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "Members of the group are subscribed to the topic."
    INVALID_RECORD = 87, False, "A record in the batch failed validation."
    UNSTABLE_OFFSET_COMMIT = (
        88,
        True,
        "Offsets of a transaction that is not yet decided stand in the way.",
    )
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up for now."
    PRODUCER_FENCED = 90, False, "Another producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, False, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, False, "The resource is named more than once."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "The voters named are not the expected ones."
    INVALID_UPDATE_VERSION = 95, False, "The version given for the update is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        False,
        "The principal that was forwarded cannot be read.",
    )
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "No topic has that id here."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A broker with that id is registered already."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker with that id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id in the log is another one than in the request."
    INCONSISTENT_CLUSTER_ID = (
        104,
        False,
        "The cluster id in the request is another one than this cluster's.",
    )
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "The fetch session mixes requests by topic name and by topic id.",
    )
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, False, "The change led to the election of another leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is now in tiered storage."
    FENCED_MEMBER_EPOCH = (
        110,
        False,
        "The member's epoch was fenced; it must give up its partitions and join again.",
    )
    UNRELEASED_INSTANCE_ID = (
        111,
        False,
        "The instance id is still held by another member of the group.",
    )
    UNSUPPORTED_ASSIGNOR = 112, False, "The assignor is not supported by the group."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is stale; it must heartbeat and try again."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request was sent to an endpoint of the wrong kind."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "That kind of endpoint is not known."
    UNKNOWN_CONTROLLER_ID = 116, False, "That controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "That telemetry subscription is not known."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The registration is not valid."
    TRANSACTION_ABORTABLE = 120, False, "The operation failed; the transaction must be aborted."
    INVALID_RECORD_STATE = (
        121,
        False,
        "The record is in a state that does not allow this acknowledgement.",
    )
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session does not exist."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session's epoch is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The share coordinator's state has a newer epoch."
    INVALID_VOTER_KEY = 125, False, "The voter's key is not the expected one."
    DUPLICATE_VOTER = 126, False, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client must start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The epoch of the streams topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The epoch of the streams topology is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "No more share sessions can be opened for now."
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted."
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        False,
        "The description of the streams topology could not be updated.",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller with that id is registered."


class KafkaError(Exception):
    """An error with exactly one error code; the message adds details."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.text)
        self.code = code
        self.message = message or code.text

    def __repr__(self) -> str:
        return f"KafkaError({self.code.name}, {self.message!r})"
