// The page before a gateway with two rules and simulated engines. Owns its processes and ends them; asserts no timing.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const { WARMPATH, BROWSER, OUT } = process.env;
const MARKUP = '<img src=x onerror="document.title=1">';
const started = [];

function start(...given) {
  const child = spawn(WARMPATH, given, { stdio: ["ignore", "ignore", "inherit"] });
  started.push(child);
}

async function port() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port: free } = server.address();
  await new Promise((done) => server.close(done));
  return free;
}

async function until(what, probe) {
  for (let tries = 0; tries < 600; tries += 1) {
    const found = await Promise.resolve().then(probe).catch(() => null);
    if (found) return found;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`never: ${what}`);
}

const get = async (url) => (await fetch(url)).json();

function body(name, at, engines, more) {
  return {
    serviceArguments: { externalIP: "127.0.0.1", port: at, protocol: "tcp", mode: 4, name, sel: 4, ...more },
    endpoints: engines.map((engine) => ({ endpointIP: "127.0.0.1", targetPort: engine, weight: 1 })),
  };
}

/** A gateway with an exact rule and one by load, whose name is markup, and one endpoint that nobody listens on. */
async function fleet(folder) {
  const [first, second, nobody, exact, plain, admin, events] = await Promise.all(Array.from({ length: 7 }, port));
  const quick = ["--model", "llama", "--ttft", "1", "--itl", "1", "--tokens", "4"];
  start("engine", "--port", first, ...quick, "--kv-events", `tcp://*:${events}`);
  start("engine", "--port", second, ...quick);
  const rules = [
    body("exact", exact, [first], {
      model_name: "llama", kvExactMode: 3, kvHashAlgo: "tokens", kvZmqPort: events, kvWarmupSec: 0,
    }),
    body(MARKUP, plain, [second, nobody], { sel: 9, cb_enable: true, fc_mode: "enforce", fc_max_outstanding: 50 }),
  ];
  writeFileSync(join(folder, "rules.json"), JSON.stringify(rules));
  start("serve", "--rules", join(folder, "rules.json"), "--admin", `127.0.0.1:${admin}`, "--shards", "1",
    "--state-dir", join(folder, "state"), "--socket", join(folder, "ctl.sock"));
  const root = `http://127.0.0.1:${admin}`;
  await until("the gateway is ready", () => get(`${root}/netlox/v1/status/ready`).then((is) => is.ready));
  return { root, exact, plain };
}

async function traffic({ exact, plain }) {
  for (let turn = 0; turn < 12; turn += 1) {
    const at = turn % 2 ? exact : plain;
    const prompt = Array.from({ length: 64 }, (_, token) => 1 + token + (turn % 3));
    await fetch(`http://127.0.0.1:${at}/v1/completions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model: "llama", prompt, max_tokens: 4 }),
    }).then((answer) => answer.text());
  }
}

/** After the event core saw what the exact rule's engine stored. */
function stored({ root }) {
  return until("blocks are known", () => get(`${root}/netlox/v1/config/ai/kv/status`).then((kv) => kv.index.blocks > 0));
}

/** The page after it asked twice more. */
async function seen(page) {
  const looks = () => page.evaluate(() => Number(document.documentElement.dataset.seen || 0));
  const from = await looks();
  await until("the page asked again", async () => (await looks()) >= from + 2);
}

const digits = (text) => Number(text.replaceAll(/[^0-9]/g, ""));

async function figures(page, root) {
  await seen(page);
  const [now, kv, { receipts }] = await Promise.all([
    get(`${root}/netlox/v1/status/overview`), get(`${root}/netlox/v1/config/ai/kv/status`),
    get(`${root}/netlox/v1/receipts?last=25`),
  ]);
  const tile = async (name) => digits(await page.textContent(`#tile-${name}`));
  assert.ok(now.requests >= 12, "traffic came through");
  assert.equal(await tile("requests"), now.requests);
  assert.equal(await tile("active"), now.active);
  assert.equal(await tile("clients"), now.clients);
  assert.equal(await tile("blocks"), kv.index.blocks);
  assert.equal(await tile("capacity"), kv.index.capacity);
  const metrics = await (await fetch(`${root}/netlox/v1/metrics`)).text();
  const counted = [...metrics.matchAll(/^warmpath_shard_events_total\{.*event="requests"\} (\d+)$/gm)];
  assert.equal(counted.reduce((all, [, count]) => all + Number(count), 0), now.requests, "and as metrics count");
  for (const rule of now.rules) {
    const card = page.locator(`article[data-service="${rule.service}"]`);
    assert.equal(await card.locator("h3").textContent(), rule.name);
    const rows = card.locator("tbody tr");
    assert.equal(await rows.count(), rule.endpoints.length);
    for (const [at, endpoint] of rule.endpoints.entries()) {
      const cell = (label) => rows.nth(at).locator(`td[data-label="${label}"]`).textContent();
      assert.equal(await cell("Endpoint"), endpoint.endpoint);
      const answers = Object.values(endpoint.answers).reduce((all, one) => all + one, 0);
      assert.equal(digits(await cell("Answers")), answers);
      assert.equal(await cell("Breaker"), endpoint.breaker ?? "–");
      assert.equal(digits(await cell("In flight")), endpoint.in_flight);
    }
    if (rule.gate) {
      const line = await card.locator(".gate").textContent();
      assert.match(line, new RegExp(`^gate enforce: ${rule.gate.inflight} in flight of 50, ${rule.gate.queued} waiting`));
    }
    if (rule.exact) {
      assert.match(await card.locator(".exact").textContent(), new RegExp(`^${rule.exact.hits} by blocks( |$)`));
      assert.equal(await card.locator(".ladder").count(), 1, "a ladder, or the trust of its endpoints");
    }
  }
  const decided = page.locator("#decisions tbody tr");
  assert.equal(await decided.count(), receipts.length);
  const newest = receipts.at(-1);
  const told = await decided.first().locator("td").allTextContents();
  assert.deepEqual([told[1], told[3], told[5]], [newest.rule, newest.endpoint, String(newest.status)]);
}

/** WCAG's ratio between the text of an element and what is behind it. */
const contrast = (page, selector) => page.evaluate((wanted) => {
  const light = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map(Number).map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let behind = document.querySelector(wanted);
  const ink = getComputedStyle(behind).color;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const [a, b] = [light(ink), light(getComputedStyle(behind).backgroundColor)].sort((one, two) => two - one);
  return (a + 0.05) / (b + 0.05);
}, selector);

/** While requests come, the flow of the rule's one endpoint fills its bar and its rate is no zero. */
async function flows(browser, at) {
  const page = await browser.newPage();
  await page.goto(at.root);
  await seen(page);
  const { rules } = await get(`${at.root}/netlox/v1/status/overview`);
  const { service } = rules.find((rule) => rule.name === "exact");
  const cell = page.locator(`article[data-service="${service}"] td[data-label="Flow"]`);
  await until("the flow is shown", async () => {
    await traffic(at);
    const full = await cell.locator(".flow > span").evaluate((bar) => bar.style.width === "100%");
    return full && /^[\d.]+\/s/.test(await cell.textContent());
  });
  await page.close();
  console.log("flow: shown while requests come");
}

async function looks(browser, root, name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const asked = [];
  const faults = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (fault) => faults.push(String(fault)));
  page.on("console", (line) => line.type() === "error" && !/404|412/.test(line.text()) && faults.push(line.text()));
  await page.goto(root);
  await figures(page, root);
  const foreign = asked.filter((url) => !url.startsWith(root) && !url.startsWith("data:"));
  assert.deepEqual(foreign, [], "nothing is asked of anybody else");
  assert.equal(await page.title(), "warmpath", "no text became markup");
  assert.equal(await page.locator("main img").count(), 0);
  const width = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width[0] <= width[1], `no scrolling sideways: ${width}`);
  for (const selector of ["body", ".facts", ".badge.good", ".badge.bad", "th", "#pause"]) {
    const ratio = await contrast(page, selector);
    assert.ok(ratio >= 4.5, `${name}: ${selector} has a contrast of ${ratio.toFixed(2)}`);
  }
  await page.screenshot({ path: join(OUT, `${name}.png`), fullPage: true });
  await page.click("#theme");
  await page.click("#pause");
  assert.equal(await page.getAttribute("#pause", "aria-pressed"), "true");
  assert.deepEqual(faults, []);
  await context.close();
  console.log(`${name}: figures equal, no foreign request, no fault`);
}

const folder = mkdtempSync(join(tmpdir(), "warmpath-page-"));
let browser = null;
try {
  const at = await fleet(folder);
  await traffic(at);
  await stored(at);
  await traffic(at);
  browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox"] });
  await flows(browser, at);
  const desk = { viewport: { width: 1280, height: 900 } };
  const phone = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };
  await looks(browser, at.root, "light", { ...desk, colorScheme: "light" });
  await looks(browser, at.root, "dark", { ...desk, colorScheme: "dark" });
  await looks(browser, at.root, "phone-light", { ...phone, colorScheme: "light" });
  await looks(browser, at.root, "phone-dark", { ...phone, colorScheme: "dark" });
} finally {
  if (browser) await browser.close();
  for (const child of started) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}
