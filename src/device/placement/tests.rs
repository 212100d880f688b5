use super::*;
use crate::device::Payload;

const LIMITS: Limits = Limits { vectored: true, max_transfer: 512 * 1024 };

/// Page-aligned memory with recognisable bytes.
fn memory(len: usize) -> Buffer {
    let mut buffer = BufferPool::new(0).get(len);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index * 31 % 251) as u8;
    }
    buffer
}

/// Where `head` followed by `slices` is put when `transfer` bytes move.
fn place(head: &[u8], slices: &[&[u8]], transfer: usize, limits: Limits) -> (Placement, u64) {
    let payload = Payload::new(slices);
    let body = payload.whole().expect("short");
    let value = Value { head: head.to_vec(), body };
    Placement::of(&value, transfer, limits, &BufferPool::new(0))
}

#[test]
fn nothing_is_placed_for_an_empty_transfer() {
    assert!(matches!(place(&[], &[], 0, LIMITS), (Placement::Empty, 0)));
}

#[test]
fn a_contiguous_value_on_a_dword_that_needs_no_padding_goes_out_in_place() {
    let memory = memory(64 * 1024);
    for skip in [0, 4, 100, 4092] {
        let slice = &memory[skip..skip + 8192];
        match place(&[], &[slice], 8192, LIMITS) {
            (Placement::Direct(address), 0) => assert_eq!(address, slice.as_ptr() as u64),
            _ => panic!("{skip} was not placed directly"),
        }
    }
    let adjacent = [&memory[..5], &memory[5..4096], &memory[4096..8192]];
    assert!(matches!(place(&[], &adjacent, 8192, LIMITS), (Placement::Direct(_), 0)));
}

#[test]
fn an_odd_address_or_missing_padding_is_copied_and_only_the_tail_is_zero() {
    let memory = memory(64 * 1024);
    for (slice, transfer) in [(&memory[1..8193], 8192), (&memory[..5000], 8192)] {
        match place(&[], &[slice], transfer, LIMITS) {
            (Placement::Copied(buffer), copied) => {
                assert_eq!(copied, slice.len() as u64);
                assert_eq!(&buffer[..slice.len()], slice);
                assert!(buffer[slice.len()..transfer].iter().all(|byte| *byte == 0));
            }
            _ => panic!("a value of {} bytes was not copied", slice.len()),
        }
    }
}

#[test]
fn a_head_and_an_aligned_payload_go_out_as_segments_with_zeros_behind() {
    let memory = memory(64 * 1024);
    let head = vec![7; 100];
    let transfer = 32768 + 4096;
    let (placement, copied) = place(&head, &[&memory[..32768]], transfer, LIMITS);
    let Placement::Vectored(segments, Some(buffer)) = placement else { panic!("not vectored") };
    assert_eq!(copied, 100);
    let segments = segments.get();
    assert_eq!(segments.len(), 3);
    assert_eq!(segments[0].1, 100);
    assert_eq!((segments[0].0 + 100) % 4096, 0, "the head ends at a page boundary");
    assert_eq!(&buffer[buffer.len() - 100..], &head[..]);
    assert_eq!(segments[1], (memory.as_ptr() as usize, 32768));
    assert_eq!(segments[2], (ZEROS.0.as_ptr() as usize, 4096 - 100));
    assert_eq!(segments.iter().map(|segment| segment.1).sum::<usize>(), transfer);
}

#[test]
fn segments_are_refused_wherever_the_kernel_would_copy() {
    let memory = memory(64 * 1024);
    let copied = |head: &[u8], slices: &[&[u8]], transfer| {
        matches!(place(head, slices, transfer, LIMITS).0, Placement::Copied(_))
    };
    let head = [1; 100];
    assert!(copied(&head[..99], &[&memory[..32768]], 36864), "head of an odd length");
    assert!(copied(&head, &[&memory[4..32772]], 36864), "payload off the page boundary");
    assert!(copied(&head, &[&memory[..32764]], 36864), "payload that ends inside a page");
    assert!(copied(&[], &[&memory[..16384], &memory[20480..30000]], 28672), "odd end");
    assert!(copied(&[], &[&memory[..16380], &memory[20480..36868]], 32768), "gap between pages");
    assert!(copied(&head, &[&memory[..8192]], 12288), "small values");
    let without = Limits { vectored: false, ..LIMITS };
    let placed = place(&head, &[&memory[..32768]], 36864, without).0;
    assert!(matches!(placed, Placement::Copied(_)), "queue without segments");
}

#[test]
fn several_page_aligned_slices_go_out_in_place_up_to_the_segment_limit() {
    let memory = memory(256 * 1024);
    let slices: Vec<&[u8]> =
        (0..9).map(|index| &memory[index * 8192..index * 8192 + 4096]).collect();
    let eight = place(&[], &slices[..8], 8 * 4096, LIMITS);
    let (Placement::Vectored(segments, None), 0) = eight else { panic!("not vectored") };
    assert_eq!(segments.len(), 8);
    assert!(matches!(place(&[], &slices, 9 * 4096, LIMITS).0, Placement::Copied(_)));
}

#[test]
fn a_transfer_that_touches_one_page_too_many_is_moved_to_a_page_boundary() {
    let memory = memory(64 * 1024);
    let limits = Limits { vectored: true, max_transfer: 32768 };
    assert!(matches!(place(&[], &[&memory[..32768]], 32768, limits).0, Placement::Direct(_)));
    assert!(matches!(place(&[], &[&memory[4..32772]], 32768, limits).0, Placement::Copied(_)));
}
