"""How a report writes numbers and names."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SPANS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
#: Between a number and its unit, where no line may break.
_SPACE: Final = "\u00a0"


def name(text: str, most: int = 80) -> str:
    """Text of a stranger: in one line, in the order in which it is read, and cut behind so many characters."""
    start = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:most])
    return start + ("…" if len(text) > most else "")


def queue_name(queue: str | None) -> str:
    """The name of a queue, or words for one that has none."""
    if queue is None:
        return "(not UTF-8)"
    return name(queue) or "(empty name)"


def number(value: int) -> str:
    """A number with separators: 1,234,567."""
    return f"{value:,}"


def estimate(value: int) -> str:
    """A number that is not exact."""
    return f"≈{_SPACE}{value:,}"


def counted(value: int, what: str, many: str | None = None) -> str:
    """A number of things: "1 byte", "1,024 bytes"."""
    return f"{value:,} {what if value == 1 else many or what + 's'}"


def listed(shown: int, total: int, what: str, many: str | None = None) -> str:
    """How many things a list has of how many."""
    return counted(total, what, many) if shown == total else f"The first {shown:,} of {counted(total, what, many)}"


def size(value: int) -> str:
    """Bytes, in the unit that makes them short: 1.5 KiB."""
    power = min(max(value.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    shown = f"{value / 1024**power:,.1f}" if power else str(value)
    return shown + _SPACE + _UNITS[power]


def span(seconds: int) -> str:
    """Seconds as the two largest units that they have: 1 h 30 min."""
    parts = []
    for length, unit in _SPANS:
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count:,}{_SPACE}{unit}")
    return " ".join(parts[:2]) or f"0{_SPACE}s"


def percent(share: float) -> str:
    """A share of 1 in per cent; what is more than nothing does not look like nothing."""
    smallest = 0.0001
    shown = f"<{smallest:.2%}" if 0 < share < smallest else f"{share:.2%}"
    return shown.replace("%", f"{_SPACE}%")


def size_class(bits: int) -> str:
    """The sizes that have so many binary digits: "1,024 to 2,047 bytes"."""
    first, last = 1 << bits >> 1, (1 << bits) - 1
    return counted(last, "byte") if first >= last else f"{first:,} to {last:,} bytes"


def size_class_start(bits: int) -> str:
    """The smallest of these sizes: 1 KiB."""
    power, rest = divmod(max(bits - 1, 0), 10)
    return f"{min(bits, 1) << rest}{_SPACE}{_UNITS[power]}"
