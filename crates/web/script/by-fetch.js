// How a page is prefetched where the browser's cache has it for the navigation: by the script, or
// by speculation rules. A part of lull.js.
//
// How the page at hand came.
const cached = isHit(entry);
// A CDN gives the page to other browsers as well. They would not use what is prefetched.
off = entry.deliveryType == null;

// A service worker of the site's own sees what this page fetches, and may keep the anonymous copy for good. With
// cookies blocked no cookie tells the browser's cache that its user has given a password.
const isBarred = () => !!navigator.serviceWorker?.controller || !navigator.cookieEnabled;

// Without credentials, and behind everything else. A worker may have taken over since: then nothing is fetched,
// and what reads the reply fails.
const send = (whole, headers, more) => isBarred() || fetch(whole, {credentials: 'omit', priority: 'low', redirect: 'error', headers, ...more});

// A cache in front of the site that has the reply to some visitor gives it to a prefetch as well: a copy of
// which the site knows nothing, and which stays when a user signs in. So the site is asked, for a URL, what
// only it can answer; who has a page there gives that. It is a HEAD, which no service worker of the site's
// keeps for the page. The browser's own cache is left out of it; what browsers then say, so that caches in
// front step aside as well, is replaced by what means nothing to them. Once another one has answered, nothing
// is fetched any more until the tab is closed.
const look = async whole => {
const reply = await send(whole, {'X-Lull': 0, Accept: 'text/html', 'Cache-Control': 0, Pragma: 0}, {method: 'HEAD', cache: 'no-store'});
off = reply.headers.get('X-Lull') !== '0';
// A server in trouble may be back on the next page.
if (off) throw reply.ok && (sessionStorage.lull = 1);
};
// What is under way, and how to end it.
let looked, resting, running = new Map;

// Takes rules back, but for those that lead to one page. The browser ends what it fetches by them; what
// it has fetched is in its cache.
const drop = whole => rules.splice(0).forEach(one => one.to === whole || one.remove());

// What was fetched before is fetched again only where that is asked for: the browser looks whether its copy is still
// good.
const pull = async (hint, list, again) => {
const whole = here.origin + hint.url;
// Of all pages such a cache has the one at hand most likely: it was asked for that just now. Once that is known the
// connection stands, so that who points at something later does not wait for either.
await (looked ||= look(bare()));
if (over() || running.has(whole) || rules.some(one => one.to === whole) || !again && (hint.pointed || tried.has(hint.url))) return;
tried.add(hint.url);
// A link to a page that only leads there counts as one to this.
if (whole === bare() || denied(whole) || denied(here.origin + hint.by)) return;
// Where the site wants it, which knows what the browser can, and the page's policies let it pass.
if (list.rules && hint.as === 'document' && tag.dataset.rules != null) {
const one = doc.createElement('script');
one.type = 'speculationrules';
one.nonce = tag.nonce;
// By way of a URL that no link has: what rules name, a browser shows whatever Vary says.
one.text = JSON.stringify({prefetch: [{tag: 'lull', urls: [lull + 'to' + hint.url]}]});
one.to = whole;
doc.head.append(one);
rules.push(one);
return;
}
const stop = new AbortController;
let full;
// A navigation to the same page takes what has come of it, and waits for the rest, which is less than all
// of it again: so the site learns that a navigation waits. All others only stand in its way.
running.set(whole, to => to === whole ? say({awaits: hint.url}) : stop.abort());
// Who points goes there, mostly, and before what is in the background would have come.
again && say({awaits: hint.url});
try {
const reply = await send(whole, {'X-Lull': 1, ...hint.as === 'document' && {Accept: 'text/html'}}, {signal: stop.signal});
// The proxy says that it has answered. What does not may be here since a visit; or a cache has it in front.
const said = reply.headers.get('X-Lull');
said || await look(whole);
// "Not now": the site's server had no room. It may be hinted again, and the rest of the list waits for another time.
full = said > 2 && tried.delete(hint.url);
// To its end: what is left unread is not kept.
await reply.arrayBuffer();
// The browser has stored it for a request without cookies, and the navigation will have some. So it asks once
// more with these, and the site says by 304 that the copy may be used with them.
list.mark > 1 && await send(whole, {'X-Lull': 2}, {signal: stop.signal, credentials: 'include'});
} catch {
// What has come of it is not kept, if it was not all.
stop.abort();
}
running.delete(whole);
return full;
};

const leave = whole => {
leaving = 1;
drop(whole);
running.forEach(end => end(whole));
};

// Where the pointer rests on a link, or presses it, that is likely the next page: it waits for no other. As long
// as a copy may be kept, what the site said of it holds. What has been fetched may have gone stale since.
const point = event => {
const whole = target(event.composedPath().find(one => one.matches?.('a,area')));
clearTimeout(resting);
// Where a link leads to a tab of its own, this page hears of it no more. So it is said at the press, for what is
// under way by then, and when that ends, for what it began.
event.button < 0 || running.get(whole)?.(whole);
resting = setTimeout(() => {
if (fresh(known, 3e5)) for (const hint of known.hints) if ([hint.url, hint.by].some(one => here.origin + one === whole)) pull(hint, known, 1).catch(() => off = 1);
}, event.button < 0 && 65);
};
addEventListener('pointerover', point);
addEventListener('pointerdown', point);
addEventListener('pointerup', point);
