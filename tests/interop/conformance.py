"""Writes docs/conformance.md: what real clients find here, side by side with Apache Kafka.

python -m tests.interop.conformance [SUITE@BROKER ...]
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from tests import apache_kafka
from tests.interop import kafka_python_suite, librdkafka_suite, questions
from tests.interop.cases import CASES, cases_without, records_to_send
from tests.interop.group_cases import GROUP_CASES
from tests.interop.java_programs import OLDER
from tests.interop.kafka_python_suite import SPOKEN, Outcome
from tests.interop.transaction_cases import TRANSACTION_CASES
from tests.interop.verdicts import (
    KAFKA_PYTHON_LATER,
    KAFKA_PYTHON_MISSES,
    LIBRDKAFKA_LATER,
    LIBRDKAFKA_MISSES,
    LIBRDKAFKA_NOTES,
    Outcomes,
    Score,
    score,
)
from tests.jars import CACHE

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "conformance.md"
HERE = Path(__file__).parent
# How each suite last ended on each broker: one run of librdkafka's takes half an hour.
SAVED = CACHE / "conformance"
APACHE = f"Apache Kafka {apache_kafka.VERSION}"

_DIFFERENCES = (
    "A topic made by use is in the answer that made it; Apache Kafka lets the client ask again.",
    "Compressed records are not unpacked, so garbage in them is stored as it came, unless the topic"
    " is compacted or has another `compression.type`.",
    "The answer to a refused batch has no log start offset; records are named in it when they lack"
    " the key that a compacted topic asks for, not when their time is too far off.",
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
    "cooperative": "a third member comes to a group, and nobody loses more than has to move",
    "static": "a member with an instance id goes and comes back without a rebalance",
    "static-fenced": "of two members with one instance id the older is refused",
    "regex": "a subscription by pattern",
    "regex-new-topic": "a topic made later is found by the pattern",
    "commit": "records of a transaction, unseen by `read_committed` until it is committed",
    "abort": "records of an aborted transaction, seen by `read_uncommitted` alone",
    "zombie": "a producer whose transactional id another one has taken is fenced off",
    "consume-process-produce": "offsets in the transaction: gone with an abort, kept by a commit",
    "epoch-kept": "transactions before KIP-890's second part: one epoch",
    "epoch-bumped": "transactions since: an epoch for each, and its marker has the next one",
}
# The tests of a client that are about groups and transactions.
_MORE_TESTS = {
    "confluent-kafka": ("test_confluent_kafka_groups", "test_confluent_kafka_transactions"),
    "aiokafka": ("test_aiokafka_groups", "test_aiokafka_transactions"),
    "Java kafka-clients": ("test_java",),
    "KafkaJS": ("test_kafkajs",),
    "franz-go": ("test_franz_go",),
}


def main(wanted: Collection[str]) -> None:
    """Run suites, all or those named (`librdkafka@apache`); the others are as they last ended."""
    runs: dict[str, Callable[[str], dict[str, Outcome]]] = {
        "kafka-python": kafka_python_suite.run,
        "librdkafka": librdkafka_suite.run,
    }
    suites: dict[str, dict[str, dict[str, Outcome]]] = {}
    for suite, run in runs.items():
        suites[suite] = {}
        for broker in ("headrace", "apache"):
            saved = SAVED / f"{suite}@{broker}.json"
            if not wanted or saved.stem in wanted or not saved.exists():
                rows = {name: (each.result, each.reason) for name, each in run(broker).items()}
                SAVED.mkdir(parents=True, exist_ok=True)
                saved.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            rows = json.loads(saved.read_text(encoding="utf-8"))
            suites[suite][broker] = {name: Outcome(*row) for name, row in rows.items()}
    DOCUMENT.write_text(document(suites["kafka-python"], suites["librdkafka"]), encoding="utf-8")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


def document(kafka_python: Outcomes, librdkafka: Outcomes) -> str:
    """The text of docs/conformance.md; raises for a miss without a reason, or one that passes."""
    return "\n".join([*_clients(), *_kafka_python(kafka_python), *_librdkafka(librdkafka)]) + "\n"


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
        missing = {row.name: test.LACKS[row.name] for row in CASES if row.name in test.LACKS}
        done = len(cases_without(missing))
        lacks = _lacks({**missing, **test.LACKS_SHAPES})
        lines.append(f"| {name} | {release} | {done} of {len(CASES)} | {lacks} |")
    lines += [
        "",
        "The command line tools of Apache Kafka have tests of their own: topics, configs, console",
        "producer and consumer, producer and consumer performance, consumer-groups, get-offsets,",
        "delete-records, log-dirs, transactions and broker-api-versions.",
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
        *_groups_and_transactions(),
    ]
    return lines


def _groups_and_transactions() -> list[str]:
    more = (*GROUP_CASES, *TRANSACTION_CASES)
    lines = [
        "## Groups and transactions",
        "",
        f"The client of Java {OLDER}, and franz-go with the versions of Kafka 3.9, do the"
        " transactions as well, the older way.",
        "A word count of Kafka Streams with exactly-once v2 comes to the right counts while the"
        " broker is killed twice.",
        "",
        "| client | behaviours | what the client itself lacks |",
        "|---|---|---|",
    ]
    for name, modules in _MORE_TESTS.items():
        lacks = {}
        for module in modules:
            lacks.update(import_module(f"tests.interop.{module}").LACKS)
        missing = {case.name: lacks[case.name] for case in more if case.name in lacks}
        done = f"{len(more) - len(missing)} of {len(more)}"
        lines.append(f"| {name} | {done} | {_lacks(missing)} |")
    rows = (f"- **{case.name}**: {_BEHAVIOURS[case.name]}" for case in more)
    return [*lines, "", *rows, ""]


def _kafka_python(outcomes: Outcomes) -> list[str]:
    skipped = Counter(
        outcome.reason for outcome in outcomes["headrace"].values() if outcome.result == "skipped"
    )
    return [
        "## kafka-python's own integration tests",
        "",
        f"The source distribution of kafka-python {kafka_python_suite.VERSION} carries them. Here"
        " they run on both brokers with the same",
        "settings; Apache Kafka has its authorizer besides, for the test of ACLs. They speak Kafka"
        f" {SPOKEN['headrace']} to Headrace",
        f"and {SPOKEN['apache']} to {APACHE}. The TLS tests start brokers of their own and are left"
        " out.",
        "",
        *_counts(outcomes),
        "",
        *_share(score(outcomes, KAFKA_PYTHON_LATER, KAFKA_PYTHON_MISSES)),
        "What does not pass on Headrace yet:",
        "",
        "| test | reason |",
        "|---|---|",
        *(f"| `{name}` | a later feature: {why} |" for name, why in KAFKA_PYTHON_LATER.items()),
        *(f"| `{name}` | {why} |" for name, why in sorted(KAFKA_PYTHON_MISSES.items())),
        "",
        "What is skipped on both:",
        "",
        "| tests | reason |",
        "|---|---|",
        *(f"| {count} | {reason} |" for reason, count in sorted(skipped.items())),
        "",
    ]


def _librdkafka(outcomes: Outcomes) -> list[str]:
    rows = []
    for name, apache in outcomes["apache"].items():
        here = outcomes["headrace"][name]
        later = LIBRDKAFKA_LATER.get(name)
        why = f"a later feature: {later}" if later else LIBRDKAFKA_MISSES.get(name, "")
        if not why and apache.result == "skipped":
            why = apache.reason
        why = "; ".join(filter(None, (why, LIBRDKAFKA_NOTES.get(name))))
        rows.append(f"| `{name}` | {apache.result} | {here.result} | {why} |")
    return [
        "## librdkafka's own broker tests",
        "",
        f"librdkafka {librdkafka_suite.VERSION} travels with its tests in the npm package"
        f" `{librdkafka_suite.PACKAGE}` {librdkafka_suite.PACKAGE_VERSION}.",
        "They are built from there and run one by one, in their full form, on both brokers with the"
        " same settings; Apache",
        "Kafka has its authorizer besides. What fails is tried once more, on both: many of them"
        " measure time. The test of the",
        "admin calls runs in its parts. Those that ask for three replicas without a use for them"
        " ask for one here. Left out",
        "are tests that need no broker, those that librdkafka itself says to fail, and share"
        " groups, a later feature.",
        "",
        *_counts(outcomes),
        "",
        *_share(score(outcomes, LIBRDKAFKA_LATER, LIBRDKAFKA_MISSES)),
        f"| test | {APACHE} | Headrace | |",
        "|---|---|---|---|",
        *rows,
    ]


def _counts(outcomes: Outcomes) -> list[str]:
    counts = {
        broker: Counter(outcome.result for outcome in found.values())
        for broker, found in outcomes.items()
    }
    return [
        f"| | Headrace | {APACHE} |",
        "|---|---|---|",
        *(
            f"| {result} | {counts['headrace'][result]} | {counts['apache'][result]} |"
            for result in ("passed", "failed", "skipped")
        ),
    ]


def _share(found: Score) -> list[str]:
    return [
        f"Of the {found.apache} that pass on Apache Kafka, {found.apache - found.counted} need a"
        f" later feature; of the other {found.counted}, **{found.here} pass on Headrace,"
        f" {found.percent} %**.",
        "",
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
    main(sys.argv[1:])
