// Records of a partition, as they are: by offset, time or key; as fields, JSON, text or bytes.

import { h, link } from "./dom.js";
import { live, rows } from "./live.js";
import { get } from "./api.js";
import { bytes, count, time } from "./format.js";
import { choices, code, empty, head, panel, partitionChoices } from "./parts.js";

const FROM = [["last", "the newest"], ["first", "the oldest"], ["offset", "offset"], ["time", "time"]];
const LIMIT = 50;
const LOOKED_AT_FOR_KEY = 100_000;
const LONG = 160;
const HEX_BYTES_MAX = 1024;

// --- one record -----------------------------------------------------------------------------------

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
function asJson(text) {
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

const brief = (data) => {
  if (data === null) return h("i", {}, "null");
  const text = asText(data);
  if (text === null) return h("span", { class: "binary" }, asHex(data.slice(0, 16)).slice(6, 53));
  return text.length > LONG ? `${text.slice(0, LONG)}…` : text;
};

const part = (name, content) => h("div", { class: "form" }, h("h3", {}, name), content);
const block = (name, text) => part(name, h("pre", { tabindex: "0" }, text));
const rowsOf = (found) => h("table", {}, h("tbody", {}, found.map(([name, ...cells]) => (
  h("tr", {}, h("th", { scope: "row" }, name), cells.map((each) => h("td", {}, each)))))));

// By the topic's setting value_schema: a field that a value has not is a dash.
const fields = (json, schema) => part("Fields", rowsOf(Object.entries(schema).map(([name, type]) => (
  [name, code(type), Object.hasOwn(json, name) ? JSON.stringify(json[name]) : "–"]))));

const headers = (found) => part("Headers", rowsOf(found.map(([name, held]) => [name, brief(decode(held))])));

function whole(record, value, schema) {
  const text = value && asText(value);
  const json = text && asJson(text);
  const cut = value && record.value_bytes > value.length;
  return h("div", { class: "whole" },
    json && schema ? fields(json, schema) : null,
    json ? block("JSON", JSON.stringify(json, null, 2)) : null,
    text && !json ? block("Text", text) : null,
    value?.length ? block("Bytes", asHex(value)) : null,
    record.headers.length ? headers(record.headers) : null,
    cut ? h("p", { class: "note" }, `The first ${bytes(value.length)} of ${bytes(record.value_bytes)}.`) : null);
}

function row(record, schema) {
  const [key, value] = [decode(record.key), decode(record.value)];
  return h("details", { class: "record", "data-key": String(record.offset) },
    h("summary", {},
      h("span", { class: "offset" }, count(record.offset)),
      h("span", { class: "when" }, time(record.timestamp_ms)),
      h("span", { class: "key" }, brief(key)),
      h("span", { class: "value" }, brief(value)),
      h("span", { class: "size" }, bytes(record.value_bytes < 0 ? null : record.value_bytes))),
    whole(record, value, schema));
}

// --- which ones -----------------------------------------------------------------------------------

function query(params) {
  const found = { partition: params.partition ?? 0, key: params.key, limit: LIMIT };
  if (params.from === "offset") found.offset = params.at || 0;
  else if (params.from === "time") found.at_ms = Date.parse(params.at) || 0;
  else if ((params.from ?? "last") === "last") found.last = params.key ? LOOKED_AT_FOR_KEY : LIMIT;
  return found;
}

const place = (params) => (
  `records?${new URLSearchParams(Object.entries(params).filter(([, value]) => value !== ""))}`);
const go = (params) => { location.hash = `#/${place(params)}`; };

const field = (label, input) => h("label", {}, label, input);

function start(from, at) {
  if (from === "offset") return field("Offset", h("input", { name: "at", type: "number", min: 0, value: at ?? "0" }));
  if (from !== "time") return null;
  return field("Time (UTC)", h("input", { name: "at", value: at ?? "", placeholder: "2026-11-20T08:00Z" }));
}

function form(params) {
  const names = rows("topics").map((each) => each.name);
  const chosen = params.topic ?? names[0];
  const from = params.from ?? "last";
  const onsubmit = (event) => {
    event.preventDefault();
    go(Object.fromEntries(new FormData(event.target)));
  };
  const again = (changed) => (event) => go(changed(event.target.value));
  return h("form", { class: "query", "data-key": `query ${chosen} ${from}`, onsubmit },
    field("Topic", h("select", { name: "topic", onchange: again((topic) => ({ topic })) }, choices(names, chosen))),
    field("Partition", h("select", { name: "partition" },
      partitionChoices(live.document.topics?.[chosen]?.partitions ?? 1, params.partition))),
    field("From", h("select", { name: "from", onchange: again((value) => ({ ...params, from: value, at: "" })) },
      FROM.map(([value, text]) => h("option", { value, selected: value === from }, text)))),
    start(from, params.at),
    field("Key", h("input", { name: "key", value: params.key ?? "", placeholder: "any", spellcheck: "false" })),
    h("button", { type: "submit", class: "action primary" }, "Show"));
}

function around(params, data) {
  const at = (offset) => place({
    topic: params.topic ?? rows("topics")[0].name,
    partition: params.partition ?? "0",
    from: "offset",
    at: String(Math.max(data.start_offset, offset)),
    key: params.key ?? "",
  });
  const first = data.records[0]?.offset ?? data.next_offset;
  return h("div", { class: "around" },
    first > data.start_offset ? link(at(first - LIMIT), "Older") : h("span", {}, "the oldest"),
    h("span", {}, `offsets ${count(data.start_offset)} to ${count(data.end_offset)} are here`),
    data.next_offset < data.end_offset ? link(at(data.next_offset), "Newer") : h("span", {}, "the newest"));
}

function found(params, data) {
  const topic = params.topic ?? rows("topics")[0]?.name;
  const schema = asJson(live.document.topics?.[topic]?.settings.value_schema ?? "");
  return panel("Records found", around(params, data), data.records.length
    ? h("div", { class: "records" }, data.records.map((each) => row(each, schema)))
    : empty(`No record up to offset ${count(data.next_offset)} is as asked for.`));
}

export default {
  title: () => "Records",
  load: async (params) => {
    const topic = params.topic ?? rows("topics")[0]?.name ?? (await get("/topics")).topics[0]?.name;
    return topic ? get(`/topics/${encodeURIComponent(topic)}/records`, query(params)) : null;
  },
  view: ({ params, data }) => [
    head("Records"),
    rows("topics").length ? form(params) : empty("There are no topics."),
    data ? found(params, data) : null,
  ],
};
