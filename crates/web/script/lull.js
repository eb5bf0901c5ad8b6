// Asks the site which pages are likely next, and has them fetched while nothing else is going on.
// docs/web-protocol.md has what it sends and gets, docs/prefetch-safety.md why.
//
// It is served without its comments, and with shorter names. It keeps nothing beyond the page, no cookies
// and no storage, but one word once something answers in the site's place: sessionStorage.lull.
(() => {
// In a frame there is no next page to go to.
if (top !== self) return;

const doc = document, page = location, tag = doc.currentScript;
// Whole URLs: a page's <base> may lead elsewhere.
const lull = page.origin + '/.lull/';
const nav = performance.getEntriesByType('navigation')[0] || {};
// Asked no more often than this on one page.
let rounds = 64;
let first = true, told, off, leaving, asking, timer, lcp, now;
// What was hinted: all of it; and what was fetched ahead of that, and the site has not been told yet.
const had = [], news = [];
// More than a question can name are for no page: what it cannot name would be hinted again.
const full = () => had.length > 63;
// Speculation rules that are in the page now.
const rules = [];

// Longer ones nobody knows.
const post = say => JSON.stringify({v: 1, page: (page.pathname + page.search).slice(0, 1024), ...say});

// Whether user, network and battery have something to spare.
const spare = async () => {
const net = navigator.connection || {};
if (net.saveData || /2g/.test(net.effectiveType) || matchMedia('(prefers-reduced-data)').matches) return;
const power = await navigator.getBattery?.().catch(() => 0);
return !power || power.charging || power.level > .2;
};

const later = seconds => {
clearTimeout(timer);
timer = setTimeout(ask, seconds * 1e3);
};

const ask = async () => {
if (off || leaving || asking || doc.hidden || full() || !rounds--) return;
asking = true;
drop();
try {
if (sessionStorage.lull || !await spare()) return;
const list = await (await fetch(lull + 'hints', {
method: 'POST', priority: 'low', headers: {'Content-Type': 'application/json'},
body: post({first, cached, had})
})).json();
first = false;
// A visitor of the hold-back share, or a page with nothing more to say.
off = list.wait == null;
// A list is of its moment: a minute later somebody may have signed in.
const until = Date.now() + 3e4;
for (const hint of list.hints) if (Date.now() < until) await take(hint, list);
// Nobody says when the browser is through with its rules.
if (!off) later(rules.length ? 30 : Math.max(!list.hints.length, list.wait));
} catch {
off = true;
} finally {
asking = false;
}
};

// The page's author may say of a link that it is not to be followed: of <a>, also in a drawing (SVG), which
// gives its URL as it was written, or of <area>. What says so and is no link leads nowhere.
const denied = url => [...doc.querySelectorAll('[rel~=nofollow],[data-lull=off]')]
.some(({href}) => bare(Object.assign(doc.createElement('a'), {href: href?.baseVal ?? href}).href) === url);
const bare = url => url.split('#')[0];

// Here by-fetch.js or by-worker.js comes in: how a page is fetched ahead.

const stay = () => {
leaving = false;
later(1);
};

// From when the page was asked for, or was shown if it had been rendered ahead.
const since = time => Math.max(0, time - (nav.activationStart || 0));

const tell = () => {
if (told && !news.length) return;
const say = {got: news.splice(0)};
if (!told) say.nav = {type: nav.type, cached, lcp, ttfb: since(nav.responseStart), load: since(nav.loadEventEnd)};
told = true;
navigator.sendBeacon(lull + 'beacon', post(say));
};

const begin = () => {
new PerformanceObserver(list => lcp = since(list.getEntries().pop().startTime))
.observe({type: 'largest-contentful-paint', buffered: true});
const idle = () => requestIdleCallback(ask, {timeout: 5e3});
if (doc.readyState === 'complete') idle();
else addEventListener('load', () => setTimeout(idle));
doc.addEventListener('visibilitychange', () => doc.hidden ? (tell(), drop()) : later(1));
addEventListener('pagehide', () => {
tell();
leave();
});
addEventListener('pageshow', event => event.persisted && stay());
self.navigation?.addEventListener('navigate', event => {
const to = event.destination;
if (!to.sameDocument && event.downloadRequest == null) leave(bare(to.url));
});
self.navigation?.addEventListener('navigateerror', stay);
};

if (doc.prerendering) doc.addEventListener('prerenderingchange', begin, {once: true});
else begin();
})();
