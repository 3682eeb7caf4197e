import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

// The contrast that WCAG asks for, computed from the tokens themselves for both themes.
const css = readFileSync("src/styles/tokens.css", "utf8");

function tokens(theme: "dark" | "light"): Record<string, string> {
  const block = css.slice(css.indexOf(`data-theme="${theme}"]`));
  return Object.fromEntries(Array.from(block.slice(0, block.indexOf("\n}")).matchAll(/--([\w-]+): (#[0-9a-f]{6});/g), (m) => [m[1]!, m[2]!]));
}

function luminance(hex: string): number {
  const part = (at: number) => {
    const v = parseInt(hex.slice(at, at + 2), 16) / 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
}

function contrast(a: string, b: string): number {
  const [hi, lo] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (hi + 0.05) / (lo + 0.05);
}

// Classes that base.css draws in the plain colour inside a word mark.
const PLAIN_ON_MARKS = Array.from(/^(mark \.[^{]*)\{ color: inherit/m.exec(readFileSync("src/styles/base.css", "utf8"))?.[1]?.matchAll(/mark \.(\w+)/g) ?? [], (m) => `sx-${m[1]}`);
const SYNTAX = ["text", "sx-kw", "sx-ty", "sx-fn", "sx-str", "sx-num", "sx-com", "sx-mac"];
// Every pair of text and ground that the views draw.
const TEXT: [string[], string[]][] = [
  [["text", "text-2", "text-3"], ["sunk", "bg", "raised", "hover"]],
  [["text", "text-2"], ["press", "select"]],
  [["accent", "ok", "warn", "bad"], ["sunk", "bg", "raised", "hover"]],
  [["text", "text-2", "text-3", "bad"], ["bad-bg"]],
  [["text", "text-2", "text-3", "warn"], ["warn-bg"]],
  [["text", "text-2", "text-3", "accent", "bad", "warn"], ["select"]],
  [["on-fill"], ["fill"]],
  [SYNTAX, ["bg", "add-bg", "del-bg"]],
  [SYNTAX.filter((s) => !PLAIN_ON_MARKS.includes(s)), ["add-word", "del-word"]],
  [["text-2"], ["add-gut", "del-gut"]],
];
const LINES: [string[], string[]][] = [[["line-ctl", "accent"], ["bg", "raised", "sunk"]]];

describe.each(["dark", "light"] as const)("contrast of the %s tokens", (theme) => {
  const t = tokens(theme);
  const pairs = (list: [string[], string[]][]) => list.flatMap(([fronts, grounds]) => fronts.flatMap((f) => grounds.map((g) => [f, g] as const)));
  it.each(pairs(TEXT))("text %s on %s is 4.5 : 1", (front, ground) => expect(contrast(t[front]!, t[ground]!)).toBeGreaterThanOrEqual(4.5));
  it.each(pairs(LINES))("border %s on %s is 3 : 1", (front, ground) => expect(contrast(t[front]!, t[ground]!)).toBeGreaterThanOrEqual(3));
});
