// Text from a jail is drawn as text: what hides, acts or reorders is written out and becomes its own piece.

/** A piece of a text: plain, or one character written out. */
export interface Piece {
  text: string;
  /** Written out, with a sentence for the tooltip. */
  esc: boolean;
}

const NAMES: Record<number, string> = { 0: "NUL", 7: "BEL", 8: "BS", 9: "TAB", 10: "LF", 13: "CR", 27: "ESC", 127: "DEL" };

/** Characters that hide or reorder what a person reads; the same list as `hides` in the crate `model`. */
export function hides(code: number): boolean {
  return (
    code < 0x20 ||
    (code >= 0x7f && code <= 0x9f) ||
    code === 0xad ||
    code === 0x61c ||
    code === 0x180e ||
    (code >= 0x200b && code <= 0x200f) ||
    (code >= 0x2028 && code <= 0x202e) ||
    (code >= 0x2060 && code <= 0x2069) ||
    code === 0xfeff ||
    (code >= 0xfff9 && code <= 0xfffb) ||
    (code >= 0xe0000 && code <= 0xe007f)
  );
}

/** The word for a character that is written out. */
export function nameOf(code: number): string {
  return NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

function push(out: Piece[], text: string, esc: boolean): void {
  const last = out[out.length - 1];
  if (!esc && last && !last.esc) last.text += text;
  else out.push({ text, esc });
}

function plain(out: Piece[], text: string): void {
  for (const c of text) {
    const code = c.codePointAt(0) ?? 0;
    if (hides(code)) push(out, nameOf(code), true);
    else push(out, c, false);
  }
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A run of escaped bytes: characters where they are UTF-8, else `\xNN` as it stands. */
function bytes(out: Piece[], run: number[]): void {
  let at = 0;
  while (at < run.length) {
    const lead = run[at] ?? 0;
    const length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
    let c: string | null = null;
    if (length > 0 && at + length <= run.length) {
      try {
        c = decoder.decode(new Uint8Array(run.slice(at, at + length)));
      } catch {
        c = null;
      }
    }
    if (c === null) {
      push(out, `\\x${lead.toString(16).padStart(2, "0")}`, true);
      at += 1;
    } else {
      push(out, nameOf(c.codePointAt(0) ?? 0), true);
      at += length;
    }
  }
}

/** The word for a piece of a diff's line that the Rust side wrote out: `\u{202e}` is `U+202E`, `\x1b` is `ESC`; bytes and notes stay as they are. */
export function writtenOut(text: string): string {
  const hex = /^\\u\{([0-9a-f]+)\}$|^\\x([0-7][0-9a-f])$/.exec(text);
  return hex ? nameOf(parseInt(hex[1] ?? hex[2] ?? "", 16)) : text;
}

/** Cuts a text without escapes (a title, a host, a reason) into pieces. */
export function pieces(text: string): Piece[] {
  const out: Piece[] = [];
  plain(out, text);
  return out;
}

/** Cuts a path in the form of the crate `model` (`\\` and `\xNN`) into pieces. */
export function pathPieces(text: string): Piece[] {
  const out: Piece[] = [];
  for (const m of text.matchAll(/((?:\\x[0-9a-fA-F]{2})+)|(\\\\)|([^\\]+|\\)/g)) {
    if (m[1] !== undefined) bytes(out, Array.from(m[1].matchAll(/\\x(..)/g), (h) => parseInt(h[1] ?? "0", 16)));
    else if (m[2] !== undefined) push(out, "\\", false);
    else plain(out, m[3] ?? "");
  }
  return out;
}
