// Asks the node, as any administrator's program does.

const elsewhere = (leader) => leader && `Open the console of ${leader}, or samelog ui, which asks the leader`;

class Problem extends Error {
  constructor({ detail, remedy, leader }) {
    super([detail, remedy && `Try: ${remedy}`, elsewhere(leader)].filter(Boolean).join(". "));
  }
}

async function answer(response) {
  const found = await response.json().catch(() => ({ detail: `the answer has status ${response.status}` }));
  if (!response.ok) throw new Problem(found);
  return found;
}

export async function get(place, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  const search = new URLSearchParams(given).toString();
  return answer(await fetch(search ? `${place}?${search}` : place));
}

export async function post(place, body) {
  const headers = { "Content-Type": "application/json" };
  return answer(await fetch(place, { method: "POST", headers, body: JSON.stringify(body) }));
}
