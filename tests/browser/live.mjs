// Opens a bisection's page in the system's Chromium while the search runs, and is the test's eyes: suspects must fall
// and the conclusion appear without a reload; nothing may be asked of another host, and the browser may complain of
// nothing. Screenshots of every theme and width are kept for people to look at.
//
//   node live.mjs --url http://127.0.0.1:8642/bisections/1 --out ../artefacts [--limit-s 900]
//
// Ends with one JSON line of what was seen, and status 0 only if all of it was right.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url)("axe-core");
const { values: options } = parseArgs({
  options: {
    url: { type: "string" },
    out: { type: "string" },
    "limit-s": { type: "string", default: "900" },
    chromium: { type: "string", default: process.env.CHROMIUM ?? "/usr/bin/chromium" },
  },
});
if (!options.url || !options.out) {
  console.error("usage: node live.mjs --url PAGE --out FOLDER [--limit-s S] [--chromium PATH]");
  process.exit(2);
}
mkdirSync(options.out, { recursive: true });

const THEMES = ["light", "dark"];
const WIDTHS = { phone: { width: 390, height: 844 }, desktop: { width: 1440, height: 900 } };
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

const failures = [];
const seen = { url: options.url, suspects: [], sentences: [], navigations: 0, requests: 0, screenshots: [] };

const browser = await chromium.launch({
  executablePath: options.chromium,
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-default-apps",
  ],
});

function guard(page, name) {
  const home = new URL(options.url).host;
  page.on("console", (message) => {
    if (message.type() === "error") failures.push(`${name}: console: ${message.text()}`);
  });
  page.on("pageerror", (error) => failures.push(`${name}: script: ${error.message}`));
  page.on("request", (request) => {
    seen.requests += 1;
    if (new URL(request.url()).host !== home) failures.push(`${name}: asked another host: ${request.url()}`);
  });
}

// The rules of accessibility are checked once, at the end: they take longer than some searches.
async function pictures(stage, rules) {
  for (const theme of THEMES) {
    for (const [kind, viewport] of Object.entries(WIDTHS)) {
      const name = `${stage}-${kind}-${theme}`;
      const context = await browser.newContext({ viewport, colorScheme: theme });
      const page = await context.newPage();
      guard(page, name);
      await page.goto(options.url, { waitUntil: "load" });
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      if (width > viewport.width) failures.push(`${name}: ${width} px wide on a screen of ${viewport.width}`);
      const found = rules.length === 0 ? { violations: [] } : await page.evaluate(`${axe.source}; axe.run({ runOnly: ${JSON.stringify(rules)} })`);
      for (const violation of found.violations) {
        failures.push(`${name}: ${violation.id}: ${violation.nodes[0].html.slice(0, 200)}`);
      }
      const path = join(options.out, `${name}.png`);
      await page.screenshot({ path, fullPage: true });
      seen.screenshots.push(path);
      await context.close();
    }
  }
}

// What the page shows, told whenever its live part changes.
function watch() {
  const look = () => {
    const made = document.querySelector("#suspects .suspects") !== null;
    window.perfbisectTestSaw({
      left: made ? Number(document.getElementById("suspects-left").textContent) : null,
      sentence: document.getElementById("sentence")?.textContent ?? "",
      ended: document.querySelector("form.cancel") === null,
      culprit: document.getElementById("culprit-1")?.textContent ?? null,
    });
  };
  new MutationObserver(look).observe(document.getElementById("live"), { childList: true, subtree: true });
  look();
}

try {
  const context = await browser.newContext({ viewport: WIDTHS.desktop });
  const page = await context.newPage();
  guard(page, "live");
  page.on("framenavigated", () => { seen.navigations += 1; });
  let ended;
  const end = new Promise((resolve) => { ended = resolve; });
  await page.exposeFunction("perfbisectTestSaw", (state) => {
    if (state.left !== null && seen.suspects.at(-1) !== state.left) seen.suspects.push(state.left);
    if (seen.sentences.at(-1) !== state.sentence) seen.sentences.push(state.sentence);
    if (state.ended) ended(state);
  });
  await page.goto(options.url, { waitUntil: "load" });
  await page.evaluate(watch);
  const limit = setTimeout(() => ended(null), Number(options["limit-s"]) * 1000);
  const [state] = await Promise.all([end, pictures("running", [])]);
  clearTimeout(limit);
  if (state) seen.culprit = state.culprit;
  else failures.push(`no conclusion on the page within ${options["limit-s"]} s`);
  if (seen.navigations > 1) failures.push(`the page was loaded ${seen.navigations} times: it must stay fresh without`);
  const falls = seen.suspects.filter((left, i) => i > 0 && left < seen.suspects[i - 1]).length;
  if (falls < 1) failures.push(`suspects never fell: ${seen.suspects.join(", ")}`);
  await pictures("ended", RULES);
} catch (error) {
  failures.push(String(error));
} finally {
  await browser.close();
}
console.log(JSON.stringify({ ...seen, failures }));
process.exit(failures.length ? 1 : 0);
