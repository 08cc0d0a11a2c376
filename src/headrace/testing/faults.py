"""Fault hooks: fail, delay or drop the n-th request of an API."""

from __future__ import annotations

import threading

from headrace.broker.ports import Action, Delay, Drop, Fail
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.errors import ErrorCode

Api = ApiKey | int | str
Error = ErrorCode | int | str


class Fault:
    """One rule: what happens to which requests of an API, and how often it did."""

    def __init__(self, api: ApiKey, action: Action, nth: int, times: int) -> None:
        if nth < 1 or times < 1:
            raise ValueError(f"nth={nth} and times={times} must be at least 1")
        self.api = api
        self.action = action
        self.seen = 0
        self.hits = 0
        self._first = nth
        self._last = nth + times - 1
        self._hit = threading.Event()

    def wait(self, timeout: float = 10.0) -> None:
        """Block until the fault has happened once; TimeoutError when it does not."""
        if not self._hit.wait(timeout):
            raise TimeoutError(
                f"no {self.api.name} request met the fault within {timeout} s ({self.seen} seen)"
            )

    def on_request(self) -> Action | None:
        """Count a request of the API and return what happens to it."""
        self.seen += 1
        if not self._first <= self.seen <= self._last:
            return None
        self.hits += 1
        self._hit.set()
        return self.action


class Faults:
    """The faults of one broker; a rule counts the requests after its creation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Fault] = []

    def fail(self, api: Api, error: Error, nth: int = 1, times: int = 1) -> Fault:
        """Answer the n-th request of `api` (and `times` - 1 after it) with `error`, unserved."""
        return self._add(Fault(_api(api), Fail(_error(error)), nth, times))

    def delay(self, api: Api, seconds: float, nth: int = 1, times: int = 1) -> Fault:
        """Serve the n-th request of `api` only after `seconds` of real time."""
        return self._add(Fault(_api(api), Delay(seconds), nth, times))

    def drop(self, api: Api, nth: int = 1, times: int = 1) -> Fault:
        """Close the connection of the n-th request of `api` without serving it."""
        return self._add(Fault(_api(api), Drop(), nth, times))

    def clear(self) -> None:
        """Forget every rule; the broker serves as usual."""
        with self._lock:
            self._rules.clear()

    def on_request(self, api_key: int, api_version: int, client_id: str | None) -> Action | None:
        """Called by the broker for every request: the first rule that applies decides."""
        if not self._rules:
            return None
        decided: Action | None = None
        with self._lock:
            # Every rule counts the request, so that nth means the same with other rules around.
            for rule in self._rules:
                if rule.api == api_key:
                    action = rule.on_request()
                    decided = decided or action
        return decided

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._rules.append(fault)
        return fault


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_APIS = {_plain(key.name): key for key in ApiKey}
_ERRORS: dict[str | int, ErrorCode] = {
    **{code.name: code for code in ErrorCode},
    **{code.value: code for code in ErrorCode},
}


def _api(api: Api) -> ApiKey:
    try:
        return ApiKey(api) if isinstance(api, int) else _APIS[_plain(api)]
    except (KeyError, ValueError):
        raise ValueError(f"{api!r} is not an API; use Kafka's name, such as 'Produce'") from None


def _error(error: Error) -> ErrorCode:
    if isinstance(error, ErrorCode):
        return error
    try:
        return _ERRORS[error if isinstance(error, int) else error.upper()]
    except KeyError:
        raise ValueError(
            f"{error!r} is not an error; use Kafka's name, such as 'NOT_LEADER_OR_FOLLOWER'"
        ) from None
