// In which order sessions became one log, and that every copy of it is the same.

import { h } from "./dom.js";
import { live, rows } from "./live.js";
import { get } from "./api.js";
import { bytes, count, hex, plural, sum, time } from "./format.js";
import {
  choices, code, empty, head, legend, list, none, number, panel, partitionChoices, state, table,
} from "./parts.js";
import { tones } from "./charts.js";

const [LIMIT, ROWS, CHECKSUMS] = [200, 20, 8];

const go = (topic, partition) => { location.hash = `#/merge?${new URLSearchParams({ topic, partition })}`; };

function form(params) {
  const names = rows("topics").map((each) => each.name);
  const chosen = params.topic ?? names[0];
  const partitions = live.document.topics?.[chosen]?.partitions ?? 1;
  return h("form", { class: "query", "data-key": chosen },
    h("label", {}, "Topic", h("select", { onchange: (event) => go(event.target.value, 0) }, choices(names, chosen))),
    h("label", {}, "Partition", h("select", { onchange: (event) => go(chosen, event.target.value) },
      partitionChoices(partitions, params.partition))));
}

// --- instructions ---------------------------------------------------------------------------------

const width = (records) => `w${Math.max(1, Math.min(24, Math.round(1.6 * Math.sqrt(records))))}`;

function instruction(each, colour) {
  const parts = each.ranges.map((part) => `${part.session} ${plural(part.records, "record")}`);
  const told = `offset ${count(each.base_offset)}: ${parts.join(", ")}`;
  const bar = (part) => h("span", { class: `range ${colour.get(part.session)} ${width(part.records)}`,
    "aria-hidden": "true" });
  return h("li", { "data-key": String(each.base_offset), title: told },
    h("span", { class: "hidden" }, told), each.ranges.map(bar));
}

function strip(instructions) {
  const shares = new Map();
  for (const part of instructions.flatMap((each) => each.ranges)) {
    shares.set(part.session, (shares.get(part.session) ?? 0) + part.records);
  }
  const colour = tones(shares.keys());
  const all = sum([...shares.values()]);
  const share = (name) => h("span", { class: "many" }, ` ${Math.round((100 * shares.get(name)) / all)} %`);
  return [
    legend([...colour].map(([name, tone]) => [tone, name, share(name)])),
    h("ol", { class: "strip", "aria-label": "Instructions, oldest first" },
      instructions.map((each) => instruction(each, colour))),
    h("p", { class: "note" }, `${plural(instructions.length, "instruction")}, ${plural(all, "record")}; the newest at `
      + "the end. Every node appends these ranges in this order."),
  ];
}

const instructionRow = (each) => ({
  key: String(each.base_offset),
  cells: [
    count(each.base_offset),
    number(count(each.index)),
    number(count(each.term)),
    number(count(sum(each.ranges.map((part) => part.records)))),
    number(bytes(sum(each.ranges.map((part) => part.size_bytes)))),
    time(each.append_ms),
    list([...new Set(each.ranges.map((part) => part.session))]),
  ],
});

// --- checksums ------------------------------------------------------------------------------------

// Offset -> {node -> checksum}, with that of the majority under the name "".
function checksums(data) {
  const found = new Map();
  const note = (offset, node, checksum) => {
    if (!found.has(offset)) found.set(offset, new Map());
    found.get(offset).set(node, checksum);
  };
  data.copies.forEach((each) => note(each.offset, each.node, each.checksum));
  if (data.agreed_offset) note(data.agreed_offset, "", data.agreed_checksum);
  return found;
}

function verdict(found) {
  if (new Set(found.values()).size > 1) return state("differ", "bad");
  return found.size > 1 || found.has("") ? state("the same bytes", "good") : state("not compared yet", "");
}

function copies(data) {
  const sums = checksums(data);
  const names = rows("nodes").map((each) => each.name);
  const offsets = [...sums.keys()].sort((a, b) => b - a).slice(0, CHECKSUMS);
  const shown = (found, name) => (found.has(name) ? code(hex(found.get(name))) : "–");
  return table("Running checksums", ["Offset", ...names, "A majority", "Verdict"], offsets.map((offset) => {
    const found = sums.get(offset);
    return {
      key: String(offset),
      cells: [count(offset), ...[...names, ""].map((name) => shown(found, name)), verdict(found)],
    };
  }), "No checksum was taken yet: nodes take one every 4,096 records.");
}

export default {
  title: () => "Merge order",
  live: true,
  load: async (params) => {
    const topic = params.topic ?? rows("topics")[0]?.name ?? (await get("/topics")).topics[0]?.name;
    const place = `/topics/${encodeURIComponent(topic)}/merge-order`;
    return topic ? get(place, { partition: params.partition ?? 0, limit: LIMIT }) : null;
  },
  view: ({ params, data }) => {
    if (!rows("topics").length) return [head("Merge order"), empty("There are no topics.")];
    if (!data) return [head("Merge order"), form(params), empty("Asking the node.")];
    const { instructions } = data;
    const newest = [...instructions].reverse().slice(0, ROWS);
    return [
      head("Merge order"),
      form(params),
      panel("The newest instructions, a colour for each session", instructions.length
        ? strip(instructions) : none("Raft's log has no instruction of this partition any more.")),
      panel("Running checksums of every copy", copies(data)),
      panel("Instructions", table("Instructions",
        ["Offset", "Entry#", "Term#", "Records#", "Size#", "Planned", "Sessions"], newest.map(instructionRow),
        "None.")),
    ];
  },
};
