// Topics, and one topic: partitions, settings, segments and what became of them.

import { h, link, path, s } from "./dom.js";
import { byTopic, live, now, one, rate, rates, rows } from "./live.js";
import { get } from "./api.js";
import { ago, bytes, count, hex, perSecond, plural, sum, time } from "./format.js";
import {
  code, empty, figure, filtered, head, legend, none, number, pairs, panel, partitionsState, state, table,
} from "./parts.js";
import { spark } from "./charts.js";
import { ask, button } from "./actions.js";
import { internal, isInternal, keyed, kindOf, mirrored, otherTopics, view } from "./kinds.js";

const SETTING = {
  name: "settings",
  label: "Settings, as name=value, separated by spaces",
  hint: "Such as retention.ms=86400000 segment.bytes=134217728",
};

const words = (text) => text.split(/\s+/).filter(Boolean);

const settingsOf = (text) => Object.fromEntries(words(text).map((each) => {
  const at = each.indexOf("=");
  return at < 0 ? [each, ""] : [each.slice(0, at), each.slice(at + 1)];
}));

const create = () => ask({
  title: "Create a topic",
  confirm: "Create",
  fields: [
    { name: "topic", label: "Name", required: true, pattern: "[a-zA-Z0-9._\\-]{1,249}" },
    { name: "partitions", label: "Partitions", type: "number", min: 1, value: 1, required: true },
    { name: "copies", label: "Copies of each partition", type: "number", min: 1, hint: "Empty: one on every node." },
    SETTING,
  ],
  request: (given) => {
    const body = { topic: given.topic, partitions: Number(given.partitions), settings: settingsOf(given.settings) };
    if (given.copies !== "") body.replication_factor = Number(given.copies);
    return ["/topics", body];
  },
  done: (found) => { location.hash = `#/${path("topic", found.name)}`; },
});

const alter = (name, again) => ask({
  title: `Change settings of ${name}`,
  confirm: "Change",
  fields: [SETTING, { name: "unset", label: "Back to the default: names, separated by spaces" }],
  request: (given) => {
    const body = { settings: settingsOf(given.settings), unset: words(given.unset) };
    return [`/${path("topics", name, "alter")}`, body];
  },
  done: again,
});

const grow = (name, partitions, again) => ask({
  title: `More partitions for ${name}`,
  text: "A topic never gets fewer again, and keys may go to other partitions than before.",
  confirm: "Add",
  fields: [{ name: "partitions", label: "Partitions in all", type: "number", min: partitions, value: partitions + 1,
    required: true }],
  request: (given) => [`/${path("topics", name, "partitions")}`, { partitions: Number(given.partitions) }],
  done: again,
});

const remove = (name) => ask({
  title: `Delete ${name}`,
  text: "All its records are gone for good, on every node. Write its name to confirm.",
  confirm: "Delete for good",
  danger: true,
  fields: [{ name: "confirmed", label: "Name", required: true, pattern: name.replace(/[.]/g, "[.]") }],
  request: () => [`/${path("topics", name, "delete")}`, {}],
  done: () => { location.hash = "#/topics"; },
});

function topicRow(each, own) {
  const changed = Object.keys(each.settings).length;
  return {
    key: each.name,
    cells: [
      link(path("topic", each.name), each.name),
      kindOf(each),
      number(count(each.partitions)),
      number(count(sum(own.map((one) => one.end_offset - one.start_offset)))),
      number(bytes(sum(own.map((one) => one.size_bytes)))),
      number(perSecond(rate(`topic ${each.name}`))),
      spark(rates(`topic ${each.name}`), "records per second"),
      changed ? plural(changed, "setting") : "defaults",
      partitionsState(own),
    ],
  };
}

export const topics = {
  title: () => "Topics",
  view: ({ redraw }) => {
    const parts = byTopic();
    const logs = rows("topics").map((each) => [each.name, topicRow(each, parts.get(each.name) ?? [])]);
    const [input, found] = filtered("topics", [...logs, ...otherTopics()], ([name]) => name, redraw);
    return [
      head("Topics", input, button("Create a topic", create, "primary")),
      table("Topics",
        ["Topic", "Kind", "Partitions#", "Records kept#", "Size#", "Rate#", "Last minutes", "Settings", "State"],
        found.map(([, row]) => row),
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
const elsewhereRow = (each) => [
  String(each.partition),
  ...Array.from({ length: HERE }, () => number("–")),
  `on ${each.elsewhere}`,
];

const partitionRow = (each) => ({
  key: String(each.partition),
  cells: each.elsewhere ? elsewhereRow(each) : [
    String(each.partition),
    number(count(each.start_offset)),
    number(count(each.end_offset)),
    number(count(each.committed_offset)),
    number(count(each.durable_offset)),
    number(count(each.merged_offset)),
    number(bytes(each.size_bytes)),
    number(count(each.segments)),
    code(hex(each.checksum)),
    each.halted ? state(each.halted, "bad") : partitionsState([each]),
  ],
});

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

const buttons = (known, again) => [
  button("Change settings", () => alter(known.name, again)),
  button("More partitions", () => grow(known.name, known.partitions, again)),
  button("Delete", () => remove(known.name), "danger"),
];

const ASKED_MAX = 100;

// Of a topic in data groups, each partition by who has it: what nobody here can tell is `missing`.
async function ofPartition(topic, partition) {
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
  const pages = await Promise.all(own.slice(0, ASKED_MAX).map((each) => ofPartition(topic, each.partition)));
  return {
    files: pages.flatMap((each) => each.files),
    more: own.length > ASKED_MAX || pages.some((each) => each.more),
    missing: pages.flatMap((each) => each.missing),
  };
}

// Of a view its partitions; of others the history of their files.
async function load({ id }) {
  if (isInternal(id)) return null;
  const found = live.document?.topics?.[id] ? null : await get(`/${path("topics", id)}`);
  return found?.topic.base ? found : files(id);
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
        ...buttons(known, reload)),
      figures(known, own),
      panel("Partitions", table("Partitions",
        ["Partition", "First#", "End#", "Acknowledged#", "Synced here#", "On a majority#", "Size#", "Segments#",
          "Running checksum", "State"], own.map(partitionRow))),
      mirrored(name),
      keyed(known),
      panel("Segments, oldest first", timeline(name, data, own)),
      panel("Settings", settings.length ? pairs(settings) : none("All settings have their defaults.")),
    ];
  },
};
