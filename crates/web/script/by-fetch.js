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
