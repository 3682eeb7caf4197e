//! Frames of the warden's protocol: pure encoding and decoding, so that both ends agree.

use crate::protocol::MAX_FRAME;

/// One decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// See [`crate::protocol::kind`].
    pub kind: u8,
    /// At most [`MAX_FRAME`] - 1 bytes.
    pub payload: Vec<u8>,
}

/// A frame that is empty or too long: the connection is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes is not of this protocol (1 to {MAX_FRAME})")]
pub struct BadFrame(pub u32);

/// Encodes one frame. A payload of [`MAX_FRAME`] bytes or more is cut there; senders split before.
pub fn encode(kind: u8, payload: &[u8]) -> Vec<u8> {
    let room = MAX_FRAME - 1;
    let cut = u32::try_from(payload.len()).map_or(room, |n| n.min(room));
    let mut out = Vec::with_capacity(5 + cut as usize);
    out.extend((cut + 1).to_be_bytes());
    out.push(kind);
    out.extend(&payload[..cut as usize]);
    out
}

/// Collects bytes and gives whole frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, BadFrame> {
        let rest = &self.buffer[self.start..];
        let Some(head) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head);
        if length == 0 || length > MAX_FRAME {
            return Err(BadFrame(length));
        }
        let end = 4 + length as usize;
        let Some(body) = rest.get(4..end) else { return Ok(None) };
        let frame = Frame { kind: body[0], payload: body[1..].to_vec() };
        self.start += end;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whole_however_the_bytes_arrive() {
        let mut wire = encode(1, b"hello");
        wire.extend(encode(0, b""));
        for step in [1, 2, 3, 100] {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for part in wire.chunks(step) {
                decoder.push(part);
                while let Ok(Some(f)) = decoder.next_frame() {
                    got.push((f.kind, f.payload));
                }
            }
            assert_eq!(got, vec![(1, b"hello".to_vec()), (0, vec![])], "in steps of {step}");
        }
    }

    #[test]
    fn a_length_out_of_range_is_an_error_not_an_allocation() {
        for length in [0u32, MAX_FRAME + 1, u32::MAX] {
            let mut decoder = Decoder::default();
            decoder.push(&length.to_be_bytes());
            assert_eq!(decoder.next_frame(), Err(BadFrame(length)));
        }
    }
}
