"""The result of a run: comparisons, each a ratio of two contenders at one workload, and the machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders import PEERS, Roster
from benchmarks.measure import Series, Spread, ratios

FORMAT = 1

Targets = Mapping[str, Mapping[tuple[str, str], float | None]]
"""By storage engine: subject, reference, and the largest allowed ratio; None if there is no target."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The cost of `subject` is `ratio` times that of `reference`. Without a ratio, `note` has the reason."""

    workload: str
    subject: str
    reference: str
    ratio: Spread | None = None
    at_most: float | None = None
    unit: str = "us"
    subject_cost: Spread | None = None
    reference_cost: Spread | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return self.note
        if self.at_most is None:
            return ""
        return "ok" if self.ratio.median <= self.at_most else "MISS"


@dataclass(slots=True)
class Report:
    where: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        found = [{**asdict(one), "verdict": one.verdict} for one in self.comparisons]
        whole = {"format": FORMAT, **self.where, "comparisons": found, "failures": self.failures}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Report:
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole.pop("format", None) != FORMAT:
            raise ValueError(f"{path} is not a result of this benchmark")
        comparisons = [_comparison(one) for one in whole.pop("comparisons")]
        return cls(failures=whole.pop("failures"), comparisons=comparisons, where=whole)


def _comparison(data: dict[str, Any]) -> Comparison:
    del data["verdict"]
    for name in ("ratio", "subject_cost", "reference_cost"):
        data[name] = data[name] and Spread(**data[name])
    return Comparison(**data)


@dataclass(frozen=True, slots=True)
class Judge:
    """Converts the series of one workload to comparisons. Contenders without a series are reported as absent."""

    roster: Roster
    workload: str
    series: Series
    unit: str = "us"

    def compare(self, subject: str, reference: str, at_most: float | None = None) -> Comparison:
        names = self.roster.title(subject), self.roster.title(reference)
        missing = [key for key in (subject, reference) if not self.series.get(key)]
        if missing:
            return Comparison(self.workload, *names, at_most=at_most, unit=self.unit, note=self._why(missing[0]))
        ours, theirs = self.series[subject], self.series[reference]
        return Comparison(
            self.workload,
            *names,
            ratio=Spread.of(ratios(ours, theirs)),
            at_most=at_most,
            unit=self.unit,
            subject_cost=Spread.of(ours),
            reference_cost=Spread.of(theirs),
        )

    def standings(self, targets: Targets) -> Iterator[Comparison]:
        """Yields the comparisons that have a target on this engine, then those of the peers with the reference."""
        for (subject, reference), at_most in targets.get(self.roster.engine, {}).items():
            yield self.compare(subject, reference, at_most)
        yield from self.peers(PEERS)

    def peers(self, keys: Sequence[str]) -> Iterable[Comparison]:
        return [self.compare(key, "raw") for key in keys if key in self.series]

    def _why(self, key: str) -> str:
        return "absent" if key in PEERS else "not available yet"
