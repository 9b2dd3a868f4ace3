"""Record batches (KIP-98, magic 2): reading them a batch at a time as columns, and building them.

    for batch in records.batches(span):
        for columns in batch.columns():
            if columns is not None:
                use(columns.offsets, columns.values)

    builder = records.BatchBuilder(codec=1)
    builder.append(timestamp, key, value, [("name", b"value")])
    data = builder.build()

``implementation`` says which of the implementations of this interface is in use; "pure" is the one in Python.
"""

from kiel.protocol.records.batch import Batch, batches, ends, first_size
from kiel.protocol.records.builder import BatchBuilder
from kiel.protocol.records.pure import Columns, record_size

__all__ = ("Batch", "BatchBuilder", "Columns", "batches", "ends", "first_size", "implementation", "record_size")

implementation = "pure"
