//! Log lines: one process-wide sink, standard error until another is set.
//!
//! The library has no logging dependency; whoever embeds it (the C ABI, a tool, a test)
//! installs a sink and gets every line with its level.

use std::fmt;
use std::sync::RwLock;

/// How urgent a line is.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What was configured, found or decided.
    Info = 0,
    /// Something was refused, ignored or degraded; work goes on.
    Warning = 1,
    /// An operation failed.
    Error = 2,
}

type Sink = Box<dyn Fn(Level, &str) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// Sends every later line to `sink`; `None` restores standard error (warnings and errors only).
pub fn set_sink(sink: Option<Sink>) {
    *SINK.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = sink;
}

/// Emits one line.
pub fn line(level: Level, message: fmt::Arguments<'_>) {
    let sink = SINK.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    match sink.as_ref() {
        Some(sink) => sink(level, &message.to_string()),
        None if level >= Level::Warning => eprintln!("mooncake-nvme-kv: {message}"),
        None => {}
    }
}

/// `log::info!("...")`.
macro_rules! info { ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Info, format_args!($($arg)*)) } }
/// `log::warning!("...")`.
macro_rules! warning { ($($arg:tt)*) => { $crate::log::line($crate::log::Level::Warning, format_args!($($arg)*)) } }
#[allow(unused_imports)] // each room uses what it needs
pub(crate) use {info, warning};
