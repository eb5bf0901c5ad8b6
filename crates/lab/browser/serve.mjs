// Serves a site by nginx, with one way of prefetching. Runs until it is ended.
//
//   node serve.mjs POLICY ARCHIVE
//
// POLICY is none, quicklink, quicklink-N (N links of a page at the most), instant.page, immediate, eager,
// moderate (speculation rules), lull, or lull-rules (`lull web --speculation-rules`). The site is at port
// 8080, with `lull web` before it at port 8090. Files go into LULL_SCRATCH.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, openSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const [policy, archive] = process.argv.slice(2);
const { LULL: lull, LULL_SCRATCH: scratch, LULL_CONTROL: control } = process.env;
const here = dirname(fileURLToPath(import.meta.url));
// Visitors to learn from, by seeds that no test has (visit.mjs).
const LEARNED = { visitors: 2000, seed: 1_000_000 };

const rules = eagerness => '<script type="speculationrules">' + JSON.stringify({
  prefetch: [{ source: 'document', where: { href_matches: '/*' }, eagerness }],
}) + '</script>';
const quicklink = options => '<script src="/prefetching/quicklink/dist/quicklink.umd.js"></script>' +
  `<script>addEventListener("load", () => quicklink.listen(${options}))</script>`;
const [, limit] = policy.match(/^quicklink-([0-9]+)$/) ?? [];
const added = limit ? quicklink(`{limit:${limit}}`) : {
  none: '',
  lull: '',
  'lull-rules': '',
  quicklink: quicklink(''),
  'instant.page': '<script src="/prefetching/instant.page/instantpage.js" type="module"></script>',
  immediate: rules('immediate'),
  eager: rules('eager'),
  moderate: rules('moderate'),
}[policy];
if (added === undefined) throw new Error(`no policy ${policy}`);

const site = join(scratch, 'site'), base = join(scratch, 'nginx');
mkdirSync(site);
execFileSync('tar', ['--zstd', '-xf', archive, '-C', site]);
const filter = added && `sub_filter '</body>' '${added}</body>'; sub_filter_once on;`;
writeFileSync(base + '.conf', `
  daemon off; master_process off; pid ${base}.pid; error_log ${base}.log;
  events { worker_connections 1024; }
  http {
    include /etc/nginx/mime.types; access_log off; gzip on; gzip_types *;
    client_body_temp_path ${base}-1; proxy_temp_path ${base}-2; fastcgi_temp_path ${base}-3;
    uwsgi_temp_path ${base}-4; scgi_temp_path ${base}-5;
    server {
      listen 8080; root ${site}; expires 5m; ${filter}
      location /prefetching/ { alias ${here}/node_modules/; expires 5m; }
    }
  }`);
const run = (program, args, output) => {
  const child = spawn(program, args, { stdio: ['ignore', output ?? 'ignore', 'inherit'] });
  child.on('exit', code => process.exit(code || 1));
};
run('nginx', ['-e', base + '.log', '-c', base + '.conf']);
if (policy.startsWith('lull')) {
  const known = join(scratch, 'known.log');
  execFileSync(process.execPath,
    [join(here, 'log.mjs'), site, String(LEARNED.visitors), String(LEARNED.seed)],
    { stdio: ['ignore', openSync(known, 'w'), 'inherit'] });
  run(lull, ['web', '--upstream', 'http://127.0.0.1:8080', '--listen', '0.0.0.0:8090',
    // All visitors come from one address, each on a day of his own.
    '--visitor-bytes', '1000000000', '--log', known, '--hold-back', '0', '--dscp', 'none',
    ...(control ? ['--cc', control] : []),
    ...(policy === 'lull-rules' ? ['--speculation-rules'] : [])]);
}
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
