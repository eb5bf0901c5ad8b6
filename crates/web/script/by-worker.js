// How a page is prefetched where a navigation takes nothing from the browser's cache that a script
// has fetched: by a service worker (worker.js), which keeps it, and shows it if the site says so. A
// part of lull.js.
//
// How the page at hand came: the worker says so of a copy.
const cached = entry.serverTiming?.some(one => one.name === 'lull') || false;

const isBarred = () => false;
const workers = navigator.serviceWorker, path = lull + 'worker.js';
let hired, now;
const ours = one => [one.installing, one.waiting, one.active].every(each => !each || each.scriptURL === path);

// Whether there is no worker of the site's own. Where there is one, ours leaves, with all that it has.
const alone = async () => {
const all = await workers?.getRegistrations() || [];
if (workers && all.every(ours)) return true;
off = 1;
if (!workers) return;
await caches.delete('lull');
for (const one of all) {
if (ours(one)) await one.unregister();
// A worker that replaced ours still has the preload header that we set.
else if (/^lull/.test((await one.navigationPreload?.getState())?.headerValue)) {
await one.navigationPreload.disable();
await one.navigationPreload.setHeaderValue('true');
}
}
};
alone().catch(() => off = 1);

const drop = () => {};

const pull = async hint => {
const whole = here.origin + hint.url;
if (over()) return;
tried.add(hint.url);
if (hint.as !== 'document' || whole === bare() || denied(whole)) return;
if (!await alone()) return;
try {
hired ||= await workers.register(path, {scope: '/'}).then(() => workers.ready);
if (leaving) return;
now = hired.active;
await new Promise((done, failed) => {
const way = new MessageChannel();
way.port1.onmessage = done;
setTimeout(failed, 6e4);
// Lists name the best first.
now.postMessage({take: hint.url, rank: tried.size}, [way.port2]);
});
} catch {
now?.postMessage({});
hired = 0;
}
now = 0;
};

// What is under way stands in the way of where the visitor goes, be it the same page.
const leave = () => {
leaving = 1;
if (now) now.postMessage({});
};
