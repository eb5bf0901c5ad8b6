//! The keys that are not options of the command line, each with its text in the reference.

/// Names of keys, and their effects.
pub(super) type Keys = &'static [(&'static str, &'static str)];

/// `[acme]`.
pub(super) const ACME: Keys = &[
    ("folder", "folder for account, certificates and keys. Required"),
    ("directory", "URL of the CA's directory (Let's Encrypt)"),
    ("contact", "`mailto:` URL that the CA writes to"),
    (
        "ca",
        "file with a certificate, in PEM, that the CA's own server is judged by, instead of the system's",
    ),
];

/// `[[site]]`.
pub(super) const SITE: Keys = &[
    (
        "names",
        "hosts of the site, without ports. `*.example.org` is every host with one more label. Without it the \
         site has every host that no other site has",
    ),
    (
        "upstream",
        "server of the site, or a list of at most 64 servers: [`http`, `https`, `h2c`, `h2` or \
         `unix`](http.md). Required",
    ),
    ("acme", "`true`: the certificate comes from the CA in `[acme]`, in place of `cert` and `key`"),
    (
        "redirect-to-https",
        "`true`, or the port of HTTPS: requests over HTTP are answered by 301 (`GET`, `HEAD`) or 308. Paths \
         below `/.well-known/acme-challenge/` are not",
    ),
    (
        "hsts",
        "`true` for `max-age=31536000`, or the value of `Strict-Transport-Security` in responses over HTTPS",
    ),
    ("health-check", "a table, see below"),
    ("request-headers", "a table, see below"),
    ("response-headers", "a table, see below"),
    ("error-pages", "a table, see below"),
    ("route", "tables, see below"),
];

/// `[site.health-check]`.
pub(super) const HEALTH_CHECK: Keys = &[
    ("path", "path to request from each server of `upstream`. Required"),
    ("interval", "seconds between two checks (10)"),
    ("timeout", "seconds until an answer is late (5)"),
];

/// `[[site.route]]`.
pub(super) const ROUTE: Keys = &[
    ("path", "beginning of the paths. Required"),
    ("upstream", "server, or a list of servers. Required"),
    ("upstream-host", "as in the site"),
    ("upstream-ca", "as in the site"),
    ("prefetch-upstream", "as in the site"),
    ("health-check", "a table `[site.route.health-check]` as in the site"),
];

/// Their names.
pub(super) fn names(keys: Keys) -> impl Iterator<Item = &'static str> + Clone {
    keys.iter().map(|(name, _)| *name)
}
