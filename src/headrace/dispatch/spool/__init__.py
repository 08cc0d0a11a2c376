"""The local queue of a node, kept where a crash does not reach it."""

from __future__ import annotations
