"""kiel's messages and errors against Apache Kafka's own, as the kafka-clients jar has them."""
import json
import os
import re
import zipfile

import pytest

from kiel.protocol import errors, primitives
from kiel.protocol.primitives import Array
from kiel.protocol.schema import Request, Struct
from tests.support import maven, needs, process
from tests.support.messages import by_name, messages, messages_at_versions, versions

pytestmark = pytest.mark.kafka

NAMES = {
    primitives.Boolean: "bool",
    primitives.Int8: "int8",
    primitives.Int16: "int16",
    primitives.UInt16: "uint16",
    primitives.Int32: "int32",
    primitives.UInt32: "uint32",
    primitives.Int64: "int64",
    primitives.Float64: "float64",
    primitives.String: "string",
    primitives.Bytes: "bytes",
    primitives.Uuid: "uuid",
    primitives.Records: "records",
}
NO_DEFAULT = {"bool": "false", "string": "", "bytes": "", "uuid": "", "records": "null"}

LIST_ERRORS = """
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class ListErrors {
    public static void main(String[] arguments) {
        for (Errors each : Errors.values()) {
            boolean retriable = each.exception() instanceof RetriableException;
            System.out.println(each.code() + " " + each.name() + " " + retriable);
        }
    }
}
"""


@pytest.fixture(scope="module")
def definitions():
    """{(API key, "request" or "response"): Apache's definition of that message}."""
    needs.kafka()
    found = {}
    with zipfile.ZipFile(maven.clients_jar()) as jar:
        for name in jar.namelist():
            if re.match(r"common/message/\w+\.json$", name):
                text = jar.read(name).decode("utf-8")
                definition = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
                found[definition.get("apiKey"), definition["type"]] = definition
    return found


def definition_of(cls, definitions):
    return definitions[cls.key, "request" if issubclass(cls, Request) else "response"]


def within(wanted, version):
    """Whether Apache's range ("3", "0-12", "4+" or "none") has a version."""
    if wanted == "none":
        return False
    first, _, last = wanted.rstrip("+").partition("-")
    return int(first) <= version and (wanted.endswith("+") or version <= int(last or first))


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def their_default(field):
    kind, default = field["type"], field.get("default")
    if default is None:
        default = NO_DEFAULT.get(kind, "0" if kind in NAMES.values() else "struct")
    if default == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return str(default).lower() == "true"
    if kind == "float64":
        return float(default)
    if kind == "uuid":
        return primitives.NO_UUID
    if kind == "bytes":
        return b""
    return int(str(default), 0) if "int" in kind else default


def their_fields(fields, structs, version):
    """What a version has, of Apache's definition: body in order, then tagged fields by tag."""
    body, tagged = [], []
    for field in fields:
        if not within(field["versions"], version):
            continue
        kind = field["type"].replace("[]", "")
        inner = field.get("fields") or structs.get(kind)
        tag = field["tag"] if within(field.get("taggedVersions", "none"), version) else None
        row = (
            snake(field["name"]),
            "[]" if field["type"].startswith("[]") else "",
            their_fields(inner, structs, version) if inner else kind,
            within(field.get("nullableVersions", "none"), version),
            tag,
            their_default(field),
        )
        (body if tag is None else tagged).append(row)
    return body + sorted(tagged, key=lambda row: row[4])


def our_fields(cls, version):
    body, tagged = [], []
    for field in cls.parts:
        if not field.exists_at(version):
            continue
        kind = field.kind.of if isinstance(field.kind, Array) else field.kind
        default = field.fresh()
        row = (
            field.name,
            "[]" if isinstance(field.kind, Array) else "",
            NAMES[kind] if kind in NAMES else our_fields(kind, version),
            field.nullable_at(version),
            field.tag if field.tagged_at(version) else None,
            "struct" if isinstance(default, Struct) else default,
        )
        (body if row[4] is None else tagged).append(row)
    return body + sorted(tagged, key=lambda row: row[4])


@pytest.mark.parametrize("cls, version", messages_at_versions(), ids=by_name)
def test_every_version_of_every_message_is_as_apache_defines_it(cls, version, definitions):
    theirs = definition_of(cls, definitions)
    assert within(theirs["validVersions"], version)
    assert not (theirs.get("latestVersionUnstable") and not within(theirs["validVersions"], version + 1))
    assert cls.is_flexible(version) == within(theirs["flexibleVersions"], version)
    assert our_fields(cls, version) == their_fields(theirs["fields"], common_structs(theirs), version)


def common_structs(definition):
    return {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}


def ignorable_differences(cls, fields, structs, spoken):
    """Our fields that some version leaves out, and that only one side calls ignorable."""
    theirs = {snake(field["name"]): field for field in fields}
    for field in cls.parts:
        their = theirs[field.name]
        there = [version for version in spoken if field.exists_at(version)]
        if len(there) < len(spoken) and field.ignorable != their.get("ignorable", False):
            yield "%s.%s" % (cls.__name__, field.name)
        kind = field.kind.of if isinstance(field.kind, Array) else field.kind
        if kind not in NAMES:
            inner = their.get("fields") or structs[their["type"].replace("[]", "")]
            for difference in ignorable_differences(kind, inner, structs, there):
                yield difference


@pytest.mark.parametrize("cls", messages(), ids=by_name)
def test_the_same_fields_may_be_left_out(cls, definitions):
    theirs = definition_of(cls, definitions)
    assert list(ignorable_differences(cls, theirs["fields"], common_structs(theirs), versions(cls))) == []


def test_the_errors_are_apaches(tmpdir):
    needs.kafka()
    source = tmpdir.join("ListErrors.java")
    source.write(LIST_ERRORS)
    jars = os.path.join(maven.kafka_classpath(), "*")
    lines = process.run([maven.java(), "-cp", jars, str(source)]).decode("utf-8").splitlines()
    assert lines == ["%d %s %s" % (row.code, row.name, str(row.retriable).lower()) for row in errors.ROWS]
