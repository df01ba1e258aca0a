"""The compiled decoder changes the cost of decoding and nothing else: the same verdicts, words, bits and names."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from benchmarks.events import as_json, events
from sfd_stream import FeatureMap, FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire import compiled
from sfd_stream.wire.columns import Columns
from sfd_stream.wire.formats.from_avro import avro_reader
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.from_protobuf import need, raw_reader
from sfd_stream.wire.formats.proto_text import parse_proto
from sfd_stream.wire.formats.records import Decoder, MsgpackDecoder, PlainReader, RecordDecoder
from sfd_stream.wire.rows import decode
from sfd_stream.wire.rows.part import RowLimits
from tests.unit.wire.formats import events as shop
from tests.unit.wire.formats.mutations import mutated
from tests.unit.wire.formats.reference import assert_same, reference

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _library() -> None:
    if not compiled.is_available():
        pytest.skip("the compiled decoder is not there: install cargo, then run make compiled")


def records(read: Any) -> Decoder:
    return RecordDecoder(PlainReader(read))


# -- rows in msgpack -------------------------------------------------------------------------------------


def any_row(rng: random.Random) -> bytes:
    """A row or a block of named features, in any spelling."""
    count = rng.choice((0, 1, 3, 10, 40))
    names = [
        rng.choice((f"name {rng.randrange(50)}", "ñ茶" * rng.randrange(3), "x" * rng.randrange(60)))
        for _ in range(count)
    ]
    indices: Any = [rng.randrange(-(2**40), 2**64) if rng.random() < 0.2 else name for name in names]
    if rng.random() < 0.2:
        indices = rng.randbytes(4 * count)
    values: Any = [rng.choice((1, -7, 300, 2**60, 0.0, -0.0, rng.gauss(0, 1))) for _ in range(count)]
    if rng.random() < 0.3:
        values = np.random.default_rng(count).standard_normal(count).astype(rng.choice(("<f4", "<f8"))).tobytes()
    fields: dict[str, Any] = {"i": indices, "v": values}
    if rng.random() < 0.2:
        del fields["v"]
    if rng.random() < 0.3:
        cuts = sorted([0, count, *(rng.randrange(count + 1) for _ in range(rng.randrange(4)))])
        fields["p"] = cuts if rng.random() < 0.5 else np.array(cuts, "<u4").tobytes()
    pairs = list(fields.items())
    rng.shuffle(pairs)
    message: bytes = msgpack.packb(dict(pairs), use_single_float=rng.random() < 0.2)
    return message


@pytest.mark.parametrize("seed", range(8))
def test_rows_in_every_spelling_are_read_the_same(seed: int) -> None:
    rng = random.Random(seed)
    messages = [any_row(rng) for _ in range(300)]
    messages += [mutated(rng, rng.choice(messages)) for _ in range(300)]
    rng.shuffle(messages)
    columns = HashedColumns(128, seed=seed, names_max=rng.choice((0, 5, 99)))
    assert_same(MsgpackDecoder(), messages, columns)
    assert_same(MsgpackDecoder(), messages, columns, nnz_max=9, rows_max=2, string_bytes_max=20, message_bytes_max=200)


def any_numbered_row(rng: random.Random) -> bytes:
    """A row or a block of columns by number, in any spelling, some out of range."""
    message: dict[str, Any] = msgpack.unpackb(any_row(rng))
    if isinstance(message["i"], list):
        message["i"] = [
            rng.choice((rng.randrange(64), rng.randrange(64), 200, -1, 2**31, 2**64 - 1)) for _ in message["i"]
        ]
    else:
        message["i"] = np.random.default_rng(0).integers(0, 70, len(message["i"]) // 4).astype("<u4").tobytes()
    packed: bytes = msgpack.packb(message)
    return packed


@pytest.mark.parametrize("columns", [FixedColumns(64), GrowingColumns(4, 64)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_rows_of_numbered_columns_in_every_spelling_are_read_the_same(seed: int, columns: Columns) -> None:
    rng = random.Random(seed)
    messages = [any_numbered_row(rng) for _ in range(300)]
    messages += [msgpack.packb({"i": rng.sample(range(64), 3), "v": [1.5, -2, 0.0]}) for _ in range(300)]
    messages += [mutated(rng, rng.choice(messages)) for _ in range(300)]
    rng.shuffle(messages)
    batch = assert_same(MsgpackDecoder(), messages, columns)
    assert batch.block.rows > 300
    assert_same(MsgpackDecoder(), messages, columns, nnz_max=9, rows_max=2, string_bytes_max=20, message_bytes_max=200)


@pytest.mark.parametrize(
    "fields",
    [
        {"i": [0, 7], "v": [1.0, 2]},
        {"v": [1.0], "i": [15]},
        {"i": [3, 3]},
        {"i": [0, 1], "v": [1.0, 2.0], "p": [0, 1, 2]},
    ],
)
def test_lists_of_columns_are_taken(fields: dict[str, Any]) -> None:
    parts, rest = compiled.take_rows([msgpack.packb(fields)], FixedColumns(16), RowLimits())
    assert parts[0].features.tolist() == fields["i"]
    assert not len(rest)


def test_a_column_out_of_range_is_left_to_the_reference() -> None:
    messages = [msgpack.packb({"i": [column]}) for column in (15, 16, -1, 2**31, 2**64 - 1)]
    parts, rest = compiled.take_rows(messages, FixedColumns(16), RowLimits())
    assert ([part.messages.tolist() for part in parts], rest.tolist()) == ([[0]], [1, 2, 3, 4])


@pytest.mark.parametrize(
    "fields",
    [
        {"i": ["a", "b"], "v": [1.0, 2.0]},
        {"i": ["a", 7, -7, 2**64 - 1], "v": [1, 2, 3, 4]},
        {"v": [1.0], "i": ["ñ"]},
        {"i": ["a" * 200]},
        {"i": b"\1\0\0\0\2\0\0\0", "v": b"\0" * 16},
        {"i": ["a", "b"], "v": [1.0, 2.0], "p": [0, 1, 2]},
    ],
)
def test_rows_in_an_ordinary_spelling_are_taken(fields: dict[str, Any]) -> None:
    parts, rest = compiled.take_rows([msgpack.packb(fields)], HashedColumns(16), RowLimits())
    assert len(parts) == 1
    assert not len(rest)


# -- records ---------------------------------------------------------------------------------------------

TEXTS = ["", "a", "tea", "ñandú", "茶", "🫖", 'q"\\/\b\f\n\r\t', "\0\x1f\x7f", "a b_c-D", "A.B", "x" * 40, "é" * 20]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"exclude": ["a", "*.b"]},
    {"include": ["a*", "tea.*"]},
    {"fields": {"*": "categorical"}},
    {"fields": {"a": "text", "b": "vector", "c": "each", "tea": {"indices": "a", "values": "b"}, "*a": "log1p"}},
    {"fields": {"*": {"vector": True, "clip": [-1, 2], "scale": 0.1}}},
    {"fields": {"*": {"text": True, "log1p": True}, "b": "ignore"}},
    {"fields": {"*": {"indices": "a"}, "c": {"each": True, "scale": -3}}, "exclude": ["c.tea"]},
]


def any_value(rng: random.Random, depth: int = 0) -> Any:
    if depth < 4 and rng.random() < 0.35:
        count = rng.randrange(4)
        if rng.random() < 0.4:
            return [any_value(rng, depth + 1) for _ in range(count)]
        return {
            rng.choice("abc") if rng.random() < 0.7 else rng.choice(TEXTS): any_value(rng, depth + 1)
            for _ in range(count)
        }
    return rng.choice(
        [None, True, False, rng.choice(TEXTS), rng.randrange(-9, 9), rng.gauss(0, 100), rng.randrange(10) / 2,
         10 ** rng.randrange(25), -(10**17), 1e-300, 1e99, 1e120, 0.0]
    )  # fmt: skip


def any_document(rng: random.Random) -> bytes:
    value = any_value(rng) if rng.random() < 0.1 else {key: any_value(rng, 1) for key in rng.sample("abcdef", 3)}
    if rng.random() < 0.2:
        value = [value, {}]
    spaced = rng.choice([(",", ":"), (" , ", " : "), (",\n\t", ":\r")])
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=spaced).encode()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_json_of_any_shape_is_read_the_same(settings: dict[str, Any]) -> None:
    rng = random.Random(str(settings))
    messages = [any_document(rng) for _ in range(500)]
    messages += [mutated(rng, rng.choice(messages)) for _ in range(500)]
    for path in (None, "a", "a.b"):
        columns = HashedColumns(256, names_max=99, mapping=FeatureMap.from_settings(settings, path=path))
        assert_same(records(read_json), messages, columns)
    assert_same(records(read_json), messages, columns, nnz_max=3, rows_max=1, string_bytes_max=3, message_bytes_max=60)


@pytest.mark.parametrize(
    "text",
    [
        "1", "-1", "0", "-0", "1.0", "-0.0", "1e5", "1E+5", "1e-5", "123456789012345678", "1234567890123456789",
        "18446744073709551615", "0.1", "2.2250738585072011e-308", "4.9e-324", "1.7976931348623157e308",
        "01", "+1", ".5", "1.", "1e", "--1", "0x1", "1_0",
        '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"', '"\\u12"', '"\\x"',
        '"\t"', "tru", "nul", "truefalse", "[1,]", "{,}", '{"a"}', '{"a":1,}', "[,1]", '"', "\ufeff1", "// x", "",
        "9007199254740993", "0.30000000000000004", "1e23", "8.5e15", "1" * 40, "0." + "0" * 30 + "1", "1" + "0" * 99,
    ],
)  # fmt: skip
def test_the_traps_of_json_are_read_the_same(text: str) -> None:
    mapping = FeatureMap.from_settings({"fields": {"v": "vector", "c": "categorical"}})
    messages = [f'{{"{key}": {text}}}'.encode() for key in "avc"] + [f'{{"v": [{text}]}}'.encode(), text.encode()]
    assert_same(records(read_json), messages, HashedColumns(2**20, names_max=99, mapping=mapping))


def test_ordinary_events_are_all_taken() -> None:
    columns = HashedColumns(2**16, mapping=FeatureMap())
    messages = [as_json(event) for event in events(200)]
    assert not len(compiled.take_records(read_json, messages, columns, RowLimits())[1])
    assert_same(records(read_json), messages, columns)


def test_messages_longer_than_one_piece_are_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_TOGETHER_BYTES", 1000)
    columns = HashedColumns(2**16, mapping=FeatureMap())
    messages = [as_json(event) for event in events(50)]
    messages[7:7] = [b"", b"{" * 3000, b'{"long": "' + b"x" * 5000 + b'"}']
    assert_same(records(read_json), messages, columns)


AVRO_TYPES: list[Any] = [
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", ["null", "string"],
    ["int", "string", "null"], {"type": "array", "items": "string"}, {"type": "array", "items": "double"},
    {"type": "map", "values": ["null", "long"]},
    {"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "fixed", "name": "F", "size": 3},
    {"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}},
    {"type": "long", "logicalType": "timestamp-millis"},
]  # fmt: skip


@pytest.mark.parametrize("kind", AVRO_TYPES, ids=str)
def test_every_type_of_avro_is_read_the_same(kind: Any) -> None:
    rng = random.Random(str(kind))
    read = avro_reader(json.dumps({"type": "record", "name": "Top", "fields": [{"name": "a", "type": kind}]}))
    messages = [
        bytes(rng.choice((0, 1, 2, 3, 4, 6, 65, 128, 255)) for _ in range(rng.randrange(20))) for _ in range(2000)
    ]
    option = "vector" if "double" in str(kind) else "each"
    mapping = FeatureMap.from_settings({"fields": {"a": option}})
    batch = assert_same(records(read), messages, HashedColumns(256, names_max=99, mapping=mapping))
    assert batch.block.rows or "timestamp" in str(kind)


PROTO = """syntax = "proto3";
enum Hue { NONE = 0; RED = 1; BLUE = 5; }
message Top {
  double a1 = 1; float a2 = 2; int64 a3 = 3; uint64 a4 = 4; int32 a5 = 5; fixed64 a6 = 6; fixed32 a7 = 7; bool a8 = 8;
  string a9 = 9; bytes a10 = 10; uint32 a11 = 11; sfixed32 a12 = 12; sfixed64 a13 = 13; sint32 a14 = 14;
  sint64 a15 = 15; Hue b1 = 16; optional Hue b2 = 17; optional int32 b3 = 18; optional string b4 = 19; Top sub = 20;
  repeated string c1 = 21; repeated sint32 c2 = 22; repeated Hue c3 = 23; repeated Top c4 = 24;
  map<string, double> d1 = 25; map<int32, string> d2 = 26; map<bool, Hue> d3 = 27; map<string, Top> d4 = 28;
  oneof one { int32 e1 = 29; string e2 = 30; }
}"""


def any_protobuf(rng: random.Random, made: Any, depth: int = 0) -> Any:
    text = rng.choice(["", "tea", "茶"])
    given: dict[str, Any] = {
        "a1": rng.gauss(0, 1), "a2": 0.5, "a3": -(2**40), "a4": rng.choice((7, 2**64 - 1)), "a5": -5, "a6": 6, "a7": 7,
        "a8": True, "a9": text, "a10": b"x", "a11": 11, "a12": -12, "a13": -13, "a14": -14, "a15": -15,
        "b1": rng.choice((0, 1, 5, 9)), "b2": rng.choice((0, 1, 9)), "b3": rng.choice((0, 3)), "b4": text,
        "c1": ["x", text], "c2": [0, -1, 300], "c3": [1, 5, 9, 0], "d1": {text: 1.5, "k": 0.0},
        "d2": {-1: text, 0: "z"}, "d3": {True: 1}, rng.choice(("e1", "e2")): None,
    }  # fmt: skip
    given |= {"e1": rng.choice((0, 4))} if "e1" in given else {"e2": text}
    if depth < 2:
        nested = any_protobuf(rng, made, depth + 1)
        given |= {"sub": nested, "c4": [nested], "d4": {"m": nested}}
    names = rng.sample(sorted(given), rng.randrange(6))
    return made(**{name: given[name] for name in names})


def test_every_type_of_protobuf_is_read_the_same() -> None:
    rng = random.Random(5)
    module = need()
    file = parse_proto(PROTO, "top.proto")
    pool = module.descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = module.message_factory.GetMessageClass(pool.FindMessageTypeByName("Top"))
    read = raw_reader(module.descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "Top", "top.desc")
    mapping = FeatureMap.from_settings({"fields": {"*c4": "each", "*c2": "vector", "*b3": "categorical"}})
    columns = HashedColumns(1024, names_max=500, mapping=mapping)
    good = [any_protobuf(rng, made).SerializeToString() for _ in range(500)]
    assert not assert_same(records(read), good, columns).bad
    assert len(compiled.take_records(read, good, columns, RowLimits())[1]) < 250
    joined = [
        rng.choice(good) + rng.choice(good) for _ in range(200)
    ]  # fields twice: the last one holds, messages merge
    assert_same(records(read), [mutated(rng, message) for message in good] + joined, columns)


@pytest.mark.parametrize(
    "head",
    [
        b"\xfa\x07", b"\xfa\x87\x00", b"\xfa\xff\xff\xff\x0f", b"\xfa\xff\xff\xff\x1f", b"\xfa\x87\x80\x80\x80\x00",
        b"\x8a\x99\x99\x99\x99\x99\x99\x1d", b"\x02", b"\x4a", b"\xca\x80\x80\x80\x00", b"\xca\x80\x80\x80\x80\x00",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [b"\x01", b"\x81\x00", b"\x81\x80\x80\x80\x00", b"\x81\x80\x80\x80\x80\x00"])
def test_heads_and_sizes_of_protobuf_are_read_the_same(head: bytes, size: bytes) -> None:
    """The library refuses a head of more than 32 bits or 5 bytes, of an unknown field too."""
    read = raw_reader(PROTO.encode(), "Top", "top.proto")
    entry = head + size + b"x"
    messages = [
        entry,
        b"\xa2\x01" + bytes([len(entry)]) + entry,
        b"\xca\x01" + bytes([len(entry) + 9]) + entry + b"\x11" + 8 * b"\1",
    ]
    assert_same(records(read), messages, HashedColumns(256, names_max=99, mapping=FeatureMap()))


@pytest.mark.parametrize("way", ["json", "avro", "protobuf"])
def test_the_data_set_of_all_formats_is_read_the_same(way: str) -> None:
    read, write = {
        "json": (read_json, shop.as_json),
        "avro": (avro_reader(json.dumps(shop.AVRO_SCHEMA)), shop.as_avro),
        "protobuf": (raw_reader(shop.descriptor_set(), shop.MESSAGE, "event.desc"), shop.as_protobuf),
    }[way]
    columns = HashedColumns(512, names_max=512, mapping=shop.MAPPING)
    messages = [write(event) for event in shop.events(500)]
    assert_same(records(read), messages, columns)
    assert len(compiled.take_records(read, messages, columns, RowLimits())[1]) < 400  # titles that are not ASCII


# -- the library -----------------------------------------------------------------------------------------


def test_it_is_switched_off_by_the_environment() -> None:
    code = "from sfd_stream.wire import compiled; print(compiled.is_available())"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"SFD_COMPILED": "0"}, cwd=ROOT
    )
    assert done.stdout.strip() == "False"


def test_without_it_rows_are_read_by_python() -> None:
    message = msgpack.packb({"i": ["a"], "v": [2.0]})
    with reference():
        assert not compiled.is_available()
        assert decode.decode([message], HashedColumns(16)).block.nnz == 1


def test_memory_does_not_grow_with_new_names() -> None:
    """The library keeps nothing between batches but plans, of which a bounded number is kept."""
    assert compiled._plan.cache_info().maxsize is not None
    assert compiled._schema.cache_info().maxsize is not None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cargo") is None, reason="install cargo")
def test_its_own_tests_pass() -> None:
    command = ["cargo", "test", "--offline", "--quiet", "--manifest-path", "native/Cargo.toml"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
