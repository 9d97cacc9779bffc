// What values are by their topic's schema (docs/typed.md): each record by the version that it was written with.

import { get } from "./api.js";
import { avroReader } from "./avro.js";

const [MARK, SAID] = ["samelog.schema", /^([1-9]\d{0,3})(?:@([0-9a-f]{12}))?$/];
const TYPE = /^(\w+)(?:\[(\w+)(?:, .*)?\]|\(\d+, (\d+)\)|<(.*)>)?$/;
const PLAIN = { bool: "boolean", float32: "float", float64: "double", string: "string", binary: "bytes" };

// --- of each version ------------------------------------------------------------------------------

// As samelog/typed/values/avro_values.py writes them.
function avroType(text) {
  const [, name, unit, scale, item] = TYPE.exec(text);
  if (item) return { type: "array", items: ["null", avroType(item)] };
  if (name === "date32") return { type: "int", logicalType: "date" };
  if (name === "decimal128") return { type: "bytes", logicalType: "decimal", scale: Number(scale) };
  if (name === "timestamp") {
    const kind = { ms: "timestamp-millis", us: "timestamp-micros", ns: "timestamp-nanos" }[unit];
    return { type: "long", logicalType: text.includes(",") ? kind : `local-${kind}` };
  }
  return PLAIN[name] ?? "long"; // numbers are as long as they are
}

const avroField = ({ name, type, nullable = true }) => (
  { name, type: nullable ? ["null", avroType(type)] : avroType(type) });

// `json`: the columns' types by their names, of values that are JSON; `avro` reads those of Avro.
function made(text) {
  const { format, columns } = JSON.parse(text);
  const types = Object.fromEntries(columns.map((each) => [each.name, each.type]));
  if (format === "json") return { json: types };
  if (format !== "avro") return {};
  const schema = { type: "record", name: "Row", fields: columns.map(avroField) };
  return { avro: { ...avroReader(JSON.stringify(schema)), types } };
}

// The newest version of a topic's, or a view's, schema; null where it has none.
export async function newestSchema(topic) {
  const place = `/topics/${encodeURIComponent(topic)}/schemas`;
  const first = await get(place);
  if (!first.newest) return null;
  const isNewest = (each) => each.version === first.newest;
  const found = first.versions.find(isNewest) ?? (await get(place, { from_version: first.newest })).versions[0];
  const { version, set_ms: setMs, schema } = found;
  return { version, setMs, compatibility: first.compatibility, ...JSON.parse(schema) };
}

// --- of each record -------------------------------------------------------------------------------

// The version that a mark says, 0 if it is malformed, and the digest of the schema if it says one.
function marked(record) {
  const mark = record.headers.findLast(([name]) => name === MARK);
  if (!mark) return null;
  const [, digits, digest] = SAID.exec(mark[1] === null ? "" : atob(mark[1])) ?? [null, "0"];
  return { version: Number(digits), digest };
}

// A topic that was created again under a name has other schemas under the same numbers.
function versionOf(known, { version, digest }) {
  const isOf = (each) => each?.fingerprint.startsWith(digest);
  if (!digest || isOf(known.get(version))) return version;
  return [...known.values()].findLast(isOf)?.version;
}

const inForce = (since, offset) => (since.findLast(([first]) => first <= offset) ?? [0, 1])[1];

// Offset -> how to read the record; nothing for those of a topic without a schema.
export async function schemasOf(topic, partition, records) {
  const place = `/topics/${encodeURIComponent(topic)}/schemas`;
  const first = await get(place, { partition });
  if (!first.newest) return new Map();
  const known = new Map(first.versions.map((each) => [each.version, each]));
  const said = records.map((each) => [each.offset, marked(each) ?? { version: inForce(first.since, each.offset) }]);
  for (const [, { version }] of said) {
    if (known.has(version) || version < 1 || version > first.newest) continue;
    const page = await get(place, { from_version: version });
    for (const each of page.versions) known.set(each.version, each);
  }
  const versions = said.map(([offset, each]) => [offset, versionOf(known, each)]);
  const readers = new Map([...new Set(versions.map(([, each]) => each))]
    .filter((each) => known.has(each)).map((each) => [each, made(known.get(each).schema)]));
  return new Map(versions.map(([offset, version]) => [offset, readers.get(version)]));
}
