"""Writes docs/conformance.md: what real clients find here, side by side with Apache Kafka.

python -m tests.interop.conformance
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from tests import apache_kafka
from tests.interop import questions
from tests.interop.cases import CASES, cases_without, records_to_send
from tests.interop.kafka_python_suite import SPOKEN, VERSION, Outcome, run

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
HERE = Path(__file__).parent

_REPLICAS = "replicas are not there yet"
_TRANSACTIONS = "transactions are not there yet"

# Tests of kafka-python's own suite that do not pass yet, each with the reason.
MISSES = {
    "test_admin_integration.py::test_create_describe_delete_acls": "ACLs are not there yet",
    "test_admin_integration.py::test_elect_leaders": _REPLICAS,
    "test_admin_integration.py::test_alter_replica_log_dirs": (
        "partitions are not moved between log dirs yet"
    ),
    "test_admin_integration.py::test_describe_metadata_quorum": (
        "asks for the Raft quorum of the controllers; there is none"
    ),
    "test_admin_integration.py::test_alter_partition_reassignments": _REPLICAS,
    "test_admin_integration.py::test_list_partition_reassignments": _REPLICAS,
    "test_producer_integration.py::test_transactional_producer_messages": _TRANSACTIONS,
    "test_producer_integration.py::test_transactional_producer_offsets": _TRANSACTIONS,
}

_DIFFERENCES = (
    "A topic made by use is in the answer that made it; Apache Kafka lets the client ask again.",
    "Compressed records are not unpacked, so garbage in them is stored as it came, unless the topic"
    " is compacted or has another `compression.type`.",
    "A refused batch is refused as a whole: its answer has no log start offset and no errors of"
    " single records.",
    "`__consumer_offsets` cannot be deleted.",
    "`flush.messages` is 1 and `flush.ms` is 50: what is acknowledged with acks=all is on disk.",
    "There are no settings of tiered storage, and no settings of loggers, groups or client"
    " metrics.",
)

_BEHAVIOURS = {
    "codec-none": "produce and consume uncompressed, with keys, headers and timestamps",
    "codec-gzip": "the same with gzip",
    "codec-snappy": "the same with snappy",
    "codec-lz4": "the same with lz4",
    "codec-zstd": "the same with zstd",
    "acks": "acks 0, 1 and all",
    "idempotent": "an idempotent producer: one producer id, sequences without a gap",
    "auto-create": "a topic made by producing to it",
    "log-append-time": "the broker's time where the topic asks for it",
    "too-large": "MESSAGE_TOO_LARGE beyond `max.message.bytes`",
    "keyless-on-compacted": "INVALID_RECORD for a keyless record on a compacted topic",
    "seek": "seek to an offset, to the beginning and to the end",
    "offsets-for-times": "offsets for times: before, exact, between, after",
    "commit-resume": "offsets committed with metadata, and resumed from",
    "group": "a group of three members, and of two after one has left",
    "create-delete-topic": "create, list, describe and delete a topic; TOPIC_ALREADY_EXISTS",
    "configs": "describe and alter a topic's settings",
    "create-partitions": "add partitions",
    "delete-records": "delete records up to an offset",
}


def main() -> None:
    outcomes = {broker: run(broker) for broker in SPOKEN}
    DOCUMENT.write_text(document(outcomes), encoding="utf-8")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


def document(outcomes: Mapping[str, Mapping[str, Outcome]]) -> str:
    """The text of docs/conformance.md; raises for a miss without a reason, or one that passes."""
    failed = {name for name, outcome in outcomes["headrace"].items() if outcome.result == "failed"}
    if failed != MISSES.keys():
        unexplained = {name: outcomes["headrace"][name].reason for name in failed - MISSES.keys()}
        raise ValueError(
            f"misses without a reason: {unexplained}; that pass: {MISSES.keys() - failed}"
        )
    return "\n".join([*_clients(), *_suite(outcomes)]) + "\n"


def _clients() -> list[str]:
    lines = [
        "# Conformance",
        "",
        "Written by `python -m tests.interop.conformance`.",
        "",
        "## Real clients",
        "",
        "The tests in `tests/interop/` drive each client through the same behaviours. They pass on",
        "Headrace in every run of `./test`, and on Apache Kafka "
        f"{apache_kafka.VERSION} with `pytest tests/interop --on apache`,",
        "which shows that they ask for what Kafka does.",
        "",
        "| client | version | behaviours | what the client itself lacks |",
        "|---|---|---|---|",
    ]
    for module, (name, release) in _versions().items():
        test = import_module(f"tests.interop.{module}")
        done = len(cases_without(test.LACKS))
        lacks = _lacks({**test.LACKS, **test.LACKS_SHAPES})
        lines.append(f"| {name} | {release} | {done} of {len(CASES)} | {lacks} |")
    lines += [
        "",
        "The command line tools of Apache Kafka have tests of their own: topics, configs, console",
        "producer and consumer, producer and consumer performance, consumer-groups, get-offsets,",
        "delete-records, log-dirs and broker-api-versions.",
        "",
        f"Besides, `tests/interop/questions.py` has {_questions()} requests, most of them odd or"
        " wrong, that `./test --long` sends",
        "to both brokers by the byte: the answers are the same, but for texts, ids and addresses."
        " Headrace answers",
        "otherwise on purpose here:",
        "",
        *(f"- {difference}" for difference in _DIFFERENCES),
        "",
        f"The {len(CASES)} behaviours, with {len(records_to_send(0))} shapes of records"
        " (null and empty keys, values and headers among them):",
        "",
        *(f"- **{case.name}**: {_BEHAVIOURS[case.name]}" for case in CASES),
        "",
    ]
    return lines


def _suite(outcomes: Mapping[str, Mapping[str, Outcome]]) -> list[str]:
    counts = {
        broker: Counter(outcome.result for outcome in found.values())
        for broker, found in outcomes.items()
    }
    rows = [
        f"| {result} | {counts['headrace'][result]} | {counts['apache'][result]} |"
        for result in ("passed", "failed", "skipped")
    ]
    skipped = Counter(
        outcome.reason for outcome in outcomes["headrace"].values() if outcome.result == "skipped"
    )
    apache = f"Apache Kafka {apache_kafka.VERSION}"
    return [
        "## kafka-python's own integration tests",
        "",
        f"The source distribution of kafka-python {VERSION} carries them. Here they run on both"
        " brokers with the same",
        "settings; Apache Kafka has its authorizer besides, for the test of ACLs. They speak Kafka"
        f" {SPOKEN['headrace']} to Headrace",
        f"and {SPOKEN['apache']} to {apache}. The TLS tests start brokers of their own and are left"
        " out.",
        "",
        f"| | Headrace | {apache} |",
        "|---|---|---|",
        *rows,
        "",
        "What does not pass on Headrace yet:",
        "",
        "| test | reason |",
        "|---|---|",
        *(f"| `{name}` | {reason} |" for name, reason in sorted(MISSES.items())),
        "",
        "What is skipped on both:",
        "",
        "| tests | reason |",
        "|---|---|",
        *(f"| {count} | {reason} |" for reason, count in sorted(skipped.items())),
    ]


def _questions() -> int:
    return sum(len(list(ask())) for ask in questions.ALL)


def _lacks(lacks: Mapping[str, str]) -> str:
    reasons: dict[str, list[str]] = {}
    for name, reason in lacks.items():
        reasons.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items()) or "-"


def _versions() -> dict[str, tuple[str, str]]:
    packages = json.loads((HERE / "node" / "package.json").read_text(encoding="utf-8"))
    modules = (HERE / "go" / "go.mod").read_text(encoding="utf-8")

    def go(module: str) -> str:
        found = re.search(rf"{re.escape(module)} v(\S+)", modules)
        assert found is not None
        return found[1]

    return {
        "test_confluent_kafka": ("confluent-kafka", version("confluent-kafka")),
        "test_kafka_python": ("kafka-python", version("kafka-python")),
        "test_aiokafka": ("aiokafka", version("aiokafka")),
        "test_java": ("Java kafka-clients", apache_kafka.VERSION),
        "test_kafkajs": ("KafkaJS", packages["dependencies"]["kafkajs"]),
        "test_franz_go": ("franz-go", go("github.com/twmb/franz-go")),
        "test_kafka_go": ("kafka-go", go("github.com/segmentio/kafka-go")),
        "test_kcat": ("kcat", "as Debian has it"),
    }


if __name__ == "__main__":
    main()
