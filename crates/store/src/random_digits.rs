//! Random texts: keys, names of servers, rows that cannot be compressed.

use crate::error::StoreError;

/// 256 random bits in hexadecimal.
pub(crate) fn random_digits() -> Result<String, StoreError> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)
            .map_err(|error| StoreError::Sql(format!("no random numbers: {error}")))?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
