//! Java's list of authorities, in the form that every Java since 1.2 reads (`JKS`, as `sun.security.provider.JavaKeyStore` has it).

use sha1::{Digest, Sha1};

/// What the list of a Java installation is sealed with; it keeps nothing secret.
const PASSWORD: &str = "changeit";
const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED: u32 = 2;

/// A keystore that trusts these certificates (DER).
pub(super) fn of(certificates: &[&[u8]]) -> Vec<u8> {
    let mut out = [MAGIC, VERSION, number(certificates.len())].map(u32::to_be_bytes).concat();
    for (n, der) in certificates.iter().enumerate() {
        out.extend(TRUSTED.to_be_bytes());
        text(&mut out, &format!("airlock-{n}"));
        // When it was added: no program asks.
        out.extend(0_u64.to_be_bytes());
        text(&mut out, "X.509");
        out.extend(number(der.len()).to_be_bytes());
        out.extend_from_slice(der);
    }
    let mut seal = Sha1::new();
    seal.update(PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>());
    seal.update(b"Mighty Aphrodite");
    seal.update(&out);
    out.extend(seal.finalize());
    out
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// ASCII of less than 64 KiB.
fn text(out: &mut Vec<u8>, text: &str) {
    out.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
