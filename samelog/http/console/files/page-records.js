// Records of a partition, as they are: by offset, time or key; as text, JSON or bytes.

import { h, link } from "./dom.js";
import { live, rows } from "./live.js";
import { get } from "./api.js";
import { bytes, count, time } from "./format.js";
import { code, empty, head, panel } from "./parts.js";

const FROM = [["last", "the newest"], ["first", "the oldest"], ["offset", "offset"], ["time", "time"]];
const LIMIT = 50;
const LONG = 160;

const decode = (text) => (text === null ? null : Uint8Array.from(atob(text), (each) => each.charCodeAt(0)));

function asText(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return null;
  }
}

function asJson(text) {
  try {
    const found = JSON.parse(text);
    return typeof found === "object" && found !== null ? JSON.stringify(found, null, 2) : null;
  } catch {
    return null;
  }
}

function asHex(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, 1024); at += 16) {
    const part = [...data.slice(at, at + 16)];
    const digits = part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const shown = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${digits}  ${shown}`);
  }
  return lines.join("\n") + (data.length > 1024 ? "\n…" : "");
}

const brief = (data) => {
  if (data === null) return h("i", {}, "null");
  const text = asText(data);
  if (text === null) return h("span", { class: "binary" }, asHex(data.slice(0, 16)).slice(6, 53));
  return text.length > LONG ? `${text.slice(0, LONG)}…` : text;
};

function whole(record, value) {
  const text = value && asText(value);
  const json = text && asJson(text);
  const part = (name, content) => (content ? h("div", { class: "form" }, h("h3", {}, name), h("pre", { tabindex: "0" }, content)) : null);
  const headers = record.headers.map(([name, held]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, brief(decode(held)))));
  return h("div", { class: "whole" },
    part("JSON", json), json ? null : part("Text", text), value ? part("Bytes", asHex(value)) : null,
    headers.length ? h("div", { class: "form" }, h("h3", {}, "Headers"), h("table", {}, h("tbody", {}, headers))) : null,
    record.value_bytes > (value?.length ?? 0) ? h("p", { class: "note" }, `The first ${bytes(value.length)} of ${bytes(record.value_bytes)}.`) : null);
}

function row(record) {
  const [key, value] = [decode(record.key), decode(record.value)];
  return h("details", { class: "record", "data-key": String(record.offset) },
    h("summary", {}, h("span", { class: "offset" }, count(record.offset)), h("span", { class: "when" }, time(record.timestamp_ms)),
      h("span", { class: "key" }, brief(key)), h("span", { class: "value" }, brief(value)), h("span", { class: "size" }, bytes(record.value_bytes < 0 ? null : record.value_bytes))),
    whole(record, value));
}

function query(params) {
  const found = { partition: params.partition ?? 0, key: params.key, limit: LIMIT };
  if (params.from === "offset") found.offset = params.at || 0;
  else if (params.from === "time") found.at_ms = Date.parse(params.at) || 0;
  else if ((params.from ?? "last") === "last") found.last = params.key ? 100_000 : LIMIT;
  return found;
}

const go = (params) => { location.hash = `#/records?${new URLSearchParams(params)}`; };

function form(params) {
  const names = rows("topics").map((each) => each.name);
  const chosen = params.topic ?? names[0];
  const partitions = live.document.topics?.[chosen]?.partitions ?? 1;
  const option = (value, text, selected) => h("option", { value, selected }, text);
  const from = params.from ?? "last";
  return h("form", { class: "query", "data-key": `query ${chosen} ${from}`, onsubmit: (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ""));
    go(given);
  } },
  h("label", {}, "Topic", h("select", { name: "topic", onchange: (event) => go({ topic: event.target.value }) }, names.map((each) => option(each, each, each === chosen)))),
  h("label", {}, "Partition", h("select", { name: "partition" }, Array.from({ length: Math.min(partitions, 1000) }, (_, each) => option(each, each, String(each) === (params.partition ?? "0"))))),
  h("label", {}, "From", h("select", { name: "from", onchange: (event) => go({ ...params, id: "", from: event.target.value, at: "" }) }, FROM.map(([value, text]) => option(value, text, value === from)))),
  from === "offset" ? h("label", {}, "Offset", h("input", { name: "at", type: "number", min: 0, value: params.at ?? "0" })) : null,
  from === "time" ? h("label", {}, "Time (UTC)", h("input", { name: "at", value: params.at ?? "", placeholder: "2026-11-20T08:00Z" })) : null,
  h("label", {}, "Key", h("input", { name: "key", value: params.key ?? "", placeholder: "any", spellcheck: "false" })),
  h("button", { type: "submit", class: "action primary" }, "Show"));
}

function around(params, data) {
  const at = (offset) => ({ topic: params.topic ?? rows("topics")[0].name, partition: params.partition ?? "0", from: "offset", at: String(Math.max(data.start_offset, offset)), ...(params.key ? { key: params.key } : {}) });
  const first = data.records[0]?.offset ?? data.next_offset;
  return h("div", { class: "around" },
    first > data.start_offset ? link(`records?${new URLSearchParams(at(first - LIMIT))}`, "Older") : h("span", {}, "the oldest"),
    h("span", {}, `offsets ${count(data.start_offset)} to ${count(data.end_offset)} are here`),
    data.next_offset < data.end_offset ? link(`records?${new URLSearchParams(at(data.next_offset))}`, "Newer") : h("span", {}, "the newest"));
}

export default {
  title: () => "Records",
  load: async (params) => {
    const topic = params.topic ?? rows("topics")[0]?.name ?? (await get("/topics")).topics[0]?.name;
    return topic ? get(`/topics/${encodeURIComponent(topic)}/records`, query(params)) : null;
  },
  view: ({ params, data }) => [head("Records"), rows("topics").length ? form(params) : empty("There are no topics."),
    data ? panel("Records found", around(params, data), data.records.length
      ? h("div", { class: "records" }, data.records.map(row)) : empty(`No record up to offset ${count(data.next_offset)} is as asked for.`)) : null],
};
