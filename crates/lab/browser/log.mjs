// An access log of made-up visitors, in the combined format, to learn from.
//
//   node log.mjs FOLDER VISITORS FIRST-SEED [SURVEY]
//
// SURVEY is a file with what survey.mjs prints. Without it visitors may follow whatever link a page's text has.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { readSite, visit } from './visitors.mjs';

const [folder, count, first, survey] = process.argv.slice(2);
const site = readSite(folder, survey);
const AGENT = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36';
const months = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ');
const stamp = ms => {
  const time = new Date(ms), two = number => String(number).padStart(2, '0');
  return `${two(time.getUTCDate())}/${months[time.getUTCMonth()]}/${time.getUTCFullYear()}:` +
    `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}:${two(time.getUTCSeconds())} +0000`;
};
// What the server sends, packed as nginx does it.
const lengths = new Map();
const length = path => {
  if (!lengths.has(path)) lengths.set(path, gzipSync(readFileSync(join(folder, path)), { level: 4 }).length);
  return lengths.get(path);
};
// They come one after the other in the day before, so that the log is in order.
const begin = Date.now() - 24 * 3600e3;
const lines = [];
for (let number = 0; number < Number(count); number++) {
  const address = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
  // A browser asks once for what it may keep.
  const had = new Set();
  let time = begin + number * (20 * 3600e3 / Number(count));
  let before = '-';
  const ask = (path, referer) => {
    if (had.has(path)) return;
    had.add(path);
    lines.push([time, `${address} - - [${stamp(time)}] "GET ${encodeURI(path)} HTTP/1.1" ` +
      `200 ${length(path)} "${encodeURI(referer)}" "${AGENT}"`]);
  };
  for (const { page, dwell } of visit(site, Number(first) + number).pages) {
    ask(page, before);
    for (const part of site.parts.get(page)) ask(part, page);
    before = page;
    time += dwell;
  }
}
lines.sort((a, b) => a[0] - b[0]);
process.stdout.write(lines.map(([, line]) => line + '\n').join(''));
