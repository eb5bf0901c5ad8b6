// Minifies the browser's scripts into served/. Run it after a change of a script:
//
//     npm ci --ignore-scripts --prefix crates/web/tests/browser
//     node crates/web/script/build.mjs
//
// With --check it writes nothing, and fails if a file in served/ is not current.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(new URL('../tests/browser/package.json', import.meta.url));
const esbuild = require('esbuild');

const read = name => readFileSync(new URL(name, import.meta.url), 'utf8');
// The line of lull.js that one of the two ways to prefetch a page replaces.
const HERE = '// Here by-fetch.js or by-worker.js comes in: how a page is prefetched.\n';
const page = way => {
  const parts = read('lull.js').split(HERE);
  if (parts.length !== 2) throw new Error('lull.js must have the line once: ' + HERE);
  return parts.join(read(way));
};
const scripts = {
  'by-fetch.js': page('by-fetch.js'),
  'by-worker.js': page('by-worker.js'),
  // A function around it, so that names of the top level become short as well.
  'worker.js': `(() => {\n${read('worker.js')}})();\n`,
};

let old = 0;
for (const [name, source] of Object.entries(scripts)) {
  const { code } = esbuild.transformSync(source, { minify: true, target: 'esnext', charset: 'utf8' });
  const file = new URL('served/' + name, import.meta.url);
  if (!process.argv.includes('--check')) {
    writeFileSync(file, code);
  } else if (read('served/' + name) !== code) {
    console.error(`${fileURLToPath(file)} is not current: run node crates/web/script/build.mjs`);
    old++;
  }
}
process.exitCode = old ? 1 : 0;
