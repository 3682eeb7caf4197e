// What waits for the person in all tasks, what was answered today, and what is permitted.
import { asAppError, type AppError, type Ask, type Client, type Grant } from "../../ipc/client";
import { grouped, midnight } from "../../lib/asks";

/** Refreshed when the Rust side says that something changed. */
export class Asks {
  all = $state.raw<Ask[]>([]);
  grants = $state.raw<Grant[]>([]);
  error = $state.raw<AppError | null>(null);
  /** The ask on screen. */
  selected = $state<string | null>(null);
  /** Open asks that were not there at the look before: what is announced. */
  fresh = $state.raw<readonly Ask[]>([]);
  /** Tasks of which all open asks are rows. */
  whole = $state.raw<ReadonlySet<string>>(new Set());
  /** Whether somebody looks at the grants. */
  grantsShown = false;
  readonly #seen = new Set<string>();
  #client: Client;
  #turn = 0;

  readonly open = $derived(this.all.filter((a) => a.state === "open"));
  readonly past = $derived(this.all.filter((a) => a.state !== "open").sort((a, b) => (b.closed ?? 0) - (a.closed ?? 0)));
  readonly groups = $derived(grouped(this.open, this.whole));
  readonly rows = $derived(this.groups.flatMap((g) => g.rows));
  readonly current = $derived(this.all.find((a) => a.id === this.selected) ?? null);

  constructor(client: Client) {
    this.#client = client;
  }

  /** Open asks of one task, oldest first. */
  of(task: string): Ask[] {
    return this.open.filter((a) => a.task === task);
  }

  /** Reads everything again; an older answer never replaces a newer one. */
  async refresh(): Promise<void> {
    const turn = ++this.#turn;
    try {
      const [all, grants] = await Promise.all([this.#client.asks(midnight(Date.now())), this.grantsShown ? this.#client.grants() : null]);
      if (turn !== this.#turn) return;
      this.all = all;
      if (grants) this.grants = grants;
      this.error = null;
      const fresh = this.open.filter((a) => !this.#seen.has(a.id));
      fresh.forEach((a) => this.#seen.add(a.id));
      if (fresh.length > 0) this.fresh = fresh;
    } catch (e) {
      if (turn === this.#turn) this.error = asAppError(e);
    }
  }

  /** Puts the oldest open ask on screen. */
  pickOldest(): void {
    this.selected = this.open[0]?.id ?? null;
  }

  /** Moves by one row of those in sight. */
  step(by: 1 | -1): void {
    const at = this.rows.findIndex((a) => a.id === this.selected);
    const next = this.rows[at < 0 ? 0 : Math.max(0, Math.min(this.rows.length - 1, at + by))];
    if (next) this.selected = next.id;
  }

  /** The ask that follows one, going round; none where it is the last. */
  after(id: string): string | null {
    const at = this.rows.findIndex((a) => a.id === id);
    return (this.rows[at + 1] ?? this.rows.find((a) => a.id !== id))?.id ?? null;
  }

  /** Makes rows of all open asks of a task. */
  showAll(task: string): void {
    this.whole = new Set([...this.whole, task]);
  }
}
