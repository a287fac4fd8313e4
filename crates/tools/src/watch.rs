//! `atrapos watch`: a running database in the terminal.
//!
//! Owns: the loop of the view, its keys, and its end. Never: draws (`frame` does), finds or asks a database (`atrapos-watch` does), or
//! changes one.

mod frame;

use std::io::{self, IsTerminal as _};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atrapos_cli::error::CliError;
use atrapos_cli::{interrupt, output};
use atrapos_watch::{Attached, Target, WatchError};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::frame::View;
use crate::args::WatchArgs;

/// The time between two frames.
const FRAME_EVERY: Duration = Duration::from_secs(1);
/// The longest time after which a request to end is noticed.
const NOTICE_EVERY: Duration = Duration::from_millis(100);
/// Lines by which a page is turned.
const PAGE_LINES: u16 = 10;

/// Returns the error of a user who cannot watch, or not any more.
fn refuse(error: WatchError) -> CliError {
    match error {
        WatchError::Ended | WatchError::System { .. } => CliError::failed(error),
        error => CliError::bad_input(error),
    }
}

/// Runs `atrapos watch`.
pub(crate) fn watch(args: &WatchArgs) -> Result<(), CliError> {
    let mut attached = Attached::to(&Target::parse(&args.target)).map_err(refuse)?;
    let snapshot = attached.snapshot(0).map_err(refuse)?;
    if args.json {
        let text = serde_json::to_string_pretty(&snapshot).map_err(CliError::failed)?;
        return output::print(&format!("{text}\n"));
    }
    let view = View::new(snapshot);
    if args.once || !io::stdout().is_terminal() {
        return output::print(&view.text());
    }
    interrupt::install_saying("ending");
    let mut terminal = ratatui::try_init()
        .map_err(|error| CliError::failed(format!("the terminal cannot be drawn on: {error}; use --once")))?;
    let ended = live(&mut terminal, attached, view);
    let restored = ratatui::try_restore();
    ended?;
    restored
        .map_err(|error| CliError::failed(format!("the terminal cannot be restored: {error}; run `reset`")))
}

/// Shows the view until somebody ends it, or the database does.
fn live(terminal: &mut DefaultTerminal, mut attached: Attached, mut view: View) -> Result<(), CliError> {
    let failed =
        |error: io::Error| CliError::failed(format!("the terminal cannot be used: {error}; use --once"));
    let stop = interrupt::flag();
    loop {
        terminal.draw(|frame| view.draw(frame)).map_err(failed)?;
        let until = Instant::now() + FRAME_EVERY;
        while Instant::now() < until {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if !event::poll(left.min(NOTICE_EVERY)).map_err(failed)? {
                continue;
            }
            match event::read().map_err(failed)? {
                Event::Key(key) if ends(key) => return Ok(()),
                Event::Key(key) => scroll(&mut view, key),
                _ => (),
            }
            terminal.draw(|frame| view.draw(frame)).map_err(failed)?;
        }
        let snapshot = attached.snapshot(view.last_decision()).map_err(refuse)?;
        view.update(snapshot);
    }
}

fn ends(key: KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

fn scroll(view: &mut View, key: KeyEvent) {
    match key.code {
        _ if key.kind == KeyEventKind::Release => (),
        KeyCode::Up => view.scroll_back(1),
        KeyCode::Down => view.scroll_on(1),
        KeyCode::PageUp => view.scroll_back(PAGE_LINES),
        KeyCode::PageDown => view.scroll_on(PAGE_LINES),
        _ => (),
    }
}
