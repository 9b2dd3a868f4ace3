"""What is in a scripted broker's logs."""
from kiel.protocol import primitives, records


def columns_of(data):
    """Each Columns of the batches in `data`."""
    for batch in records.batches(primitives.Span(data, 0, len(data))):
        for columns in batch.columns():
            if columns is not None:
                yield columns


def values_in(log):
    """The values in a PartitionLog, in order of offset."""
    return [value for stored in log.batches for columns in columns_of(stored.data) for value in columns.values]


def numbers_in(log):
    """[(producer id, epoch, base sequence, count)] of a PartitionLog's batches."""
    return [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count)
        for stored in log.batches
        for batch in records.batches(primitives.Span(stored.data, 0, len(stored.data)))
    ]
