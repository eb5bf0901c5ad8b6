// Made-up visitors of a site in a real Chromium, one after the other, each with an empty profile.
// Prints what their navigations by links took, as one JSON object.
//
//   node visit.mjs URL FOLDER VISITORS FIRST-SEED [PACE]
//
// FOLDER is the site's, to know what visitors want. They read PACE times as fast as people do.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { readSite, Visitor } from './visitors.mjs';

const [origin, folder, count, first, pace = 1] = process.argv.slice(2);
const site = readSite(folder);
const pause = ms => new Promise(done => setTimeout(done, ms));
const PATIENCE_MS = 90_000;

async function open(profile) {
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    viewport: { width: 1280, height: 800 },
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
      // Nothing outside: a page's counter of visits is not waited for.
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE ' + new URL(origin).hostname,
      // Speculation rules want a site that is safe from eavesdroppers; a namespace is.
      '--unsafely-treat-insecure-origin-as-secure=' + origin,
    ],
  });
  const page = context.pages()[0] ?? await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  return { context, page };
}

/** What the browser says of the navigation that has led to the page at hand, in milliseconds. */
const measured = page => page.evaluate(async () => {
  const lcp = await new Promise(done => {
    let last = null;
    new PerformanceObserver(list => { last = list.getEntries().at(-1)?.startTime ?? last; })
      .observe({ type: 'largest-contentful-paint', buffered: true });
    setTimeout(() => done(last), 200);
  });
  const nav = performance.getEntriesByType('navigation')[0];
  return {
    delivery: nav.deliveryType, transferred: nav.transferSize,
    ttfb: nav.responseStart, load: nav.loadEventEnd, lcp,
  };
});

/** The first link to a page that can be pressed where it is, with its box. */
async function findLink(page, to) {
  const handles = await page.$$('a[href]');
  for (const handle of handles) {
    const path = await handle.evaluate(link => decodeURI(new URL(link.href).pathname));
    if ((path.endsWith('/') ? path + 'index.html' : path) !== to) continue;
    if (!await handle.isVisible()) continue;
    await handle.scrollIntoViewIfNeeded().catch(() => {});
    const box = await handle.boundingBox();
    const isThere = box && await handle.evaluate((link, [x, y]) => link.contains(document.elementFromPoint(x, y)),
      [box.x + box.width / 2, box.y + box.height / 2]);
    if (isThere) return { handle, box };
  }
  return null;
}

async function visit(seed, navigations, lost) {
  const profile = mkdtempSync(join(process.env.LULL_SCRATCH ?? tmpdir(), 'profile-'));
  const { context, page } = await open(profile);
  try {
    const visitor = new Visitor(site, seed);
    let at = { x: 640, y: 400 };
    let now = visitor.start();
    const seen = new Set([now]);
    await page.goto(origin + now, { waitUntil: 'load' });
    for (;;) {
      await pause(visitor.dwell() / Number(pace));
      const to = visitor.next(now);
      if (!to) return;
      const link = await findLink(page, to);
      if (!link) {
        lost.push(`${now} → ${to}`);
        return;
      }
      const begun = performance.now();
      for (const [when, x, y] of visitor.path(at, link.box)) {
        await pause(Math.max(0, when - (performance.now() - begun)));
        await page.mouse.move(x, y);
        at = { x, y };
      }
      await pause(visitor.hover());
      await page.mouse.down();
      await pause(visitor.press());
      const arrived = page.waitForURL(url => decodeURI(url.pathname) === to || decodeURI(url.pathname) + 'index.html' === to,
        { waitUntil: 'load' });
      await page.mouse.up();
      await arrived;
      navigations.push({ seed, to, again: seen.has(to), ...await measured(page) });
      seen.add(to);
      now = to;
    }
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

const quantile = (values, part) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] : null;
};
const summary = values => ({
  mean_ms: values.reduce((sum, value) => sum + value, 0) / values.length,
  p50_ms: quantile(values, 0.5), p95_ms: quantile(values, 0.95),
});
const times = list => list.length && {
  count: list.length,
  ttfb: summary(list.map(one => one.ttfb)),
  load: summary(list.map(one => one.load)),
  lcp: summary(list.map(one => one.lcp ?? one.load)),
};

const navigations = [], lost = [], failed = [];
for (let number = 0; number < Number(count); number++) {
  const seed = Number(first) + number;
  await visit(seed, navigations, lost).catch(error => failed.push(`${seed}: ${error.message.split('\n')[0]}`));
  process.stderr.write(`visitor ${number + 1} of ${count}, ${navigations.length} navigations\n`);
}
// A page that was read before is in the cache whoever prefetches.
const isHit = one => !one.again && (one.delivery !== '' || one.transferred === 0);
const hits = navigations.filter(isHit), misses = navigations.filter(one => !isHit(one));
process.stdout.write(JSON.stringify({
  visitors: Number(count), all: times(navigations), hit: times(hits), miss: times(misses),
  hit_rate: hits.length / navigations.length, lost: lost.length, failed: failed.length, what: { lost, failed },
  navigations,
}) + '\n');
if (failed.length > Number(count) / 10) process.exit(1);
