"""kiel's messages and errors against Apache Kafka's own, as the kafka-clients jars have them."""
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

# Kafka 4 has dropped versions that older brokers speak: each is held against the newest jar that has it.
JARS = (maven.KAFKA, "3.9.2")

# Fields that kiel calls something else: a request's `key` is the API's number.
RENAMED = {("FindCoordinatorRequest", "Key"): "CoordinatorKey"}

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
REQUESTS = [cls for cls in messages() if issubclass(cls, Request)]
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
    """{(API key, "request" or "response"): [(Apache's definition, its text)], the newest Kafka's first}."""
    found = {}
    for version in JARS:
        needs.kafka(version)
        for text in definition_texts(maven.clients_jar(version)):
            definition = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
            for field in definition.get("fields", ()):
                field["name"] = RENAMED.get((definition["name"], field["name"]), field["name"])
            found.setdefault((definition.get("apiKey"), definition["type"]), []).append((definition, text))
    return found


def definition_texts(jar):
    with zipfile.ZipFile(jar) as opened:
        for name in opened.namelist():
            if re.match(r"common/message/\w+\.json$", name):
                yield opened.read(name).decode("utf-8")


def definitions_of(cls, definitions):
    return [each for each, _ in definitions[cls.key, "request" if issubclass(cls, Request) else "response"]]


def definition_at(cls, version, definitions):
    """The newest definition that has the version."""
    having = [each for each in definitions_of(cls, definitions) if within(each["validVersions"], version)]
    assert having, "no Kafka speaks version %d of %s" % (version, cls.__name__)
    return having[0]


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
    theirs = definition_at(cls, version, definitions)
    assert not (theirs.get("latestVersionUnstable") and not within(theirs["validVersions"], version + 1))
    assert cls.is_flexible(version) == within(theirs["flexibleVersions"], version)
    assert our_fields(cls, version) == their_fields(theirs["fields"], common_structs(theirs), version)


def common_structs(definition):
    return {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}


def ignorable_differences(cls, alternatives, spoken):
    """Our fields that some version leaves out, and that only one side calls ignorable.

    `alternatives` are (fields, structs) of Apache's definitions, the newest first: the first that has a field
    counts.
    """
    for field in cls.parts:
        theirs = [
            (their, structs)
            for fields, structs in alternatives
            for their in fields
            if snake(their["name"]) == field.name
        ]
        there = [version for version in spoken if field.exists_at(version)]
        if len(there) < len(spoken) and field.ignorable != theirs[0][0].get("ignorable", False):
            yield "%s.%s" % (cls.__name__, field.name)
        kind = field.kind.of if isinstance(field.kind, Array) else field.kind
        if kind not in NAMES:
            inner = [
                (their.get("fields") or structs[their["type"].replace("[]", "")], structs)
                for their, structs in theirs
            ]
            for difference in ignorable_differences(kind, inner, there):
                yield difference


@pytest.mark.parametrize("cls", messages(), ids=by_name)
def test_the_same_fields_may_be_left_out(cls, definitions):
    theirs = [(each["fields"], common_structs(each)) for each in definitions_of(cls, definitions)]
    assert list(ignorable_differences(cls, theirs, versions(cls))) == []


@pytest.mark.parametrize("cls", REQUESTS, ids=by_name)
def test_clients_wait_from_the_version_on_in_which_brokers_let_them(cls, definitions):
    """KIP-219; the definitions tell the version in a comment, except that of Produce."""
    text = definitions[cls.key, "response"][0][1]
    told = re.search(r"version (\d+), on quota violation", text)
    if cls.api == "produce":
        assert told is None and cls.throttle_from == 6
    else:
        assert cls.throttle_from == int(told.group(1))


def test_the_errors_are_apaches(tmpdir):
    needs.kafka()
    source = tmpdir.join("ListErrors.java")
    source.write(LIST_ERRORS)
    jars = os.path.join(maven.kafka_classpath(), "*")
    lines = process.run([maven.java(), "-cp", jars, str(source)]).decode("utf-8").splitlines()
    assert lines == ["%d %s %s" % (row.code, row.name, str(row.retriable).lower()) for row in errors.ROWS]
