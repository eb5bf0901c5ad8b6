// How a page is fetched ahead where the browser's cache has it for the navigation: by the script, or
// by speculation rules. A part of lull.js.
//
// How the page at hand came.
const cached = nav.deliveryType === 'cache';

// As nobody in particular, and behind everything else.
const how = {credentials: 'omit', priority: 'low', redirect: 'error'};

// A cache in front of the site that has the reply to some visitor gives it to a prefetch as well: a copy of
// which the site knows nothing, and which stays when somebody signs in. So the site is asked, for a URL, what
// only it can answer; who has a page there gives that. It is a HEAD, which no service worker of the site's
// keeps for the page. The browser's own cache is left out of it; what browsers then say, so that caches in
// front step aside as well, is replaced by what means nothing to them. Once another one has answered, nothing
// is fetched any more until the tab is closed.
const look = async url => {
const reply = await fetch(url, {...how, method: 'HEAD', cache: 'no-store', headers: {'X-Lull': '2-0-0', Accept: 'text/html', 'Cache-Control': 0, Pragma: 0}});
off = reply.status !== 204 || !reply.headers.has('X-Lull');
// A server in trouble may be back on the next page.
if (off) throw reply.ok && (sessionStorage.lull = 1);
};
let looked;

// Takes rules back, but for those that lead to one page. The browser ends what it fetches by them; what
// it has fetched is in its cache.
const drop = but => rules.splice(0).forEach(one => one.to === but || one.remove());

const take = async (hint, {mark, rules: ruled}) => {
const to = new URL(hint.url, page.origin), url = to.href;
// Of all pages such a cache has the one at hand most likely: it was asked for that just now.
await (looked ||= look(bare(page.href)));
if (off || leaving || doc.hidden || full()) return;
had.push(hint.url);
if (to.origin !== page.origin || url === bare(page.href) || denied(url)) return;
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
const stop = new AbortController;
// A navigation would wait for a prefetch of the same page: one that is nearly done is as good, and
// all others only stand in its way. The browser may have given it the rest before that is ended: so
// the site is told that somebody waits.
now = to => {
if (to === url) navigator.sendBeacon(lull + 'beacon', post({awaits: hint.url}));
if (to !== url || !(one.bytes / hint.bytes > .8)) stop.abort();
};
// What has ended by then does not hear of it.
setTimeout(() => stop.abort(), 6e4);
try {
// With cookies each page has a mark of its own. It is asked for below the page: by a request with all
// that a navigation there would carry, which this one has not.
if (mark > 1) mark = await (await fetch(url.split('?')[0] + '/.lull/mark', {signal: stop.signal})).text();
if (!mark) throw 0;
const reply = await fetch(url, {...how, signal: stop.signal, headers: {'X-Lull': mark, Accept: hint.as === 'document' ? 'text/html' : '*/*'}});
one.status = reply.status;
// The site says for whom a copy is. One that does not may be here since a visit; or somebody has it in front.
if (one.status !== 204 && reply.headers.get('X-Lull') !== mark[0]) await look(url);
// To its end: what is left unread is not kept.
const parts = reply.body?.getReader();
for (let part; parts && !(part = await parts.read()).done;) one.bytes += part.value.length;
} catch {
one.stopped = true;
// What has come of it is not kept, if it was not all.
stop.abort();
}
now = null;
news.push(one);
};

const leave = url => {
leaving = true;
drop(url);
now?.(url);
};
