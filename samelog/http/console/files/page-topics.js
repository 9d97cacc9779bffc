// Topics, and one topic: partitions, settings, segments and what became of them.

import { h, link, path, s } from "./dom.js";
import { byTopic, live, now, rate, rates, rows } from "./live.js";
import { get } from "./api.js";
import { ago, bytes, count, hex, perSecond, plural, sum, time } from "./format.js";
import { chip, code, empty, figure, filtered, head, number, pairs, panel, state, table } from "./parts.js";
import { spark } from "./charts.js";
import { ask, button } from "./actions.js";

const SETTING = { label: "Settings, as name=value, separated by spaces", name: "settings", hint: "Such as retention.ms=86400000 segment.bytes=134217728" };
const settingsOf = (text) => Object.fromEntries(text.split(/\s+/).filter(Boolean).map((each) => {
  const at = each.indexOf("=");
  return at < 0 ? [each, ""] : [each.slice(0, at), each.slice(at + 1)];
}));

const create = () => ask({
  title: "Create a topic", confirm: "Create",
  fields: [
    { name: "topic", label: "Name", required: true, pattern: "[a-zA-Z0-9._\\-]{1,249}" },
    { name: "partitions", label: "Partitions", type: "number", min: 1, value: 1, required: true }, SETTING,
  ],
  request: (given) => ["/topics", { topic: given.topic, partitions: Number(given.partitions), settings: settingsOf(given.settings) }],
  done: (found) => { location.hash = `#/${path("topic", found.name)}`; },
});

const alter = (name, again) => ask({
  title: `Change settings of ${name}`, confirm: "Change",
  fields: [SETTING, { name: "unset", label: "Back to the default: names, separated by spaces" }],
  request: (given) => [`/topics/${encodeURIComponent(name)}/alter`, { settings: settingsOf(given.settings), unset: given.unset.split(/\s+/).filter(Boolean) }],
  done: again,
});

const grow = (name, partitions, again) => ask({
  title: `More partitions for ${name}`, text: "A topic never gets fewer again, and keys may go to other partitions than before.", confirm: "Add",
  fields: [{ name: "partitions", label: "Partitions in all", type: "number", min: partitions, value: partitions + 1, required: true }],
  request: (given) => [`/topics/${encodeURIComponent(name)}/partitions`, { partitions: Number(given.partitions) }], done: again,
});

const remove = (name) => ask({
  title: `Delete ${name}`, text: "All its records are gone for good, on every node. Write its name to confirm.", confirm: "Delete for good", danger: true,
  fields: [{ name: "confirmed", label: "Name", required: true, pattern: name.replace(/[.]/g, "[.]") }],
  request: () => [`/topics/${encodeURIComponent(name)}/delete`, {}], done: () => { location.hash = "#/topics"; },
});

const state_ = (found) => {
  const halted = found.filter((each) => each.halted).length;
  const missing = found.filter((each) => each.wanted_offset > each.end_offset).length;
  if (halted) return state(`${halted} halted`, "bad");
  return missing ? state(`${missing} lack records`, "bad") : state("moves", "good");
};

export const topics = {
  title: () => "Topics",
  view: ({ redraw }) => {
    const parts = byTopic();
    const [input, found] = filtered("topics", rows("topics"), (each) => each.name, redraw);
    return [head("Topics", input, button("Create a topic", create, "primary")),
      table("Topics", ["Topic", "Partitions#", "Records kept#", "Size#", "Rate#", "Last minutes", "Settings", "State"], found.map((each) => {
        const own = parts.get(each.name) ?? [];
        return { key: each.name, cells: [link(path("topic", each.name), each.name), number(count(each.partitions)),
          number(count(sum(own.map((one) => one.end_offset - one.start_offset)))), number(bytes(sum(own.map((one) => one.size_bytes)))),
          number(perSecond(rate(`topic ${each.name}`))), spark(rates(`topic ${each.name}`), "records per second"),
          Object.keys(each.settings).length ? plural(Object.keys(each.settings).length, "setting") : "defaults", state_(own)] };
      }), "There are no topics yet.")];
  },
};

// --- segments -------------------------------------------------------------------------------------

const FATES = [["growing", "grows"], ["kept", "kept"], ["copied", "kept, with a copy"], ["archived", "archived"], ["archived-copied", "archived, with a copy"]];

function fate(file, last) {
  if (file.archived_ms >= 0) return file.copied_ms >= 0 ? "archived-copied" : "archived";
  if (file === last) return "growing";
  return file.copied_ms >= 0 ? "copied" : "kept";
}

function lane(files, partition) {
  const own = files.filter((each) => each.partition === partition);
  if (!own.length) return null;
  const whole = sum(own.map((each) => Math.max(each.size_bytes, 1)));
  let at = 0;
  const drawn = own.map((each) => {
    const width = Math.max(0.6, (each.size_bytes / whole) * 100);
    const kind = fate(each, own.at(-1));
    const told = `offsets ${count(each.first_offset)} to ${count(each.next_offset)}, ${bytes(each.size_bytes)}, ${time(each.first_ms)}, ${FATES.find(([name]) => name === kind)[1]}`;
    const bar = s("rect", { class: `segment ${kind}`, x: at.toFixed(2), y: 0, width: Math.max(0.3, width - 0.3).toFixed(2), height: 14 }, s("title", {}, told));
    at += width;
    return bar;
  });
  return h("div", { class: "lane", "data-key": String(partition) }, h("span", { class: "label" }, partition),
    s("svg", { viewBox: `0 0 ${at.toFixed(2)} 14`, preserveAspectRatio: "none", role: "img", "aria-label": `partition ${partition}: ${plural(own.length, "segment")}, ${bytes(whole)}` }, drawn),
    h("span", { class: "size" }, bytes(whole)));
}

function timeline(data, partitions) {
  if (!data) return empty("Asking the node.");
  return [h("ul", { class: "legend" }, FATES.map(([name, text]) => h("li", {}, h("span", { class: `swatch ${name}` }), text))),
    h("div", { class: "lanes" }, partitions.map((each) => lane(data.files, each.partition))),
    data.more ? h("p", { class: "note" }, "These are the oldest segments: there are more than are shown.") : null];
}

export const topic = {
  title: (params) => params.id,
  live: true,
  load: (params) => get("/log-history", { topic: params.id }),
  view: ({ params, data, reload }) => {
    const name = params.id;
    const known = live.document.topics?.[name];
    if (!known) return [head(name), empty("There is no such topic.")];
    const own = byTopic().get(name) ?? [];
    const total = (field) => sum(own.map((each) => each[field]));
    return [
      head(name, link(`records?topic=${encodeURIComponent(name)}`, "Records"), link(`merge?topic=${encodeURIComponent(name)}`, "Merge order"),
        button("Change settings", () => alter(name, reload)), button("More partitions", () => grow(name, known.partitions, reload)), button("Delete", () => remove(name), "danger")),
      h("div", { class: "figures" },
        figure("records kept", count(total("end_offset") - total("start_offset")), `${count(total("end_offset"))} in all`),
        figure("size on this node", bytes(total("size_bytes")), plural(total("segments"), "segment")),
        figure("rate", perSecond(rate(`topic ${name}`)), "acknowledged", spark(rates(`topic ${name}`), "records per second")),
        figure("partitions", count(known.partitions), code(known.topic_id))),
      panel("Partitions", table("Partitions", ["Partition", "First#", "End#", "Acknowledged#", "Synced here#", "On a majority#", "Size#", "Segments#", "Running checksum", "State"], own.map((each) => ({
        key: String(each.partition),
        cells: [String(each.partition), number(count(each.start_offset)), number(count(each.end_offset)), number(count(each.committed_offset)), number(count(each.durable_offset)),
          number(count(each.merged_offset)), number(bytes(each.size_bytes)), number(count(each.segments)), code(hex(each.checksum)),
          each.halted ? state(each.halted, "bad") : state_([each])],
      })))),
      panel("Segments, oldest first", timeline(data, own)),
      panel("Settings", Object.keys(known.settings).length ? pairs(Object.entries(known.settings).map(([key, value]) => [code(key), code(value)])) : empty("All settings have their defaults.")),
      data?.files?.length ? h("p", { class: "note" }, `The newest segment began ${ago(now(), data.files.at(-1).first_ms)}.`) : null,
    ];
  },
};
