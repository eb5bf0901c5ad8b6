use proptest::prelude::*;

use super::*;

const PAGE: DocumentId = DocumentId(0);
const PART: DocumentId = DocumentId(1);
const NEXT: DocumentId = DocumentId(2);
const OTHER: DocumentId = DocumentId(3);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn asked(document: DocumentId, due: u64) -> Effect {
    Effect::Demand(document, ms(due))
}

fn kind(document: DocumentId) -> Kind {
    if document == PART { Kind::Embedded } else { Kind::Page }
}

/// A client with a clock.
struct Bench {
    client: Client,
    effects: Vec<Effect>,
}

impl Bench {
    fn new(hint_use: HintUse) -> Self {
        Bench { client: Client::new(hint_use, true), effects: Vec::new() }
    }

    fn demand(&mut self, at: u64, document: DocumentId, completes: bool) -> Vec<Effect> {
        let arrival = Arrival { due: ms(at), client: 0, document, completes };
        self.client.demand(ms(at), &arrival, kind(document), &mut self.effects);
        core::mem::take(&mut self.effects)
    }

    /// For a client that caches, which has at most one request for a document.
    fn answered(&mut self, at: u64, document: DocumentId) -> Vec<Effect> {
        self.answered_of(at, document, 0)
    }

    fn answered_of(&mut self, at: u64, document: DocumentId, due: u64) -> Vec<Effect> {
        self.client.answered(ms(at), document, ms(due), true, &mut self.effects);
        core::mem::take(&mut self.effects)
    }

    fn fetched(&mut self, at: u64, bytes: Option<u64>) -> Vec<Effect> {
        self.client.fetched(ms(at), bytes, &mut self.effects);
        core::mem::take(&mut self.effects)
    }

    fn refused(&mut self, at: u64) -> Vec<Effect> {
        self.client.refused(ms(at), &mut self.effects);
        core::mem::take(&mut self.effects)
    }

    fn advise(&mut self, at: u64, number: u64, list: &[Ahead], again: Option<u64>) -> Vec<Effect> {
        let advice = Advice { list: list.to_vec(), again: again.map(ms) };
        self.client.advise(ms(at), number, advice, &mut self.effects);
        core::mem::take(&mut self.effects)
    }

    fn server_checked(&mut self, at: u64, is_server: bool) -> Vec<Effect> {
        self.client.server_checked(ms(at), is_server, &mut self.effects);
        core::mem::take(&mut self.effects)
    }

    fn wake(&mut self, at: u64) -> Vec<Effect> {
        self.client.wake(ms(at), &mut self.effects);
        core::mem::take(&mut self.effects)
    }
}

fn document(document: DocumentId) -> Ahead {
    Ahead::Document(document)
}

fn fetch(document: DocumentId) -> Effect {
    Effect::Fetch(Ahead::Document(document))
}

fn answer(document: DocumentId, due: u64, from: Origin) -> Effect {
    Effect::Answered { document, due: ms(due), from }
}

fn question(number: u64, pages: &[DocumentId], first: bool, had: &[DocumentId]) -> Effect {
    let (pages, had) = (pages.to_vec(), had.to_vec());
    Effect::Ask(Question { number, pages, first, cached: false, had, used: Vec::new() })
}

/// A client that behaves like the script, on [`PAGE`], which arrived at 10 ms and was loaded.
fn scripted() -> Bench {
    let mut bench = Bench::new(HintUse::AgainAndAgain { scripted: true });
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    bench
}

/// The report of that page.
fn left(page: DocumentId, cached: bool, answered: u64, loaded: Option<u64>) -> Effect {
    let (answered, loaded) = (ms(answered), loaded.map(ms));
    Effect::Tell(PageReport::Left { page, cached, answered, loaded })
}

#[test]
fn cached_url_is_a_hit_and_open_request_is_awaited() {
    let mut bench = Bench::new(HintUse::Never);
    assert_eq!(bench.demand(0, PAGE, true), [asked(PAGE, 0)]);
    assert_eq!(bench.demand(5, PAGE, true), []);
    assert_eq!(bench.client.waiting().collect::<Vec<_>>(), [(PAGE, ms(0)), (PAGE, ms(5))]);
    let network = Origin::Network;
    assert_eq!(bench.answered(9, PAGE), [answer(PAGE, 0, network), answer(PAGE, 5, network)]);
    assert_eq!(bench.demand(20, PAGE, true), [answer(PAGE, 20, Origin::Cache)]);
}

#[test]
fn failed_request_is_repeated() {
    let mut bench = Bench::new(HintUse::Never);
    bench.demand(0, PAGE, true);
    bench.client.answered(ms(3), PAGE, ms(0), false, &mut bench.effects);
    assert_eq!(core::mem::take(&mut bench.effects), [answer(PAGE, 0, Origin::Failed)]);
    assert_eq!(bench.demand(5, PAGE, true), [asked(PAGE, 5)]);
}

#[test]
fn hints_are_requested_after_load_and_fetched_in_turn() {
    let mut bench = Bench::new(HintUse::OncePerPage);
    bench.demand(0, PAGE, false);
    assert_eq!(bench.answered(10, PAGE), [answer(PAGE, 0, Origin::Network)], "a part is to come");
    bench.demand(11, PART, true);
    assert_eq!(
        bench.answered(20, PART),
        [answer(PART, 11, Origin::Network), question(1, &[PAGE], true, &[])]
    );
    let list = [document(PAGE), document(NEXT), document(OTHER)];
    assert_eq!(bench.advise(21, 1, &list, Some(21)), [fetch(NEXT)], "the page is there already");
    assert_eq!(bench.fetched(30, Some(700)), [fetch(OTHER)]);
    assert_eq!(bench.fetched(40, None), [], "one list a page, whatever became of it");
    assert_eq!(bench.demand(50, NEXT, true)[0], answer(NEXT, 50, Origin::Ahead(700)));
    assert_eq!(bench.demand(60, OTHER, true), [asked(OTHER, 60)]);
    // Used once; the second time it is a hit like any other.
    assert_eq!(bench.demand(70, NEXT, true), [answer(NEXT, 70, Origin::Cache)]);
}

#[test]
fn refused_prefetch_ends_the_list() {
    let mut bench = Bench::new(HintUse::OncePerPage);
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    let list = [document(NEXT), document(OTHER), document(PART)];
    assert_eq!(bench.advise(11, 1, &list, None), [fetch(NEXT)]);
    assert_eq!(bench.refused(20), []);
    assert_eq!(bench.demand(30, OTHER, true), [asked(OTHER, 30)]);
    assert_eq!(bench.answered(40, OTHER)[1], question(2, &[PAGE, OTHER], true, &[]));
}

#[test]
fn no_prefetch_starts_while_a_page_loads() {
    let mut bench = Bench::new(HintUse::OncePerPage);
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    bench.advise(10, 1, &[document(NEXT), document(PART)], None);
    assert_eq!(bench.demand(20, OTHER, true), [asked(OTHER, 20)]);
    assert_eq!(bench.fetched(30, Some(1)), [], "the rest of the list is out of date");
    assert_eq!(bench.advise(31, 1, &[document(PART)], None), [], "and so is what comes late");
    assert_eq!(bench.answered(40, OTHER)[1], question(2, &[PAGE, OTHER], true, &[]));
}

#[test]
fn returning_client_reports_its_cache_and_obeys_the_wait() {
    let mut bench = Bench::new(HintUse::AgainAndAgain { scripted: false });
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    assert_eq!(bench.advise(10, 1, &[], Some(500)), [Effect::Wake(ms(500))]);
    assert_eq!(bench.wake(499), []);
    assert_eq!(bench.wake(500), [question(1, &[PAGE], false, &[])]);
    assert_eq!(bench.advise(501, 1, &[document(NEXT)], Some(501)), [fetch(NEXT)]);
    assert_eq!(bench.fetched(510, Some(1)), [question(1, &[PAGE], false, &[NEXT])]);
    assert_eq!(bench.advise(511, 1, &[], None), []);
    assert_eq!(bench.wake(9_000), [], "not on this page");
}

#[test]
fn page_may_ask_for_a_delay_before_the_first_hints() {
    let mut bench = Bench::new(HintUse::AgainAndAgain { scripted: true });
    bench.demand(0, PAGE, true);
    bench.client.is_to_wait(OTHER, ms(9_000));
    bench.client.is_to_wait(PAGE, ms(3_000));
    assert_eq!(bench.answered(10, PAGE).last(), Some(&Effect::Wake(ms(3_010))));
    assert_eq!(bench.wake(3_009), []);
    assert_eq!(bench.wake(3_010), [question(1, &[PAGE], true, &[])]);
    assert_eq!(bench.advise(3_011, 1, &[], Some(4_000)), [Effect::Wake(ms(4_000))]);
    assert_eq!(bench.wake(4_000), [question(1, &[PAGE], false, &[])], "as the answer says");
    // The next page does not report that.
    bench.demand(4_100, OTHER, true);
    assert_eq!(bench.answered(4_110, OTHER).last(), Some(&question(2, &[PAGE, OTHER], true, &[])));
}

#[test]
fn page_stops_a_running_prefetch_like_the_script() {
    let mut bench = Bench::new(HintUse::AgainAndAgain { scripted: false });
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    bench.advise(10, 1, &[document(NEXT)], Some(10));
    assert_eq!(bench.demand(20, OTHER, true), [asked(OTHER, 20)]);

    let told = left(PAGE, false, 10, Some(10));
    let mut bench = scripted();
    assert_eq!(bench.advise(10, 1, &[document(NEXT)], Some(10)), [Effect::ServerCheck(PAGE)]);
    assert_eq!(bench.server_checked(15, true), [fetch(NEXT)]);
    let expected = [Effect::Stop, asked(OTHER, 20), told.clone()];
    assert_eq!(bench.demand(20, OTHER, true), expected);
    // And the look before it.
    let mut bench = scripted();
    bench.advise(10, 1, &[document(NEXT)], Some(10));
    assert_eq!(bench.demand(20, OTHER, true), expected);
    assert_eq!(bench.answered(30, OTHER).last(), Some(&question(2, &[PAGE, OTHER], true, &[])));
}

#[test]
fn server_is_asked_before_the_first_prefetch_of_a_page() {
    let mut bench = scripted();
    assert_eq!(bench.advise(10, 1, &[document(NEXT)], Some(10)), [Effect::ServerCheck(PAGE)]);
    assert_eq!(bench.wake(12), [], "the answer is under way");
    assert_eq!(bench.server_checked(15, true), [fetch(NEXT)]);
    bench.fetched(20, Some(1));
    assert_eq!(bench.advise(21, 1, &[document(OTHER)], None), [fetch(OTHER)], "once a page");
    bench.fetched(30, Some(1));
    // A cache in front has a copy of the next page.
    bench.demand(40, NEXT, true);
    let more = DocumentId(9);
    assert_eq!(bench.advise(41, 2, &[document(more)], Some(41)), [Effect::ServerCheck(NEXT)]);
    assert_eq!(bench.server_checked(45, false), [], "nothing is fetched or asked for on it");
    assert_eq!(bench.wake(900), []);
    assert_eq!(
        bench.demand(1_000, OTHER, true).last(),
        Some(&Effect::Ask(Question {
            number: 3,
            pages: vec![PAGE, NEXT, OTHER],
            first: true,
            cached: true,
            had: Vec::new(),
            used: Vec::new(),
        })),
        "on the next one it is"
    );
}

#[test]
fn list_expires_after_30_s_and_may_come_again() {
    let mut bench = scripted();
    bench.advise(10, 1, &[document(NEXT), document(PART), document(OTHER)], Some(10));
    bench.server_checked(11, true);
    assert_eq!(bench.fetched(30_009, Some(1)), [fetch(PART)]);
    assert_eq!(bench.fetched(30_010, Some(1)), [question(1, &[PAGE], false, &[NEXT, PART])]);
    assert_eq!(bench.advise(30_020, 1, &[document(OTHER)], None), [fetch(OTHER)]);
    // Papers' lists are valid until the next page.
    let mut bench = Bench::new(HintUse::OncePerPage);
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    bench.advise(10, 1, &[document(NEXT), document(OTHER)], None);
    assert_eq!(bench.fetched(60_000, Some(1)), [fetch(OTHER)]);
}

#[test]
fn cached_parts_of_a_page_are_reported_with_its_first_hints() {
    let mut bench = scripted();
    bench.advise(10, 1, &[document(PART)], None);
    bench.server_checked(11, true);
    bench.fetched(20, Some(700));
    bench.demand(30, NEXT, false);
    bench.answered(40, NEXT);
    let effects = bench.demand(41, PART, true);
    assert_eq!(effects[0], answer(PART, 41, Origin::Ahead(700)));
    let asked = |first, used: &[DocumentId]| {
        let (pages, used) = (vec![PAGE, NEXT], used.to_vec());
        let had = Vec::new();
        Effect::Ask(Question { number: 2, pages, first, cached: false, had, used })
    };
    assert_eq!(effects[1..], [asked(true, &[PART])]);
    bench.advise(42, 2, &[], Some(500));
    assert_eq!(bench.wake(500), [asked(false, &[])]);
}

#[test]
fn click_on_a_page_being_prefetched_waits_for_it() {
    let coming = || {
        let mut bench = scripted();
        bench.advise(10, 1, &[document(NEXT), document(OTHER)], Some(10));
        bench.server_checked(11, true);
        let awaits = Effect::Tell(PageReport::Awaits { page: PAGE, to: NEXT });
        let told = left(PAGE, false, 10, Some(10));
        assert_eq!(bench.demand(20, NEXT, true), [awaits, told], "nothing is asked for or ended");
        assert!(bench.client.awaits());
        bench
    };
    let mut bench = coming();
    let effects = bench.fetched(50, Some(700));
    assert_eq!(effects[0], answer(NEXT, 20, Origin::Awaited(700)));
    assert!(matches!(&effects[1], Effect::Ask(question) if question.cached), "{effects:?}");
    assert!(!bench.client.awaits());
    assert_eq!(bench.demand(60, OTHER, true).last(), Some(&left(NEXT, true, 30, Some(30))));
    // If it fails, the server is asked as usual.
    let mut bench = coming();
    assert_eq!(bench.fetched(50, None), [asked(NEXT, 20)]);
    assert_eq!(bench.answered(80, NEXT)[0], answer(NEXT, 20, Origin::Network));
    // It is demand now, which no other page ends.
    let mut bench = coming();
    assert_eq!(bench.demand(30, OTHER, true), [asked(OTHER, 30)]);
    assert_eq!(bench.fetched(50, Some(700)), [answer(NEXT, 20, Origin::Awaited(700))]);
}

#[test]
fn page_left_early_reports_only_known_times() {
    let mut bench = scripted();
    bench.demand(20, NEXT, false);
    assert_eq!(bench.demand(30, OTHER, false), [asked(OTHER, 30)]);
    bench.answered(40, NEXT);
    bench.answered(50, OTHER);
    let effects = bench.demand(60, PAGE, true);
    assert_eq!(effects[1], left(OTHER, false, 20, None), "{effects:?}");
}

#[test]
fn list_sent_with_a_page_is_fetched_at_once_or_later() {
    let mut bench = Bench::new(HintUse::WithPage { pause: Duration::ZERO });
    bench.demand(0, PAGE, false);
    bench.demand(1, PART, true);
    let effects = bench.answered(10, PAGE);
    assert_eq!(effects[1], question(1, &[PAGE], true, &[]));
    assert_eq!(bench.advise(10, 1, &[document(NEXT)], None), [fetch(NEXT)], "beside the part");

    let mut bench = Bench::new(HintUse::WithPage { pause: ms(1000) });
    bench.demand(0, PAGE, false);
    bench.demand(1, PART, true);
    bench.answered(10, PAGE);
    assert_eq!(bench.advise(10, 1, &[document(NEXT)], None), [], "demand is open");
    assert_eq!(bench.answered(30, PART)[1], Effect::Wake(ms(1030)));
    assert_eq!(bench.wake(1030), [fetch(NEXT)]);
}

#[test]
fn constant_rate_gives_each_answer_its_list() {
    let mut bench = Bench::new(HintUse::OncePerPage);
    bench.client = Client::new(HintUse::OncePerPage, false);
    for at in 0..3 {
        assert_eq!(bench.demand(at, PAGE, true), [asked(PAGE, at)]);
    }
    let mut fetched = 0;
    // In any order: an answer belongs to its own request.
    for (round, due) in [2, 0, 1].into_iter().enumerate() {
        let round = round as u64;
        let effects = bench.answered_of(10 + round, PAGE, due);
        assert_eq!(effects[0], answer(PAGE, due, Origin::Network));
        let mut effects = match &effects[..] {
            [_, Effect::Ask(question)] => {
                bench.advise(10 + round, question.number, &[Ahead::Dummy; 2], None)
            }
            other => panic!("{other:?}"),
        };
        while effects == [Effect::Fetch(Ahead::Dummy)] {
            fetched += 1;
            effects = bench.fetched(10 + round, Some(1));
        }
        assert_eq!(effects, []);
    }
    assert_eq!(fetched, 6);
}

#[test]
fn paper_clients_also_wait_for_open_requests() {
    let mut bench = Bench::new(HintUse::OncePerPage);
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    assert_eq!(bench.advise(10, 1, &[document(NEXT)], None), [fetch(NEXT)]);
    assert_eq!(bench.demand(20, NEXT, true), [], "it is asked for already");
    assert_eq!(bench.fetched(50, Some(700))[0], answer(NEXT, 20, Origin::Awaited(700)));
}

#[test]
fn url_being_fetched_elsewhere_is_requested_at_once() {
    for (hint_use, stops) in [
        (HintUse::OncePerPage, true),
        (HintUse::WithPage { pause: Duration::ZERO }, true),
        (HintUse::AgainAndAgain { scripted: false }, true),
        // `lull web` regards both as one.
        (HintUse::AgainAndAgain { scripted: true }, false),
    ] {
        let mut bench = Bench::new(hint_use);
        bench.client = Client::new(hint_use, true).fetching_elsewhere();
        bench.demand(0, PAGE, true);
        bench.answered(10, PAGE);
        let mut effects = bench.advise(10, 1, &[document(NEXT)], None);
        if effects == [Effect::ServerCheck(PAGE)] {
            effects = bench.server_checked(11, true);
        }
        assert_eq!(effects, [fetch(NEXT)]);
        let effects = bench.demand(20, NEXT, true);
        let asks = [Effect::Stop, asked(NEXT, 20)];
        assert_eq!(effects.windows(2).any(|two| two == asks), stops, "{hint_use:?}: {effects:?}");
        assert_eq!(effects.contains(&asked(NEXT, 20)), stops, "{hint_use:?}: {effects:?}");
        if stops {
            assert_eq!(bench.answered_of(40, NEXT, 20)[0], answer(NEXT, 20, Origin::Network));
        }
    }
}

#[test]
fn page_left_before_arrival_keeps_its_list() {
    let with_page = || Bench::new(HintUse::WithPage { pause: Duration::ZERO });
    let mut bench = with_page();
    bench.demand(0, PAGE, true);
    bench.demand(10, NEXT, true);
    assert_eq!(bench.answered(20, PAGE)[1], question(2, &[PAGE], true, &[]));
    assert_eq!(bench.advise(20, 2, &[document(OTHER)], None), [fetch(OTHER)]);
    assert_eq!(bench.answered_of(30, NEXT, 10)[1], question(2, &[PAGE, NEXT], false, &[OTHER]));

    let mut bench = with_page();
    bench.demand(0, PAGE, true);
    bench.demand(10, NEXT, true);
    assert!(matches!(bench.answered_of(20, NEXT, 10)[..], [_, Effect::Ask(_)]));
    assert_eq!(bench.answered(30, PAGE), [answer(PAGE, 0, Origin::Network)]);
}

#[test]
fn paper_clients_ask_each_epoch_until_answered() {
    let mut bench = Bench::new(HintUse::AgainAndAgain { scripted: false });
    bench.demand(0, PAGE, true);
    bench.answered(10, PAGE);
    for round in 0..200 {
        let now = 100 * round + 20;
        assert_eq!(bench.advise(now, 1, &[], Some(now + 80)), [Effect::Wake(ms(now + 80))]);
        assert!(matches!(bench.wake(now + 80)[..], [Effect::Ask(_)]), "{round}");
    }
}

#[test]
fn early_page_does_not_stop_the_asking_of_the_last_one() {
    let mut bench = Bench::new(HintUse::Never);
    bench.client = Client::new(HintUse::AgainAndAgain { scripted: false }, false);
    bench.demand(0, PAGE, true);
    assert!(matches!(bench.answered_of(10, PAGE, 0)[..], [_, Effect::Ask(_)]));
    bench.demand(20, PAGE, true);
    assert_eq!(bench.advise(30, 1, &[], Some(40)), [Effect::Wake(ms(40))]);
    assert!(matches!(bench.wake(40)[..], [Effect::Ask(_)]));
}

#[test]
fn page_takes_64_files_and_asks_for_no_more() {
    let mut bench = Bench::new(HintUse::AgainAndAgain { scripted: true });
    bench.demand(0, PAGE, true);
    let mut effects = bench.answered(1, PAGE);
    let (mut asked, mut fetched) = (0, 0);
    for round in 2..1_000 {
        effects = match effects.last() {
            Some(Effect::Ask(question)) => {
                asked += 1;
                let begin = 100 + question.had.len() as u32;
                let list: Vec<_> =
                    (begin..begin + 10).map(|one| document(DocumentId(one))).collect();
                bench.advise(round, 1, &list, Some(round))
            }
            Some(Effect::ServerCheck(_)) => bench.server_checked(round, true),
            Some(Effect::Fetch(_)) => {
                fetched += 1;
                bench.fetched(round, Some(1))
            }
            _ => break,
        };
    }
    assert_eq!((asked, fetched), (7, 64));
    // The next page has its own lists.
    bench.demand(1_000, NEXT, true);
    let effects = bench.answered(1_001, NEXT);
    assert_eq!(effects[1], question(2, &[PAGE, NEXT], true, &[]));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Demand(u32),
    Answer(bool),
    Fetched(bool),
    ServerChecked(bool),
    Advise(u32),
    Later,
}

fn habits() -> impl Strategy<Value = HintUse> {
    prop_oneof![
        Just(HintUse::Never),
        Just(HintUse::OncePerPage),
        Just(HintUse::WithPage { pause: Duration::ZERO }),
        Just(HintUse::WithPage { pause: ms(3) }),
        any::<bool>().prop_map(|scripted| HintUse::AgainAndAgain { scripted }),
    ]
}

proptest! {
    /// In any order of events: each request is answered once, one fetch is in progress at a time, and no
    /// cached document is fetched.
    #[test]
    fn each_request_has_one_answer_and_prefetches_are_serial(
        hint_use in habits(),
        caching in any::<bool>(),
        steps in proptest::collection::vec(prop_oneof![
            3 => (0u32..6).prop_map(Step::Demand),
            3 => any::<bool>().prop_map(Step::Answer),
            2 => any::<bool>().prop_map(Step::Fetched),
            2 => any::<bool>().prop_map(Step::ServerChecked),
            2 => (0u32..6).prop_map(Step::Advise),
            1 => Just(Step::Later),
        ], 0..120),
    ) {
        let mut client = Client::new(hint_use, caching);
        let (mut now, mut asked, mut answers) = (Duration::ZERO, 0u64, 0u64);
        let mut open: VecDeque<(DocumentId, Duration)> = VecDeque::new();
        let mut there: Vec<DocumentId> = Vec::new();
        let (mut under_way, mut question, mut looks) = (None, None, false);
        for step in steps {
            now += ms(1);
            let mut effects = Vec::new();
            match step {
                Step::Demand(number) => {
                    asked += 1;
                    let document = DocumentId(number);
                    let arrival = Arrival { due: now, client: 0, document, completes: number % 2 == 0 };
                    client.demand(now, &arrival, kind(document), &mut effects);
                }
                Step::Answer(is_good) => if let Some((document, due)) = open.pop_front() {
                    if is_good && caching {
                        there.push(document);
                    }
                    client.answered(now, document, due, is_good, &mut effects);
                },
                Step::Fetched(is_good) => if let Some(ahead) = under_way.take() {
                    if let (true, Ahead::Document(document)) = (is_good, ahead) {
                        there.push(document);
                    }
                    client.fetched(now, is_good.then_some(7), &mut effects);
                },
                Step::ServerChecked(is_server) => if core::mem::take(&mut looks) {
                    client.server_checked(now, is_server, &mut effects);
                },
                Step::Advise(number) => if let Some(page) = question.take() {
                    let list = (number..6).map(|number| Ahead::Document(DocumentId(number)));
                    let again = Some(now + ms(u64::from(number)));
                    client.advise(now, page, Advice { list: list.collect(), again }, &mut effects);
                },
                Step::Later => client.wake(now, &mut effects),
            }
            for effect in effects {
                match effect {
                    Effect::Demand(document, due) => open.push_back((document, due)),
                    Effect::Answered { .. } => answers += 1,
                    Effect::ServerCheck(_) => {
                        prop_assert!(under_way.is_none() && !looks);
                        looks = true;
                    }
                    Effect::Tell(_) => prop_assert_eq!(hint_use, HintUse::AgainAndAgain { scripted: true }),
                    Effect::Fetch(ahead) => {
                        prop_assert!(under_way.is_none() && !looks);
                        if let Ahead::Document(document) = ahead {
                            prop_assert!(!there.contains(&document));
                        }
                        under_way = Some(ahead);
                    }
                    Effect::Stop => {
                        let fetched = under_way.take().is_some();
                        prop_assert!(fetched != core::mem::take(&mut looks));
                    }
                    Effect::Ask(asked) => question = Some(asked.number),
                    Effect::Wake(at) => prop_assert!(at > now),
                }
            }
            prop_assert_eq!(answers + client.waiting().count() as u64, asked);
            if hint_use == HintUse::Never {
                prop_assert_eq!((under_way, question), (None, None));
            }
        }
    }
}
