// Changes of the cluster: each is asked for in a dialog first, and the node's audit log has it.

import { h, render } from "./dom.js";
import { post } from "./api.js";
import { choices } from "./parts.js";

const dialog = () => document.getElementById("dialog");
export const me = { may_change: false, identity: "", node: "" };

export const button = (label, action, tone = "") => (me.may_change
  ? h("button", { type: "button", class: `action ${tone}`, onclick: action }, label) : null);

function field(each) {
  const { name, label, options, hint, type = "text", value = "", required = false, min, pattern } = each;
  const common = { name, id: `field-${name}`, required };
  const input = options
    ? h("select", common, choices(options, value))
    : h("input", { ...common, type, value, min, pattern, autocomplete: "off", spellcheck: "false" });
  return h("p", { class: "field" },
    h("label", { for: common.id }, label), input, hint ? h("small", {}, hint) : null);
}

// Asks {title, text, fields, confirm, danger}; `request` makes [path, body] of the fields' values, `requests` several,
// which follow each other.
export function ask({ title, text, fields = [], confirm, danger = false, request, requests, done }) {
  const all = requests ?? ((given) => [request(given)]);
  const problem = h("p", { class: "problem", role: "alert" });
  const submit = h("button", { type: "submit", class: danger ? "action danger" : "action primary" }, confirm);
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    submit.disabled = true;
    render(problem, "");
    try {
      let found = null;
      for (const each of all(Object.fromEntries(new FormData(form)))) found = await post(...each);
      dialog().close();
      document.getElementById("said").textContent = `${title}: done`;
      done?.(found);
    } catch (error) {
      render(problem, error.message);
    } finally {
      submit.disabled = false;
    }
  } },
  h("h2", { id: "dialog-title" }, title), text ? h("p", {}, text) : null, fields.map(field), problem,
  h("p", { class: "note" }, `This is done as ${me.identity}, and written to the audit log.`),
  h("div", { class: "buttons" },
    h("button", { type: "button", class: "action", onclick: () => dialog().close() }, "Cancel"), submit));
  dialog().replaceChildren(form);
  dialog().showModal();
}
