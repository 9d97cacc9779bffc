// Topics, and one topic: partitions, settings, segments and what became of them.

import { h, link, path, s } from "./dom.js";
import { byTopic, live, now, one, rate, rates, rows } from "./live.js";
import { get } from "./api.js";
import { ago, bytes, count, hex, perSecond, plural, sum, time } from "./format.js";
import {
  code, empty, figure, filtered, head, legend, none, number, ofPartition, pairs, panel, partitionsState, state, table,
} from "./parts.js";
import { spark } from "./charts.js";
import { button } from "./actions.js";
import { internal, isInternal, keyed, kindOf, mirrored, otherTopics, schemaPanel, view } from "./kinds.js";
import { newestSchema } from "./schemas.js";
import { create, createView, topicButtons } from "./topic-actions.js";

// --- the list -------------------------------------------------------------------------------------

const logOf = (each, own) => {
  const changed = Object.keys(each.settings).length;
  return {
    name: each.name,
    kind: kindOf(each),
    partitions: each.partitions,
    records: sum(own.map((one) => one.end_offset - one.start_offset)),
    size: sum(own.map((one) => one.size_bytes)),
    growth: rate(`topic ${each.name}`),
    trend: spark(rates(`topic ${each.name}`), "records per second"),
    settings: changed ? plural(changed, "setting") : "defaults",
    said: partitionsState(own),
  };
};

// One row, whatever a topic is: what it has not is a dash.
const topicRow = (each) => ({
  key: each.name,
  cells: [
    link(path("topic", each.name), each.name),
    each.kind,
    number(count(each.partitions)),
    number(count(each.records)),
    number(bytes(each.size)),
    number(perSecond(each.growth)),
    each.trend ?? "–",
    each.settings,
    each.said ?? state("ok", "good"),
  ],
});

export const topics = {
  title: () => "Topics",
  view: ({ redraw }) => {
    const parts = byTopic();
    const logs = rows("topics").map((each) => logOf(each, parts.get(each.name) ?? []));
    const [input, found] = filtered("topics", [...logs, ...otherTopics()], (each) => each.name, redraw);
    return [
      head("Topics", input, button("Create a topic", create, "primary"), button("Create a view", createView)),
      table("Topics",
        ["Topic", "Kind", "Partitions#", "Records kept#", "Size#", "Rate#", "Last minutes", "Settings", "State"],
        found.map(topicRow),
        "There are no topics yet. Create one here; or a publisher's first record does."),
    ];
  },
};

// --- segments -------------------------------------------------------------------------------------

const FATES = {
  growing: "grows",
  kept: "kept",
  copied: "kept, with a copy",
  archived: "archived",
  "archived-copied": "archived, with a copy",
};

function fate(file, last) {
  if (file.archived_ms >= 0) return file.copied_ms >= 0 ? "archived-copied" : "archived";
  if (file === last) return "growing";
  return file.copied_ms >= 0 ? "copied" : "kept";
}

function segment(file, kind, at, width) {
  const told = `offsets ${count(file.first_offset)} to ${count(file.next_offset)}, ${bytes(file.size_bytes)}, `
    + `${time(file.first_ms)}, ${FATES[kind]}`;
  const shape = { x: at.toFixed(2), y: 0, width: Math.max(0.3, width - 0.3).toFixed(2), height: 14 };
  return s("rect", { class: `segment ${kind}`, ...shape }, s("title", {}, told));
}

function lane(files, partition) {
  const own = files.filter((each) => each.partition === partition);
  if (!own.length) return null;
  const whole = sum(own.map((each) => Math.max(each.size_bytes, 1)));
  let end = 0;
  const drawn = own.map((each) => {
    const [at, width] = [end, Math.max(0.6, (each.size_bytes / whole) * 100)];
    end += width;
    return segment(each, fate(each, own.at(-1)), at, width);
  });
  const told = `partition ${partition}: ${plural(own.length, "segment")}, ${bytes(whole)}`;
  return h("div", { class: "lane", "data-key": String(partition) },
    h("span", { class: "label" }, partition),
    s("svg", { viewBox: `0 0 ${end.toFixed(2)} 14`, preserveAspectRatio: "none", role: "img", "aria-label": told },
      drawn),
    h("span", { class: "size" }, bytes(whole)));
}

// What the leader would archive if every consumer group had read it.
function held(topic, partitions) {
  const names = (one("troubles").archive_held ?? "").split(", ");
  const found = partitions.map((each) => each.partition).filter((each) => names.includes(`${topic}-${each}`));
  return found.length ? h("p", { class: "note" },
    `Held back from archiving, as a consumer group has not read it: partition ${found.join(", ")}.`) : null;
}

const notTold = (missing) => (missing.length ? h("p", { class: "note" },
  `Other nodes have partition ${missing.join(", ")}: open the console of one of them, or samelog ui.`) : null);

function timeline(topic, data, partitions) {
  if (!data) return empty("Asking the node.");
  const missing = notTold(data.missing ?? []);
  if (!data.files.length) return missing ?? none("No segment yet: nothing was published to this topic.");
  return [
    legend(Object.entries(FATES)),
    held(topic, partitions),
    missing,
    h("div", { class: "lanes" }, partitions.map((each) => lane(data.files, each.partition))),
    h("p", { class: "note" }, `The newest segment began ${ago(now(), data.files.at(-1).first_ms)}.`),
    data.more ? h("p", { class: "note" }, "These are the oldest segments: there are more than are shown.") : null,
  ];
}

// --- one topic ------------------------------------------------------------------------------------

const HERE = 8;
// What other nodes have is not known here.
const elsewhereRow = (each) => ({
  key: String(each.partition),
  cells: [String(each.partition), ...Array.from({ length: HERE }, () => number("–")), `on ${each.elsewhere}`],
});

const COUNTS = ["start_offset", "end_offset", "committed_offset", "durable_offset", "merged_offset"];
const partitionRow = (each) => each.elsewhere ? elsewhereRow(each) : ofPartition(each, COUNTS,
  number(bytes(each.size_bytes)),
  number(count(each.segments)),
  code(hex(each.checksum)),
  each.halted ? state(each.halted, "bad") : partitionsState([each]));

function figures(known, own) {
  const total = (field) => sum(own.map((each) => each[field]));
  return h("div", { class: "figures" },
    figure(own.some((each) => each.elsewhere) ? "records kept here" : "records kept",
      count(total("end_offset") - total("start_offset")), `${count(total("end_offset"))} in all`),
    figure("size on this node", bytes(total("size_bytes")), plural(total("segments"), "segment")),
    figure("rate", perSecond(rate(`topic ${known.name}`)), "acknowledged",
      spark(rates(`topic ${known.name}`), "records per second")),
    figure("partitions", count(known.partitions), code(known.topic_id)));
}

const SCHEMA_MS = 30_000;
let schema = { id: "", at: 0, found: null };

const ASKED_MAX = 100;

// Of a topic in data groups, each partition by who has it: what nobody here can tell is `missing`.
async function filesOf(topic, partition) {
  try {
    return { ...await get("/log-history", { topic, partition }), missing: [] };
  } catch {
    return { files: [], more: false, missing: [partition] };
  }
}

async function files(topic) {
  const found = await get("/log-history", { topic });
  const own = byTopic().get(topic) ?? [];
  if (found.files.length || !own.some((each) => each.elsewhere || each.end_offset)) return found;
  const pages = await Promise.all(own.slice(0, ASKED_MAX).map((each) => filesOf(topic, each.partition)));
  return {
    files: pages.flatMap((each) => each.files),
    more: own.length > ASKED_MAX || pages.some((each) => each.more),
    missing: pages.flatMap((each) => each.missing),
  };
}

// Schemas may be long, and change seldom. Whoever may neither read nor write a topic is not told its own.
async function schemaOf(id) {
  if (schema.id !== id || Date.now() - schema.at > SCHEMA_MS) {
    schema = { id, at: Date.now(), found: await newestSchema(id).catch(() => null) };
  }
  return schema.found;
}

// Of a view its partitions; of others the history of their files. Both may have a schema.
async function load({ id }) {
  if (isInternal(id)) return null;
  const found = live.document?.topics?.[id] ? null : await get(`/${path("topics", id)}`);
  const shown = found?.topic.base ? found : await files(id);
  return { ...shown, schema: await schemaOf(id) };
}

export const topic = {
  title: (params) => params.id,
  live: true,
  load,
  view: ({ params, data, reload }) => {
    const name = params.id;
    if (isInternal(name)) return internal(name);
    if (data?.topic) return view(name, data);
    const known = live.document.topics?.[name];
    if (live.document.views?.[name]) return [head(name), empty("Asking the node.")];
    if (!known) return [head(name), empty("There is no such topic.")];
    const own = byTopic().get(name) ?? [];
    const settings = Object.entries(known.settings).map(([key, value]) => [code(key), code(value)]);
    return [
      head(name,
        link(`records?topic=${encodeURIComponent(name)}`, "Records"),
        link(`merge?topic=${encodeURIComponent(name)}`, "Merge order"),
        ...topicButtons(known, reload)),
      figures(known, own),
      panel("Partitions", table("Partitions",
        ["Partition", "First#", "End#", "Acknowledged#", "Synced here#", "On a majority#", "Size#", "Segments#",
          "Running checksum", "State"], own.map(partitionRow))),
      mirrored(name),
      keyed(known),
      schemaPanel(data?.schema),
      panel("Segments, oldest first", timeline(name, data, own)),
      panel("Settings", settings.length ? pairs(settings) : none("All settings have their defaults.")),
    ];
  },
};
