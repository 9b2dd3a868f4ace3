"""Compiles declared messages into readers and writers: closures, made once a (class, version) and kept.

Neighbouring fields of fixed size are read and written in one go. `kind` is a type of
:mod:`kiel.protocol.primitives` or a Struct class; `compact` is whether the version is flexible (KIP-482),
which decides on the form of lengths and on whether structs end with tagged fields.
"""
import collections
import struct

import six

from kiel.exc import ProtocolError
from kiel.protocol.primitives import (
    Array,
    Fixed,
    cut_off,
    length_packer,
    length_reader,
    mistyped,
    read_uvarint,
    uvarint,
)

Plan = collections.namedtuple("Plan", ("read", "write"))


def compile_plan(cls, version, compact):
    """The reader and the writer of a Struct class at one version."""
    return Plan(_struct_reader(cls, version, compact), _struct_writer(cls, version, compact))


def _is_struct(kind):
    return hasattr(kind, "parts")


def _least(kind, version, compact):
    """The smallest number of bytes that a value takes: it bounds the count of an array before it is read."""
    if not _is_struct(kind):
        return kind.least(compact)
    fields = [field for field in kind.parts if field.in_body(version)]
    least = sum(
        1 if _may_be_null_struct(field, version) else _least(field.kind, version, compact) for field in fields
    )
    return least + 1 if compact else least


def _may_be_null_struct(field, version):
    return _is_struct(field.kind) and field.nullable_at(version)


def _runs(fields, version):
    """The fields of a version's body in order, in lists: neighbours of fixed size share one."""
    runs, open_run = [], None
    for field in fields:
        if not field.in_body(version):
            continue
        if not isinstance(field.kind, Fixed):
            open_run = None
            runs.append([field])
        elif open_run is None:
            open_run = [field]
            runs.append(open_run)
        else:
            open_run.append(field)
    return runs


# reading


def _reader(kind, version, compact, nullable):
    if isinstance(kind, Array):
        of = kind.of
        # Uuid's format has a number of its own
        if isinstance(of, Fixed) and len(of.code) == 1:
            return _numbers_reader(of, compact, nullable)
        return _array_reader(of, version, compact, nullable)
    if not _is_struct(kind):
        return kind.reader(compact, nullable)
    read = _struct_reader(kind, version, compact)
    return _nullable_struct_reader(kind, read) if nullable else read


def _nullable_struct_reader(kind, read_struct):
    def read(data, at, end):
        if at >= end:
            raise cut_off(kind.__name__, 1, at, end)
        if six.indexbytes(data, at) >= 0x80:  # a negative Int8
            return None, at + 1
        return read_struct(data, at + 1, end)

    return read


def _numbers_reader(of, compact, nullable):
    """Reads a whole array of numbers in one go."""
    read_count = length_reader("an array", compact, nullable)
    size = of.size
    # replicas and the like: making a format takes longer than using it
    short = [struct.Struct(">%d%s" % (count, of.code)).unpack_from for count in range(8)]

    def read(data, at, end):
        count, start = read_count(data, at, end)
        if count is None:
            return None, start
        after = start + count * size
        if after > end:
            raise _too_many(count, at, start, end)
        if count < 8:
            return list(short[count](data, start)), after
        return list(struct.unpack_from(">%d%s" % (count, of.code), data, start)), after

    return read


def _too_many(count, at, start, end):
    return ProtocolError("an array of %d can't be in %d bytes" % (count, end - start), position=at)


def _array_reader(of, version, compact, nullable):
    read_count = length_reader("an array", compact, nullable)
    least = max(1, _least(of, version, compact))
    read_item = _reader(of, version, compact, False)

    def read(data, at, end):
        count, start = read_count(data, at, end)
        if count is None:
            return None, start
        if count * least > end - start:
            raise _too_many(count, at, start, end)
        items, at = [], start
        for _ in six.moves.range(count):
            item, at = read_item(data, at, end)
            items.append(item)
        return items, at

    return read


def _struct_reader(cls, version, compact):
    steps = [
        _run_reader(run) if isinstance(run[0].kind, Fixed) else _part_reader(run[0], version, compact)
        for run in _runs(cls.parts, version)
    ]
    if compact:
        steps.append(_tags_reader(cls, version))
    absent = [field for field in cls.parts if not field.in_body(version)]
    shared = dict((field.name, field.fresh()) for field in absent if not field.mutable)
    fresh = [(field.name, field.fresh) for field in absent if field.mutable]
    new = cls.__new__

    def read(data, at, end):
        values = shared.copy()
        for name, make in fresh:
            values[name] = make()
        for step in steps:
            at = step(values, data, at, end)
        made = new(cls)
        made.__dict__ = values
        return made, at

    return read


def _run_reader(run):
    names = [field.name for field in run]
    together = struct.Struct(">" + "".join(field.kind.code for field in run))
    unpack, size = together.unpack_from, together.size
    what = ", ".join(names)

    def step(values, data, at, end):
        after = at + size
        if after > end:
            raise cut_off(what, size, at, end)
        values.update(zip(names, unpack(data, at)))
        return after

    return step


def _part_reader(field, version, compact):
    name = field.name
    read = _reader(field.kind, version, compact, field.nullable_at(version))

    def step(values, data, at, end):
        values[name], at = read(data, at, end)
        return at

    return step


def _tags_reader(cls, version):
    known = dict(
        (field.tag, (field.name, _reader(field.kind, version, True, field.nullable_at(version))))
        for field in cls.parts
        if field.tagged_at(version)
    )

    def step(values, data, at, end):
        if at < end and six.indexbytes(data, at) == 0:  # no tagged fields, as nearly always
            return at + 1
        return _read_tags(known, values, data, at, end)

    return step


def _read_tags(known, values, data, at, end):
    """Put the tagged fields in `known` ({tag: (name, reader)}) into `values`, and skip the others."""
    count, at = read_uvarint(data, at, end)
    if count * 2 > end - at:
        raise ProtocolError("%d tagged fields can't be in %d bytes" % (count, end - at), position=at)
    for _ in six.moves.range(count):
        tag, at = read_uvarint(data, at, end)
        size, start = read_uvarint(data, at, end)
        at = start + size
        if at > end:
            raise cut_off("tagged field %d" % tag, size, start, end)
        if tag in known:
            name, read = known[tag]
            values[name], after = read(data, start, at)
            if after != at:
                left = "tagged field %d has %d bytes left over" % (tag, at - after)
                raise ProtocolError(left, position=after)
    return at


def skip_tags(data, at, end):
    """The position after tagged fields of which none is known."""
    return _read_tags({}, {}, data, at, end)


# writing


def _writer(kind, version, compact, nullable, label):
    if isinstance(kind, Array):
        return _array_writer(kind, version, compact, nullable, label)
    if not _is_struct(kind):
        return kind.writer(compact, nullable, label)
    write_struct = _struct_writer(kind, version, compact)

    def write(out, value):
        if nullable:
            out.append(b"\xff" if value is None else b"\x01")
            if value is None:
                return
        if not isinstance(value, kind):
            raise mistyped(label, kind.__name__, value)
        write_struct(out, value)

    return write


def _array_writer(kind, version, compact, nullable, label):
    pack_count = length_packer(compact)
    write_item = _writer(kind.of, version, compact, False, label)

    def write(out, value):
        if value is None and nullable:
            out.append(pack_count(-1))
            return
        if not isinstance(value, (list, tuple)):
            raise mistyped(label, "a list", value)
        out.append(pack_count(len(value)))
        for item in value:
            write_item(out, item)

    return write


def _label(cls, field):
    return "%s.%s" % (cls.__name__, field.name)


def _struct_writer(cls, version, compact):
    strict = [field for field in cls.parts if not (field.exists_at(version) or field.ignorable)]
    steps = [_omission_check(cls, version, strict)] if strict else []
    for run in _runs(cls.parts, version):
        if isinstance(run[0].kind, Fixed):
            steps.append(_run_writer(cls, run))
        else:
            steps.append(_part_writer(cls, run[0], version, compact))
    if compact:
        steps.append(_tags_writer(cls, version))

    def write(out, made):
        for step in steps:
            step(out, made)

    return write


def _omission_check(cls, version, strict):
    """Raises for a value (but the default) of one of the fields `strict`, which this version can't carry."""

    def step(out, made):
        for field in strict:
            if getattr(made, field.name) != field.fresh():
                raise ProtocolError("%s can't be carried by version %d" % (_label(cls, field), version))

    return step


def _run_writer(cls, run):
    names = [field.name for field in run]
    checked = [(index, field.kind.accepts) for index, field in enumerate(run) if field.kind.accepts]
    pack = struct.Struct(">" + "".join(field.kind.code for field in run)).pack

    def step(out, made):
        values = [getattr(made, name) for name in names]
        try:
            if all(accepts(values[index]) for index, accepts in checked):
                out.append(pack(*values))
                return
        except (struct.error, OverflowError):
            pass  # one by one below, which finds the one that is wrong
        for field, value in zip(run, values):
            out.append(field.kind.pack(value, _label(cls, field)))

    return step


def _part_writer(cls, field, version, compact):
    name = field.name
    write = _writer(field.kind, version, compact, field.nullable_at(version), _label(cls, field))

    def step(out, made):
        write(out, getattr(made, name))

    return step


def _tags_writer(cls, version):
    known = [
        (field, _writer(field.kind, version, True, field.nullable_at(version), _label(cls, field)))
        for field in sorted(cls.parts, key=lambda field: -1 if field.tag is None else field.tag)
        if field.tagged_at(version)
    ]

    def step(out, made):
        tagged = []
        for field, write in known:
            value = getattr(made, field.name)
            if value != field.fresh():
                pieces = []
                write(pieces, value)
                tagged.append((field.tag, pieces))
        out.append(uvarint(len(tagged)))
        for tag, pieces in tagged:
            out.append(uvarint(tag) + uvarint(sum(len(piece) for piece in pieces)))
            out.extend(pieces)

    return step
