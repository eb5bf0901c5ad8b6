// An access log of made-up visitors, in the combined format, to learn from.
//
//   node log.mjs FOLDER VISITORS FIRST-SEED
import { readSite, visit } from './visitors.mjs';

const [folder, count, first] = process.argv.slice(2);
const site = readSite(folder);
const months = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ');
const stamp = ms => {
  const time = new Date(ms), two = number => String(number).padStart(2, '0');
  return `${two(time.getUTCDate())}/${months[time.getUTCMonth()]}/${time.getUTCFullYear()}:` +
    `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}:${two(time.getUTCSeconds())} +0000`;
};
// They come one after the other in the day before, so that the log is in order.
const begin = Date.now() - 24 * 3600e3;
const lines = [];
for (let number = 0; number < Number(count); number++) {
  const address = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
  const had = new Set();
  let time = begin + number * (20 * 3600e3 / Number(count));
  let before = '-';
  const ask = (path, referer) => lines.push([time, `${address} - - [${stamp(time)}] "GET ${path} HTTP/1.1" ` +
    `200 10000 "${referer}" "Mozilla/5.0 (X11; Linux x86_64) Chrome/131.0.0.0"`]);
  for (const { page, dwell } of visit(site, Number(first) + number)) {
    ask(page, before);
    for (const part of site.parts.get(page)) {
      if (had.has(part)) continue;
      had.add(part);
      ask(part, page);
    }
    before = page;
    time += dwell;
  }
}
lines.sort((a, b) => a[0] - b[0]);
process.stdout.write(lines.map(([, line]) => line + '\n').join(''));
