// Asks the site which pages are likely next, and has them fetched while nothing else is going on.
// docs/reference/web-protocol.md has what it sends and gets, docs/prefetch-safety.md why.
//
// It is served without its comments, and with shorter names. It keeps nothing beyond the page, no cookies
// and no storage, but one word once something answers in the site's place: sessionStorage.lull.
(() => {
const doc = document, here = location, tag = doc.currentScript;
// In a frame there is no next page to go to. A script of the site's may run this one again, for what it has put in the
// page's place.
if (top !== self || doc.lull) return;
doc.lull = 1;

// Whole URLs: a page's <base> may lead elsewhere.
const lull = here.origin + '/.lull/', entry = performance.getEntriesByType('navigation')[0] || {};
// Whether it came out of the browser's cache.
const isHit = one => one.deliveryType === 'cache';
// Asked no more often than this on one page.
let rounds = 64;
// The timer is none if nothing is to be done later: until the page has loaded, and while a list is dealt with,
// who comes back to the tab begins nothing.
let first = true, told, off, leaving, lcp, timer = doc;
// The prefetched ones among the hinted URLs, and the list that named something last.
let tried = new Set, known = {};
// Whether nothing is fetched now. More than a question can name are for no page: what it cannot name would
// be hinted again.
const over = () => off || leaving || doc.hidden || tried.size > 63;
// Speculation rules that are in the page now.
const rules = [];

// URLs of more characters are not in the model. The page's tag says whether its visitor is in the control group.
const post = what => JSON.stringify({v: 1, page: bare().replace(here.origin, '').slice(0, 1024), held: +tag.dataset.held, ...what});

const say = what => navigator.sendBeacon(lull + 'beacon', post(what));

const fresh = (list, time) => Date.now() < list.at + time;

const later = (seconds, what = ask) => {
clearTimeout(timer);
timer = setTimeout(what, seconds * 1e3);
};

const ask = async () => {
timer = 0;
if (over() || rounds-- < 1) return;
timer = doc;
drop();
try {
// Whether user, network (not of 2g or slow-2g) and battery have something to spare.
const net = navigator.connection, power = await navigator.getBattery?.().catch(() => 0);
if (sessionStorage.lull || net?.saveData || /2/.test(net?.effectiveType) || matchMedia('(prefers-reduced-data)').matches || power?.level < .2 && !power.charging) return timer = 0;
// Parts of the page that the browser had: nothing else shows the site that a prefetched one was used.
const used = first ? performance.getEntriesByType('resource').filter(isHit).slice(0, 64).map(one => one.name.replace(here.origin, '')) : [];
const list = await (await fetch(lull + 'hints', {
method: 'POST', priority: 'low', headers: {'Content-Type': 'application/json'},
body: post({first, cached, barred: isBarred(), hover: matchMedia('(hover)').matches, had: [...tried], used})
})).json();
first = false;
// A visitor of the control group, or a page with nothing more to say.
list.wait ?? (rounds = 0);
// A list is of its moment: a minute later the user may have signed in.
list.at = Date.now();
if (list.hints[0]) known = list;
for (const hint of list.hints) if (fresh(list, 3e4) && await pull(hint, list)) break;
// No event reports when the browser has finished its rules. Where the visitor has gone, it is looked whether the page stays.
leaving || later(rules.length ? 30 : Math.max(!list.hints.length, list.wait));
} catch {
off = 1;
}
};

// Where a link leads: <a>, also in a drawing (SVG), which gives its URL as it was written, or <area>. What is no link leads nowhere.
const target = ({href} = {}) => bare(Object.assign(doc.createElement('a'), {href: href?.baseVal ?? href}).href);
// The page's author may say of a link that it is not to be followed, or is a download, also in an open shadow root.
const denied = (whole, root = doc) => [...root.querySelectorAll('*')].some(one =>
one.matches('[rel~=nofollow],[data-lull=off],[download]') && target(one) === whole || one.shadowRoot && denied(whole, one.shadowRoot));
// That of the page at hand, if of none.
const bare = (whole = here.href) => whole.split('#')[0];

// Here by-fetch.js or by-worker.js comes in: how a page is prefetched.

const stay = () => {
later(1);
leaving = 0;
};

// From when the page was asked for, or was shown if it had been rendered ahead.
const since = time => Math.max(0, time - (entry.activationStart || 0));

// Its scripts may call the page something else than what it came by.
const tell = () => told ||= say({nav: {type: entry.type, name: bare(entry.name), cached, lcp, ttfb: since(entry.responseStart), load: since(entry.loadEventEnd)}});

const begin = () => {
// Who comes to a tab later waits for it since then, and not since it was opened.
doc.hidden || new PerformanceObserver(list => lcp = since(list.getEntries().pop().startTime))
.observe({type: 'largest-contentful-paint', buffered: 1});
// Where the site's server had nothing to spare when the page was sent, the tag says how long to wait.
const idle = () => leaving || later(tag.dataset.wait, () => requestIdleCallback(ask, {timeout: 5e3}));
entry.loadEventEnd ? idle() : addEventListener('load', idle);
doc.addEventListener('visibilitychange', () => doc.hidden ? (tell(), drop()) : timer || later(1));
addEventListener('pagehide', () => (tell(), leave()));
addEventListener('pageshow', event => event.persisted && stay());
self.navigation?.addEventListener('navigate', event => {
const to = event.destination;
// Where it was a download, or nothing came of it, the page stays, and no event reports it.
if (!to.sameDocument && event.downloadRequest == null) {
leave(bare(to.url));
later(30, stay);
}
});
};

doc.prerendering ? doc.addEventListener('prerenderingchange', begin) : begin();
})();
