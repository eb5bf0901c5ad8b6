// Serves a site by nginx, with one way of prefetching. Runs until it is ended.
//
//   node serve.mjs POLICY ARCHIVE [https]
//
// ARCHIVE is a file, or `shop` for a site that is made up (shop.mjs). With `https` the site is at port 8480, and `lull web`
// at 8490, both over TLS and HTTP/2, with a certificate in LULL_SCRATCH that the visitors' browsers trust.
//
// POLICY is none, quicklink, instant.page, immediate, eager, moderate (speculation rules), lull, lull-W (`lull web
// --min-benefit W`), or lull-rules (`lull web --speculation-rules`). The site is at port 8080, with `lull web` before it at
// port 8090. Files go into LULL_SCRATCH: `survey.json` is there before the ports are open to visitors, `access.log` has a
// line of JSON for each request that nginx has answered, and `lull.log` those that `lull web` has.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, openSync, renameSync, writeFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeShop } from './shop.mjs';
import { until } from './waiting.mjs';

const [policy, archive, protocol] = process.argv.slice(2);
const { LULL: lull, LULL_SCRATCH: scratch, LULL_CONTROL: control, LULL_HURRY: hurry } = process.env;
const here = dirname(fileURLToPath(import.meta.url));
// Visitors to learn from, by seeds that no test has (visit.mjs).
const LEARNED = { visitors: 2000, seed: 1_000_000_000 };

const rules = eagerness => '<script type="speculationrules">' + JSON.stringify({
  prefetch: [{ source: 'document', where: { href_matches: '/*' }, eagerness }],
}) + '</script>';
// Of itself quicklink takes a link to a place within the page for one to a page. Its documentation has this to leave
// such links out.
const within = '(uri,a)=>!!a.hash&&a.pathname===location.pathname';
const quicklink = '<script src="/prefetching/quicklink/dist/quicklink.umd.js"></script>' +
  `<script>addEventListener("load",()=>quicklink.listen({ignores:[${within}]}))</script>`;
// The site as it is published has each font in many formats, the archive in one. A style names another, and a font that
// is not there is requested by every page again, which then has not loaded for a round trip more.
const fonts = 'location ~ ^(.+)[.]woff$ { try_files $1.woff $1.woff2 =404; }';
// So that nginx does the same for all.
const NOTHING = '<!-- -->';
const [, worth] = policy.match(/^lull-([0-9.]+)$/) ?? [];
const isLull = worth !== undefined || ['lull', 'lull-rules'].includes(policy);
const added = isLull ? NOTHING : {
  none: NOTHING,
  quicklink,
  'instant.page': '<script src="/prefetching/instant.page/instantpage.js" type="module"></script>',
  immediate: rules('immediate'),
  eager: rules('eager'),
  moderate: rules('moderate'),
}[policy];
if (added === undefined) throw new Error(`no policy ${policy}`);

const site = join(scratch, 'site'), base = join(scratch, 'nginx');
mkdirSync(site);
if (archive === 'shop') makeShop(site);
else execFileSync('tar', ['--zstd', '-xf', archive, '-C', site]);
const [cert, key] = ['cert.pem', 'key.pem'].map(name => join(scratch, name));
if (protocol === 'https') {
  const address = process.env.LULL_LEFT_1 ?? '127.0.0.1';
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '30',
    '-subj', '/CN=site', '-addext', `subjectAltName=IP:${address},DNS:localhost`, '-keyout', key, '-out', cert + '.made'],
  { stdio: 'ignore' });
  // Visitors wait for it.
  renameSync(cert + '.made', cert);
}
const secure = existsSync(cert) ? `listen 8480 ssl http2; ssl_certificate ${cert}; ssl_certificate_key ${key};` : '';
// Bytes are compared, so it packs as `lull web` does.
writeFileSync(base + '.conf', `
  daemon off; master_process off; pid ${base}.pid; error_log ${base}.log;
  events { worker_connections 1024; }
  http {
    include /etc/nginx/mime.types; gzip on; gzip_comp_level 4; gzip_types *; access_log off;
    log_format told escape=json '{"path":"$uri","status":$status,"bytes":$bytes_sent,"ahead":"$http_sec_purpose",'
      '"method":"$request_method","agent":"$http_user_agent"}';
    client_body_temp_path ${base}-1; proxy_temp_path ${base}-2; fastcgi_temp_path ${base}-3;
    uwsgi_temp_path ${base}-4; scgi_temp_path ${base}-5;
    server {
      listen 8080; ${secure} root ${site}; expires 10m; access_log ${scratch}/access.log told;
      sub_filter '</body>' '${added}</body>'; sub_filter_once on;
      sub_filter_last_modified on;
      ${fonts}
      location /prefetching/ { alias ${here}/node_modules/; expires 10m; }
    }
    # For the survey: the pages as they are, and no line in the log.
    server { listen 127.0.0.1:8081; root ${site}; expires 10m; ${fonts} }
  }`);

const children = [];
const end = code => {
  for (const child of children) child.kill('SIGTERM');
  process.exit(code);
};
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => end(0));
const run = (program, args) => {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  children.push(child);
  child.on('error', error => {
    console.error(error.message);
    end(1);
  });
  child.on('exit', code => end(code || 1));
};
// What is done beforehand gives way to measurements beside it, and on a busy machine never ends. With LULL_HURRY it takes
// its share. It ends with this.
const gently = hurry ? [] : ['chrt', '--idle', '0'];
const made = (file, script, ...args) => new Promise((done, fail) => {
  const [program, ...first] = [...gently, process.execPath, join(here, script), ...args];
  const child = spawn(program, first,
    { stdio: ['ignore', openSync(file + '.part', 'w'), 'inherit'] });
  children.push(child);
  child.on('error', fail);
  child.on('exit', code => {
    children.splice(children.indexOf(child), 1);
    if (code !== 0) return fail(new Error(`${script} has failed: ${code}`));
    renameSync(file + '.part', file);
    done(file);
  });
});

try {
  run('nginx', ['-e', base + '.log', '-c', base + '.conf']);
  await until('nginx', 30_000, async () => (await fetch('http://127.0.0.1:8081/robots.txt')).status > 0);
  const survey = join(scratch, 'survey.json');
  await made(survey + '.made', 'survey.mjs', 'http://127.0.0.1:8081', site);
  if (isLull) {
    const known = await made(join(scratch, 'known.log'), 'log.mjs', site, String(LEARNED.visitors),
      String(LEARNED.seed), survey + '.made');
    writeFileSync(join(scratch, 'token'), randomBytes(16).toString('hex') + '\n', { mode: 0o600 });
    run(lull, ['web', '--upstream', 'http://127.0.0.1:8080',
      ...(secure ? ['--listen', 'https://0.0.0.0:8490', '--cert', cert, '--key', key] : ['--listen', '0.0.0.0:8090']),
      '--token-file', join(scratch, 'token'), '--access-log', join(scratch, 'lull.log'),
      // All visitors come from one address, each on a day of his own.
      '--visitor-bytes', '1000000000', '--log', known, '--control-group-share', '0', '--dscp', 'none',
      ...(control ? ['--cc', control] : []),
      ...(worth === undefined ? [] : ['--min-benefit', worth]),
      ...(policy === 'lull-rules' ? ['--speculation-rules'] : [])]);
  }
  renameSync(survey + '.made', survey);
} catch (error) {
  console.error(error.message);
  end(1);
}
