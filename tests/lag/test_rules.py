"""Rules are read from a file, and a wrong one says what is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from headrace.lag.levels import LevelPolicy, Threshold
from headrace.lag.rules import (
    DEFAULT_RULE,
    LagConfig,
    NotifierSpec,
    Rule,
    RulesError,
    parse_config,
    read_config,
)

WHOLE = """
every = "2s"

[[rule]]
groups = ["billing", "shop-*"]
topics = "orders"
warning = { records = 1000 }
critical = { behind = "10m", records = 5000 }
rise_after = "15s"
fall_after = "1m30s"
clear = 0.8
repeat = "4h"
notify = ["log", "ops", "page"]

[[rule]]
groups = "*"

[notifier.ops]
webhook = "https://ops.example.com/lag"
timeout = "3s"
tries = 6
token_file = "ops.token"

[notifier.page]
command = ["page", "--team", "shop"]
"""


def test_a_whole_file() -> None:
    config = parse_config(tomllib.loads(WHOLE), Path("/etc/headrace"))
    assert config == LagConfig(
        every_ms=2_000,
        rules=(
            Rule(
                groups=("billing", "shop-*"),
                topics=("orders",),
                levels=LevelPolicy(
                    warning=Threshold(records=1000),
                    critical=Threshold(5000, 600_000),
                    rise_after_ms=15_000,
                    fall_after_ms=90_000,
                    clear=0.8,
                ),
                repeat_ms=4 * 3_600_000,
                notify=("log", "ops", "page"),
            ),
            Rule(),
        ),
        notifiers={
            "ops": NotifierSpec(
                webhook="https://ops.example.com/lag",
                timeout_ms=3_000,
                tries=6,
                token_file=Path("/etc/headrace/ops.token"),
            ),
            "page": NotifierSpec(command=("page", "--team", "shop")),
        },
    )


def test_the_first_rule_that_matches_counts() -> None:
    config = parse_config(tomllib.loads(WHOLE))
    assert config.rule_for("shop-1") is config.rules[0]
    assert config.rule_for("Shop-1") is config.rules[1]
    assert config.rules[0].counts("orders")
    assert not config.rules[0].counts("orders.dlq")
    assert LagConfig(rules=config.rules[:1]).rule_for("other") is None


def test_without_rules_there_is_one_for_all() -> None:
    assert parse_config({}) == LagConfig(rules=(DEFAULT_RULE,))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('evry = "1s"', "unknown setting 'evry'", "did you mean every?"),
        ("every = 10", "every 10 is not a duration", '"30s"'),
        ('every = "1ms"', "below 100ms", ""),
        ("rule = 1", "rule is not a list", "[[rule]]"),
        ("[[rule]]\ngroup = 'a'", "rule 1 has an unknown setting 'group'", "groups"),
        ("[[rule]]\ngroups = [1]", "rule 1: groups is not a list of names", ""),
        ("[[rule]]\nnotify = 'ops'", "notifies 'ops', which is unknown", "[notifier.ops]"),
        ("[[rule]]\nclear = 0", "clear 0 is not above 0 and up to 1", "0.5"),
        ("[[rule]]\nwarning = 5", "rule 1: warning is not a table", ""),
        ("[[rule]]\nwarning = { seconds = 5 }", "unknown setting 'seconds'", "records"),
        ("[[rule]]\nwarning = { records = 0 }", "records 0 is not a count", ""),
        (
            "[[rule]]\nwarning = { records = 5 }\ncritical = { records = 4 }",
            "the critical limit is below the warning limit",
            "",
        ),
        ("[notifier.ops]\ntries = 3", "needs either webhook or command", ""),
        ("[notifier.ops]\nwebhook = 'ops.example.com'", "is not a URL", "https://"),
        ("[notifier.ops]\ncommand = 'page me'", "a list of words", 'command = ["'),
        ("[notifier.ops]\ncommand = ['page']\ntries = 0", "tries 0 is not a count", ""),
        ("[notifier.log]\ncommand = ['page']", "the name log is reserved", ""),
        ("notifier = 3", "notifier is not a table", ""),
    ],
)
def test_a_wrong_rule_says_what_is_wrong(text: str, message: str, hint: str) -> None:
    with pytest.raises(RulesError) as caught:
        parse_config(tomllib.loads(text))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_errors_of_a_file_name_it(tmp_path: Path) -> None:
    path = tmp_path / "lag.toml"
    with pytest.raises(RulesError, match="cannot be read"):
        read_config(path)
    path.write_text("every =")
    with pytest.raises(RulesError, match="is not TOML"):
        read_config(path)
    path.write_text("every = 3")
    with pytest.raises(RulesError, match=r"lag.toml: the file: every 3 is not a duration"):
        read_config(path)
    path.write_text("every = '3s'")
    assert read_config(path).every_ms == 3_000
