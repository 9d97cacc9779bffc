// Certificates and when they expire, and who may do what.

import { h } from "./dom.js";
import { now, one } from "./live.js";
import { get } from "./api.js";
import { count, time } from "./format.js";
import { chip, code, empty, head, list, panel, state, table } from "./parts.js";
import { meter } from "./charts.js";
import { me } from "./actions.js";

const DAY_MS = 86_400_000;
const YEAR_DAYS = 365;

function left(each, days, tone) {
  if (each.expires_ms < 0) return state("cannot be read", "bad");
  return state(days < 0 ? "expired" : `${count(days)} days left`, tone);
}

function certificateRow(each) {
  const days = Math.round((each.expires_ms - now()) / DAY_MS);
  const tone = days < 2 ? "bad" : days < 14 ? "warn" : "good";
  const year = meter(days / YEAR_DAYS, `${count(days)} days left`, tone);
  return { key: each.name, cells: [each.name, left(each, days, tone), year, time(each.expires_ms)] };
}

const grantRow = (each, index) => ({
  key: String(index),
  cells: [
    code(each.identity),
    each.admin ? chip("admin", "accent") : "–",
    list(each.publish_sessions.map(code)),
    list(each.publish_topics.map(code)),
    list(each.publish_dedup_ids.map(code)),
    list(each.subscribe_topics.map(code)),
    list(each.subscribe_groups.map(code)),
    list((each.mirror ?? []).map(code)),
  ],
});

// --- what Kafka's tools have set -------------------------------------------------------------------

const aclRow = (each, index) => ({
  key: String(index),
  cells: [
    code(each.principal),
    each.is_allowed ? "may" : state("may not", "warn"),
    each.operation,
    each.resource,
    code(each.is_prefix ? `${each.name}*` : each.name),
    each.host === "*" ? "anywhere" : code(each.host),
  ],
});

const ACLS = ["Principal", "Rule", "What", "Of", "Called", "From"];

// A node of before tells neither.
const replicated = ({ acls = [], users = [] }) => panel("What Kafka's tools have set, the same on every node",
  table("ACLs", ACLS, acls.map(aclRow), "No ACL: only grants count."),
  users.length ? h("p", { class: "note" }, "Users with a password: ", list(users.map(code)).content) : null);

export default {
  title: () => "Access",
  load: () => get("/access"),
  view: ({ data }) => {
    if (!data) return [head("Access"), empty("Asking the node.")];
    const rights = me.may_change
      ? ", an administrator: pages have buttons for what you may change." : ", and may look, but change nothing.";
    return [
      head("Access"),
      h("p", { class: "note" }, "You are ", code(me.identity), rights),
      panel(`Certificates of ${one("cluster").node}`, table("Certificates",
        ["Certificate", "Left", "Of a year", "Expires"], data.certificates.map(certificateRow))),
      panel("Who may do what", table("Grants",
        ["Identity", "Admin", "Publishes sessions", "to topics", "with dedup ids", "Subscribes to", "with groups",
          "Mirrors"],
        data.grants.map(grantRow), "Nobody has a grant: only members of the cluster connect.")),
      replicated(data),
    ];
  },
};
