//! Bytes and texts of the caller.

use std::ffi::c_char;
use std::{ptr, slice};

use crate::error::{Error, ErrorCode, Result};

/// An INVALID_PARAMS error.
pub(super) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorCode::InvalidParams, message)
}

/// `size` elements at `data`; a size of 0 ignores `data`.
///
/// # Errors
/// INVALID_PARAMS for NULL with a size, for a size that no memory has and for elements that are
/// not aligned.
///
/// # Safety
/// `data` is NULL, or `size` elements at it are initialised and nobody writes to them for `'a`.
pub(super) unsafe fn input<'a, T>(
    data: *const T,
    size: usize,
    what: std::fmt::Arguments<'_>,
) -> Result<&'a [T]> {
    check(data.cast(), size, size_of::<T>(), what)?;
    if size == 0 {
        return Ok(&[]);
    }
    if !data.is_aligned() {
        return Err(invalid(format!("{what} is not aligned to {} bytes", align_of::<T>())));
    }
    // SAFETY: not NULL, so by the caller's promise `size` elements are readable for `'a`.
    Ok(unsafe { slice::from_raw_parts(data, size) })
}

/// Refuses NULL with a size, and a size that no memory has. `each` is the bytes of an element.
pub(super) fn check(
    data: *const u8,
    size: usize,
    each: usize,
    what: std::fmt::Arguments<'_>,
) -> Result<()> {
    if size > 0 && data.is_null() {
        return Err(invalid(format!("{what} is NULL with a size of {size}")));
    }
    if size.checked_mul(each).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(invalid(format!("{what} has a size of {size}, more than any memory holds")));
    }
    Ok(())
}

/// Stores `value` at `to`.
///
/// # Errors
/// INVALID_PARAMS for NULL.
///
/// # Safety
/// `to` is NULL or points to a writable `T`.
pub(super) unsafe fn output<T>(to: *mut T, value: T, what: &str) -> Result<()> {
    if to.is_null() {
        return Err(invalid(format!("{what} is NULL")));
    }
    // SAFETY: not NULL, so by the caller's promise it is writable.
    unsafe { to.write(value) };
    Ok(())
}

/// Copies as much of `text` as fits into `size` bytes at `buffer`, a NUL included; gives the
/// bytes of the whole text without the NUL.
///
/// # Safety
/// `buffer` is NULL, or `size` bytes at it are writable.
pub(super) unsafe fn copy_text(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if !buffer.is_null() && size > 0 {
        let mut len = text.len().min(size - 1);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        // SAFETY: `len + 1 <= size` bytes are writable; `text` is ours, so they do not overlap.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), len);
            buffer.add(len).write(0);
        }
    }
    text.len()
}
