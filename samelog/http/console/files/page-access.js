// Certificates and when they expire, and who may do what.

import { h } from "./dom.js";
import { now, one } from "./live.js";
import { get } from "./api.js";
import { count, time } from "./format.js";
import { chip, code, empty, head, number, panel, state, table } from "./parts.js";
import { meter } from "./charts.js";
import { me } from "./actions.js";

const DAY_MS = 86_400_000;
const YEAR_DAYS = 365;

function certificate(each) {
  const days = Math.floor((each.expires_ms - now()) / DAY_MS);
  const tone = days < 2 ? "bad" : days < 14 ? "warn" : "good";
  const left = each.expires_ms < 0 ? state("cannot be read", "bad") : state(days < 0 ? "expired" : `${count(days)} days left`, tone);
  return { key: each.name, cells: [each.name, left, meter(days / YEAR_DAYS, `${count(days)} days left`, tone), time(each.expires_ms)] };
}

const list = (found) => (found.length ? found.map((each, index) => [index ? " " : "", code(each)]) : "–");

export default {
  title: () => "Access",
  load: () => get("/access"),
  view: ({ data }) => {
    if (!data) return [head("Access"), empty("Asking the node.")];
    return [head("Access"),
      h("p", { class: "note" }, "You are ", code(me.identity), me.may_change ? ", an administrator: pages have buttons for what you may change." : ", and may look, but change nothing."),
      panel(`Certificates of ${one("cluster").node}`, table("Certificates", ["Certificate", "Left", "Of a year", "Expires"], data.certificates.map(certificate))),
      panel("Who may do what", table("Grants", ["Identity", "Admin", "Publishes sessions", "to topics", "with dedup ids", "Subscribes to", "with groups"], data.grants.map((each, index) => ({
        key: `${index}`, cells: [code(each.identity), each.admin ? chip("admin", "accent") : "–", list(each.publish_sessions), list(each.publish_topics), list(each.publish_dedup_ids), list(each.subscribe_topics), list(each.subscribe_groups)],
      })), "Nobody has a grant: only members of the cluster connect."))];
  },
};
