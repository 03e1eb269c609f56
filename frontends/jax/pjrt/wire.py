"""The few messages of protobuf that the plugin reads and writes: numbers, and messages inside of messages."""

from __future__ import annotations

from typing import Any

__all__ = ["fields_of", "message", "numbers"]


def numbers(data: Any) -> list[int]:
    """The numbers of field 1, in protobuf's packed form or one by one."""
    found: list[int] = []
    for field, value in fields_of(data):
        if field == 1 and isinstance(value, int):
            found.append(value)
        elif field == 1:
            at = 0
            while at < len(value):
                number, at = _varint(value, at)
                found.append(number)
    return found


def fields_of(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a serialised protobuf message of numbers and messages: (number of the field, number or bytes)."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == 2:
            found.append((key >> 3, data[at : at + value]))
            at += value
        else:
            found.append((key >> 3, value))
    return found


def message(field: int, data: bytes) -> bytes:
    """A field that holds ``data``, such as another message."""
    return bytes([field << 3 | 2]) + _as_varint(len(data)) + data


def _as_varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _as_varint(rest) if rest else bytes([low])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that starts at ``at``, seven bits a byte, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
