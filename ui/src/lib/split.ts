// A unified diff's rows as the lines of a split view.
import type { Row } from "../ipc/client";

/** A line of the split view: a full-width row, or a left and a right side. */
export type SplitLine = { full: Row } | { left: Row | null; right: Row | null };

/** Pairs removed with added lines; what has no partner stands alone. */
export function split(rows: readonly Row[]): SplitLine[] {
  const out: SplitLine[] = [];
  let i = 0;
  while (i < rows.length) {
    const row = rows[i];
    if (!row) break;
    if (row.kind === "hunk" || row.kind === "note") out.push({ full: row });
    else if (row.kind === "context") out.push({ left: row, right: row });
    else {
      // A block of changed lines: its removed and its added rows, in order.
      const dels: number[] = [];
      const adds: number[] = [];
      let j = i;
      for (; j < rows.length; j++) {
        const kind = rows[j]?.kind;
        if (kind === "del") dels.push(j);
        else if (kind === "add") adds.push(j);
        else break;
      }
      out.push(...pairs(rows, dels, adds));
      i = j;
      continue;
    }
    i += 1;
  }
  return out;
}

function pairs(rows: readonly Row[], dels: number[], adds: number[]): SplitLine[] {
  const out: SplitLine[] = [];
  let a = 0;
  for (const d of dels) {
    const partner = rows[d]?.pair ?? null;
    const at = partner === null ? -1 : adds.indexOf(partner, a);
    // Added lines before the partner stand alone, so that both sides keep their order.
    if (at >= 0) {
      for (; a < at; a++) out.push({ left: null, right: rows[adds[a] ?? -1] ?? null });
      out.push({ left: rows[d] ?? null, right: rows[adds[a] ?? -1] ?? null });
      a += 1;
    } else out.push({ left: rows[d] ?? null, right: null });
  }
  for (; a < adds.length; a++) out.push({ left: null, right: rows[adds[a] ?? -1] ?? null });
  return out;
}
