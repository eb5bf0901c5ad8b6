use super::*;

/// Reads a file with this text, and files beside it.
fn read(text: &str) -> Result<Setup> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.toml");
    fs::write(&path, text).unwrap();
    fs::write(folder.path().join("502.html"), "<h1>Sorry</h1>").unwrap();
    for (name, host) in [("a", "a.example"), ("b", "b.example")] {
        let pair =
            rcgen::generate_simple_self_signed([host.to_owned(), format!("*.{host}")]).unwrap();
        fs::write(folder.path().join(format!("{name}.pem")), pair.cert.pem()).unwrap();
        fs::write(folder.path().join(format!("{name}.key")), pair.signing_key.serialize_pem())
            .unwrap();
    }
    Setup::read(&path)
}

const GOOD: &str = r#"
listen = ["https://127.0.0.1:0", "http://127.0.0.1:0"]
threads = 2
idle-timeout = 30
access-log = "access.log"

[[site]]
names = ["a.example", "*.a.example"]
upstream = ["http://127.0.0.1:8080", "unix:/run/a.sock"]
cert = "a.pem"
key = "a.key"
redirect-to-https = true
hsts = "max-age=600; includeSubDomains"
deny = ["/admin", "/private/*"]
control-group-share = 0.1
speculation-rules = true

[site.health-check]
path = "/health"
interval = 0.5

[site.request-headers]
X-Site = "a"

[site.response-headers]
Server = false
X-Frame-Options = "DENY"

[site.error-pages]
502 = "502.html"

[[site.route]]
path = "/api/"
upstream = "http://127.0.0.1:9000"
upstream-host = "api.internal"

[[site]]
upstream = "http://127.0.0.1:8081"
plain = true
"#;

#[test]
fn file_is_read_as_it_describes_the_sites() {
    let (config, prefetching) = read(GOOD).unwrap().into_config();
    assert_eq!((config.listen.len(), config.threads.map(|count| count.get())), (2, Some(2)));
    assert_eq!(config.timeouts.client_idle.as_secs(), 30);
    assert!(matches!(&config.access_log, Some(lull_web::proxy::AccessLog::File(path))
        if path.is_absolute() && path.ends_with("access.log")));
    let [site, rest] = &config.sites[..] else { panic!("{}", config.sites.len()) };
    assert_eq!(site.names, ["a.example", "*.a.example"]);
    assert_eq!(site.upstream.servers.len(), 2);
    assert_eq!(site.redirect_to_https, Some(443));
    assert_eq!(site.hsts.as_ref().unwrap(), "max-age=600; includeSubDomains");
    let health = site.upstream.health.as_ref().unwrap();
    assert_eq!((health.path.as_str(), health.interval.as_millis()), ("/health", 500));
    assert_eq!(&site.error_pages[&502].body[..], b"<h1>Sorry</h1>");
    assert_eq!(site.routes[0].prefix, "/api/");
    assert_eq!(site.routes[0].upstream.host.as_ref().unwrap(), "api.internal");
    assert!(site.certificate.as_ref().unwrap().key.is_absolute());
    assert!(rest.names.is_empty() && rest.certificate.is_none());
    assert_eq!(prefetching[0].1, ["a.example"]);
}

/// The text with a line in place of another, or of nothing at the end of the first site.
fn with(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    GOOD.replacen(old, new, 1)
}

#[test]
fn earlier_names_of_keys_are_still_read() {
    let text = with("control-group-share = 0.1", "hold-back = 0.1\nleast-worth = 0.5");
    assert!(read(&text).is_ok());
}

#[test]
fn prefetch_servers_are_read_for_sites_and_routes() {
    let of_site =
        with("deny = [", "prefetch-upstream = [\"http://[::1]:1\", \"unix:/b\"]\ndeny = [");
    let of_route = of_site
        .replace("upstream-host = ", "prefetch-upstream = \"http://[::1]:2\"\nupstream-host = ");
    let (config, _) = read(&of_route).unwrap().into_config();
    let site = &config.sites[0];
    assert_eq!(site.upstream.prefetch_servers.len(), 2);
    assert_eq!(site.routes[0].upstream.prefetch_servers[0].to_string(), "http://[::1]:2");
}

#[test]
fn faulty_file_is_rejected_with_its_line_and_a_remedy() {
    for (text, line, words) in [
        (with("threads = 2", "threads = 0"), 3, &["threads = '0'"][..]),
        (with("threads = 2", "thread = 2"), 3, &["'thread'", "did you mean 'threads'?"]),
        (with("threads = 2", "threads = "), 3, &[]),
        (with("idle-timeout = 30", "idle-timeout = \"soon\""), 4, &["'soon'", "number of seconds"]),
        (with("deny = [", "deni = ["), 14, &["did you mean 'deny'?"]),
        (with("\"/admin\"", "\"admin\""), 14, &["'/admin'"]),
        (with("control-group-share = 0.1", "control-group-share = 2"), 15, &["share from 0 to 1"]),
        (with("speculation-rules = true", "speculation-rules = 7"), 16, &["true or false"]),
        (with("\"http://127.0.0.1:8080\"", "\"127.0.0.1:8080\""), 9, &["write http://HOST:PORT"]),
        (with("*.a.example", "a.example:8443"), 8, &["without its port"]),
        (with("names = [\"a.example\"", "names = [\"b.example\""), 10, &["not for b.example"]),
        (with("cert = \"a.pem\"", "cert = \"none.pem\""), 10, &["none.pem", "cannot read"]),
        (with("key = \"a.key\"", "key = \"b.key\""), 10, &["cannot be used together"]),
        (with("key = \"a.key\"\n", ""), 7, &["--key"]),
        (with("\"https://127.0.0.1:0\", ", ""), 12, &["https", "add one"]),
        (with("redirect-to-https = true", "redirect-to-https = 0"), 12, &["1 to 65535"]),
        (with("max-age=600;", ""), 13, &["max-age=SECONDS"]),
        (with("path = \"/health\"", "path = \"health\""), 19, &["must begin with /"]),
        (with("path = \"/health\"\n", ""), 18, &["needs a path"]),
        (with("interval = 0.5", "interval = 0"), 20, &["above 0"]),
        (with("X-Site = \"a\"", "Content-Length = \"1\""), 23, &["content-length", "leave it out"]),
        (with("Server = false", "Server = true"), 26, &["= \"VALUE\"", "= false"]),
        (with("502 = \"502.html\"", "502 = \"none.html\""), 30, &["none.html"]),
        (with("502 = ", "404 = "), 30, &["502, 503 and 504"]),
        (with("path = \"/api/\"\n", ""), 32, &["path = \"/api/\""]),
        (with("upstream = \"http://127.0.0.1:8081\"\n", ""), 37, &["no upstream"]),
        (with("plain = true", "names = [\"a.example\"]"), 39, &["in two sites"]),
        (with("names = [\"a.example\", \"*.a.example\"]\n", ""), 36, &["two sites have no names"]),
        (with("plain = true", "plain = true\nhold-back = 0.5"), 37, &["cannot be used with"]),
        (with("plain = true", "acme = true"), 39, &["[acme]", "folder"]),
        (with("[[site]]", "[acme]\nfolder = 7\n[[site]]"), 8, &["is a text"]),
        (with("[[site]]", "[acme]\n[[site]]"), 7, &["needs a folder"]),
        (with("hsts = ", "acme = true #"), 13, &["[acme]"]),
        ("listen = \"127.0.0.1:0\"".to_owned(), 1, &["[[site]]"]),
        ("[[site]]\nupstream = \"http://127.0.0.1:1\"".to_owned(), 1, &["listen = "]),
        ("site = 7".to_owned(), 1, &["double brackets"]),
    ] {
        let error = read(&text).unwrap_err();
        let shown = error.to_string();
        assert!(
            !shown.contains('\n') && shown.contains(&format!("web.toml:{line}: ")),
            "{line}: {shown}"
        );
        for word in words {
            assert!(shown.contains(word), "no '{word}' in {shown}");
        }
    }
}

/// The examples of the guide, with files beside them.
#[test]
fn examples_of_the_guide_are_good() {
    let guide = include_str!("../../../../../docs/how-to/web-sites.md");
    let blocks = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: Vec<&str> = blocks.collect();
    let [sites, acme, route, servers, headers] = blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    let listen = "listen = \"127.0.0.1:0\"\n";
    let folder = tempfile::tempdir().unwrap();
    for (name, hosts) in [
        ("example.org", ["www.example.org", "example.org"]),
        ("example.net", ["*.example.net", "a"]),
    ] {
        let pair = rcgen::generate_simple_self_signed(hosts.map(str::to_owned)).unwrap();
        fs::write(folder.path().join(format!("{name}.pem")), pair.cert.pem()).unwrap();
        fs::write(folder.path().join(format!("{name}.key")), pair.signing_key.serialize_pem())
            .unwrap();
    }
    for page in ["502.html", "503.html"] {
        fs::write(folder.path().join(page), page).unwrap();
    }
    for text in [sites.to_owned(), acme.to_owned(), format!("{listen}{servers}{route}{headers}")] {
        let text = ["/etc/ssl/", "/etc/lull/", "/var/lib/lull-web/", "/var/log/"]
            .iter()
            .fold(text, |text, folder| text.replace(folder, ""));
        let path = folder.path().join("web.toml");
        fs::write(&path, &text).unwrap();
        let read = Setup::read(&path);
        assert!(read.is_ok(), "{}", read.unwrap_err());
    }
}

#[test]
fn missing_file_is_reported_by_its_name() {
    let error = Setup::read(Path::new("/nowhere/web.toml")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/web.toml") && error.contains("cannot be read"), "{error}");
}
