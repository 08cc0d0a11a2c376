"""Why tests of the clients' own suites do not pass here, and what that comes to.

What needs a feature of a later issue is set aside; every other test that passes on Apache Kafka
counts, and a miss has its reason here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.interop.kafka_python_suite import Outcome

Outcomes = Mapping[str, Mapping[str, Outcome]]

ACLS = "ACLs are not there yet"
SUPERUSER = "its client may do all on this Apache Kafka"

KAFKA_PYTHON_LATER = {
    "test_admin_integration.py::test_create_describe_delete_acls": ACLS,
}
KAFKA_PYTHON_MISSES = {
    "test_admin_integration.py::test_describe_metadata_quorum": (
        "asks for the Raft quorum of the controllers; there is none"
    ),
}

LIBRDKAFKA_LATER = {
    "0081_admin: CreateAcls": ACLS,
    "0081_admin: DescribeAcls": ACLS,
    "0081_admin: DeleteAcls": ACLS,
    "0081_admin: AlterConfigs": "changes a setting of Kerberos",
    "0081_admin: IncrementalAlterConfigs": "changes a setting of Kerberos",
    "0081_admin: DescribeConfigs_groups": "asks for the settings of KIP-848's groups",
    "0081_admin: UserScramCredentials": "SCRAM is not there yet",
    "0109_auto_create_topics": ACLS,
    "0115_producer_auth": ACLS,
    "0119_consumer_auth": ACLS,
}
LIBRDKAFKA_MISSES: dict[str, str] = {}
# Why a test fails on Apache Kafka, too.
LIBRDKAFKA_NOTES = {
    "0101_fetch_from_follower": "needs three brokers",
    "0109_auto_create_topics": SUPERUSER,
    "0115_producer_auth": SUPERUSER,
    "0119_consumer_auth": SUPERUSER,
}


@dataclass(frozen=True, slots=True)
class Score:
    """How many tests pass on Apache Kafka, how many of those count, and how many pass here."""

    apache: int
    counted: int
    here: int

    @property
    def percent(self) -> float:
        # Rounded down: 97 % are 97 %.
        return int(1000 * self.here / self.counted) / 10


def score(outcomes: Outcomes, later: Mapping[str, str], misses: Mapping[str, str]) -> Score:
    """What a suite's outcomes come to.

    Raises ValueError for a miss without a reason, and for a reason whose test passes.
    """
    here = {name for name, outcome in outcomes["headrace"].items() if outcome.result == "passed"}
    apache = {name for name, outcome in outcomes["apache"].items() if outcome.result == "passed"}
    unexplained = {
        name: outcomes["headrace"][name].reason
        for name in apache - here - later.keys() - misses.keys()
    }
    needless = here & (later.keys() | misses.keys())
    if unexplained or needless:
        raise ValueError(f"misses without a reason: {unexplained}; reasons that pass: {needless}")
    counted = apache - later.keys()
    return Score(len(apache), len(counted), len(counted & here))
