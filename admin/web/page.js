// What the page does: asks the admin API every two seconds and writes what it says. Every text that comes from a rule, a
// model or an engine is set as text, never as markup.
"use strict";

const API = "/netlox/v1";
const EACH_MS = 2000;
const RECEIPTS = 25;
// The rungs between a profile and exact routing, as kvexactstatus names them.
const LADDER = ["PROFILE_VALIDATED", "TOKEN_PARITY_VERIFIED", "ENGINE_HASH_ATTESTED", "READY"];
const TRUST = ["unknown", "trusted", "doubted", "load_only"];

const by = (id) => document.getElementById(id);
let paused = false;
let before = null;

/** An element with a class and children, which are elements or texts. */
function element(name, kind, ...children) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : String(child)));
  return made;
}

/** The answer of a path, or null where this gateway or this rule has none. */
async function ask(path) {
  const answer = await fetch(API + path, { headers: { Accept: "application/json" } });
  if (answer.status === 404 || answer.status === 412) return null;
  const body = await answer.json();
  const isReadiness = path === "/status/ready" && answer.status === 503;
  if (!answer.ok && !isReadiness) throw new Error(body.result || `${path} answers ${answer.status}`);
  return body;
}

const whole = new Intl.NumberFormat("en");
const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
const millis = (micros) => (micros ? `${(micros / 1000).toFixed(micros < 10000 ? 2 : 0)} ms` : "–");
const permille = (value) => (value === null || value === undefined ? "–" : `${(value / 10).toFixed(1)} %`);
const sum = (object) => Object.values(object || {}).reduce((all, one) => all + one, 0);

/** The bucket of a histogram that holds a part of all its counts, by its upper bound. */
function quantile(histogram, part) {
  const all = sum(histogram.counts);
  if (!all) return "–";
  let below = 0;
  for (let at = 0; at < histogram.counts.length; at += 1) {
    below += histogram.counts[at];
    if (below >= part * all) {
      const bound = histogram.bounds_us[at];
      return bound === undefined ? "over 60 s" : `≤ ${bound >= 1000000 ? `${bound / 1000000} s` : `${bound / 1000} ms`}`;
    }
  }
  return "–";
}

/** What came a second since the answer before; null at first, and after a restart. */
function rate(now, then, seconds) {
  if (then === undefined || then === null || seconds <= 0 || now < then) return null;
  return (now - then) / seconds;
}

function tiles(now, kv, seconds) {
  const persec = rate(now.requests, before && before.requests, seconds);
  const index = kv && kv.index;
  const shown = [
    ["Requests", number(now.requests), "requests"],
    ["Requests a second", persec === null ? "–" : persec.toFixed(1), "rate"],
    ["In flight", number(now.active), "active"],
    ["Client connections", number(now.clients), "clients"],
    ["First byte, half", quantile(now.first_byte, 0.5), "p50"],
    ["First byte, 99 of 100", quantile(now.first_byte, 0.99), "p99"],
    ["Blocks known", index ? number(index.blocks) : "–", "blocks"],
    ["Room for blocks", index ? number(index.capacity) : "–", "capacity"],
  ];
  by("tiles").replaceChildren(...shown.map(([name, value, id]) => {
    const told = element("dd", "", value);
    told.id = `tile-${id}`;
    return element("div", "", element("dt", "", name), told);
  }));
}

/** The word of an endpoint's health, with its colour. */
function health(endpoint) {
  if (endpoint.draining) return ["draining", "warn"];
  if (endpoint.probed_down) return ["down", "bad"];
  if (endpoint.ejected) return ["ejected", "bad"];
  return endpoint.available ? ["up", "good"] : ["out", "bad"];
}

const BREAKER = { closed: "good", half_open: "warn", open: "bad" };
// By the number of `ep_role`.
const ROLES = ["normal", "prefill", "decode", "encode"];
const FAITH = { trusted: "good", doubted: "warn", load_only: "bad" };

function cell(label, ...children) {
  const made = element("td", "", ...children);
  made.dataset.label = label;
  if (made.textContent === "–") made.className = "none";
  return made;
}

function badge(text, kind) {
  return element("span", `badge ${kind || ""}`, text);
}

/** One endpoint's row: `share` is its part of the rule's requests since the answer before. */
function endpointRow(endpoint, share, told) {
  const bar = element("span");
  bar.style.width = `${Math.round(share.part * 100)}%`;
  const flow = element("span", "flow", bar);
  flow.setAttribute("aria-hidden", "true");
  const load = endpoint.load || {};
  const ranks = told ? told.ranks : [];
  const blocks = ranks.reduce((all, rank) => all + (rank.blocks.gpu || 0), 0);
  const standing = told && told.fence ? badge(told.fence, "bad") : [...new Set(ranks.map((rank) => rank.standing))].join(", ");
  const trust = told ? told.trust : null;
  const address = cell("Endpoint", endpoint.endpoint);
  address.className = "name";
  return element("tr", "",
    address,
    cell("Role", ROLES[endpoint.ep_role] || endpoint.ep_role),
    cell("Health", badge(...health(endpoint))),
    cell("Breaker", endpoint.breaker ? badge(endpoint.breaker, BREAKER[endpoint.breaker]) : "–"),
    cell("In flight", number(endpoint.in_flight)),
    cell("Engine runs / waits", endpoint.load ? `${number(load.running)} / ${number(load.waiting)}` : "–"),
    cell("Cache used", permille(load.kv_use_permille)),
    cell("Blocks", told ? number(blocks) : "–"),
    cell("Standing", told ? standing || "–" : "–"),
    cell("Trust", trust ? badge(`${trust.state} ${trust.agreed}/${trust.judged}`, FAITH[trust.state]) : "–"),
    cell("Answers", number(sum(endpoint.answers))),
    cell("Flow", share.text, flow));
}

const COLUMNS = ["Endpoint", "Role", "Health", "Breaker", "In flight", "Engine runs / waits", "Cache used", "Blocks",
  "Standing", "Trust", "Answers", "Flow"];

/** The part that each endpoint took of what came since the answer before. */
function shares(rule, seconds) {
  const old = before && before.rules.find((one) => one.service === rule.service);
  const rates = rule.endpoints.map((endpoint) => {
    const then = old && old.endpoints.find((one) => one.endpoint === endpoint.endpoint);
    return rate(sum(endpoint.answers), then && sum(then.answers), seconds);
  });
  const all = rates.reduce((total, one) => total + (one || 0), 0);
  return rates.map((one) => ({
    part: all > 0 && one ? one / all : 0,
    text: one === null ? "–" : `${one.toFixed(1)}/s`,
  }));
}

function gateLine(gate) {
  if (!gate) return null;
  const most = gate.effective_limit === null ? "no ceiling" : number(gate.effective_limit);
  const queue = `gate ${gate.mode}: ${number(gate.inflight)} in flight of ${most}, ${number(gate.queued)} waiting of ` +
    `${number(gate.max_queue_depth)}, ${gate.adapt_state}`;
  return element("p", "facts gate", queue);
}

function exactLine(exact) {
  if (!exact) return null;
  const misses = Object.entries(exact.misses).sort((a, b) => b[1] - a[1])
    .map(([word, count]) => `${word} ${number(count)}`).join(", ");
  const found = exact.prompt_tokens ? ` · ${((100 * exact.predicted_tokens) / exact.prompt_tokens).toFixed(1)} % of their ` +
    `${number(exact.prompt_tokens)} prompt tokens expected in caches, ${number(exact.cached_tokens)} told` : "";
  return element("p", "facts exact", `${number(exact.hits)} by blocks${found}${misses ? ` · else: ${misses}` : ""}`);
}

/** Rungs of a binding that is proven step by step; where it has none, how far its endpoints are trusted. */
function ladder(rule, status, told) {
  if (!rule.exact) return null;
  const rows = status && status.kvExactStatusAttr;
  if (rows && rows.length) {
    return element("div", "", element("h4", "", "Readiness"), ...rows.map((row) => {
      const at = LADDER.indexOf(row.enforcedState);
      const rungs = LADDER.map((rung, place) =>
        element("li", place === at ? "now done" : place < at ? "done" : "", rung));
      const state = at < 0 ? [element("li", "now", row.enforcedState)] : [];
      const why = row.reasonCodes.length ? element("p", "facts", row.reasonCodes.join(", ")) : null;
      return element("div", "", element("ul", "ladder", ...state, ...rungs), why);
    }));
  }
  const states = told.map((one) => one.trust.state);
  const rungs = TRUST.map((word) => {
    const count = states.filter((state) => state === word).length;
    return element("li", count ? "now" : "", `${word} ${count}`);
  });
  const legs = [...new Set(told.flatMap((one) => one.trust.cures))];
  return element("div", "", element("h4", "", "Trust of its endpoints"), element("ul", "ladder", ...rungs),
    legs.length ? element("p", "facts", legs.join("; ")) : null);
}

function ruleCard(rule, told, status, seconds) {
  const where = `${rule.ip.includes(":") ? `[${rule.ip}]` : rule.ip}:${rule.port}${rule.path ? ` ${rule.path}` : ""}`;
  const kind = rule.exact ? "exact" : "";
  const facts = [where, rule.host, rule.model && `model ${rule.model}`, rule.engine, `sel ${rule.selector}`, kind,
    rule.pairs && "prefill and decode", `${number(sum(rule.own_answers))} answers of its own`];
  const part = shares(rule, seconds);
  const rows = rule.endpoints.map((endpoint, at) =>
    endpointRow(endpoint, part[at], told.find((one) => one.ep_idx === at)));
  const head = element("tr", "", ...COLUMNS.map((name) => {
    const made = element("th", "", name);
    made.scope = "col";
    return made;
  }));
  const table = element("table", "endpoints", element("thead", "", head), element("tbody", "", ...rows));
  const card = element("article", "rule",
    element("div", "head", element("h3", "", rule.name || rule.id),
      rule.enabled ? null : badge("switched off", "warn")),
    element("p", "facts", facts.filter(Boolean).join(" · ")),
    gateLine(rule.gate), exactLine(rule.exact), ladder(rule, status, told),
    element("h4", "", "Endpoints"), scrolling(table, `Endpoints of ${rule.name || rule.id}`));
  card.dataset.service = rule.service;
  return card;
}

function scrolling(table, label) {
  const made = element("div", "scroll", table);
  made.tabIndex = 0;
  made.setAttribute("role", "region");
  made.setAttribute("aria-label", label);
  return made;
}

/** Where a request went, both legs of a pair. */
function target(receipt) {
  const prefill = receipt.pair ? `${receipt.pair.prefill} → ` : "";
  return `${prefill}${receipt.endpoint || "–"}`;
}

function decisions(receipts) {
  const rows = [...receipts].reverse().map((receipt) => {
    const kind = receipt.status >= 500 ? "bad" : receipt.status >= 400 ? "warn" : "good";
    const time = new Date(receipt.time_ms).toISOString().slice(11, 19);
    const cells = [time, receipt.rule || receipt.service, receipt.model || "–", target(receipt),
      receipt.reason || receipt.outcome].map((text) => element("td", "name", text));
    return element("tr", "", ...cells, element("td", kind, receipt.status || receipt.outcome),
      element("td", "number", millis(receipt.first_byte_us)), element("td", "number", millis(receipt.total_us)));
  });
  by("decisions").tBodies[0].replaceChildren(...rows);
}

function state(ready) {
  const shown = by("state");
  shown.textContent = ready.ready ? "ready" : `not ready: ${ready.reasons.join(", ")}`;
  shown.className = `badge ${ready.ready ? "good" : "bad"}`;
  by("warnings").hidden = ready.warnings.length === 0;
  by("warnings").replaceChildren(...ready.warnings.map((text) => element("li", "", text)));
}

/** What kvexactstatus says of a rule with exact routing; null where it is not served. */
function statusOf(rule) {
  if (!rule.exact) return null;
  const path = `/config/loadbalancer/externalipaddress/${encodeURIComponent(rule.ip)}/port/${rule.port}` +
    `/protocol/tcp/kvexactstatus`;
  return ask(`${path}?model_name=${encodeURIComponent(rule.model)}`).catch(() => null);
}

async function look() {
  const [now, ready, receipts, kv] = await Promise.all([
    ask("/status/overview"), ask("/status/ready"), ask(`/receipts?last=${RECEIPTS}`),
    ask("/config/ai/kv/status").catch(() => null),
  ]);
  const statuses = await Promise.all(now.rules.map(statusOf));
  const seconds = before ? (now.time_ms - before.time_ms) / 1000 : 0;
  const told = (kv && kv.endpoints) || [];
  state(ready);
  by("build").textContent = `${now.build} · generation ${now.generation} · shards ${now.shards}`;
  tiles(now, kv, seconds);
  const cards = now.rules.map((rule, at) =>
    ruleCard(rule, told.filter((one) => one.service_id === rule.service), statuses[at], seconds));
  by("rules").replaceChildren(...(cards.length ? cards : [element("p", "quiet", "No rule is in force.")]));
  decisions(receipts.receipts);
  before = now;
  document.documentElement.dataset.seen = String(Number(document.documentElement.dataset.seen || 0) + 1);
}

async function again() {
  if (!paused && !document.hidden) {
    try {
      await look();
    } catch (fault) {
      by("state").textContent = `no answer: ${fault.message}`;
      by("state").className = "badge bad";
      before = null;
    }
  }
  setTimeout(again, EACH_MS);
}

by("pause").addEventListener("click", () => {
  paused = !paused;
  before = null;
  by("pause").textContent = paused ? "Go on" : "Pause";
  by("pause").setAttribute("aria-pressed", String(paused));
});

by("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

again();
