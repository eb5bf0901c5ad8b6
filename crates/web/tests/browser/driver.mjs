// Drives a Chromium for tests/browser.rs: one JSON command a line on standard input, one JSON answer
// a line on standard output. Ends with its input.
//
//   node driver.mjs CHROMIUM PROFILE [--trust=FILE] [FLAG OF CHROMIUM]
//
// FILE is a certificate in PEM that is trusted as if a CA had signed it.
//
// {"goto": URL}              goes to a page, until it has loaded
// {"click": SELECTOR, "to": URL}  clicks, until that page has loaded
// {"back": true}             goes back in the history
// {"reload": true}           loads the current page again
// {"run": EXPRESSION}        answers with its value
// {"before": SCRIPT}         runs it before the scripts of every page to come
// {"devtools": METHOD, "with": PARAMETERS}  as the browser's developer tools do
import { createHash, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [executablePath, profile, ...more] = process.argv.slice(2);
// By its key, and not by overlooking errors: nothing is cached that came with one.
const flags = more.map(flag => {
  if (!flag.startsWith('--trust=')) return flag;
  const { publicKey } = new X509Certificate(readFileSync(flag.slice('--trust='.length)));
  const key = publicKey.export({ type: 'spki', format: 'der' });
  return '--ignore-certificate-errors-spki-list=' + createHash('sha256').update(key).digest('base64');
});
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  args: [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    ...flags,
  ],
});
const page = context.pages()[0] ?? (await context.newPage());
page.setDefaultTimeout(90_000);
let tools;
const answer = value => process.stdout.write(JSON.stringify(value) + '\n');
answer({ value: 'ready' });

for await (const line of createInterface({ input: process.stdin })) {
  const { goto, click, to, back, reload, run, before, devtools, with: parameters } = JSON.parse(line);
  try {
    let value = null;
    if (goto) await page.goto(goto);
    if (click) {
      await page.click(click, { noWaitAfter: true });
      await page.waitForURL(to);
    }
    if (back) await page.goBack();
    if (reload) await page.reload();
    if (before) await page.addInitScript(before);
    if (devtools) {
      tools ??= await context.newCDPSession(page);
      await tools.send(devtools, parameters);
    }
    if (run) value = await page.evaluate(run);
    answer({ value: value ?? null });
  } catch (error) {
    answer({ error: String(error) });
  }
}
await context.close();
