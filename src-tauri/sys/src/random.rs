//! Bytes that nobody can guess.

/// Eight random bytes from the kernel; waits for its pool at boot.
pub fn bytes() -> [u8; 8] {
    let mut out = [0; 8];
    let mut filled = 0;
    while filled < out.len() {
        // An interrupted call is repeated; any other error can't occur for eight bytes from an open pool.
        if let Ok(n) = rustix::rand::getrandom(&mut out[filled..], rustix::rand::GetRandomFlags::empty()) {
            filled += n;
        }
    }
    out
}
