// In which order sessions became one log, and that every copy of it is the same.

import { h, link } from "./dom.js";
import { live, rows } from "./live.js";
import { get } from "./api.js";
import { bytes, count, hex, plural, sum, time } from "./format.js";
import { code, empty, head, number, panel, state, table } from "./parts.js";
import { tones } from "./charts.js";

const go = (topic, partition) => { location.hash = `#/merge?${new URLSearchParams({ topic, partition })}`; };

function form(params) {
  const names = rows("topics").map((each) => each.name);
  const chosen = params.topic ?? names[0];
  const partitions = live.document.topics?.[chosen]?.partitions ?? 1;
  return h("form", { class: "query", "data-key": chosen },
    h("label", {}, "Topic", h("select", { onchange: (event) => go(event.target.value, 0) }, names.map((each) => h("option", { value: each, selected: each === chosen }, each)))),
    h("label", {}, "Partition", h("select", { onchange: (event) => go(chosen, event.target.value) },
      Array.from({ length: Math.min(partitions, 1000) }, (_, each) => h("option", { value: each, selected: String(each) === (params.partition ?? "0") }, each)))));
}

const width = (records) => `w${Math.max(1, Math.min(24, Math.round(1.6 * Math.sqrt(records))))}`;

function strip(found, colour) {
  return h("ol", { class: "strip", "aria-label": "Instructions, oldest first" }, found.map((each) => {
    const told = `offset ${count(each.base_offset)}: ${each.ranges.map((part) => `${part.session} ${plural(part.records, "record")}`).join(", ")}`;
    return h("li", { "data-key": String(each.base_offset), title: told }, h("span", { class: "hidden" }, told),
      each.ranges.map((part) => h("span", { class: `range ${colour.get(part.session)} ${width(part.records)}`, "aria-hidden": "true" })));
  }));
}

function copies(data) {
  const newest = new Map();
  const sums = new Map();
  for (const each of data.copies) {
    newest.set(each.node, each);
    if (!sums.has(each.offset)) sums.set(each.offset, new Map());
    sums.get(each.offset).set(each.node, each.checksum);
  }
  if (data.agreed_offset) sums.set(data.agreed_offset, new Map([["agreed", data.agreed_checksum], ...(sums.get(data.agreed_offset) ?? [])]));
  const offsets = [...sums.keys()].sort((a, b) => b - a).slice(0, 8);
  const names = rows("nodes").map((each) => each.name);
  return table("Running checksums", ["Offset", ...names, "A majority", "Verdict"], offsets.map((offset) => {
    const found = sums.get(offset);
    const own = names.map((name) => found.get(name)).filter((each) => each !== undefined);
    const differs = new Set([...found.values()]).size > 1;
    return { key: String(offset), cells: [count(offset), ...names.map((name) => (found.has(name) ? code(hex(found.get(name))) : "–")), found.has("agreed") ? code(hex(found.get("agreed"))) : "–",
      differs ? state("differ", "bad") : state(own.length > 1 || found.has("agreed") ? "the same bytes" : "not compared yet", own.length > 1 || found.has("agreed") ? "good" : "")] };
  }), "No checksum was taken yet: nodes take one every 4,096 records.");
}

export default {
  title: () => "Merge order",
  live: true,
  load: async (params) => {
    const topic = params.topic ?? rows("topics")[0]?.name ?? (await get("/topics")).topics[0]?.name;
    return topic ? get(`/topics/${encodeURIComponent(topic)}/merge-order`, { partition: params.partition ?? 0, limit: 200 }) : null;
  },
  view: ({ params, data }) => {
    if (!data) return [head("Merge order"), rows("topics").length ? [form(params), empty("Asking the node.")] : empty("There are no topics.")];
    const shares = new Map();
    for (const part of data.instructions.flatMap((each) => each.ranges)) shares.set(part.session, (shares.get(part.session) ?? 0) + part.records);
    const colour = tones(shares.keys());
    const all = sum([...shares.values()]);
    return [head("Merge order"), form(params),
      panel("The newest instructions, a colour for each session", data.instructions.length ? [
        h("ul", { class: "legend" }, [...colour].map(([name, tone]) => h("li", {}, h("span", { class: `swatch ${tone}` }), name, h("span", { class: "many" }, ` ${Math.round((100 * shares.get(name)) / all)} %`)))),
        strip(data.instructions, colour),
        h("p", { class: "note" }, `${plural(data.instructions.length, "instruction")}, ${plural(all, "record")}; the newest at the end. Every node appends these ranges in this order.`)]
        : empty("Raft's log has no instruction of this partition any more.")),
      panel("Running checksums of every copy", copies(data)),
      panel("Instructions", table("Instructions", ["Offset", "Entry#", "Term#", "Records#", "Size#", "Planned", "Sessions"], [...data.instructions].reverse().slice(0, 20).map((each) => ({
        key: String(each.base_offset), cells: [count(each.base_offset), number(count(each.index)), number(count(each.term)), number(count(sum(each.ranges.map((part) => part.records)))),
          number(bytes(sum(each.ranges.map((part) => part.size_bytes)))), time(each.append_ms), [...new Set(each.ranges.map((part) => part.session))].join(", ")],
      })), "None.")),
    ];
  },
};
