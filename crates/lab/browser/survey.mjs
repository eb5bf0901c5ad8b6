// What a site's pages have, as a browser sees them: which links can be pressed, and what a page needs. So
// visitors of a log and those in a browser have the same links, none of which is in a closed menu.
//
//   node survey.mjs URL FOLDER
//
// Prints it as one JSON object, for readSite of visitors.mjs.
import { inBrowser, pageOf, pressable } from './browser.mjs';
import { readSite } from './visitors.mjs';

const [origin, folder] = process.argv.slice(2);
const { pages } = readSite(folder);
const known = new Set(pages);
const PATIENCE_MS = 30_000;

const surveyed = await inBrowser(origin, 60_000 + pages.length * PATIENCE_MS, async browser => {
  browser.setDefaultTimeout(PATIENCE_MS);
  let asked;
  // Whatever it comes from, the cache among that.
  browser.on('request', request => {
    const url = new URL(request.url());
    if (url.origin === origin) asked.add(decodeURI(url.pathname));
  });
  const links = {}, parts = {};
  for (const page of pages) {
    asked = new Set();
    await browser.goto(origin + page, { waitUntil: 'load' });
    // What styles name comes without having been waited for.
    await browser.evaluate(() => document.fonts.ready.then(() => {}));
    if (pageOf(browser.url()) !== page) throw new Error(`${page} leads on to ${browser.url()}`);
    links[page] = (await pressable(browser)).map(([to]) => to).filter(to => known.has(to));
    parts[page] = [...asked].filter(part => !known.has(part));
  }
  return { links, parts };
});
process.stdout.write(JSON.stringify(surveyed) + '\n');
