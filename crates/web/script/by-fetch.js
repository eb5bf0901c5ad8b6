// How a page is fetched ahead where the browser's cache has it for the navigation: by the script, or
// by speculation rules. A part of lull.js.
//
// How the page at hand came.
const cached = nav.deliveryType === 'cache';

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
const reply = await fetch(url, {
credentials: 'omit', priority: 'low', redirect: 'error', signal: stop.signal,
headers: {'X-Lull': mark, Accept: hint.as === 'document' ? 'text/html' : '*/*'}
});
one.status = reply.status;
// To its end: what is left unread is not kept.
const parts = reply.body?.getReader();
for (let part; parts && !(part = await parts.read()).done;) one.bytes += part.value.length;
} catch {
one.stopped = true;
}
now = null;
if (news.push(one) > 64) news.shift();
};

const leave = url => {
leaving = true;
drop(url);
now?.(url);
};
