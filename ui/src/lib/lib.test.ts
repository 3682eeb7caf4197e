import { describe, expect, it } from "vitest";
import type { ChangedFile, Row } from "../ipc/client";
import { columns } from "./columns";
import { hides, pathPieces, pieces, writtenOut } from "./escape";
import { actionOf, chord, KEYS, label, type Action, type Where } from "./keys";
import { split } from "./split";
import { ago, count, elapsed, size } from "./time";
import { inOrder, lines } from "./tree";

const text = (p: { text: string; esc: boolean }[]) => p.map((x) => (x.esc ? `[${x.text}]` : x.text)).join("");

describe("text that hides is written out", () => {
  it("in the escaped form of paths", () => {
    expect(text(pathPieces("docs/no\\xe2\\x80\\xaedm.set"))).toBe("docs/no[U+202E]dm.set");
    expect(text(pathPieces("a\\x1b[2J\\x0a"))).toBe("a[ESC][2J[LF]");
    expect(text(pathPieces("back\\\\slash \\xff\\xfe"))).toBe("back\\slash [\\xff][\\xfe]");
  });
  it("in texts that were not escaped on the way", () => {
    expect(text(pieces("a\u202Eb\u0007"))).toBe("a[U+202E]b[BEL]");
  });
  it("in lines of a diff, by the same names", () => {
    expect(["\\u{202e}", "\\x1b", "\\xff\\xfe", "… (9 more characters)"].map(writtenOut)).toEqual(["U+202E", "ESC", "\\xff\\xfe", "… (9 more characters)"]);
  });
  it("and nothing else is", () => {
    expect(text(pieces("ordinary – text, 日本語 €"))).toBe("ordinary – text, 日本語 €");
    expect(hides("é".codePointAt(0)!)).toBe(false);
  });
  it("leaves no character behind that hides, whatever the input", () => {
    const all = Array.from({ length: 0x2100 }, (_, i) => String.fromCodePoint(i)).join("") + "\uFEFF\u{E0041}";
    for (const p of [...pieces(all), ...pathPieces(all)]) for (const c of p.text) expect(hides(c.codePointAt(0)!)).toBe(false);
  });
});

describe("the key table", () => {
  const ACTIONS: Record<Where, Action[]> = {
    anywhere: ["new", "tab1", "tab2", "tab3", "prevTask", "nextTask", "pause", "oldestAsk", "region", "sheet", "back"],
    activity: ["down", "up", "open", "filter", "nextDenied", "follow", "latest"],
    changes: ["down", "up", "accept", "reject", "nextHunk", "prevHunk", "view", "marks", "filter"],
    inbox: ["down", "up", "deny", "once", "longer"],
    terminal: ["leave", "copy", "paste"],
    dialog: ["confirm", "close"],
  };
  it("names each action of each place once", () => {
    for (const [where, actions] of Object.entries(ACTIONS)) expect(KEYS.filter((k) => k.where === where).map((k) => k.action)).toEqual(actions);
  });
  it("gives no key two meanings in one place, nor one that hides a key of everywhere", () => {
    for (const where of Object.keys(ACTIONS) as Where[]) {
      const keys = KEYS.filter((k) => k.where === where || (k.where === "anywhere" && where !== "dialog")).flatMap((k) => k.keys);
      expect(new Set(keys).size).toBe(keys.length);
    }
  });
  it("knows its own chords when they are pressed", () => {
    for (const k of KEYS) {
      for (const keys of k.keys) {
        const parts = keys.split("+");
        const e = new KeyboardEvent("keydown", { key: parts.at(-1)!, ctrlKey: parts.includes("Ctrl"), altKey: parts.includes("Alt"), shiftKey: parts.includes("Shift") });
        expect(chord(e)).toBe(keys);
        expect(actionOf(k.where, e)).toBe(k.action);
      }
    }
  });
  it("takes ? with its Shift, and no letter with one", () => {
    expect(actionOf("anywhere", new KeyboardEvent("keydown", { key: "?", shiftKey: true }))).toBe("sheet");
    expect(actionOf("changes", new KeyboardEvent("keydown", { key: "Y", shiftKey: true }))).toBe(null);
  });
  it("reads as words", () => expect(label("Ctrl+Shift+Escape")).toBe("Ctrl Shift Esc"));
});

describe("changed files", () => {
  const file = (path: string): ChangedFile => ({ path, oldPath: null, kind: "modified", oldMode: 0, newMode: 0, added: 1, removed: 1, binary: false, marks: [] });
  it("come folder by folder, the top last, each once", () => {
    const files = ["b/x", "Cargo.lock", "a/z", "b/a/y", "a/y"].map(file);
    expect(lines(files).map((l) => (l.kind === "dir" ? `${l.path}/` : `  ${l.name}`))).toEqual(["a/", "  z", "  y", "b/", "  x", "b/a/", "  y", "  Cargo.lock"]);
    expect(inOrder(files)).toHaveLength(files.length);
  });
});

describe("the split view", () => {
  const row = (kind: Row["kind"], pair: number | null = null): Row => ({ kind, old: null, new: null, hunk: 0, pair, spans: [] });
  it("sets partners side by side and loses no row", () => {
    const rows = [row("hunk"), row("context"), row("del", 5), row("del"), row("add"), row("add", 2), row("context"), row("add"), row("note")];
    const out = split(rows);
    const seen = out.flatMap((l) => ("full" in l ? [l.full] : [l.left, l.right])).filter((r) => r !== null);
    for (const r of rows) expect(seen).toContain(r);
    const partners = out.find((l) => "left" in l && l.left === rows[2]);
    expect(partners && "right" in partners ? partners.right : null).toBe(rows[5]);
  });
});

describe("words for numbers", () => {
  it("count, size, time", () => {
    expect(count(1234567)).toBe("1,234,567");
    expect(size(4096)).toBe("4.0 KiB");
    expect(elapsed(2_467_000)).toBe("00:41:07");
    expect(ago(41 * 60_000)).toBe("41 min");
  });
  it("counts the columns of a line", () => {
    expect(columns([{ text: "\tab", class: "text", word: false }])).toBe(7);
  });
});
