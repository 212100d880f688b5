//! Where settings come from: the process, or a table in a test.

use std::collections::HashMap;

/// A set of named values.
pub trait Environment {
    /// The value of `name`, `None` when it is not set.
    ///
    /// Bytes that are not UTF-8 come back as U+FFFD, which no setting accepts.
    fn var(&self, name: &str) -> Option<String>;
}

/// The environment variables of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }
}

impl Environment for HashMap<String, String> {
    fn var(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}

impl Environment for &[(&str, &str)] {
    fn var(&self, name: &str) -> Option<String> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
    }
}

impl<const N: usize> Environment for [(&str, &str); N] {
    fn var(&self, name: &str) -> Option<String> {
        self.as_slice().var(name)
    }
}
