// Visitors of a site, made up from a seed: which page they read, for how long, which link they want
// then, and how their pointer gets there. The same seed always gives the same visitor.
//
// What visitors of one site have in common is what they want: each page has a popularity, which
// depends on the site alone (Zipf's law over an order that is drawn once). All else differs from
// visitor to visitor. docs/experiments.md has the numbers and where they come from.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, posix, relative } from 'node:path';

/** Numbers in [0, 1): mulberry32. */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * The pages below a folder, and for each the pages that it links to, in the order of the page, and what it
 * needs besides: as its text says, or where it is given as a file with what survey.mjs prints says, which
 * leaves out links that a user cannot press.
 */
export function readSite(folder, survey) {
  const files = readdirSync(folder, { recursive: true })
    .filter(name => statSync(join(folder, name)).isFile());
  const pages = files.filter(name => name.endsWith('.html')).map(name => '/' + name).sort();
  if (survey) {
    const { links, parts } = JSON.parse(readFileSync(survey, 'utf8'));
    const of = (found, isThere) => new Map(pages.map(page => [page, found[page].filter(isThere)]));
    return {
      pages, links: of(links, () => true), popularity: popularity(pages),
      // Browsers ask for files that the site has lost as well.
      parts: of(parts, part => files.includes(relative('/', part))),
    };
  }
  const known = new Set(pages);
  const links = new Map();
  const parts = new Map();
  for (const page of pages) {
    const text = readFileSync(join(folder, page), 'utf8');
    const address = target => {
      if (!target || /^([a-z]+:|\/\/|#|data:)/i.test(target)) return null;
      const bare = decodeURI(target.replace(/[?#].*$/, ''));
      return posix.resolve(posix.dirname(page), bare.endsWith('/') ? bare + 'index.html' : bare);
    };
    const found = pattern => [...new Set([...text.matchAll(pattern)].map(match => address(match[1])))];
    links.set(page, found(/<a\b[^>]*?\shref="([^"]*)"/gi).filter(to => known.has(to) && to !== page));
    parts.set(page, found(/<(?:img|script|link)\b[^>]*?\s(?:src|href)="([^"]*)"/gi)
      .filter(part => part && !known.has(part) && files.includes(relative('/', part))));
  }
  return { pages, links, parts, popularity: popularity(pages) };
}

// The exponent of Zipf's law for pages of a site.
const ZIPF = 0.8;

function popularity(pages) {
  const draw = random(1995);
  const order = pages.map(page => [draw(), page]).sort((a, b) => a[0] - b[0]);
  return new Map(order.map(([, page], rank) => [page, (rank + 1) ** -ZIPF]));
}

function choose(draw, entries) {
  let rest = draw() * entries.reduce((sum, [, weight]) => sum + weight, 0);
  for (const [value, weight] of entries) {
    rest -= weight;
    if (rest <= 0) return value;
  }
  return entries.at(-1)[0];
}

// A visit goes on with this probability after each page: seven pages on average.
const GOES_ON = 6 / 7;
// A page that was read already is wanted so much less.
const SEEN = 0.2;
// How long a page is read: Weibull's distribution. A shape below one: who has stayed, stays. The last page
// of a visit is shown for `last_s`: no visitor waits for what comes then, but prefetches go on.
const DWELL = { shape: 0.8, scale_s: 15, least_s: 1, most_s: 40, last_s: 10 };
// Fitts's law in Shannon's form: seconds = at_least + per_bit · log2(distance / width + 1).
const FITTS = { at_least_s: 0.12, per_bit_s: 0.15 };
// From the arrival on a link to the press, and from the press to the release.
const HOVER_S = [0.08, 0.35];
const PRESS_S = [0.05, 0.12];

export class Visitor {
  // What is wanted and for how long it is read, and how the hand moves: who only writes down what
  // is wanted has the same visitor.
  #draw;
  #hand;
  #site;
  #seen = new Set();

  constructor(site, seed) {
    this.#site = site;
    this.#draw = random(Math.imul(seed, 0x9e3779b1));
    this.#hand = random(Math.imul(seed, 0x85ebca6b) + 1);
  }

  /** Where the visit begins. */
  start() {
    const first = choose(this.#draw, [...this.#site.popularity]);
    this.#seen.add(first);
    return first;
  }

  /** The page that is wanted after this one; null at the end of the visit. */
  next(page) {
    const goesOn = this.#draw() < GOES_ON;
    const links = this.#site.links.get(page) ?? [];
    if (!goesOn || !links.length) return null;
    const weight = to => this.#site.popularity.get(to) * (this.#seen.has(to) ? SEEN : 1);
    const to = choose(this.#draw, links.map(link => [link, weight(link)]));
    this.#seen.add(to);
    return to;
  }

  /** Milliseconds that a page is read. */
  dwell() {
    const { shape, scale_s, least_s, most_s } = DWELL;
    const drawn = scale_s * (-Math.log(1 - this.#draw())) ** (1 / shape);
    return 1e3 * Math.min(most_s, Math.max(least_s, drawn));
  }

  #between([from, to]) {
    return 1e3 * (from + (to - from) * this.#hand());
  }

  hover() {
    return this.#between(HOVER_S);
  }

  press() {
    return this.#between(PRESS_S);
  }

  /**
   * The way of the pointer to a box: [milliseconds from the start, x, y], one in 16 ms. It speeds
   * up and slows down smoothly (minimum jerk) along a curve that bends aside a little.
   */
  path(from, box) {
    const to = {
      x: box.x + box.width * (0.25 + 0.5 * this.#hand()),
      y: box.y + box.height * (0.3 + 0.4 * this.#hand()),
    };
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const distance = Math.hypot(dx, dy);
    const width = Math.max(4, Math.min(box.width, box.height));
    const lasts = 1e3 * (FITTS.at_least_s + FITTS.per_bit_s * Math.log2(distance / width + 1));
    const bend = (this.#hand() - 0.5) * 0.2;
    const steps = Math.max(2, Math.round(lasts / 16));
    return Array.from({ length: steps }, (_, step) => {
      const part = (step + 1) / steps;
      const way = part ** 3 * (10 - 15 * part + 6 * part ** 2);
      const aside = bend * Math.sin(Math.PI * way);
      return [part * lasts, from.x + dx * way - dy * aside, from.y + dy * way + dx * aside];
    });
  }
}

/**
 * The pages of a visit with how long each is read, in milliseconds, the first `most` of them; and the visitor,
 * whose pointer has not moved yet.
 */
export function visit(site, seed, most = Infinity) {
  const visitor = new Visitor(site, seed);
  const pages = [];
  for (let page = visitor.start(); page && pages.length < most;) {
    const dwell = visitor.dwell(), next = visitor.next(page);
    const isLast = !next || pages.length + 1 === most;
    pages.push({ page, dwell: isLast ? 1e3 * DWELL.last_s : dwell });
    page = next;
  }
  return { visitor, pages };
}

/**
 * Visits with so many navigations by links together, from a seed on: `[{ seed, visitor, pages }]`. Of the last
 * one only the beginning counts. Who leaves after a single page has come, too.
 */
export function visits(site, first, navigations) {
  const all = [];
  for (let seed = first, left = navigations; left > 0; seed++) {
    if (seed - first > 100 * navigations) throw new Error('visitors of this site follow no links');
    const { visitor, pages } = visit(site, seed, left + 1);
    left -= pages.length - 1;
    all.push({ seed, visitor, pages });
  }
  return all;
}
