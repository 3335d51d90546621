"""Surveys of file populations as Python data: what ``granulo survey``, ``plan`` and ``compare`` print with ``--json``.

The documents are dictionaries with the names of docs/SCHEMA.md; these classes add tables for Arrow and a summary for
notebooks.
"""

from __future__ import annotations

import errno
import html
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from . import _granulo
from .errors import UsageError

if TYPE_CHECKING:
    import pyarrow

Path = Union[str, "os.PathLike[str]"]

#: Layouts of a plan that names none.
DEFAULT_MODELS = ("ext4", "xfs", "btrfs", "zfs", "lustre", "ceph", "s3", "granulo")


def _size(size_bytes: float) -> str:
    """A size for people: three digits and a unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size_bytes < 1024 or unit == "TiB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 100 else f"{size_bytes:.3g} {unit}"
        size_bytes /= 1024
    raise AssertionError("the last unit returns")


def _table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    def row(tag: str, cells: Iterable[Any]) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"

    body = "".join(row("td", cells) for cells in rows)
    return f"<table><thead>{row('th', header)}</thead><tbody>{body}</tbody></table>"


class Document(dict[str, Any]):
    """A document of granulo: a dictionary that can be written to a file."""

    def save(self, path: Path) -> None:
        """Writes it as JSON: the granulo command reads it as well."""
        with open(path, "x", encoding="utf-8") as out:
            json.dump(self, out)
            out.write("\n")


class Survey(Document):
    """One population of files: counts, totals, distributions.

    ``survey["distributions"]["file_size"]`` and the others have ``count``, ``total``, ``deciles`` and ``buckets``,
    half-open intervals ``[low, high)``; ``warnings`` are remarks on how it was taken.
    """

    warnings: list[str] = []

    @classmethod
    def load(cls, path: Path) -> Survey:
        """A survey that was saved, by :meth:`save` or the command."""
        with open(path, encoding="utf-8") as text:
            return cls(json.load(text))

    @property
    def files(self) -> int:
        """Number of files."""
        return int(self["counts"]["files"])

    @property
    def size_bytes(self) -> int:
        """Sum of their sizes in bytes."""
        return int(self["totals"]["size_bytes"])

    def to_arrow(self, distribution: str = "file_size") -> pyarrow.Table:
        """The buckets of a distribution as a table: ``low``, ``high`` (exclusive), ``count``, ``sum``, one row each."""
        import pyarrow as pa

        buckets = self["distributions"][distribution]["buckets"]
        # Integers above 2^53 are no floating-point numbers to pyarrow.
        kinds = {
            "low": (int, pa.uint64()), "high": (float, pa.float64()),
            "count": (int, pa.uint64()), "sum": (float, pa.float64()),
        }
        columns = {
            name: pa.array([None if row[name] is None else number(row[name]) for row in buckets], kind)
            for name, (number, kind) in kinds.items()
        }
        return pa.table(columns)

    def __repr__(self) -> str:
        return f"<granulo.Survey of {self.files:,} files, {_size(self.size_bytes)}>"

    def _repr_html_(self) -> str:
        sizes = self["distributions"]["file_size"]
        deciles = sizes["deciles"]
        rows = [
            ("files", f"{self.files:,}"),
            ("directories", f"{self['counts']['directories']:,}"),
            ("size", _size(self.size_bytes)),
            ("allocated", _size(self["totals"]["allocated_bytes"])),
            ("median size", _size(deciles[4])),
            ("nine tenths are at most", _size(deciles[8])),
        ]
        return _table(("survey", ""), rows) + self._chart(sizes["buckets"])

    def _chart(self, buckets: list[dict[str, Any]]) -> str:
        """Share of files (bars) and of bytes (line) by size, as SVG."""
        files = sum(row["count"] for row in buckets) or 1
        total = sum(row["sum"] for row in buckets) or 1
        width, height = 14, 120
        tallest = max((row["count"] / files for row in buckets), default=1) or 1
        largest = max((row["sum"] / total for row in buckets), default=1) or 1
        bars, points = [], []
        for at, row in enumerate(buckets):
            share, by_bytes = row["count"] / files, row["sum"] / total
            bar = height * share / tallest
            label = f"from {_size(row['low'])}: {share:.1%} of files, {by_bytes:.1%} of bytes"
            bars.append(
                f'<rect x="{at * width}" y="{height - bar:.1f}" width="{width - 2}" height="{bar:.1f}" fill="#4878a8">'
                f"<title>{html.escape(label)}</title></rect>"
            )
            points.append(f"{at * width + width / 2},{height - height * by_bytes / largest:.1f}")
        return (
            f'<svg width="{len(buckets) * width}" height="{height + 2}" role="img" '
            f'aria-label="files and bytes by size">{"".join(bars)}'
            f'<polyline points="{" ".join(points)}" fill="none" stroke="#b05030"/></svg>'
            "<p>Bars: share of files by size, in powers of two. Line: share of bytes.</p>"
        )


class Plan(Document):
    """The space that layouts need for a population, and the size of a fast tier."""

    def to_arrow(self) -> pyarrow.Table:
        """One row for each layout: ``model``, ``allocated_bytes``, ``total_bytes``, ``overhead_fraction``."""
        import pyarrow as pa

        names = ("model", "allocated_bytes", "total_bytes", "overhead_fraction")
        return pa.table({name: [row[name] for row in self["models"]] for name in names})

    def _repr_html_(self) -> str:
        rows = [(row["model"], _size(row["total_bytes"]), f"{row['overhead_fraction']:.1%}") for row in self["models"]]
        return _table(("layout", "space", "overhead"), rows)


class Comparison(Document):
    """Populations side by side."""

    def to_arrow(self) -> pyarrow.Table:
        """Distances of every pair: ``a``, ``b``, ``by_files``, ``by_bytes`` (Kolmogorov-Smirnov, 0 to 1)."""
        import pyarrow as pa

        return pa.table({name: [row[name] for row in self["distances"]] for name in ("a", "b", "by_files", "by_bytes")})

    def _repr_html_(self) -> str:
        rows = [
            (row["name"], f"{row['files']:,}", _size(row["size_bytes"]), _size(row["deciles"][4]))
            for row in self["sources"]
        ]
        distances = [
            (row["a"], row["b"], f"{row['by_files']:.3f}", f"{row['by_bytes']:.3f}") for row in self["distances"]
        ]
        return _table(("source", "files", "size", "median"), rows) + _table(
            ("", "", "distance by files", "by bytes"), distances
        )


def _source(source: Any) -> Any:
    """A survey as its text, or a published name or path as it is."""
    return json.dumps(source).encode() if isinstance(source, dict) else os.fspath(source)


def survey(*paths: Path, anonymous: bool = False, threads: int | None = None) -> Survey:
    """Surveys trees in one pass, without the interpreter; ^C ends it. ``anonymous`` leaves out every name and path."""
    if not paths:
        raise UsageError(errno.EINVAL, "name at least one tree")
    text, warnings = _granulo.survey([os.fspath(path) for path in paths], anonymous, threads)
    taken = Survey(json.loads(text))
    taken.warnings = warnings
    return taken


def plan(
    source: Any, models: Iterable[str] = DEFAULT_MODELS, cutoffs: Iterable[int] = (), fast_bytes: int | None = None
) -> Plan:
    """The space that layouts need for a source: a survey, a path to one, an fsstats CSV or a name like ``"vu-2005"``.

    ``cutoffs`` (bytes) are evaluated as borders between small and large files; ``fast_bytes`` is the capacity of a fast
    tier.
    """
    if isinstance(models, str):
        raise TypeError("models are a sequence of layouts, not one layout")
    return Plan(json.loads(_granulo.plan(_source(source), list(models), list(cutoffs), fast_bytes)))


def compare(*sources: Any, names: Iterable[str] | None = None) -> Comparison:
    """Two or more sources side by side; ``names`` label them (default: published names and paths, or numbers)."""
    labels = list(names) if names is not None else [
        str(number) if isinstance(source, dict) else os.fspath(source) for number, source in enumerate(sources, 1)
    ]
    if len(labels) != len(sources) or len(sources) < 2:
        raise ValueError("compare needs at least two sources, and a name for each")
    return Comparison(json.loads(_granulo.compare([_source(source) for source in sources], labels)))
