//! Reads single variables: numbers, words out of a fixed set, text.

use super::environment::Environment;
use super::number::parse_number;
use crate::{Error, ErrorCode, Result};

/// An environment being read, and what was found wrong with it but not fatal.
pub(super) struct Variables<'a> {
    env: &'a dyn Environment,
    warnings: Vec<String>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(env: &'a dyn Environment) -> Self {
        Variables { env, warnings: Vec::new() }
    }

    /// One line per value that was not taken as it stands, in reading order.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The value of `name`; an empty one counts as not set.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.env.var(name).filter(|value| !value.is_empty())
    }

    /// The number in `name`; `None` when it is not set or not a number that fits, with a warning
    /// that names `fallback` as the value used instead.
    pub(super) fn number(&mut self, name: &str, fallback: u32) -> Option<u32> {
        let value = self.text(name)?;
        let number = parse_number(&value);
        if number.is_none() {
            self.warnings.push(format!(
                "{name}={value:?} is not a number from 0 to {}; using {fallback}",
                u32::MAX
            ));
        }
        number
    }

    /// Like [`Self::number`] with the default filled in.
    pub(super) fn number_or(&mut self, name: &str, default: u32) -> u32 {
        self.number(name, default).unwrap_or(default)
    }

    /// Like [`Self::number_or`], where 0 means the default too.
    pub(super) fn positive_or(&mut self, name: &str, default: u32) -> u32 {
        match self.number(name, default) {
            None | Some(0) => default,
            Some(number) => number,
        }
    }

    /// Like [`Self::positive_or`], with an explicit value lowered to `cap`.
    pub(super) fn capped(&mut self, name: &str, default: u32, cap: u32) -> u32 {
        let number = self.positive_or(name, default);
        if number > cap {
            self.warnings.push(format!("{name}={number} is over its limit; using {cap}"));
        }
        number.min(cap)
    }

    /// The meaning of the word in `name`, the type's default when it is not set.
    pub(super) fn choice<T: Copy + Default>(&self, name: &str, choices: &[(&str, T)]) -> Result<T> {
        let Some(value) = self.text(name) else { return Ok(T::default()) };
        match choices.iter().find(|(word, _)| *word == value) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                Err(Error::new(
                    ErrorCode::InvalidParams,
                    format!("{name}={value:?} is not one of {}", words.join(", ")),
                ))
            }
        }
    }
}
