// Values that are Arrow IPC streams, which say themselves what they hold.
// A stream may be anybody's bytes: reading it ends, takes little memory, and throws where it cannot be read.

import { bytesText, clockText, dateText, pointText, timestampText, wholeNumber } from "./values.js";

const CONTINUES = 0xffffffff;
const [FIELDS_MAX, CELLS_MAX, ITEMS_MAX, LONG] = [1000, 100_000, 20, 200];
const [SCHEMA, BATCH] = [1, 3];
const UNITS = ["s", "ms", "us", "ns"];

// --- FlatBuffers ----------------------------------------------------------------------------------

class Table {
  constructor(view, at) {
    [this.view, this.at, this.known] = [view, at, at - view.getInt32(at, true)];
  }

  place(slot) {
    const where = 4 + 2 * slot;
    const found = where < this.view.getUint16(this.known, true) ? this.view.getUint16(this.known + where, true) : 0;
    return found && this.at + found;
  }

  number(slot, kind, none) {
    const at = this.place(slot);
    return at ? Number(this.view[`get${kind}`](at, true)) : none;
  }

  follow(slot) {
    const at = this.place(slot);
    return at && at + this.view.getUint32(at, true);
  }

  table(slot) {
    const at = this.follow(slot);
    return at ? new Table(this.view, at) : null;
  }

  // Where a vector begins, and how long it is.
  vector(slot) {
    const at = this.follow(slot);
    return at ? [at + 4, this.view.getUint32(at, true)] : [0, 0];
  }

  tables(slot) {
    const [at, length] = this.vector(slot);
    if (length > FIELDS_MAX) throw new Error("there are too many fields");
    return Array.from({ length }, (_, index) => {
      const place = at + 4 * index;
      return new Table(this.view, place + this.view.getUint32(place, true));
    });
  }

  text(slot) {
    const [at, length] = this.vector(slot);
    return at ? texts.decode(part(this.view, at, length)) : "";
  }

  // Pairs of 64-bit numbers.
  pairs(slot) {
    const [at, length] = this.vector(slot);
    if (16 * length > this.view.byteLength) throw new Error("there are too many buffers");
    const long = (place) => Number(this.view.getBigInt64(place, true));
    return Array.from({ length }, (_, index) => [long(at + 16 * index), long(at + 16 * index + 8)]);
  }
}

const texts = new TextDecoder("utf-8", { fatal: true });

function part(view, at, length) {
  if (at < 0 || length < 0 || at + length > view.byteLength) throw new RangeError("it ends before its end");
  return new Uint8Array(view.buffer, view.byteOffset + at, length);
}

function* messages(view) {
  for (let at = 0; at + 8 <= view.byteLength;) {
    if (view.getUint32(at, true) !== CONTINUES) throw new Error("it is no stream of messages");
    const [start, size] = [at + 8, view.getUint32(at + 4, true)];
    if (!size) return;
    const message = new Table(view, start + view.getUint32(start, true));
    const length = message.number(3, "BigInt64", 0);
    part(view, start + size, length);
    yield { kind: message.number(1, "Uint8", 0), header: message.table(2), body: start + size, length };
    at = start + size + length;
  }
}

// --- fields ---------------------------------------------------------------------------------------

function field(found, budget) {
  budget.fields -= 1;
  if (budget.fields < 0) throw new Error("there are too many fields");
  if (found.place(4)) throw new Error("the console reads no dictionaries");
  const [code, kind] = [found.number(2, "Uint8", 0), found.table(3)];
  const children = found.tables(5).map((each) => field(each, budget));
  const make = TYPES[code];
  if (!make || !kind) throw new Error(`the console does not read Arrow's type ${code}`);
  const { type, ...made } = make(kind, children);
  return { name: brief(found.text(0)), type: brief(type), ...made };
}

const numbers = (type, size, kind) => ({ type, read: fixed(size, (view, at) => view[`get${kind}`](at, true)) });
const integers = (type, bits, isSigned) => (
  numbers(type, bits / 8, `${bits === 64 ? "Big" : ""}${isSigned ? "Int" : "Uint"}${bits}`));
const longs = (type, text) => ({ type, read: fixed(8, (view, at) => text(view.getBigInt64(at, true))) });
const days = { type: "date32", read: fixed(4, (view, at) => dateText(view.getInt32(at, true))) };

function floating(kind) {
  const name = ["Float16", "Float32", "Float64"][kind.number(0, "Int16", 0)];
  if (!DataView.prototype[`get${name}`]) throw new Error(`this browser reads no ${name}`);
  return numbers(name.toLowerCase(), Number(name.slice(5)) / 8, name);
}

function integer(kind) {
  const [bits, isSigned] = [kind.number(0, "Int32", 0), kind.number(1, "Uint8", 0)];
  if (![8, 16, 32, 64].includes(bits)) throw new Error(`there are no integers of ${bits} bits`);
  return integers(`${isSigned ? "" : "u"}int${bits}`, bits, isSigned);
}

function decimal(kind) {
  const [precision, scale, bits] = [0, 1, 2].map((slot) => kind.number(slot, "Int32", slot === 2 ? 128 : 0));
  if (![32, 64, 128, 256].includes(bits) || Math.abs(scale) > 100) throw new Error("there is no such decimal");
  const read = fixed(bits / 8, (view, at) => pointText(wholeNumber(part(view, at, bits / 8), true), scale));
  return { type: `decimal${bits}(${precision}, ${scale})`, read };
}

function timestamp(kind) {
  const [unit, zone] = [UNITS[kind.number(0, "Int16", 0)], kind.text(1)];
  return longs(`timestamp[${unit}${zone && `, ${zone}`}]`, (value) => timestampText(value, unit, zone));
}

function clock(kind) {
  const [unit, bits] = [UNITS[kind.number(0, "Int16", 1)], kind.number(1, "Int32", 32)];
  const type = `time${bits}[${unit}]`;
  if (bits === 64) return longs(type, (value) => clockText(value, unit));
  return { type, read: fixed(4, (view, at) => clockText(BigInt(view.getInt32(at, true)), unit)) };
}

function duration(kind) {
  const unit = UNITS[kind.number(0, "Int16", 1)];
  return longs(`duration[${unit}]`, (value) => `${value} ${unit}`);
}

function sized(kind) {
  const size = kind.number(0, "Int32", 0);
  return { type: `binary[${size}]`, read: fixed(size, (view, at) => bytesText(part(view, at, size))) };
}

const date = (kind) => (kind.number(0, "Int16", 1) === 0
  ? days : longs("date64", (value) => dateText(Number(value / 86_400_000n))));
const text = (data) => texts.decode(data);
const brief = (type) => (type.length > LONG ? `${type.slice(0, LONG)}…` : type);
const list = (width) => (_, [item]) => ({ type: `list<${item.type}>`, read: lists(item, offsets(width)) });

function listOfSize(kind, [item]) {
  const size = kind.number(0, "Int32", 0);
  return { type: `list<${item.type}>[${size}]`, read: lists(item, () => (index) => [index * size, size]) };
}

const struct = (_, children) => ({
  type: `struct<${children.map((each) => `${each.name}: ${each.type}`).join(", ")}>`,
  read: (batch) => {
    const found = children.map((each) => [each.name, column(each, batch)]);
    return (index) => Object.fromEntries(found.map(([name, cell]) => [name, cell(index)]));
  },
});

// By their numbers in Arrow's Schema.fbs.
const TYPES = {
  1: () => ({ type: "null", isNull: true, read: () => () => null }),
  2: integer,
  3: floating,
  4: () => ({ type: "binary", read: variable(4, bytesText) }),
  5: () => ({ type: "string", read: variable(4, text) }),
  6: () => ({ type: "bool", read: (batch) => bits(batch, ...batch.buffer()) }),
  7: decimal,
  8: date,
  9: clock,
  10: timestamp,
  12: list(4),
  13: struct,
  15: sized,
  16: listOfSize,
  17: list(4),
  18: duration,
  19: () => ({ type: "large_binary", read: variable(8, bytesText) }),
  20: () => ({ type: "large_string", read: variable(8, text) }),
  21: list(8),
};

// --- columns: what makes the cell of a row ----------------------------------------------------------

const bits = ({ view }, at) => (index) => Boolean((view.getUint8(at + (index >> 3)) >> (index & 7)) & 1);

// Functions, since the table of types above needs them before they are made.
function fixed(size, cell) {
  return (batch) => {
    const [at] = batch.buffer();
    return (index) => cell(batch.view, at + size * index);
  };
}

// Where each cell begins in what follows, and how long it is.
function offsets(width) {
  return (batch) => {
    const [at] = batch.buffer();
    const place = (index) => (width === 4
      ? batch.view.getInt32(at + 4 * index, true) : Number(batch.view.getBigInt64(at + 8 * index, true)));
    return (index) => [place(index), place(index + 1) - place(index)];
  };
}

function variable(width, cell) {
  return (batch) => {
    const span = offsets(width)(batch);
    const [at] = batch.buffer();
    return (index) => {
      const [start, length] = span(index);
      return cell(part(batch.view, at + start, length));
    };
  };
}

function lists(item, spans) {
  return (batch) => {
    const [span, cell] = [spans(batch), column(item, batch)];
    return (index) => {
      const [start, size] = span(index);
      if (size < 0) throw new Error("a list has fewer than no items");
      const found = Array.from({ length: Math.min(size, ITEMS_MAX) }, (_, each) => cell(start + each));
      return size > ITEMS_MAX ? [...found, "…"] : found;
    };
  };
}

function column({ isNull, read }, batch) {
  batch.node();
  const [at, length] = isNull ? [0, 0] : batch.buffer();
  const [isThere, cell] = [length ? bits(batch, at) : () => true, read(batch)];
  return (index) => {
    batch.left -= 1;
    if (batch.left < 0) throw new Error("there are too many cells");
    return isThere(index) ? cell(index) : null;
  };
}

// The nodes and buffers of a batch, one after the other, as its columns take them.
function begun(view, { header, body, length }) {
  if (header.place(3)) throw new Error("the console reads no compressed batches");
  const [nodes, buffers] = [header.pairs(1), header.pairs(2)];
  const next = (found) => {
    if (!found.length) throw new Error("a batch lacks buffers");
    return found.shift();
  };
  const buffer = () => {
    const [at, size] = next(buffers);
    if (at < 0 || size < 0 || at + size > length) throw new RangeError("a buffer is not in its batch");
    return [body + at, size];
  };
  return { view, node: () => next(nodes), buffer, rows: header.number(0, "BigInt64", 0), left: CELLS_MAX };
}

// {columns, rows, count}: names and types, the first `limit` rows, and how many there are. Throws Error.
export function readArrow(data, limit) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let [fields, count] = [null, 0];
  const rows = [];
  for (const message of messages(view)) {
    if (message.kind === SCHEMA) {
      const budget = { fields: FIELDS_MAX };
      fields = message.header.tables(1).map((each) => field(each, budget));
    } else if (message.kind === BATCH && fields) {
      const batch = begun(view, message);
      const cells = fields.map((each) => column(each, batch));
      const taken = Math.min(batch.rows, limit - rows.length);
      for (let row = 0; row < taken; row += 1) {
        rows.push(cells.map((cell) => cell(row)));
      }
      count += batch.rows;
    } else throw new Error("there is a message that the console does not read");
  }
  if (!fields) throw new Error("it has no schema");
  return { columns: fields.map(({ name, type }) => ({ name, type })), rows, count };
}

export const isArrow = (data) => data.length >= 8 && data.slice(0, 4).every((each) => each === 0xff);
