//! Structs that carry their own size, so that they can grow: a shorter one comes from a caller
//! built against an older header, a longer one from a caller built against a newer header.

use std::mem::{MaybeUninit, align_of, size_of};
use std::ptr;

use super::bytes::invalid;
use crate::error::Result;

/// No struct of the header grows to this many bytes: what claims to is not initialised.
const LARGEST: usize = 4096;

/// A struct of the header.
///
/// # Safety
/// The type is `repr(C)`, its first field is `struct_size: usize`, and zero bytes are a value of
/// every field.
pub(super) unsafe trait Sized: Copy {
    /// Its name in the header.
    const NAME: &'static str;
    /// Bytes of the shortest that makes sense: all that its first version had and needs.
    const LEAST: usize;
}

/// The bytes that the struct at `from` claims to have.
///
/// # Safety
/// `from` is NULL or points to a `struct_size`.
pub(super) unsafe fn claimed_size<T: Sized>(from: *const T) -> Result<usize> {
    if from.is_null() {
        return Err(invalid(format!("{} is NULL", T::NAME)));
    }
    // SAFETY: not NULL, so by the caller's promise it points to the first field.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if size < T::LEAST || size > LARGEST {
        return Err(invalid(format!(
            "{name}.struct_size is {size}; set it to sizeof({name}), here {}",
            size_of::<T>(),
            name = T::NAME
        )));
    }
    Ok(size)
}

/// The struct at `from`, its missing fields zero.
///
/// # Errors
/// INVALID_PARAMS for NULL, for an impossible size, and for a longer struct that sets a field
/// which this version of the library does not know.
///
/// # Safety
/// `from` is NULL or points to as many initialised bytes as its `struct_size` says.
pub(super) unsafe fn read<T: Sized>(from: *const T) -> Result<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { claimed_size(from)? };
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are readable by the caller's promise and fit into `value`.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast(), known) };
    // SAFETY: `known <= size`, and `size` bytes are readable.
    let unknown = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(invalid(format!(
            "{} sets a field that version {} of the library does not know; use a newer library",
            T::NAME,
            env!("CARGO_PKG_VERSION")
        )));
    }
    // SAFETY: every byte is zero or the caller's, and zero bytes are a value of every field; the
    // fields are numbers and pointers, for which any bytes are.
    Ok(unsafe { value.assume_init() })
}

/// The `count` structs at `from`, which lie as far apart as the first one's size says.
///
/// # Errors
/// As [`read`], and INVALID_PARAMS for sizes that differ.
///
/// # Safety
/// As [`read`], for each of them.
pub(super) unsafe fn read_all<T: Sized>(from: *const T, count: usize) -> Result<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise for the first one.
    let stride = unsafe { claimed_size(from)? };
    if stride % align_of::<T>() != 0 {
        return Err(invalid(format!(
            "{}.struct_size {stride} is not a multiple of its alignment",
            T::NAME
        )));
    }
    let mut values = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: the caller's promise: `count` structs, one every `stride` bytes.
        let (value, size) = unsafe {
            let element = from.byte_add(index * stride);
            (read(element)?, claimed_size(element)?)
        };
        if size != stride {
            return Err(invalid(format!(
                "{}[{index}].struct_size is {size}, that of the first {stride}; they must be equal",
                T::NAME
            )));
        }
        values.push(value);
    }
    Ok(values)
}

/// Fills the caller's struct at `to` with `value`, as far as it has room; fields that only the
/// caller knows become zero. Its `struct_size` stays.
///
/// # Errors
/// INVALID_PARAMS for NULL and for an impossible size.
///
/// # Safety
/// `to` is NULL or points to as many writable bytes as its `struct_size` says.
pub(super) unsafe fn write<T: Sized>(to: *mut T, value: &T) -> Result<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { claimed_size(to)? };
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are writable and `known <= size`; `value` is our own, so that they do
    // not overlap. The first field is put back.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), known);
        ptr::write_bytes(to.cast::<u8>().add(known), 0, size - known);
        to.cast::<usize>().write_unaligned(size);
    }
    Ok(())
}
