import type { Span } from "../ipc/client";

/** How many columns of the mono face a line takes: a tab goes to the next multiple of four, a wide character takes two. */
export function columns(spans: readonly Span[]): number {
  let n = 0;
  for (const s of spans) {
    for (const c of s.text) {
      if (c === "\t") n += 4 - (n % 4);
      else n += (c.codePointAt(0) ?? 0) >= 0x1100 ? 2 : 1;
    }
    // A written-out character has its own insets.
    if (s.class === "esc") n += 1;
  }
  return n + 1;
}
