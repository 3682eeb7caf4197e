// A task's events as they come in, and which of them are shown.
import type { AppError, Client, Event } from "../../ipc/client";
import { haystack, verdictOf } from "../../lib/words";

/** The kinds that a chip can hide; asks, answers, limits and lifecycle are always shown. */
export const KINDS = ["file", "network", "process"] as const;
export type Kind = (typeof KINDS)[number];
export type Show = "all" | "denied" | "held";

/** Events in memory, newest last. Grows in place: `version` says when. */
export class Feed {
  all: Event[] = [];
  shown = $state.raw<Event[]>([]);
  version = $state(0);
  counts = $state.raw<Record<Kind, number>>({ file: 0, network: 0, process: 0 });
  /** How many are in `all`, which itself tells nobody. */
  total = $state(0);
  denied = $state(0);
  held = $state(0);
  caughtUp = $state(false);
  error = $state.raw<AppError | null>(null);
  text = $state("");
  kinds = $state.raw<ReadonlySet<Kind>>(new Set(KINDS));
  show = $state<Show>("all");
  #close: () => void;

  constructor(client: Client, task: string) {
    this.#close = client.events(
      task,
      1,
      (batch) => this.#take(batch.events, batch.caughtUp),
      (e) => (this.error = e),
    );
  }

  close(): void {
    this.#close();
  }

  #take(events: readonly Event[], caughtUp: boolean): void {
    this.caughtUp = caughtUp;
    if (events.length === 0) return;
    const counts = { ...this.counts };
    let denied = 0;
    let held = 0;
    const test = this.#test();
    for (const e of events) {
      this.all.push(e);
      if (e.what.kind in counts) counts[e.what.kind as Kind] += 1;
      const verdict = verdictOf(e);
      if (verdict === "denied") denied += 1;
      else if (verdict === "held") held += 1;
      if (test(e)) this.shown.push(e);
    }
    this.counts = counts;
    this.total = this.all.length;
    this.denied += denied;
    this.held += held;
    this.version += 1;
  }

  #test(): (e: Event) => boolean {
    const words = this.text.toLowerCase().split(/\s+/).filter(Boolean);
    return (e) => {
      const kind = e.what.kind;
      if ((KINDS as readonly string[]).includes(kind) && !this.kinds.has(kind as Kind)) return false;
      if (this.show !== "all" && verdictOf(e) !== this.show) return false;
      if (words.length === 0) return true;
      const hay = haystack(e);
      return words.every((w) => hay.includes(w));
    };
  }

  /** Applies a changed filter to everything. */
  refilter(): void {
    this.shown = this.all.filter(this.#test());
    this.version += 1;
  }

  setText(text: string): void {
    this.text = text;
    this.refilter();
  }

  toggle(kind: Kind): void {
    const kinds = new Set(this.kinds);
    if (!kinds.delete(kind)) kinds.add(kind);
    this.kinds = kinds;
    this.refilter();
  }

  setShow(show: Show): void {
    this.show = show;
    this.refilter();
  }

  /** Index in `shown` of the next denied event after `from`, going round. */
  nextDenied(from: number): number {
    for (let i = 1; i <= this.shown.length; i++) {
      const at = (from + i) % this.shown.length;
      const e = this.shown[at];
      if (e && verdictOf(e) === "denied") return at;
    }
    return -1;
  }
}
