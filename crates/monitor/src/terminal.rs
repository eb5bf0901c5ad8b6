//! The interactive program: reads keys and snapshots, and draws.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lull_kernel::Snapshot;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::draw::{Palette, draw, fitting};
use crate::model::Model;
use crate::model::table::{Key, Table};

/// A signal is noticed within this time.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Shows the background until the user quits, or a signal ends the program. The terminal is then as before.
///
/// # Errors
/// The errors of `observe`, and of a terminal that cannot be used.
pub fn watch<E: From<io::Error>>(
    mut table: Table,
    palette: Palette,
    interval: Duration,
    mut observe: impl FnMut() -> Result<Snapshot, E>,
) -> Result<(), E> {
    let ended = Arc::new(AtomicBool::new(false));
    // SIGHUP kills: crossterm reads the end of a closed terminal again and again, and there is nothing to restore.
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let mut model = Model::default();
    let mut view = model.handle_snapshot(observe()?);
    let mut due = Instant::now() + interval.min(FIRST_INTERVAL);
    let mut terminal = ratatui::try_init()?;
    let result = loop {
        let rows = table.rows(&view).len();
        let drawn = terminal.draw(|frame| {
            table.clamp(rows, fitting(frame.area().height));
            draw(frame, &view, &table, palette);
        });
        if let Err(error) = drawn {
            break Err(error.into());
        }
        let wait = due.saturating_duration_since(Instant::now()).min(MAX_WAIT);
        match next_key(wait) {
            Ok(Some(key)) if table.handle_key(key) => break Ok(()),
            Ok(_) if ended.load(Ordering::Relaxed) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error.into()),
        }
        if Instant::now() >= due {
            due = Instant::now() + interval;
            if !table.is_paused {
                match observe() {
                    Ok(snapshot) => view = model.handle_snapshot(snapshot),
                    Err(error) => break Err(error),
                }
            }
        }
    };
    ratatui::try_restore()?;
    result
}

/// Until there are rates.
const FIRST_INTERVAL: Duration = Duration::from_millis(300);

fn next_key(wait: Duration) -> io::Result<Option<Key>> {
    if !event::poll(wait)? {
        return Ok(None);
    }
    match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(known(key)),
        _ => Ok(None),
    }
}

fn known(key: KeyEvent) -> Option<Key> {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char(c) => Some(Key::Char(c)),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Escape),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        _ => None,
    }
}

/// Columns of the terminal.
pub fn width() -> Option<u16> {
    ratatui::crossterm::terminal::size().ok().map(|(columns, _)| columns)
}
