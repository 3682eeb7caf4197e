// For tests: what is on screen, and how a person acts on it.
import axe from "axe-core";
import { flushSync, tick } from "svelte";
import { expect, vi } from "vitest";

/** xterm.js measures and paints, which jsdom does not: a view gets one that only keeps what was written. */
export const PLAIN_TERMINAL = {
  makeTerminal: () => ({
    cols: 80,
    rows: 24,
    options: {},
    loadAddon: (a: { fit: () => void }) => (a.fit = () => undefined),
    open: () => undefined,
    onData: () => undefined,
    onBinary: () => undefined,
    onResize: () => undefined,
    attachCustomKeyEventHandler: () => undefined,
    write: (_: Uint8Array, done: () => void) => done(),
    focus: () => undefined,
    dispose: () => undefined,
  }),
  themeOf: () => ({}),
};

export const $ = <T extends HTMLElement = HTMLElement>(q: string) => document.querySelector<T>(q);
export const all = (q: string) => Array.from(document.querySelectorAll<HTMLElement>(q));
export const test = (name: string) => $(`[data-test="${name}"]`);

/** Lets promises and effects run out. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 12; i++) {
    flushSync();
    await tick();
    await Promise.resolve();
  }
}

export async function click(name: string): Promise<void> {
  const el = test(name);
  expect(el, `there is ${name}`).not.toBeNull();
  el!.click();
  await settle();
}

export async function press(key: string, more: KeyboardEventInit = {}, on: EventTarget = document.body): Promise<void> {
  on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
  await settle();
}

export async function accessible(): Promise<void> {
  // Contrast is computed from the tokens in tokens.test.ts: jsdom has no layout to judge it by.
  let over = false;
  const run = axe.run(document.body, { rules: { "color-contrast": { enabled: false }, region: { enabled: false } } }).finally(() => (over = true));
  // It waits for timers, which pass only as they are told to where a test set its own clock.
  while (vi.isFakeTimers() && !over) await vi.advanceTimersByTimeAsync(1);
  const { violations } = await run;
  expect(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).join(" | ")}`)).toEqual([]);
}
