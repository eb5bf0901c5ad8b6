// Asks the site which pages are likely next, and fetches them into the browser's cache while nothing
// else is going on. docs/web-protocol.md has what it sends and gets, docs/prefetch-safety.md why.
//
// It is served without its comments. It keeps nothing beyond the page: no cookies, no storage.
(() => {
// In a frame there is no next page to go to.
if (top !== self) return;

const doc = document, page = location, tag = doc.currentScript;
// Whole URLs: a page's <base> may lead elsewhere.
const lull = page.origin + '/.lull/';
const nav = performance.getEntriesByType('navigation')[0] || {};
const cached = nav.deliveryType === 'cache';
// Asked no more often than this on one page.
let rounds = 64;
let first = true, told, off, leaving, asking, timer, lcp, now;
// What was fetched ahead: all of it, and what the site has not been told yet.
const had = [], news = [];
// Speculation rules that are in the page now.
const rules = [];

const post = say => JSON.stringify({v: 1, page: page.pathname, ...say});

// Whether user, network and battery have something to spare.
const spare = async () => {
const net = navigator.connection || {};
if (net.saveData || /2g/.test(net.effectiveType) || matchMedia('(prefers-reduced-data: reduce)').matches) return;
const power = await navigator.getBattery?.().catch(() => 0);
return !power || power.charging || power.level > .2;
};

const later = seconds => {
clearTimeout(timer);
timer = setTimeout(ask, seconds * 1e3);
};

const ask = async () => {
if (off || leaving || asking || doc.hidden || !rounds--) return;
asking = true;
drop();
try {
if (!await spare()) return;
const reply = await fetch(lull + 'hints', {
method: 'POST', priority: 'low', headers: {'Content-Type': 'application/json'},
body: post({first, cached, had})
});
const list = await reply.json();
first = false;
// A visitor of the hold-back share, or a page with nothing more to say.
off = list.wait == null;
// A list is of its moment: a minute later somebody may have signed in.
const until = Date.now() + 3e4;
for (const hint of list.hints) if (Date.now() < until) await take(hint, list);
// Nobody says when the browser is through with its rules.
if (!off) later(rules.length ? 30 : Math.max(!list.hints.length, list.wait) * (1 + Math.random() / 4));
} catch {
off = true;
} finally {
asking = false;
}
};

// The page's author may say of a link that it is not to be followed.
const denied = url => [...doc.querySelectorAll('a[rel~=nofollow],a[data-lull=off]')]
.some(link => bare(link.href) === url);
const bare = url => url.split('#')[0];

// Takes rules back, but for those that lead to one page. The browser ends what it fetches by them; what
// it has fetched is in its cache.
const drop = but => rules.splice(0).forEach(one => one.to === but || one.remove());

const take = async (hint, {mark, rules: ruled}) => {
const to = new URL(hint.url, page.origin), url = to.href;
if (off || leaving || doc.hidden || to.origin !== page.origin || url === bare(page.href) || denied(url)) return;
if (had.push(hint.url) > 64) had.shift();
// Where the site wants it, the page's policies let it pass, and the browser can.
if (ruled && hint.as === 'document' && 'rules' in tag.dataset && HTMLScriptElement.supports('speculationrules')) {
const one = doc.createElement('script');
one.type = 'speculationrules';
one.nonce = tag.nonce;
// By way of a URL to which nobody goes: what rules name, a browser shows whatever Vary says.
one.text = JSON.stringify({prefetch: [{tag: 'lull', urls: [lull + 'to' + hint.url]}]});
one.to = url;
doc.head.append(one);
return rules.push(one);
}
const one = {url: hint.url, status: 0, bytes: 0};
const mine = now = {url, hint: hint.url, stop: new AbortController(), share: 0};
const limit = setTimeout(() => mine.stop.abort(), 6e4);
try {
const reply = await fetch(url, {
credentials: 'omit', priority: 'low', redirect: 'error', signal: mine.stop.signal,
headers: {'X-Lull': mark, Accept: hint.as === 'document' ? 'text/html' : '*/*'}
});
one.status = reply.status;
// To its end: what is left unread is not kept.
const parts = reply.body?.getReader();
for (let part; parts && !(part = await parts.read()).done;) {
one.bytes += part.value.length;
mine.share = one.bytes / hint.bytes;
}
} catch {
one.stopped = true;
}
clearTimeout(limit);
now = 0;
if (news.push(one) > 64) news.shift();
};

// A navigation would wait for a prefetch of the same page: one that is nearly done is as good, and
// all others only stand in its way. The browser may have given it the rest before that is ended: so
// the site is told that somebody waits.
const leave = url => {
leaving = true;
drop(url);
if (!now) return;
if (url === now.url) navigator.sendBeacon(lull + 'beacon', post({awaits: now.hint}));
if (!(url === now.url && now.share > .8)) now.stop.abort();
};
const stay = () => {
leaving = false;
later(1);
};

const tell = () => {
if (told && !news.length) return;
const say = {got: news.splice(0)}, start = nav.activationStart || 0;
if (!told) say.nav = {
type: nav.type, cached, lcp,
ttfb: Math.max(0, nav.responseStart - start),
load: Math.max(0, nav.loadEventEnd - start)
};
told = true;
navigator.sendBeacon(lull + 'beacon', post(say));
};

const begin = () => {
new PerformanceObserver(list => lcp = Math.max(0, list.getEntries().pop().startTime - (nav.activationStart || 0)))
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
if (!self.navigation) return;
navigation.addEventListener('navigate', event => {
const to = event.destination;
if (!to.sameDocument && event.downloadRequest == null) leave(bare(to.url));
});
navigation.addEventListener('navigateerror', stay);
};

if (doc.prerendering) doc.addEventListener('prerenderingchange', begin, {once: true});
else begin();
})();
