//! Pages that can wait until a visitor points at a link to them are not fetched sooner.

use lull_cc::Timestamp;
use lull_speculate::log::Entry;
use lull_web::nps::{MinBenefit, Settings};

use super::*;

/// The pages that visitors of `/a` go to, with their server times.
const PAGES: [(&str, Duration); 2] =
    [("/b", Duration::from_millis(5)), ("/slow", Duration::from_secs(1))];

/// Equal numbers of visits of both pages.
fn model() -> Model {
    let mut model = empty_model();
    let mut second = 0;
    for client in 0..40 {
        for (path, took) in [("/a", Duration::ZERO), PAGES[client % 2]] {
            second += 1;
            let at = Timestamp::from_nanos(second * 1_000_000_000);
            let page = Entry::page(at, format!("198.51.100.{client}"), path);
            model.learn(&Entry { took: Some(took), ..page }).unwrap();
        }
    }
    model
}

/// Each hinted page, and whether it waits for the pointer.
fn named(site: &Site, visitor: u32, hover: bool) -> Vec<(String, bool)> {
    let ask = json!({"v": 1, "page": "/a", "first": true, "cached": false, "hover": hover});
    let json = "Content-Type: application/json\r\n";
    let begun = Instant::now();
    loop {
        let answer = site.post(visitor, "/.lull/hints", json, &ask.to_string());
        let reply: Value = serde_json::from_slice(&answer.body).unwrap();
        let hint = |hint: &Value| {
            (hint["url"].as_str().unwrap().to_owned(), hint["pointed"] == json!(true))
        };
        let mut named: Vec<_> = reply["hints"].as_array().unwrap().iter().map(hint).collect();
        if !named.is_empty() {
            named.sort_unstable();
            return named;
        }
        assert!(begun.elapsed() < RARELY + LIMIT, "no list: {reply}");
        thread::sleep(Duration::from_millis(220));
    }
}

#[test]
fn fast_pages_are_left_to_hover() {
    let site = site_with(Settings { monitor: quick(), ..Settings::default() }, model());
    let of = |waits: bool| [("/b".to_owned(), waits), ("/slow".to_owned(), false)];
    assert_eq!(named(&site, 30, true), of(true));
    // On a telephone nothing rests on a link before it is pressed.
    assert_eq!(named(&site, 31, false), of(false));
}

#[test]
fn nothing_is_left_to_hover_with_least_worth_zero() {
    let settings =
        Settings { min_benefit: MinBenefit(0.0), monitor: quick(), ..Settings::default() };
    let site = site_with(settings, model());
    let waits = named(&site, 30, true).into_iter().map(|(_, waits)| waits);
    assert_eq!(waits.collect::<Vec<_>>(), [false, false]);
}
