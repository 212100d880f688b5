//! What the items of a batch look like.

use std::ffi::c_void;

use super::bytes::{check, input};
use super::sized::{self, Sized};
use crate::backend::{ObjectToLoad, ObjectToStore};
use crate::device::Destination;
use crate::error::Result;

/// Bytes that are only read: a part of a payload, or a key. A size of 0 ignores `data`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_slice {
    /// The first byte; any alignment.
    pub data: *const c_void,
    /// Bytes.
    pub size: usize,
}

/// Memory to be filled. A size of 0 ignores `data`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_mut_slice {
    /// The first byte; any alignment, but a multiple of 4096 saves a copy.
    pub data: *mut c_void,
    /// Bytes.
    pub size: usize,
}

/// An object to be stored. All of an array have the same `struct_size`, which is also the
/// distance from one to the next.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_object {
    /// sizeof(mnkv_object).
    pub struct_size: usize,
    /// The key: any bytes, none included.
    pub key: *const c_void,
    /// Bytes of the key.
    pub key_size: usize,
    /// The payload is the concatenation of the slices.
    pub slices: *const mnkv_slice,
    /// Slices.
    pub slice_count: usize,
}

// SAFETY: repr(C), struct_size first, and the rest are numbers and pointers.
unsafe impl Sized for mnkv_object {
    const NAME: &'static str = "mnkv_object";
    const LEAST: usize = size_of::<mnkv_object>();
}

/// Where an object is to be loaded to. All of an array have the same `struct_size`, which is
/// also the distance from one to the next.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct mnkv_destination {
    /// sizeof(mnkv_destination).
    pub struct_size: usize,
    /// The key: any bytes, none included.
    pub key: *const c_void,
    /// Bytes of the key.
    pub key_size: usize,
    /// Filled one after the other. Together they must have the object's size.
    pub slices: *const mnkv_mut_slice,
    /// Slices.
    pub slice_count: usize,
}

// SAFETY: repr(C), struct_size first, and the rest are numbers and pointers.
unsafe impl Sized for mnkv_destination {
    const NAME: &'static str = "mnkv_destination";
    const LEAST: usize = size_of::<mnkv_destination>();
}

/// The objects of a batch, borrowed from the caller.
pub(super) struct Objects<'a> {
    /// Key and number of slices of each.
    keys: Vec<(&'a [u8], usize)>,
    /// The slices of all, one object after the other.
    slices: Vec<&'a [u8]>,
}

impl Objects<'_> {
    /// As the backend takes them.
    pub(super) fn borrowed(&self) -> Vec<ObjectToStore<'_>> {
        let mut rest = &self.slices[..];
        let mut objects = Vec::with_capacity(self.keys.len());
        for (key, slice_count) in &self.keys {
            let (slices, behind) = rest.split_at(*slice_count);
            rest = behind;
            objects.push(ObjectToStore { key, slices });
        }
        objects
    }
}

/// # Safety
/// `objects` and all that it names is readable as the header says and not written to for `'a`.
pub(super) unsafe fn read_objects<'a>(
    objects: *const mnkv_object,
    count: usize,
) -> Result<Objects<'a>> {
    check(objects.cast(), count, size_of::<mnkv_object>(), format_args!("the array of objects"))?;
    // SAFETY: the caller's promise.
    let objects = unsafe { sized::read_all(objects, count)? };
    let mut keys = Vec::with_capacity(count);
    let mut slices = Vec::with_capacity(count);
    for (index, object) in objects.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let key = key(object.key, object.key_size, index)?;
            let what = format_args!("the array of slices of object {index}");
            for (at, slice) in input(object.slices, object.slice_count, what)?.iter().enumerate() {
                let what = format_args!("slice {at} of object {index}");
                slices.push(input(slice.data.cast(), slice.size, what)?);
            }
            keys.push((key, object.slice_count));
        }
    }
    Ok(Objects { keys, slices })
}

/// # Safety
/// `destinations` and its keys are readable as the header says, and the memory of its slices,
/// with `slack` bytes behind the last of each, is writable, initialised and used by nobody else
/// for `'a`.
pub(super) unsafe fn read_destinations<'a>(
    destinations: *const mnkv_destination,
    count: usize,
    slack: usize,
) -> Result<Vec<ObjectToLoad<'a>>> {
    let what = format_args!("the array of destinations");
    check(destinations.cast(), count, size_of::<mnkv_destination>(), what)?;
    // SAFETY: the caller's promise.
    let destinations = unsafe { sized::read_all(destinations, count)? };
    let load = |(index, destination): (usize, &mnkv_destination)| {
        // SAFETY: the caller's promise.
        let (key, slices) = unsafe {
            let what = format_args!("the array of slices of destination {index}");
            (
                key(destination.key, destination.key_size, index)?,
                input(destination.slices, destination.slice_count, what)?,
            )
        };
        for (at, slice) in slices.iter().enumerate() {
            let what = format_args!("slice {at} of destination {index}");
            check(slice.data.cast(), slice.size, 1, what)?;
        }
        let pieces = slices.iter().map(|slice| (slice.data.cast::<u8>(), slice.size));
        // SAFETY: the caller's promise, and no piece is NULL with a size.
        Ok(ObjectToLoad { key, destination: unsafe { Destination::from_raw(pieces, slack) } })
    };
    destinations.iter().enumerate().map(load).collect()
}

/// # Safety
/// As [`input`].
unsafe fn key<'a>(key: *const c_void, size: usize, index: usize) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { input(key.cast(), size, format_args!("the key of item {index}")) }
}
