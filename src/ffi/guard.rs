//! The wall around every exported body: an error or a panic becomes the function's return value.

use std::any::Any;

use crate::error::{Error, ErrorCode};

/// Runs a body that ends in `Result<R>` and gives `R`. An error goes to `report`, which records
/// it and turns it into the value that the function returns then; a panic is an INTERNAL_ERROR.
macro_rules! guarded {
    ($report:expr, $body:block) => {{
        let body = || -> $crate::error::Result<_> { $body };
        let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        match end.unwrap_or_else(|payload| Err($crate::ffi::guard::panicked(payload))) {
            Ok(value) => value,
            Err(error) => $crate::ffi::guard::reported(error, $report),
        }
    }};
}
pub(super) use guarded;

/// The value that `report` makes of `error`.
pub(super) fn reported<R>(error: Error, report: impl FnOnce(Error) -> R) -> R {
    report(error)
}

/// What a panic is to the caller.
pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Error {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "unknown cause",
    };
    Error::new(ErrorCode::InternalError, format!("a defect of the library (panic): {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    fn run(body: impl FnOnce() -> Result<i32>) -> (i32, Option<String>) {
        let mut text = None;
        let value = guarded!(
            |error: Error| {
                text = Some(error.message().to_owned());
                error.code() as i32
            },
            { body() }
        );
        (value, text)
    }

    #[test]
    fn a_value_passes_and_an_error_is_reported() {
        assert_eq!(run(|| Ok(7)), (7, None));
        let error = Error::new(ErrorCode::InvalidKey, "no key");
        assert_eq!(run(|| Err(error)), (-400, Some("no key".into())));
    }

    #[test]
    fn a_panic_of_any_kind_is_an_internal_error_with_its_text() {
        let number = "7".len();
        let panics: [(&dyn Fn() -> Result<i32>, &str); 3] = [
            (&|| panic!("plain"), "plain"),
            (&|| panic!("formatted {number}"), "formatted 1"),
            (&|| std::panic::panic_any(5), "unknown cause"),
        ];
        for (body, text) in panics {
            let (value, message) = run(body);
            assert_eq!(value, ErrorCode::InternalError as i32);
            assert!(message.is_some_and(|message| message.ends_with(text)));
        }
    }
}
