"""What ``phpmq check`` adds up: frames and bytes by type, and what is damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phpmq import Damage, Message
from phpmq.cli.records import WORDS


class Balance:
    """Frames and bytes by type, in the order of the catalogue, and damages."""

    def __init__(self) -> None:
        self._frames: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self.damages = 0
        self._damaged_bytes = 0

    def add_damages(self, damages: Sequence[Damage]) -> None:
        """Count damaged ranges."""
        self.damages += len(damages)
        self._damaged_bytes += sum(damage.stop - damage.start for damage in damages)

    def add_messages(self, counts: Mapping[type[Message], tuple[int, int]]) -> None:
        """Add frames and bytes by class."""
        for message_class, (frames, size) in counts.items():
            self._frames[WORDS[message_class]] += frames
            self._bytes[WORDS[message_class]] += size

    def add(self, other: Balance) -> None:
        """Add what another one holds."""
        self._frames += other._frames
        self._bytes += other._bytes
        self.damages += other.damages
        self._damaged_bytes += other._damaged_bytes

    @property
    def frames(self) -> int:
        """How many good ones there are."""
        return self._frames.total()

    def record(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return {
            "frames": self.frames,
            "bytes": self._bytes.total(),
            "types": {word: {"frames": self._frames[word], "bytes": self._bytes[word]} for word in self._words()},
            "damages": self.damages,
            "damaged_bytes": self._damaged_bytes,
        }

    def table(self, paint: Callable[..., str]) -> str:
        """As it is shown to people."""
        rows = [("", "frames", "bytes")]
        rows += [(word, str(self._frames[word]), str(self._bytes[word])) for word in self._words()]
        rows += [("all", str(self.frames), str(self._bytes.total()))]
        rows += [("damaged", str(self.damages), str(self._damaged_bytes))]
        names, frames, sizes = (max(map(len, column)) for column in zip(*rows, strict=True))
        *lines, every, damaged = [f"{row[0]:{names}}  {row[1]:>{frames}}  {row[2]:>{sizes}}" for row in rows]
        damaged = paint(damaged, bold=True, fg="red") if self.damages else damaged
        return "\n".join([*lines, paint(every, bold=True), damaged, ""])

    def _words(self) -> list[str]:
        return [word for word in WORDS.values() if self._frames[word]]
