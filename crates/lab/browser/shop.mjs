// A shop that is made up, the same each time: a start page, eight categories, and forty products with a picture each.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from './crc.mjs';
import { deflateSync } from 'node:zlib';
import { random } from './visitors.mjs';

const CATEGORIES = 8, PRODUCTS = 40;
const WORDS = 'oak pine steel glass cotton wool light round long small garden kitchen table chair lamp shelf box rug'.split(' ');

/** A picture without a pattern (PNG, 8 bits of grey), of about `bytes` bytes: nothing packs it. */
function picture(draw, bytes) {
  const width = 320, height = Math.max(1, Math.round(bytes / (width + 1)));
  const rows = Buffer.alloc((width + 1) * height);
  for (let at = 0; at < rows.length; at++) rows[at] = at % (width + 1) ? draw() * 256 : 0;
  const chunk = (name, data) => {
    const body = Buffer.concat([Buffer.from(name, 'latin1'), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head[8] = 8;
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), chunk('IHDR', head), chunk('IDAT', deflateSync(rows)),
    chunk('IEND', Buffer.alloc(0))]);
}

/** Writes the site into a folder. */
export function makeShop(folder) {
  const draw = random(2026);
  const pick = list => list[Math.floor(draw() * list.length)];
  const text = words => Array.from({ length: words }, () => pick(WORDS)).join(' ');
  const put = (path, content) => writeFileSync(join(folder, path), content);
  const link = (to, name) => `<li><a href="/${to}">${name}</a></li>`;
  const menu = `<nav><ul>${Array.from({ length: CATEGORIES }, (_, at) => link(`category-${at}.html`, `category ${at}`)).join('')}</ul></nav>`;
  const page = (title, body) => `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${title}</title>
    <link rel="stylesheet" href="/shop.css"><script src="/shop.js" defer></script></head>
    <body><header><a href="/index.html">home of the shop</a></header>${menu}<main><h1>${title}</h1>${body}</main></body></html>`;
  put('robots.txt', 'User-agent: *\nAllow: /\n');
  put('shop.css', 'li { display: inline-block; margin: 6px; padding: 4px } img { height: 240px; width: 320px }\n' + `/* ${text(1500)} */`);
  put('shop.js', `// ${text(3000)}\ndocument.body.dataset.ready = 1;\n`);
  mkdirSync(join(folder, 'pictures'));
  const products = Array.from({ length: PRODUCTS }, (_, at) => ({ at, of: at % CATEGORIES, name: `${pick(WORDS)} ${pick(WORDS)} ${at}` }));
  put('index.html', page('Welcome', `<p>${text(300)}</p><ul>${products.slice(0, 6).map(({ at, name }) => link(`product-${at}.html`, name)).join('')}</ul>`));
  for (let of = 0; of < CATEGORIES; of++) {
    const own = products.filter(one => one.of === of);
    put(`category-${of}.html`, page(`Category ${of}`, `<ul>${own.map(({ at, name }) => link(`product-${at}.html`, name)).join('')}</ul><p>${text(800)}</p>`));
  }
  for (const { at, of, name } of products) {
    put(`pictures/${at}.png`, picture(draw, 15_000 + draw() * 90_000));
    const others = products.filter(one => one.of === of && one.at !== at).slice(0, 4);
    put(`product-${at}.html`, page(name, `<img src="/pictures/${at}.png" alt="${name}"><p>${text(500 + draw() * 1500)}</p>
      <ul>${others.map(({ at, name }) => link(`product-${at}.html`, name)).join('')}</ul>`));
  }
}
