//! Screens of made-up views.

use lull_kernel::{Phase, Scope};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::model::table::Key;
use crate::model::tests::{after, connection, path, snapshot};

/// Sends beside a foreground, receives, yields, and is hidden from this user.
fn view() -> View {
    let mut before = snapshot(vec![
        connection(5, Some("77.0"), "203.0.113.109:22"),
        connection(6, Some("77.0"), "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:443"),
        connection(7, None, "[::ffff:198.51.100.7]:80"),
        connection(8, Some("78.0"), "192.0.2.1:873"),
    ]);
    before.paths = vec![path(Phase::Use), path(Phase::Floor)];
    before.connections[0].path = Some(0);
    before.connections[3].path = Some(1);
    before.connections[3].window_packets = Some(1.0 / 48.0);
    before.paths[1].destination = None;
    let hidden = &mut before.connections[3];
    (hidden.pid, hidden.process, hidden.local, hidden.remote) = (None, None, None, None);
    after(&before, |now| {
        now.connections[0].bytes_acked += 2_000_000;
        now.connections[1].bytes_received += 23_000_000;
        now.connections[2].bytes_acked += 100;
        now.paths[0].foreground_bytes = Some(1_400_000);
        now.connections[2].process = Some("rclone copy with a long name".to_owned());
    })
}

fn screen(width: u16, height: u16, view: &View, table: &Table) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view, table, Palette::Plain)).unwrap();
    terminal.backend().to_string().replace('"', "|")
}

#[test]
fn screen_of_80_columns() {
    let expected = "\
|lull top: 2 jobs, 4 connections; send 8.00 Mbit/s, receive 92.0 Mbit/s          |
|host's foreground 1.60 Mbit/s; sorted by rate                                   |
|job      process   peer            dir  bit/s  win delay state bytes share    fg|
|backup   restic    2001:db8:85a3:~ recv 92.0M 45.0  12ms use   23.0M     -     -|
|backup   restic    203.0.113.109   send 8.00M 12.5  12ms use   3.00M   80% 1.60M|
|-        rclone c~ 198.51.100.7:80 send   400 12.5  12ms use   1.00M     -     -|
|78.0     -         1 connection    send     0 1/48  12ms yield 1.00M    0%     0|
|                                                                                |
|                                                                                |
|q quit  s sort  r reverse  / filter  p pause  j jobs/connections  arrows scroll |
";
    assert_eq!(screen(80, 10, &view(), &Table::default()), expected);
}

#[test]
fn screen_of_120_columns_by_job() {
    let table = Table { grouping: Grouping::Jobs, is_paused: true, ..Table::default() };
    let expected = "\
|lull top: 2 jobs, 4 connections; send 8.00 Mbit/s, receive 92.0 Mbit/s                                                  |
|host's foreground 1.60 Mbit/s; sorted by rate; PAUSED                                                                   |
|job                  command              peer                             dir  bit/s  win delay state bytes share    fg|
|backup               restic backup /data  2 connections                    recv 92.0M 45.0  12ms use   23.0M     - 1.60M|
|-                    rclone copy with a ~ 1 connection                     send   400 12.5  12ms use   1.00M     -     -|
|78.0                 restic backup /data  1 connection                     send     0 1/48  12ms yield 5.00M    0%     0|
|                                                                                                                        |
|                                                                                                                        |
|q quit  s sort  r reverse  / filter  p pause  j jobs/connections  arrows scroll                                         |
";
    assert_eq!(screen(120, 9, &view(), &table), expected);
}

#[test]
fn screen_while_typing_a_filter() {
    let mut table = Table::default();
    for key in "/rec".chars().map(Key::Char) {
        table.handle_key(key);
    }
    let view = View { scope: Scope::User, ..view() };
    let expected = "\
|lull top: 2 jobs, 4 connections; send 8.00 Mbit/s, receive 92.0 Mbit/s          |
|host's foreground 1.60 Mbit/s; sorted by rate; filter 'rec'; others hidden      |
|job      process   peer            dir  bit/s  win delay state bytes share    fg|
|backup   restic    2001:db8:85a3:~ recv 92.0M 45.0  12ms use   23.0M     -     -|
|                                                                                |
|filter: rec_  (Enter keeps it, Esc clears it)                                   |
";
    assert_eq!(screen(80, 6, &view, &table), expected);
}

#[test]
fn text_has_all_rows_and_no_keys() {
    let expected = "\
lull top: 2 jobs, 4 connections; send 8.00 Mbit/s, receive 92.0 Mbit/s
host's foreground 1.60 Mbit/s; sorted by rate
job         process              peer                  dir  bit/s  win delay state bytes share    fg
backup      restic               2001:db8:85a3:8d3:13~ recv 92.0M 45.0  12ms use   23.0M     -     -
backup      restic               203.0.113.109:22      send 8.00M 12.5  12ms use   3.00M   80% 1.60M
-           rclone copy with a ~ 198.51.100.7:80       send   400 12.5  12ms use   1.00M     -     -
78.0        -                    1 connection          send     0 1/48  12ms yield 1.00M    0%     0
";
    assert_eq!(render(&view(), &Table::default(), 100), expected);
}

/// The tables of both palettes differ in styles alone.
#[test]
fn colours_are_in_one_palette_only() {
    let styles = |palette| {
        let area = Rect::new(0, 0, 80, 10);
        let mut buffer = Buffer::empty(area);
        paint(&mut buffer, area, &view(), &Table::default(), palette);
        let mut colours: Vec<Color> = buffer.content().iter().map(|cell| cell.fg).collect();
        colours.retain(|&colour| colour != Color::Reset);
        colours
    };
    assert!(styles(Palette::Colour).contains(&Color::Yellow));
    assert_eq!(styles(Palette::Plain), []);
}

#[test]
fn tiny_screens_do_not_panic() {
    for (width, height) in [(1, 1), (10, 2), (79, 3), (200, 50)] {
        screen(width, height, &view(), &Table::default());
    }
}
