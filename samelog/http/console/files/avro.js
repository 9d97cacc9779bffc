// Values in Avro's binary encoding, without a header, by the schema that they were written with.
// A value may be anybody's bytes: reading it ends, takes little memory, and throws where it cannot be read.

import { bytesText, clockText, dateText, pointText, timestampText, wholeNumber } from "./values.js";

const [UNITS, LOGICAL] = [{ millis: "ms", micros: "us", nanos: "ns" }, /^(local-)?(time|timestamp)-(\w+)$/];
const [CELLS_MAX, FRAME_BYTES] = [100_000, 5];
const texts = new TextDecoder("utf-8", { fatal: true });

class Source {
  constructor(data) {
    this.view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    [this.at, this.left] = [0, CELLS_MAX];
  }

  take(length) {
    if (length < 0 || this.at + length > this.view.byteLength) throw new RangeError("it ends before its end");
    const from = this.at;
    this.at += length;
    return from;
  }

  bytes(length) {
    return new Uint8Array(this.view.buffer, this.view.byteOffset + this.take(length), length);
  }

  long() {
    let found = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const each = this.view.getUint8(this.take(1));
      found |= BigInt(each & 0x7f) << shift;
      if (each < 0x80) return BigInt.asIntN(64, (found >> 1n) ^ -(found & 1n));
    }
    throw new Error("a number has more than 64 bits");
  }

  sized() {
    return this.bytes(Number(this.long()));
  }
}

// --- what reads a type: a function of a source ------------------------------------------------------

const PLAIN = {
  null: () => null,
  boolean: (source) => Boolean(source.view.getUint8(source.take(1))),
  int: (source) => source.long(),
  long: (source) => source.long(),
  float: (source) => source.view.getFloat32(source.take(4), true),
  double: (source) => source.view.getFloat64(source.take(8), true),
  bytes: (source) => bytesText(source.sized()),
  string: (source) => texts.decode(source.sized()),
};

function logical({ type, logicalType, size, scale = 0 }) {
  if (logicalType === "date") return (source) => dateText(Number(source.long()));
  if (logicalType === "decimal") {
    const raw = type === "fixed" ? (source) => source.bytes(size) : (source) => source.sized();
    return (source) => pointText(wholeNumber(raw(source), false), scale);
  }
  const [, local, kind, name] = LOGICAL.exec(logicalType) ?? [];
  const unit = UNITS[name];
  if (!unit) return null;
  return kind === "time" ? (source) => clockText(source.long(), unit)
    : (source) => timestampText(source.long(), unit, !local);
}

// Blocks of items; a block whose count is below zero says its size too.
function blocks(source, item) {
  const found = [];
  for (let count = source.long(); count !== 0n; count = source.long()) {
    if (count < 0n) source.long();
    for (let left = count < 0n ? -count : count; left > 0n; left -= 1n) found.push(item(source));
  }
  return found;
}

function union(branches) {
  return (source) => {
    const branch = branches[Number(source.long())];
    if (!branch) throw new Error("a union has no such branch");
    return branch(source);
  };
}

function chosen(symbols) {
  return (source) => {
    const symbol = symbols[Number(source.long())];
    if (symbol === undefined) throw new Error("an enum has no such symbol");
    return symbol;
  };
}

const record = (fields) => (source) => Object.fromEntries(fields.map(([name, read]) => [name, read(source)]));

function compound(schema, known, space) {
  const of = (each) => reader(each, known, space);
  if (schema.type === "array") {
    const item = of(schema.items);
    return (source) => blocks(source, item);
  }
  if (schema.type === "map") {
    const value = of(schema.values);
    const pair = (source) => [PLAIN.string(source), value(source)];
    return (source) => Object.fromEntries(blocks(source, pair));
  }
  if (schema.type === "enum") return chosen(schema.symbols);
  if (schema.type === "fixed") return (source) => bytesText(source.bytes(schema.size));
  if (["record", "error"].includes(schema.type)) {
    return record(schema.fields.map((each) => [each.name, of(each.type)]));
  }
  return of(schema.type);
}

const fullName = (name, space) => (name.includes(".") || !space ? name : `${space}.${name}`);

// A type that has a name may be meant by it from then on, and in itself.
function named(schema, known, space) {
  const full = fullName(schema.name, schema.namespace ?? space);
  const held = {};
  known.set(full, (source) => held.read(source));
  held.read = logical(schema) ?? compound(schema, known, full.split(".").slice(0, -1).join("."));
  return held.read;
}

function reader(schema, known, space) {
  const found = typed(schema, known, space);
  return (source) => {
    source.left -= 1;
    if (source.left < 0) throw new Error("there are too many values in it");
    return found(source);
  };
}

function typed(schema, known, space) {
  if (Array.isArray(schema)) return union(schema.map((each) => reader(each, known, space)));
  if (typeof schema === "string") {
    if (Object.hasOwn(PLAIN, schema)) return PLAIN[schema];
    const found = known.get(fullName(schema, space)) ?? known.get(schema);
    if (!found) throw new Error(`there is no type ${schema}`);
    return found;
  }
  if (schema?.name !== undefined) return named(schema, known, space);
  return logical(schema) ?? compound(schema, known, space);
}

function whole(read, data) {
  const source = new Source(data);
  const found = read(source);
  if (source.at < data.length) throw new Error("there are bytes behind the record");
  return found;
}

function typeText(type) {
  if (Array.isArray(type)) return type.map(typeText).join(" | ");
  return typeof type === "string" ? type : type.logicalType ?? type.name ?? typeText(type.type);
}

// {read, types}: what reads values of a schema, which is JSON, and the types of its fields by their names.
// It throws, and so does what reads, where something is not as it must be.
export function avroReader(text) {
  const schema = JSON.parse(text);
  const found = reader(schema, new Map(), "");
  const types = Object.fromEntries((schema.fields ?? []).map((each) => [each.name, typeText(each.type)]));
  return { types, read: (data) => framed(found, data) };
}

function framed(found, data) {
  try {
    return whole(found, data);
  } catch (error) {
    // Confluent's serializers write a zero, and the number of the schema, in front.
    if (data[0] === 0 && data.length > FRAME_BYTES) return whole(found, data.subarray(FRAME_BYTES));
    throw error;
  }
}
