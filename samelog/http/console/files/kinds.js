// What topics there are besides plain logs: views, mirrors, topics with keys, internal ones.

import { h, link, path } from "./dom.js";
import { live, rows } from "./live.js";
import { count, sum, time } from "./format.js";
import { code, figure, head, none, number, ofPartition, pairs, panel, state, table, text } from "./parts.js";
import { viewButtons } from "./topic-actions.js";

const INTERNAL = {
  __consumer_offsets: "What groups have committed, and their members, as Apache Kafka keeps it.",
  __transaction_state: "Transactional ids and their transactions, as Apache Kafka keeps them.",
};

export const isInternal = (name) => Object.hasOwn(INTERNAL, name) && !live.document?.topics?.[name];
const isKeyed = (each) => each.settings["dedup.key"] === "first";
const isCompacted = (each) => (each.settings["cleanup.policy"] ?? "").includes("compact");

// In a word or two.
export function kindOf(each) {
  const mirror = live.document.mirrors?.[each.name];
  if (mirror) return mirror.promoted_ms < 0 ? "mirror" : "promoted mirror";
  if (each.name === "__events") return "internal";
  if (isKeyed(each)) return "keys count once";
  return isCompacted(each) ? "compacted" : "log";
}

// --- rows of the list -----------------------------------------------------------------------------

const viewRow = (each) => ({
  name: each.name,
  kind: ["view of ", link(path("topic", each.base), each.base)],
  partitions: each.partitions,
  settings: text(code(each.query)),
});

const internalRow = (each) => ({
  name: each.name,
  kind: "internal",
  partitions: each.partitions,
  records: sum(each.feeds.map((feed) => feed.keys + feed.tombstones)),
  settings: "compacted",
});

// Topics that are no logs of their own, as the list of topics shows them.
export const otherTopics = () => [...rows("views").map(viewRow), ...rows("internal").map(internalRow)];

// --- what pages of topics with more than records have ----------------------------------------------

const SINCE = (at) => `${time(at)} UTC`;

export function mirrored(name) {
  const known = live.document.mirrors?.[name];
  if (!known) return null;
  const ended = known.promoted_ms >= 0;
  return panel(ended ? "It was a mirror" : "A mirror: only its source writes to it", pairs([
    ["Topic there", code(known.source_topic)],
    ["Cluster there", code(known.cluster_id)],
    ["Its log", code(known.log_id)],
    ["Clusters its records come from", known.origins.map((each, index) => [index ? ", " : "", code(each)])],
    ["Mirror since", SINCE(known.since_ms)],
    ...(ended ? [["Promoted", SINCE(known.promoted_ms)], ["Its own from offset", known.ends.map(count).join(", ")]]
      : []),
    ...(known.left_open ? [["Transactions whose end may be in a gap", count(known.left_open)]] : []),
  ]));
}

function indexState(each) {
  if (each.trouble) return state(each.trouble, "bad");
  return each.covered_to < each.end_offset ? state("catches up", "warn") : state("whole", "good");
}

const KEY_COUNTS = ["floor", "end_offset", "indexed_to", "covered_to", "entries", "agreed_blocks"];
const keyRow = (each) => ofPartition(each, KEY_COUNTS, indexState(each));

export function keyed(known) {
  if (!isKeyed(known)) return null;
  const own = rows("keys").filter((each) => each.topic === known.name);
  const columns = ["Partition", "Keys count from#", "End#", "Index up to#", "Known up to#", "Entries#",
    "Blocks agreed#", "Index here"];
  return panel("Keys: of each the first record is kept", table("Keys", columns, own.map(keyRow),
    "No partition with an index is on this node."));
}

// --- a schema -------------------------------------------------------------------------------------

const columnRow = (each) => ({
  key: each.name,
  cells: [code(each.name), code(each.type), each.nullable === false ? "no" : "yes"],
});

export const schemaPanel = (schema) => (schema ? panel(`Schema, version ${schema.version}`,
  table("Columns", ["Column", "Type", "May be null"], schema.columns.map(columnRow)),
  h("p", { class: "note" }, `Values are ${schema.format}. It was set ${SINCE(schema.setMs)}. Compatibility of the next `
    + `version: ${schema.compatibility}.`)) : null);

// --- one view -------------------------------------------------------------------------------------

const viewPart = (each) => ofPartition(each, ["start_offset", "end_offset", "unread"],
  number(each.newest_unread < 0 ? "–" : count(each.newest_unread)),
  each.elsewhere ? `on ${each.elsewhere}` : state("ok", "good"));

export function view(name, { topic, partitions, schema }) {
  return [
    head(name, link(`records?topic=${encodeURIComponent(name)}`, "Records"), ...viewButtons(name)),
    panel("A view: it stores nothing", pairs([
      ["Of", link(path("topic", topic.base), topic.base)],
      ["What passes", code(topic.query)],
      ["Id of its log", code(topic.topic_id)],
    ])),
    schemaPanel(schema),
    panel("Partitions", table("Partitions", ["Partition", "First#", "End#", "Not to be read#", "The newest of them#",
      "State"], partitions.map(viewPart))),
  ];
}

// --- an internal topic ----------------------------------------------------------------------------

const feedRow = (each) => ofPartition(each, ["end_offset", "keys", "tombstones"]);

export function internal(name) {
  const known = live.document.internal?.[name];
  if (!known) return [head(name), none("Nothing is in it yet.")];
  const total = (field) => count(sum(known.feeds.map((each) => each[field])));
  return [
    head(name),
    h("div", { class: "figures" },
      figure("keys", total("keys")),
      figure("tombstones", total("tombstones")),
      figure("partitions", count(known.partitions), `${count(known.feeds.length)} have records`)),
    panel("An internal topic: made from the replicated state", h("p", { class: "note" },
      `${INTERNAL[name]} It can be read only, by Kafka's clients.`)),
    panel("Partitions with records", table("Partitions", ["Partition", "End#", "Keys#", "Tombstones#"],
      known.feeds.map(feedRow))),
  ];
}
