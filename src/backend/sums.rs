//! Checksums of the pieces of one payload, each computed once.

use super::lane::Lane;
use crate::device::{Payload, PayloadRange};
use crate::layout::{ChecksumKind, WritePlan};

/// One checksum a piece: the chunks of a chunked object, or all of an inline one.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    kind: ChecksumKind,
    piece: u32,
    values: Vec<Option<u32>>,
}

impl Sums {
    /// For a payload of `len` bytes that is stored by `plan`.
    pub(super) fn new(kind: ChecksumKind, plan: WritePlan, len: u32) -> Self {
        match plan {
            WritePlan::Inline => Sums::of_pieces(kind, len.max(1), len),
            WritePlan::Chunked { chunk_size, .. } => Sums::of_pieces(kind, chunk_size, len),
        }
    }

    /// For `len` bytes in pieces of `piece` bytes, the last one shorter; one piece at least.
    pub(super) fn of_pieces(kind: ChecksumKind, piece: u32, len: u32) -> Self {
        let count = len.div_ceil(piece).max(1);
        Sums { kind, piece, values: vec![None; count as usize] }
    }

    /// These sums are of that kind and of pieces of that size.
    pub(super) fn are(&self, kind: ChecksumKind, piece: u32) -> bool {
        self.kind == kind && self.piece == piece
    }

    /// The checksum of piece `index`, whose bytes are `range`.
    pub(super) fn piece(&mut self, index: usize, range: &PayloadRange<'_>) -> u32 {
        match self.values.get(index).copied().flatten() {
            Some(sum) => sum,
            None => {
                let sum = self.kind.of(range.segments());
                if let Some(value) = self.values.get_mut(index) {
                    *value = Some(sum);
                }
                sum
            }
        }
    }

    /// Computes what is missing, piece by piece, letting commands be submitted in between.
    pub(super) async fn complete(&mut self, lane: &Lane<'_>, payload: &Payload<'_>) {
        if payload.is_empty() {
            self.values[0] = Some(self.kind.of_slice(&[]));
        }
        for (index, range) in payload.chunks(self.piece).enumerate() {
            if self.values.get(index).is_some_and(Option::is_none) {
                lane.yield_now().await;
                self.piece(index, &range);
            }
        }
    }

    /// All checksums, once computed.
    pub(super) fn all(&self) -> Option<Vec<u32>> {
        self.values.iter().copied().collect()
    }
}
