// Asks the node, as any administrator's program does.

export class Problem extends Error {
  constructor(found) {
    super([found.detail, found.remedy && `Try: ${found.remedy}`].filter(Boolean).join(". "));
    this.leader = found.leader;
    this.code = found.code;
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
