// The service worker behind lull web --service-worker: fetches pages from a port of their own, keeps
// them, and shows a copy if the proxy says so in its answer to that very navigation, and only then.
// docs/prefetch-safety.md says why, docs/reference/web-protocol.md what it sends and gets.
//
// Before it the proxy writes PORT, where to fetch from, 0 for a worker that is to go; and LIFE, for how
// many milliseconds it stays without a word from a page. It is served without its comments.

// A cache of our own, with keys that no link has: a program that searches all caches of the site never
// finds a copy under the page's own URL.
const own = location.origin + '/.lull/copy/';
const HEADER = 'lull';
// As many as there may be; the proxy hints no more on one page.
const MOST = 16;

// The key of the copy of each path, the oldest first; the page that asked for it, and its place on that page's lists,
// the best first; and until when we stay.
const copies = new Map(), asked = new Map();
let until = 0, over = !PORT, running;

const opened = (async () => {
if (over || !await caches.has('lull')) return;
for (const {url} of await (await caches.open('lull')).keys()) note(url);
const said = await caches.match(own, {cacheName: 'lull'});
until = said ? +await said.text() : 0;
})();

// own, the name that the proxy gave it, and the path.
const note = url => {
const at = url.indexOf('/', own.length);
if (at < 0) return;
const path = url.slice(at);
copies.delete(path);
copies.set(path, url);
};
const name = url => url.slice(own.length, url.indexOf('/', own.length));

// The browser says with each navigation which copies there are.
const announce = () => registration.navigationPreload.setHeaderValue(
[HEADER, ...[...copies.values()].map(name)].join(' '));

const stay = async () => {
until = Date.now() + LIFE;
await (await caches.open('lull')).put(own, new Response(String(until)));
};

// A worker of the site's own may be about to take our place; the registration is its then.
const alone = () => [registration.installing, registration.waiting, registration.active]
.every(one => !one || one.scriptURL === location.href);

const end = async () => {
over = true;
running?.abort();
copies.clear();
await caches.delete('lull');
if (alone()) return registration.unregister();
await registration.navigationPreload.disable();
await registration.navigationPreload.setHeaderValue('true');
};

// What makes room: of the page that asked longest ago, the copy that its lists named last. The visitor is no longer
// there, and the page at hand keeps its best.
const worst = () => {
let found, first;
for (const path of copies.keys()) {
const {page, rank} = asked.get(path) || {page: 0, rank: 0};
if (!found) first = page;
if (page === first && !(rank < asked.get(found)?.rank)) found = path;
}
return found;
};

const take = async (path, page, rank) => {
const mine = running = new AbortController();
const reply = await fetch(location.protocol + '//' + location.hostname + ':' + PORT + path, {
credentials: 'omit', cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer',
priority: 'low', signal: mine.signal, headers: {Accept: 'text/html'}
});
const called = reply.headers.get('X-Lull-Copy');
// All of it, else there is none.
const body = await reply.arrayBuffer();
if (reply.status !== 200 || !called || over) return {status: reply.status, bytes: body.byteLength};
// A response of our own: one from another port would be shown with that port in its URL.
const headers = new Headers(reply.headers);
for (const gone of ['X-Lull-Copy', 'Content-Encoding', 'Content-Length', 'Vary',
'Access-Control-Allow-Origin', 'Access-Control-Expose-Headers']) headers.delete(gone);
// The page's script reads it.
headers.append('Server-Timing', HEADER);
const cache = await caches.open('lull');
const before = copies.get(path);
await cache.put(own + called + path, new Response(body, {headers}));
note(own + called + path);
asked.set(path, {page, rank});
if (before && before !== copies.get(path)) await cache.delete(before);
while (copies.size > MOST) {
const gone = worst(), url = copies.get(gone);
copies.delete(gone);
asked.delete(gone);
await cache.delete(url);
}
// The end may have come in between.
if (over) await caches.delete('lull');
else await announce();
return {status: 200, bytes: body.byteLength};
};

const answer = async event => {
// The navigation itself, with the visitor's cookies, as it went to the proxy. None: the browser is
// without, or something was changed.
const reply = await event.preloadResponse;
await opened;
if (over) return reply || fetch(event.request);
// Redirects cannot be looked into.
if (reply?.type === 'opaqueredirect') return reply;
const called = reply?.headers.get('X-Lull-Copy');
if (!reply || !(called || reply.headers.has('X-Lull-Worker')) || !(Date.now() < until)) {
// Not needed here any more: the user has signed in, the site has no script, or no page was open for too long.
event.waitUntil(end());
return called || !reply ? fetch(event.request) : reply;
}
if (!called) return reply;
const url = new URL(event.request.url), key = own + called + url.pathname + url.search;
return await caches.match(key, {cacheName: 'lull', ignoreVary: true}) || fetch(event.request);
};

addEventListener('install', event => event.waitUntil((async () => {
await opened;
// Of one before us; the proxy may not be the one that gave them their names.
copies.clear();
await caches.delete('lull');
if (!over) await stay();
return skipWaiting();
})()));
addEventListener('activate', event => event.waitUntil(
over ? end() : registration.navigationPreload.enable().then(announce)));
registration.addEventListener('updatefound', () => alone() || end());
addEventListener('message', event => event.waitUntil((async () => {
await opened;
const {take: path, rank} = event.data || {}, way = event.ports[0];
if (!path) return running?.abort();
if (over) return way.postMessage({stopped: true});
await stay();
way.postMessage(await take(path, event.source?.id, rank).catch(() => ({stopped: true})));
})()));
addEventListener('fetch', event => {
const {method, mode} = event.request;
if (over || method !== 'GET' || mode !== 'navigate') return;
// A navigation waits now.
running?.abort();
event.respondWith(answer(event));
});
