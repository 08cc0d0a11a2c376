"""What every token store does, whatever it keeps its tokens in."""

from __future__ import annotations

import pytest
from tests.dispatch.tokens.stores import LIMITS, Clock

from headrace.dispatch.tokens.store import (
    Fence,
    Put,
    Renew,
    Return,
    Revoke,
    Token,
    TokenStore,
    TokenView,
)


def put(store: TokenStore, *tokens: Token, node: str = "owner") -> list[str]:
    return list(store.exchange(node, [Put(*token) for token in tokens]).verdicts)


def look(store: TokenStore, partition: int) -> TokenView | None:
    return store.exchange("looker", query=[partition]).views[partition]


def token(partition: int, epoch: int = 1, next_offset: int = 0) -> Token:
    return Token(partition, Fence(epoch, next_offset))


def test_a_token_is_taken_once(store: TokenStore) -> None:
    assert put(store, token(3)) == ["ok"]
    assert store.exchange("a", want=2).granted == [token(3)]
    assert store.exchange("b", want=1).granted == []
    assert look(store, 3) == TokenView(Fence(1, 0), "out", "a", LIMITS.lease_ms)


def test_tokens_are_taken_in_the_order_of_coming(store: TokenStore) -> None:
    put(store, token(10), token(2), token(7))
    assert store.exchange("a", want=5).granted == [token(10), token(2), token(7)]


def test_a_repeated_put_does_nothing(store: TokenStore) -> None:
    put(store, token(0))
    assert put(store, token(0)) == ["repeated"]
    assert store.exchange("a", want=2).granted == [token(0)]
    assert put(store, token(0)) == ["repeated"]
    assert store.exchange("a", want=1).granted == []


def test_the_token_comes_back_with_a_newer_fence_only(store: TokenStore) -> None:
    put(store, token(0, 4, 10))
    store.exchange("a", want=1)
    assert put(store, token(0, 4, 9)) == ["stale"]
    assert put(store, token(0, 3, 11)) == ["stale"]
    assert put(store, token(0, 4, 11)) == ["ok"]
    assert store.exchange("b").granted == []
    assert store.exchange("b", want=1).granted == [token(0, 4, 11)]


def test_a_newer_owner_replaces_what_an_older_one_put(store: TokenStore) -> None:
    put(store, token(0, 1, 50))
    assert put(store, token(0, 2, 40)) == ["ok"]
    assert put(store, token(0, 1, 60)) == ["stale"]
    assert store.exchange("a", want=2).granted == [token(0, 2, 40)]


def test_force_overrules_a_newer_fence(store: TokenStore) -> None:
    put(store, token(0, 57, 9))
    answer = store.exchange("owner", [Put(0, Fence(1, 0), is_forced=True)])
    assert answer.verdicts == ["ok"]
    assert store.exchange("a", want=1).granted == [token(0, 1, 0)]


def test_force_gives_a_lease_whatever_is_known(store: TokenStore) -> None:
    store.exchange("owner", [Revoke(0, Fence(9, 9))])
    assert store.exchange("owner", [Renew(0, Fence(1, 3))]).verdicts == ["stale"]
    assert store.exchange("owner", [Renew(0, Fence(1, 3), is_forced=True)]).verdicts == ["ok"]
    seen = look(store, 0)
    assert seen is not None
    assert (seen.fence, seen.is_leased, seen.node) == (Fence(1, 3), True, "owner")


def test_a_revoked_token_leaves_the_queue_for_good(store: TokenStore) -> None:
    put(store, token(0, 2, 5))
    assert store.exchange("owner", [Revoke(0, Fence(2, 5))]).verdicts == ["ok"]
    assert put(store, token(0, 2, 5)) == ["repeated"]
    assert store.exchange("a", want=1).granted == []
    assert look(store, 0) == TokenView(Fence(2, 5), "revoked", "", 0)


def test_a_late_revoke_of_an_older_owner_does_nothing(store: TokenStore) -> None:
    put(store, token(0, 3, 5))
    assert store.exchange("old", [Revoke(0, Fence(2, 9))]).verdicts == ["stale"]
    assert store.exchange("a", want=1).granted == [token(0, 3, 5)]


def test_revoking_ends_the_lease_of_a_token_that_is_out(store: TokenStore) -> None:
    put(store, token(0))
    store.exchange("a", want=1)
    store.exchange("owner", [Revoke(0, Fence(1, 0))])
    found = look(store, 0)
    assert found is not None
    assert not found.is_leased


def test_a_lease_ends_unless_it_is_renewed(store: TokenStore, clock: Clock) -> None:
    put(store, token(0))
    store.exchange("a", want=1)
    clock.now_ms += 900
    assert store.exchange("owner", [Renew(0, Fence(1, 0))]).verdicts == ["ok"]
    clock.now_ms += 900
    assert look(store, 0) == TokenView(Fence(1, 0), "out", "owner", 100)
    clock.now_ms += 100
    assert look(store, 0) == TokenView(Fence(1, 0), "out", "owner", 0)
    assert store.status().counts()["expired"] == 1
    # What is expired is not in the queue: something may have been sent with it.
    assert store.exchange("b", want=1).granted == []


def test_renewing_brings_a_forgotten_lease_back(store: TokenStore) -> None:
    store.exchange("runner", [Renew(5, Fence(2, 8))])
    assert look(store, 5) == TokenView(Fence(2, 8), "out", "runner", LIMITS.lease_ms)


def test_renewing_takes_the_token_of_that_fence_out_of_the_queue(store: TokenStore) -> None:
    put(store, token(0))
    store.exchange("runner", [Renew(0, Fence(1, 0))])
    assert store.exchange("a", want=1).granted == []


def test_a_renewal_cannot_undo_what_is_newer(store: TokenStore) -> None:
    put(store, token(0, 1, 4))
    assert store.exchange("old", [Renew(0, Fence(1, 3))]).verdicts == ["stale"]
    store.exchange("owner", [Revoke(0, Fence(1, 4))])
    assert store.exchange("old", [Renew(0, Fence(1, 4))]).verdicts == ["stale"]


def test_only_its_holder_returns_a_token(store: TokenStore) -> None:
    put(store, token(0))
    store.exchange("a", want=1)
    assert store.exchange("b", [Return(0, Fence(1, 0))]).verdicts == ["stale"]
    assert store.exchange("a", [Return(0, Fence(1, 0))], want=0).verdicts == ["ok"]
    assert store.exchange("b", want=1).granted == [token(0)]


def test_a_waiting_node_is_offered_what_comes(store: TokenStore) -> None:
    assert store.exchange("a", want=2).granted == []
    put(store, token(0), token(1), token(2))
    assert sorted(store.wait("a", 30)) == [token(0), token(1)]
    assert store.exchange("b", want=1).granted == [token(2)]


def test_an_exchange_collects_what_is_offered(store: TokenStore) -> None:
    store.exchange("a", want=1)
    put(store, token(0))
    assert store.exchange("a").granted == [token(0)]
    assert store.exchange("a").granted == []


def test_an_offer_that_nobody_collects_goes_to_another(store: TokenStore, clock: Clock) -> None:
    store.exchange("dead", want=5)
    put(store, token(0))
    assert store.exchange("a", want=1).granted == []
    clock.now_ms += LIMITS.offer_ms
    put(store, token(1))
    # The dead one waits no longer, so it is not in the way a second time.
    assert sorted(store.exchange("a", want=2).granted) == [token(0), token(1)]
    assert store.exchange("dead").granted == []


def test_a_collected_offer_is_never_withdrawn(store: TokenStore, clock: Clock) -> None:
    store.exchange("a", want=1)
    put(store, token(0))
    assert store.wait("a", 30) == [token(0)]
    clock.now_ms += LIMITS.offer_ms
    assert store.exchange("b", want=1).granted == []
    found = look(store, 0)
    assert found is not None
    assert (found.state, found.node) == ("out", "a")
    assert found.left_ms == LIMITS.lease_ms - LIMITS.offer_ms


def test_what_was_waited_for_can_be_returned(store: TokenStore) -> None:
    store.exchange("a", want=1)
    put(store, token(0))
    (got,) = store.wait("a", 30)
    assert store.exchange("a", [Return(*got)]).verdicts == ["ok"]
    assert store.exchange("b", want=1).granted == [token(0)]


def test_want_is_set_and_not_added(store: TokenStore) -> None:
    for _ in range(3):
        store.exchange("a", want=1)
    assert store.status().waiting == {"a": 1}
    store.exchange("a", want=0)
    assert store.status().waiting == {}


def test_waiting_nodes_take_turns_though_one_wants_much_more(store: TokenStore) -> None:
    store.exchange("greedy", want=100)
    store.exchange("modest", want=2)
    for number in range(4):
        put(store, token(number))
    assert len(store.exchange("greedy").granted) == 2
    assert len(store.exchange("modest").granted) == 2


def test_weights_share_unequally(store: TokenStore) -> None:
    store.exchange("heavy", want=100, weight=3)
    store.exchange("light", want=100, weight=1)
    put(store, *[token(number) for number in range(40)])
    assert len(store.exchange("heavy").granted) == 30
    assert len(store.exchange("light").granted) == 10


def test_a_store_tells_its_birth_and_age(store: TokenStore, clock: Clock) -> None:
    first = store.exchange("a")
    clock.now_ms += 250
    second = store.exchange("b")
    assert first.incarnation
    assert first.incarnation == second.incarnation
    assert second.age_ms - first.age_ms == 250


def test_status_counts_every_partition(store: TokenStore) -> None:
    put(store, token(0), token(1), token(2))
    store.exchange("a", want=1)
    store.exchange("owner", [Revoke(2, Fence(1, 0))])
    counts = store.status().counts()
    assert counts == {"idle": 1, "offered": 0, "out": 1, "expired": 0, "revoked": 1}


@pytest.mark.parametrize("name", ["plain", "with spaces and {braces}", "ünïcode:1"])
def test_any_node_name_will_do(store: TokenStore, name: str) -> None:
    store.exchange(name, want=1)
    put(store, token(0))
    assert store.wait(name, 30) == [token(0)]
    found = look(store, 0)
    assert found is not None
    assert found.node == name


def test_large_epochs_and_offsets_are_kept_whole(store: TokenStore) -> None:
    large = token(2**31 - 1, 2**31 - 1, 2**52 + 1)
    put(store, large)
    assert store.exchange("a", want=1).granted == [large]
