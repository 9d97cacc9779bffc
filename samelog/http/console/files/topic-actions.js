// What administrators do with topics, views and mirrors.

import { path } from "./dom.js";
import { live } from "./live.js";
import { ask, button } from "./actions.js";

const NAME = "[a-zA-Z0-9._\\-]{1,249}";
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

const withCopies = (body, copies) => (copies === "" ? body : { ...body, replication_factor: Number(copies) });
const goTo = (found) => { location.hash = `#/${path("topic", found.name)}`; };
const nameAgain = (name) => (
  { name: "confirmed", label: "Write its name to confirm", required: true, pattern: name.replace(/[.]/g, "[.]") });

export const create = () => ask({
  title: "Create a topic",
  confirm: "Create",
  fields: [
    { name: "topic", label: "Name", required: true, pattern: NAME },
    { name: "partitions", label: "Partitions", type: "number", min: 1, value: 1, required: true },
    { name: "copies", label: "Copies of each partition", type: "number", min: 1, hint: "Empty: one on every node." },
    SETTING,
  ],
  request: ({ topic, partitions, copies, settings }) => (
    ["/topics", withCopies({ topic, partitions: Number(partitions), settings: settingsOf(settings) }, copies)]),
  done: goTo,
});

export const createView = () => ask({
  title: "Create a view",
  text: "It stores nothing, and shows what passes of another topic, to whoever may read the view.",
  confirm: "Create",
  fields: [
    { name: "view", label: "Name", required: true, pattern: NAME },
    { name: "query", label: "What passes", required: true,
      hint: "Such as SELECT symbol, price FROM ticks WHERE price > 100" },
  ],
  request: ({ view, query }) => ["/views", { view, query }],
  done: goTo,
});

const alter = (name, again) => ask({
  title: `Change settings of ${name}`,
  confirm: "Change",
  fields: [
    SETTING,
    { name: "unset", label: "Back to the default: names, separated by spaces" },
    { name: "copies", label: "Copies of each partition", type: "number", min: 1,
      hint: "Empty: as they are. Only of topics that are not on every node." },
  ],
  request: ({ settings, unset, copies }) => (
    [`/${path("topics", name, "alter")}`, withCopies({ settings: settingsOf(settings), unset: words(unset) }, copies)]),
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

const ALL = "all";

const empty = (name, partitions, again) => {
  const every = Array.from({ length: partitions }, (_, each) => each);
  return ask({
    title: `Empty ${name}`,
    text: "What is in it now can be read no more, for good. Settings, sessions and offsets stay.",
    confirm: "Empty for good",
    danger: true,
    fields: [{ name: "partition", label: "Partition", options: [ALL, ...every], value: ALL }, nameAgain(name)],
    requests: ({ partition, confirmed }) => (partition === ALL ? every : [Number(partition)]).map((each) => (
      [`/${path("topics", name, "truncate")}`, { partition: each, confirm: confirmed }])),
    done: again,
  });
};

const remove = (name, text = "All its records are gone for good, on every node.") => ask({
  title: `Delete ${name}`,
  text,
  confirm: "Delete for good",
  danger: true,
  fields: [nameAgain(name)],
  request: ({ confirmed }) => [`/${path("topics", name, "delete")}`, { confirm: confirmed }],
  done: () => { location.hash = "#/topics"; },
});

const promote = (name, again) => ask({
  title: `Promote ${name}`,
  text: "It is a topic of its own from then on, for good. What was not mirrored yet never comes.",
  confirm: "Promote for good",
  danger: true,
  fields: [nameAgain(name)],
  request: ({ confirmed }) => ["/mirrors/promote", { topics: [name], confirm: confirmed }],
  done: again,
});

const GONE = "The view is gone for whoever reads it. The topic that it is of stays.";
export const viewButtons = (name) => [button("Delete", () => remove(name, GONE), "danger")];

// Of a mirror its source decides all but two things.
export function topicButtons({ name, partitions }, again) {
  const deleting = button("Delete", () => remove(name), "danger");
  if (live.document.mirrors?.[name]?.promoted_ms < 0) {
    return [button("Promote", () => promote(name, again), "danger"), deleting];
  }
  return [
    button("Change settings", () => alter(name, again)),
    button("More partitions", () => grow(name, partitions, again)),
    button("Empty", () => empty(name, partitions, again), "danger"),
    deleting,
  ];
}
