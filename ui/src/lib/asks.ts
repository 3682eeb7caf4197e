// The words of asks, answers and grants. What is asked for is never cut; what an answer allows is said in full.
import type { Ask, Asked, Grant, Scope } from "../ipc/client";
import type { IconName } from "./icons";
import type { Shown } from "./words";
import { ago, plural } from "./time";

/** How long an ask has to be on screen, unchanged, before an answer counts. */
export const ARMED_AFTER = 700;
/** Open asks of one task that are shown as rows; the rest is one line. */
export const ROWS = 3;

/** What is asked for: `example.org:443`, `POST https://example.org/path`, or `~/.config/tool`. */
export function targetOf(what: Asked): string {
  if (what.about === "read") return what.path;
  if (what.about === "raise") return `${what.limit} to ${what.to}`;
  if (what.about === "connect") return `${what.host}:${what.port}`;
  return `${what.method} ${what.port === 443 ? "https://" : ""}${what.host}${what.port === 443 ? "" : `:${what.port}`}${what.path}`;
}

/** What an answer would let a program do with it. */
export function verbOf(what: Asked): string {
  return { connect: "Connect to", request: "Send", read: "Read", raise: "Raise" }[what.about];
}

/** The same, in the few words of a row. */
export function kindOf(what: Asked): string {
  return { connect: "Reach a host", request: "Reach a host", read: "Read a hidden place", raise: "Raise a limit" }[what.about];
}

/** Its icon. */
export function iconOf(what: Asked): IconName {
  return { connect: "net", request: "net", read: "eye", raise: "gauge" }[what.about] as IconName;
}

/** Whether something stands still until the answer: a connection does, a touch was refused, a limit holds. */
function isHeld(what: Asked): boolean {
  return what.about === "connect" || what.about === "request";
}

/** What stands between "wants" and the target. */
export function toWords(what: Asked): string {
  return { connect: "", request: "", read: "to read ", raise: "to raise " }[what.about];
}

/** The first word of a line that says who wants what. */
export function wantsWord(what: Asked): string {
  return isHeld(what) ? "Held" : "Asked";
}

const two = (n: number) => String(n).padStart(2, "0");

/** `14:32` in the person's zone. */
export function hourOf(ms: number): string {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}`;
}

/** `14:32:07`. */
export function secondOf(ms: number): string {
  return `${hourOf(ms)}:${two(new Date(ms).getSeconds())}`;
}

/** `0:48`: whole seconds that have passed, or that are begun of those left. */
export function minutes(ms: number, round: (n: number) => number): string {
  const s = Math.max(0, round(ms / 1000));
  return `${Math.floor(s / 60)}:${two(s % 60)}`;
}

/** The start of the person's day. */
export function midnight(now: number): number {
  return new Date(now).setHours(0, 0, 0, 0);
}

/** `today` with its hour, else with its day. */
export function dayOf(ms: number, now: number): string {
  const days = Math.round((midnight(ms) - midnight(now)) / 86_400_000);
  if (days === 0) return hourOf(ms);
  if (days === 1) return `tomorrow ${hourOf(ms)}`;
  if (days === -1) return `yesterday ${hourOf(ms)}`;
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${hourOf(ms)}`;
}

/** Milliseconds until the held connection is reset; none where that is not known, as later tries are held anew. */
export function holdLeft(ask: Ask, now: number): number | null {
  return ask.state !== "open" || ask.hold === null || ask.tries > 1 ? null : Math.max(0, ask.opened + ask.hold - now);
}

/** How long it waits, and what becomes of its connection. */
export function heldWords(ask: Ask, now: number): { held: string; then: string } {
  if (ask.what.about === "raise") return { held: `Waits since ${secondOf(ask.opened)}`, then: ask.what.limit === "limits.wall" ? "without an answer the run is ended in time" : "until then the limit holds" };
  if (ask.what.about === "read") return { held: `Waits since ${secondOf(ask.opened)}`, then: "the touch was refused; an answer serves the next try" };
  const left = holdLeft(ask, now);
  if (left === null) return { held: `Held since ${secondOf(ask.opened)}`, then: ask.hold === null ? "" : `each try resets itself after ${Math.round(ask.hold / 1000)} s` };
  if (left === 0) return { held: `Waits since ${secondOf(ask.opened)}`, then: "its connection was reset; an answer serves the next try" };
  return { held: `Held ${minutes(now - ask.opened, Math.floor)}`, then: `resets itself in ${minutes(left, Math.ceil)}` };
}

/** The same, in the few characters of a row. */
export function heldShort(ask: Ask, now: number): string {
  const left = holdLeft(ask, now);
  return left ? `${minutes(left, Math.ceil)} left` : `since ${hourOf(ask.opened)}`;
}

/** When a permission for longer ends. */
export type End = "half" | "four" | "today" | "good";

/** The ends that can be chosen. */
export const ENDS: readonly { value: End; word: string; short: string }[] = [
  { value: "half", word: "30 min", short: "30 min" },
  { value: "four", word: "4 h", short: "4 h" },
  { value: "today", word: "Today", short: "today" },
  { value: "good", word: "For good", short: "good" },
];

/** For how many milliseconds that is from now; for good where none. */
export function lastsOf(end: End, now: number): number | null {
  if (end === "half") return 30 * 60_000;
  if (end === "four") return 4 * 3_600_000;
  return end === "good" ? null : new Date(now).setHours(24, 0, 0, 0) - now;
}

/** Whether it is an address that was dialled without a name. */
export function isAddress(what: Asked): boolean {
  return isHeld(what) && "host" in what && /^\[|^\d+(\.\d+){3}$/.test(what.host);
}

/** One sentence that says what exactly an answer for longer allows. */
export function allowsWords(what: Asked, scope: Exclude<Scope, "once">, end: End, repository: string, now: number): string {
  const lasts = lastsOf(end, now);
  const until = lasts === null ? ", for good" : end === "today" ? " until midnight" : ` until ${dayOf(now + lasts, now)}`;
  const who = scope === "task" ? "Every program of this task" : `Every program of every task of ${repository}, later ones too,`;
  if (what.about === "read") return `${who} may read ${what.path}${until}, and all that lies below it. It does not allow to change it.`;
  if (what.about === "raise") return `${scope === "task" ? "Each run of this task" : `Each run of every task of ${repository}, later ones too,`} that comes to ${what.limit} goes on with ${what.to}${until}. Beyond that it asks again.`;
  if (what.about === "request") return `${who} may send ${targetOf(what)}${until}. It does not allow other methods, paths or hosts.`;
  return `${who} may connect to ${targetOf(what)}${until}. It does not allow other ports or ${isAddress(what) ? "addresses" : "names"}.`;
}

/** What became of an ask that waits no more. */
export function closedOf(ask: Ask): Shown {
  if (ask.state === "allowed") return { icon: "check", word: "Allowed", tone: "ok" };
  if (ask.state === "denied") return { icon: "deny", word: "Denied", tone: "bad" };
  return { icon: "clock", word: "Ended", tone: "" };
}

/** Whether and why a grant permits nothing more. */
export function grantState(g: Grant): Shown {
  if (g.revoked !== null) return { icon: "deny", word: "Revoked", tone: "bad" };
  if (g.lives) return { icon: "full", word: "Live", tone: "acc" };
  return g.left === 0 ? { icon: "okc", word: "Used up", tone: "" } : { icon: "clock", word: "Over", tone: "" };
}

/** Whether taking it back would still end something: what a used-up grant let out may go on. */
export function canRevoke(g: Grant, now: number): boolean {
  return g.revoked === null && (g.lives || (g.left === 0 && (g.until === null || g.until > now)));
}

/** `3 tries`. */
export function triesWords(ask: Ask): string {
  return plural(ask.tries, "try", "tries");
}

/** `12 min ago`. */
export function sinceWords(ms: number, now: number): string {
  const words = ago(now - ms);
  return words === "now" ? "just now" : `${words} ago`;
}

/** Open asks in the order of the list: by task, the task whose ask is oldest first; what is beyond `ROWS` of a task is its rest. */
export function grouped(open: readonly Ask[], whole: ReadonlySet<string>): { task: string; title: string; rows: Ask[]; rest: number }[] {
  const groups = new Map<string, Ask[]>();
  for (const ask of open) groups.set(ask.task, [...(groups.get(ask.task) ?? []), ask]);
  return Array.from(groups, ([task, asks]) => {
    const rows = whole.has(task) ? asks : asks.slice(0, ROWS);
    return { task, title: asks[0]?.title ?? "", rows, rest: asks.length - rows.length };
  });
}
