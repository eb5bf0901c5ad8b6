// Made-up visitors of a site in a real Chromium, one after the other, each with an empty profile, until so
// many navigations by links are done. Prints what these took, as one JSON object.
//
//   node visit.mjs URL FOLDER NAVIGATIONS FIRST-SEED [PACE] [warm-up]
//
// FOLDER is the site's, to know what visitors want, and LULL_SCRATCH that of serve.mjs, which is waited for.
// They read PACE times as fast as people do. With `warm-up` it ends when `lull web`, where it is there, has
// found out when the server is late, and has a budget. A visitor that cannot follow a link makes it fail: then visitors of
// two ways of prefetching are not the same.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { inBrowser, pageOf, pressable } from './browser.mjs';
import { readSite, visits } from './visitors.mjs';
import { pause, until } from './waiting.mjs';

const [origin, folder, count, first, pace = 1, warmUp] = process.argv.slice(2);
const scratch = process.env.LULL_SCRATCH;
const file = name => join(scratch, name);
// What a navigation, or the beginning of a visit, takes at most.
const PATIENCE_MS = 60_000;
// As soon as this a document is there without a round trip.
const READY_MS = 50;

await until('the survey of the site', 300_000, () => existsSync(file('survey.json')));
const site = readSite(folder, file('survey.json'));
// The certificate is this run's own.
if (origin.startsWith('https:')) process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
// It learns while it serves the site already.
await until(origin, 60_000, async () => (await fetch(origin + site.pages[0])).ok);
const token = existsSync(file('token')) && readFileSync(file('token'), 'utf8').trim();
const status = async () => (await fetch(origin + '/.lull/status', { headers: { Authorization: 'Bearer ' + token } })).json();
if (token) await until('what lull web learns from', 120_000, async () => (await status()).reading === false);

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
    delivery: nav.deliveryType, transferred: nav.transferSize, protocol: nav.nextHopProtocol,
    // By speculation rules it has ended before the navigation began, at 0.
    ttfb: nav.responseStart, end: Math.max(nav.responseStart, nav.responseEnd), load: nav.loadEventEnd, lcp,
  };
});

/** Goes to a link and presses it; how the navigation went. */
async function follow(page, visitor, at, to) {
  const [link] = await pressable(page, to);
  if (!link) throw new Error(`no link to ${to} on ${pageOf(page.url())} can be pressed`);
  const begun = performance.now();
  for (const [when, x, y] of visitor.path(at, link[1])) {
    await pause(Math.max(0, when - (performance.now() - begun)));
    await page.mouse.move(x, y);
    Object.assign(at, { x, y });
  }
  await pause(visitor.hover());
  await page.mouse.down();
  await pause(visitor.press());
  const arrived = page.waitForURL(url => pageOf(url) === to, { waitUntil: 'load' });
  // If the button fails, its error is reported.
  arrived.catch(() => {});
  await page.mouse.up();
  await arrived;
  return measured(page);
}

async function read({ seed, visitor, pages }, navigations) {
  const most = pages.reduce((sum, { dwell }) => sum + dwell / Number(pace) + PATIENCE_MS, PATIENCE_MS);
  await inBrowser(origin, most, async page => {
    page.setDefaultTimeout(PATIENCE_MS);
    const at = { x: 640, y: 400 }, seen = new Set();
    let before = null;
    const begun = size(file('access.log'));
    for (const { page: to, dwell } of pages) {
      if (before === null) {
        await page.goto(origin + to, { waitUntil: 'load' });
      } else {
        const how = await follow(page, visitor, at, to);
        const again = seen.has(to);
        const until = size(file('access.log'));
        // A page that was read before is in the cache with and without prefetching.
        const hit = !again && (how.delivery !== '' || how.transferred === 0);
        navigations.push({
          number: navigations.length, seed, from: before, to, again, hit, ready: hit && how.end < READY_MS, ...how,
          log: [begun, until],
        });
      }
      seen.add(to);
      before = to;
      await pause(dwell / Number(pace));
    }
  });
}

/** The lines that a log has after its first `from` bytes, and before `until`, as far as it is there. */
const lines = (log, from, until) => !existsSync(log) ? [] :
  readFileSync(log).subarray(from, until).toString('latin1').split('\n').filter(line => line);
const size = log => existsSync(log) ? statSync(log).size : 0;
const total = values => values.reduce((sum, value) => sum + value, 0);
const quantile = (values, part) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] : null;
};
const summary = values => ({
  mean_ms: total(values) / values.length, p50_ms: quantile(values, 0.5), p95_ms: quantile(values, 0.95),
});
const times = list => ({
  count: list.length,
  ...(list.length && {
    ttfb: summary(list.map(one => one.ttfb)),
    load: summary(list.map(one => one.load)),
    lcp: summary(list.map(one => one.lcp ?? one.load)),
  }),
});

const before = { nginx: size(file('access.log')), lull: size(file('lull.log')), status: token && await status() };
const planned = visits(site, Number(first), Number(count));
const navigations = [];
for (const [number, one] of planned.entries()) {
  await read(one, navigations).catch(error => {
    process.stderr.write(`visitor ${one.seed}: ${error.message.split('\n')[0]}\n`);
    process.exit(1);
  });
  process.stderr.write(`visitor ${number + 1} of ${planned.length}, ${navigations.length} navigations\n`);
}
// The scheduler needs no usual times; with probes there are objects.
const isWarm = ({ scheduler, robots, paused, budget, objects }) => scheduler ? !robots :
  !paused && budget > 0 && objects.length && objects.every(one => one.threshold !== null);
if (warmUp && token) await until('a budget of lull web', 90_000, async () => isWarm(await status()));
// `lull web` lets lines wait for others.
await pause(500);
const asked = lines(file('access.log'), before.nginx).map(line => JSON.parse(line));
const ahead = asked.filter(one => one.ahead.startsWith('prefetch') && one.method === 'GET' && one.status === 200);
// Of `lull web`: the bytes of bodies, `-` for none. It leaves out prefetches.
const through = lines(file('lull.log'), before.lull).map(line => Number(line.match(/" \d{3} (\d+|-) "/)?.[1]) || 0);
const hits = navigations.filter(one => one.hit);
// Those that the server's log names as prefetched, since their visitor came.
const isNamed = ({ to, log: [from, until] }) => lines(file('access.log'), from, until).map(line => JSON.parse(line))
  .some(one => one.ahead.startsWith('prefetch') && one.method === 'GET' && one.status === 200 && one.path === to);
const named = hits.filter(isNamed).length;
// The files prefetched for the most bytes that no page needed when it was read for the first time.
const wasted = new Map();
for (const { path, bytes } of ahead) {
  const one = wasted.get(path) ?? { path, kind: site.pages.includes(path) ? 'page' : 'part', bytes: 0, fetched: 0, shown: 0 };
  wasted.set(path, Object.assign(one, { bytes: one.bytes + bytes, fetched: one.fetched + 1 }));
}
for (const { to } of navigations.filter(one => !one.again)) {
  for (const path of [to, ...site.parts.get(to) ?? []]) if (wasted.has(path)) wasted.get(path).shown++;
}
const most_wasted = [...wasted.values()]
  .map(one => ({ ...one, bytes: Math.round(one.bytes * Math.max(0, 1 - one.shown / one.fetched)) }))
  .sort((a, b) => b.bytes - a.bytes).slice(0, 10);
const unused = navigations.filter(one => !one.again && !one.hit).filter(isNamed).length;
// How the browser spoke to the site; a page out of the cache has none.
const protocol = navigations.find(one => one.protocol)?.protocol ?? '';
for (const one of navigations) {
  delete one.log;
  delete one.protocol;
}
const COUNTED = ['hints', 'prefetches', 'refused', 'unkept', 'prefetched_bytes', 'used_bytes'];
const counted = now => Object.fromEntries(COUNTED.map(name => [name, now[name] - before.status[name]]));
process.stdout.write(JSON.stringify({
  visitors: planned.length, planned: Number(count), done: navigations.length,
  // By which cells are known to have had the same visitors.
  links: total([...site.links.values()].map(links => links.length)),
  all: times(navigations), hit: times(hits), miss: times(navigations.filter(one => !one.hit)),
  first: navigations.filter(one => !one.again).length,
  ready: navigations.filter(one => one.ready).length,
  named,
  unused,
  protocol,
  most_wasted,
  hit_numbers: hits.map(one => one.number),
  nginx: {
    requests: asked.length, bytes: total(asked.map(one => one.bytes)),
    ahead: { requests: ahead.length, pages: ahead.filter(one => site.pages.includes(one.path)).length,
      bytes: total(ahead.map(one => one.bytes)) },
  },
  ...(token && { lull: { requests: through.length, bytes: total(through), ...counted(await status()) } }),
  navigations,
}) + '\n');
