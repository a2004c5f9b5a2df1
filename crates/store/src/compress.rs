//! Compression of bodies with zstd. Blocks of one trace repeat themselves (each prompt contains the one before), so the
//! fastest level is nearly as good as others: level 1 is a fifth smaller and takes a third more instructions. Each
//! frame has a checksum, because most damage to text still decompresses to text.

use std::cell::RefCell;

use crate::error::StoreError;

/// Negative levels of zstd are the fastest ones.
const COMPRESSION_LEVEL: i32 = -1;
/// Maximum bytes that one body may decompress to: more than any request may have. Guards against a damaged or hostile
/// file.
const MAX_BODY_BYTES: usize = 1 << 30;

thread_local! {
    // Setting up a context costs more than compressing a span, so each thread keeps one.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses a body. Cannot fail.
pub(crate) fn compress_bytes(bytes: &[u8]) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = new_compressor().ok();
        }
        let packed = slot.as_mut().and_then(|compressor| compressor.compress(bytes).ok());
        // Only without memory there is no context; then the plain call aborts.
        packed.unwrap_or_else(|| zstd::bulk::compress(bytes, COMPRESSION_LEVEL).unwrap_or_default())
    })
}

fn new_compressor() -> std::io::Result<zstd::bulk::Compressor<'static>> {
    let mut compressor = zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

/// Returns the decompressed size of a body, as its frame states it; `None` for a damaged one.
pub(crate) fn decompressed_size(bytes: &[u8]) -> Option<u64> {
    zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten()
}

/// Decompresses a body. The frame states its size, which is checked before memory is allocated.
pub(crate) fn decompress_bytes(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    let bad = |reason: String| StoreError::bad_row("a compressed body", reason);
    let size = decompressed_size(bytes).ok_or_else(|| bad("its length is not known".to_owned()))?;
    let size = usize::try_from(size).ok().filter(|size| *size <= MAX_BODY_BYTES);
    let size = size.ok_or_else(|| bad("it is too long".to_owned()))?;
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Some(zstd::bulk::Decompressor::new().map_err(|error| bad(error.to_string()))?);
        }
        match slot {
            Some(decompressor) => decompressor.decompress(bytes, size).map_err(|error| bad(error.to_string())),
            None => Err(bad("no memory".to_owned())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let text = "the quick brown fox jumps over the lazy dog; ".repeat(20) + "0123456789";
        let packed = compress_bytes(text.as_bytes());
        assert_eq!(decompress_bytes(&packed).unwrap(), text.as_bytes());
        for bit in 0..packed.len() * 8 {
            let mut damaged = packed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let read = decompress_bytes(&damaged);
            // A bit of the header that says nothing of the content may change.
            assert!(read.is_err() || read.unwrap() == text.as_bytes(), "bit {bit}");
        }
    }
}
