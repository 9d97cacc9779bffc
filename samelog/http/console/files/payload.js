// What a record holds, for people: rows of Arrow, fields of Avro or JSON, text, bytes.

import { h } from "./dom.js";
import { bytes, count, plural, time } from "./format.js";
import { code } from "./parts.js";
import { isArrow, readArrow } from "./arrow.js";
import { cellText } from "./values.js";

const [LONG, HEX_BYTES_MAX, ROWS] = [160, 1024, 20];

const CONTROL = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f]/;

const decode = (text) => (text === null ? null : Uint8Array.from(atob(text), (each) => each.charCodeAt(0)));

// Null where it is none that people can read, even if it is UTF-8.
function asText(data) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return CONTROL.test(text) ? null : text;
  } catch {
    return null;
  }
}

// Numbers keep the digits that they were written with, where the browser can: JavaScript's have 53 bits.
function exact(_, value, context) {
  const isKept = typeof value === "number" && context?.source && JSON.rawJSON;
  return isKept ? JSON.rawJSON(context.source) : value;
}

// Objects and lists; null where it is none.
export function asJson(text) {
  try {
    const found = JSON.parse(text, exact);
    return typeof found === "object" && !JSON.isRawJSON?.(found) ? found : null;
  } catch {
    return null;
  }
}

function asHex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_BYTES_MAX); at += 16) {
    const part = [...data.slice(at, at + 16)];
    const digits = part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const shown = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${digits}  ${shown}`);
  }
  return lines.join("\n") + (data.length > HEX_BYTES_MAX ? "\n…" : "");
}

// --- Arrow and Avro ---------------------------------------------------------------------------------

const known = new WeakMap();

// What a binary value is: rows of Arrow, what `avro` reads, or the problem that it has; null where nothing says so.
// Pages are drawn again and again: a record is read once.
function read(record, value, avro) {
  if (known.get(record)?.avro !== avro) known.set(record, { avro, found: tried(record, value, avro) });
  return known.get(record).found;
}

function tried(record, value, avro) {
  if (!value?.length || record.value_bytes > value.length) return null;
  try {
    if (isArrow(value)) return { arrow: readArrow(value, ROWS) };
    return avro ? { avro: avro.read(value), types: avro.types } : null;
  } catch (error) {
    return { problem: `It cannot be read as ${isArrow(value) ? "Arrow" : "Avro"}: ${error.message}.` };
  }
}

// --- what is shown ----------------------------------------------------------------------------------

const cut = (text) => (text.length > LONG ? `${text.slice(0, LONG)}…` : text);

const told = ({ columns, count: many }) => `${plural(many, "row")}: ${columns.map((each) => each.name).join(", ")}`;

function brief(data, found) {
  if (data === null) return h("i", {}, "null");
  if (found?.arrow) return cut(told(found.arrow));
  if (found?.types) return cut(cellText(found.avro));
  const text = asText(data);
  return text === null ? h("span", { class: "binary" }, asHex(data.slice(0, 16)).slice(6, 53)) : cut(text);
}

const part = (name, content) => h("div", { class: "form" }, h("h3", {}, name), content);
const block = (name, text) => part(name, h("pre", { tabindex: "0" }, text));
const rowsOf = (found) => h("table", {}, h("tbody", {}, found.map(([name, ...cells]) => (
  h("tr", {}, h("th", { scope: "row" }, name), cells.map((each) => h("td", {}, each)))))));

// By their types: a field that a value has not is a dash.
const fields = (value, types) => part("Fields", rowsOf(Object.entries(types).map(([name, type]) => (
  [name, code(type), Object.hasOwn(value, name) ? cellText(value[name], { quoted: true }) : "–"]))));

function arrow({ columns, rows, count: many }, label) {
  const heads = columns.map(({ name, type }) => h("th", { scope: "col" }, name, " ", code(type)));
  const lines = rows.map((cells) => h("tr", {}, cells.map((each) => h("td", {}, cellText(each)))));
  const shown = rows.length < many ? `Arrow, ${count(rows.length)} of ${plural(many, "row")}` : "Arrow";
  return part(shown, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines))));
}

function avro(found, types) {
  return Object.keys(types).length ? fields(found, types) : block("Avro", cellText(found));
}

const headers = (found) => part("Headers", rowsOf(found.map(([name, held]) => [name, brief(decode(held))])));
const note = (text) => h("p", { class: "note" }, text);

function whole(record, value, found, schema) {
  const text = value && !found?.types && asText(value);
  const json = text && asJson(text);
  return h("div", { class: "whole" },
    found?.arrow ? arrow(found.arrow, `Rows at offset ${record.offset}`) : null,
    found?.types ? avro(found.avro, found.types) : null,
    found?.problem ? note(found.problem) : null,
    json && schema ? fields(json, schema) : null,
    json ? block("JSON", JSON.stringify(json, null, 2)) : null,
    text && !json ? block("Text", text) : null,
    value?.length ? block("Bytes", asHex(value)) : null,
    record.headers.length ? headers(record.headers) : null,
    value && record.value_bytes > value.length
      ? note(`The first ${bytes(value.length)} of ${bytes(record.value_bytes)}.`) : null);
}

// `schema`: types of JSON's fields by their names; `avro` reads values; both may be null.
export function recordRow(record, schema, avroOfTopic) {
  const [key, value] = [decode(record.key), decode(record.value)];
  const found = read(record, value, avroOfTopic);
  return h("details", { class: "record", "data-key": String(record.offset) },
    h("summary", {},
      h("span", { class: "offset" }, count(record.offset)),
      h("span", { class: "when" }, time(record.timestamp_ms)),
      h("span", { class: "key" }, brief(key)),
      h("span", { class: "value" }, brief(value, found)),
      h("span", { class: "size" }, bytes(record.value_bytes < 0 ? null : record.value_bytes))),
    whole(record, value, found, schema));
}
