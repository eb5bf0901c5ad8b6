// The browser of made-up visitors, and which links of a page one can press there.
import { execFileSync } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

export const VIEWPORT = { width: 1280, height: 800 };
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** What people's browser calls itself: without the word by which servers know it for a robot's. */
export function agent() {
  const [, version] = execFileSync(executablePath, ['--version'], { stdio: ['ignore', 'pipe', 'ignore'] })
    .toString().match(/(\d+)\.\d+/);
  return `Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/${version}.0.0.0 Safari/537.36`;
}

/** The certificate of serve.mjs is trusted by its key. Nothing is cached of a site with an overlooked error. */
function trusted() {
  const cert = join(process.env.LULL_SCRATCH ?? '', 'cert.pem');
  if (!process.env.LULL_SCRATCH || !existsSync(cert)) return [];
  const key = new X509Certificate(readFileSync(cert)).publicKey.export({ type: 'spki', format: 'der' });
  return ['--ignore-certificate-errors-spki-list=' + createHash('sha256').update(key).digest('base64')];
}

/** Runs `work` with a page of a browser with an empty profile, no longer than `most` milliseconds. */
export async function inBrowser(origin, most, work) {
  const profile = mkdtempSync(join(process.env.LULL_SCRATCH ?? tmpdir(), 'profile-'));
  const begun = performance.now();
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    viewport: VIEWPORT,
    timeout: Math.min(most, 120_000),
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
      // An argument and no setting of the page's: prefetches of the browser's own have it as well.
      '--user-agent=' + agent(),
      // Nothing outside: a page's counter of visits is not waited for.
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE ' + new URL(origin).hostname,
      // Speculation rules want a site that is safe from eavesdroppers; a namespace is.
      '--unsafely-treat-insecure-origin-as-secure=' + origin,
      ...trusted(),
    ],
  });
  let timer;
  const late = new Promise((_, fail) => {
    const left = Math.max(1, most - (performance.now() - begun));
    timer = setTimeout(() => fail(new Error(`not done after ${Math.round(most / 1e3)} s`)), left);
  });
  try {
    const page = context.pages()[0] ?? await context.newPage();
    return await Promise.race([work(page), late]);
  } finally {
    clearTimeout(timer);
    await context.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** The page of a site that a URL leads to. */
export const pageOf = url => {
  const path = decodeURI(new URL(url).pathname);
  return path.endsWith('/') ? path + 'index.html' : path;
};

/**
 * The links of a page that can be pressed, after it was scrolled to them: for each page that they lead to
 * the first such link's box in the window, `[page, box]`. With `to` only what leads there, and the page
 * stays scrolled to it. Links in closed menus, under others, or within the page are none.
 */
export const pressable = (page, to = null) => page.evaluate(async to => {
  const frame = () => new Promise(done => requestAnimationFrame(done));
  const found = new Map();
  for (const link of document.querySelectorAll('a[href]')) {
    const url = new URL(link.href);
    if (url.origin !== location.origin || link.target || link.hasAttribute('download')) continue;
    const path = decodeURI(url.pathname), leads = path.endsWith('/') ? path + 'index.html' : path;
    if (url.pathname === location.pathname || found.has(leads) || to && leads !== to) continue;
    if (!link.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    // Where a link is broken over lines the first one counts.
    const first = () => [...link.getClientRects()].find(box => box.width >= 4 && box.height >= 4);
    const isIn = box => box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
    if (!first()) continue;
    if (!isIn(first())) {
      link.scrollIntoView({ block: 'center', behavior: 'instant' });
      await frame();
    }
    const box = first();
    // All of where the hand aims: Visitor.path.
    const isThere = box && isIn(box) && [0.25, 0.5, 0.75].every(x => [0.3, 0.5, 0.7].every(y =>
      link.contains(document.elementFromPoint(box.x + x * box.width, box.y + y * box.height))));
    if (!isThere) continue;
    found.set(leads, { x: box.x, y: box.y, width: box.width, height: box.height });
    if (to) break;
  }
  return [...found];
}, to);
