"""Shows how far producing and consuming are: bars on a terminal, else a line now and then."""
from __future__ import print_function

import sys
import time

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

LINES = 10


class Progress(object):
    """:param total: how many records there are"""

    def __init__(self, total):
        self.total = total
        self.produced = self.consumed = 0
        self._started = self._produced_at = self._consumed_at = None
        self._bars = []

    @property
    def lead(self):
        """How many more are produced than consumed."""
        return self.produced - self.consumed

    @property
    def all_are_produced(self):
        return self.produced >= self.total

    @property
    def all_are_consumed(self):
        return self.consumed >= self.total

    @property
    def idle_seconds(self):
        """How long it is since anything was produced or consumed."""
        return time.time() - max(self._produced_at, self._consumed_at)

    def start(self):
        self._started = self._produced_at = self._consumed_at = time.time()
        if tqdm is not None and sys.stderr.isatty():
            self._bars = [
                tqdm(total=self.total, desc=name, unit=" flights", position=position)
                for position, name in enumerate(("produced", "consumed"))
            ]

    def stop(self):
        for bar in self._bars:
            bar.close()

    def add_produced(self, count):
        self.produced += count
        self._produced_at = time.time()
        if self._bars:
            self._bars[0].update(count)

    def add_consumed(self, count):
        before, self.consumed = self.consumed, self.consumed + count
        self._consumed_at = time.time()
        if self._bars:
            self._bars[1].update(count)
        elif before * LINES // self.total < self.consumed * LINES // self.total:
            print("{:,} of {:,} flights have gone there and back".format(self.consumed, self.total))
            sys.stdout.flush()

    def rates(self):
        """[("produced" or "consumed", how many records, in how many seconds, how many a second)]"""
        return [
            (what, count, last - self._started, count / (last - self._started) if count else 0)
            for what, count, last in (
                ("produced", self.produced, self._produced_at),
                ("consumed", self.consumed, self._consumed_at),
            )
        ]
