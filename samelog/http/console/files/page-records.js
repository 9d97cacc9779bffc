// Records of a partition, as they are: by offset, time or key.

import { h, link, path } from "./dom.js";
import { live, rows } from "./live.js";
import { get } from "./api.js";
import { count } from "./format.js";
import { choices, empty, head, none, panel, partitionChoices } from "./parts.js";
import { avroReader } from "./avro.js";
import { asJson, recordRow } from "./payload.js";
import { schemasOf } from "./schemas.js";

const FROM = [["last", "the newest"], ["first", "the oldest"], ["offset", "offset"], ["time", "time"]];
const LIMIT = 50;
const LOOKED_AT = 100_000; // to find some that have a key, or pass a view
const VALUES = [["", "as they are"], ["avro", "Avro"]];

// --- which ones -----------------------------------------------------------------------------------

const topicsAndViews = () => [...rows("topics"), ...rows("views")].map((each) => each.name);
const knownTopic = (name) => live.document.topics?.[name] ?? live.document.views?.[name];

function query(params, isSparse) {
  const found = { partition: params.partition ?? 0, key: params.key, limit: LIMIT };
  if (params.from === "offset") found.offset = params.at || 0;
  else if (params.from === "time") found.at_ms = Date.parse(params.at) || 0;
  else if ((params.from ?? "last") === "last") found.last = isSparse ? LOOKED_AT : LIMIT;
  return found;
}

// Pages may ask before the node has said which views there are.
async function isView(topic) {
  if (live.document) return Boolean(live.document.views?.[topic]);
  return Boolean((await get(`/${path("topics", topic)}`)).topic.base);
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

// The browser keeps it until it is closed: no node knows it.
const schemaKey = (topic) => `samelog-avro-schema ${topic}`;

function schemaField(topic, redraw) {
  const onchange = (event) => {
    sessionStorage.setItem(schemaKey(topic), event.target.value);
    redraw();
  };
  return h("label", { class: "schema" }, "Avro's schema, as JSON",
    h("textarea", { rows: 4, spellcheck: "false", onchange }, sessionStorage.getItem(schemaKey(topic)) ?? ""));
}

// What reads the topic's values, as long as its schema is the same; or the schema's problem.
const readers = new Map();

function avroOf(params, topic) {
  const text = params.values === "avro" ? sessionStorage.getItem(schemaKey(topic)) : "";
  if (!text) return null;
  if (!readers.has(text)) readers.set(text, made(text));
  return readers.get(text);
}

function made(text) {
  try {
    return avroReader(text);
  } catch (error) {
    return { problem: `This is no schema of Avro: ${error.message}.` };
  }
}

function form(params, redraw) {
  const names = topicsAndViews();
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
      partitionChoices(knownTopic(chosen)?.partitions ?? 1, params.partition))),
    field("From", h("select", { name: "from", onchange: again((value) => ({ ...params, from: value, at: "" })) },
      FROM.map(([value, text]) => h("option", { value, selected: value === from }, text)))),
    start(from, params.at),
    field("Key", h("input", { name: "key", value: params.key ?? "", placeholder: "any", spellcheck: "false" })),
    field("Values", h("select", { name: "values", onchange: again((values) => ({ ...params, values })) },
      VALUES.map(([value, text]) => h("option", { value, selected: value === (params.values ?? "") }, text)))),
    h("button", { type: "submit", class: "action primary" }, "Show"),
    params.values === "avro" ? schemaField(chosen, redraw) : null);
}

function around(params, data) {
  const at = (offset) => place({
    topic: params.topic ?? rows("topics")[0].name,
    partition: params.partition ?? "0",
    from: "offset",
    at: String(Math.max(data.start_offset, offset)),
    key: params.key ?? "",
    values: params.values ?? "",
  });
  const first = data.records[0]?.offset ?? data.next_offset;
  return h("div", { class: "around" },
    first > data.start_offset ? link(at(first - LIMIT), "Older") : h("span", {}, "the oldest"),
    h("span", {}, `offsets ${count(data.start_offset)} to ${count(data.end_offset)} are here`),
    data.next_offset < data.end_offset ? link(at(data.next_offset), "Newer") : h("span", {}, "the newest"));
}

function found(params, { page, schemas, problem }) {
  const topic = params.topic ?? rows("topics")[0]?.name;
  const setting = asJson(live.document.topics?.[topic]?.settings.value_schema ?? "");
  const given = avroOf(params, topic);
  if (given?.problem) return h("p", { class: "banner warn" }, given.problem);
  const shown = (each) => {
    const schema = schemas.get(each.offset);
    return recordRow(each, schema?.json ?? setting, given ?? schema?.avro ?? null);
  };
  return panel("Records found", around(params, page), problem
    ? h("p", { class: "note" }, `The topic's schema is not known: ${problem}.`) : null, page.records.length
    ? h("div", { class: "records" }, page.records.map(shown))
    : none(`No record up to offset ${count(page.next_offset)} is as asked for.`));
}

async function load(params) {
  const topic = params.topic ?? rows("topics")[0]?.name ?? (await get("/topics")).topics[0]?.name;
  if (!topic) return null;
  const isSparse = Boolean(params.key) || await isView(topic);
  const page = await get(`/${path("topics", topic, "records")}`, query(params, isSparse));
  try {
    return { page, schemas: await schemasOf(topic, params.partition ?? 0, page.records) };
  } catch (error) {
    return { page, schemas: new Map(), problem: error.message };
  }
}

export default {
  title: () => "Records",
  load,
  view: ({ params, data, redraw }) => [
    head("Records"),
    rows("topics").length ? form(params, redraw) : empty("There are no topics."),
    data ? found(params, data) : null,
  ],
};
