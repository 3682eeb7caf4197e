//! What is on a display without a screen, as a picture. Read from the X server's own memory: WebDriver's screenshot waits for a
//! frame that an unchanging page may never draw.

use std::path::Path;

/// Reads the server's `-fbdir` file (the XWD format: big-endian words, a colour map, then rows of BGRX) and writes a PNG.
pub fn save(framebuffer: &Path, png: &Path) -> std::io::Result<()> {
    let bytes = std::fs::read(framebuffer)?;
    let bad = |why: &str| std::io::Error::other(format!("{}: {why}", framebuffer.display()));
    let word = |n: usize| -> std::io::Result<usize> {
        let at = bytes.get(n * 4..n * 4 + 4).ok_or_else(|| bad("shorter than its header"))?;
        Ok(u32::from_be_bytes([at[0], at[1], at[2], at[3]]) as usize)
    };
    let (header, width, height, bits, stride, colours) = (word(0)?, word(4)?, word(5)?, word(11)?, word(12)?, word(19)?);
    if word(1)? != 7 || bits != 32 {
        return Err(bad("not a picture with 32 bits a pixel"));
    }
    let pixels = bytes.get(header + colours * 12..).ok_or_else(|| bad("no pixels"))?;
    let mut rgb = Vec::with_capacity(width * height * 3);
    for row in 0..height {
        let row = pixels.get(row * stride..row * stride + width * 4).ok_or_else(|| bad("rows are missing"))?;
        for p in row.chunks_exact(4) {
            rgb.extend([p[2], p[1], p[0]]);
        }
    }
    let side = |n: usize| u32::try_from(n).map_err(std::io::Error::other);
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(std::fs::File::create(png)?), side(width)?, side(height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().and_then(|mut w| w.write_image_data(&rgb)).map_err(std::io::Error::other)
}
