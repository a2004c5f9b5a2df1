"""Typed access to decoded JSON. A field of another type counts as missing, so that newer programs can be read."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Optional

JsonObject = Dict[str, Any]


def text(source: Mapping[str, Any], key: str) -> Optional[str]:
    value = source.get(key)
    return value if isinstance(value, str) else None


def number(source: Mapping[str, Any], key: str) -> Optional[float]:
    value = source.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def integer(source: Mapping[str, Any], key: str) -> Optional[int]:
    value = source.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count(source: Mapping[str, Any], key: str) -> int:
    return integer(source, key) or 0


def flag(source: Mapping[str, Any], key: str) -> bool:
    return source.get(key) is True


def objects(source: Mapping[str, Any], key: str) -> List[JsonObject]:
    value = source.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_at(source: Mapping[str, Any], key: str) -> JsonObject:
    value = source.get(key)
    return value if isinstance(value, dict) else {}


def texts(source: Mapping[str, Any], key: str) -> List[str]:
    value = source.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def lines(document: bytes) -> Iterator[JsonObject]:
    """The objects of a document of JSON Lines."""
    for line in document.decode("utf-8").split("\n"):
        if line.strip():
            value = json.loads(line)
            if isinstance(value, dict):
                yield value
