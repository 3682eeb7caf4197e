// The review of one task: the candidate on screen, its files, its decisions, the open file.
import { asAppError, type AppError, type Applied, type ChangedFile, type Changes, type Client, type FileDecision, type FileDiff } from "../../ipc/client";
import { inOrder } from "../../lib/tree";
import { markOf } from "../../lib/words";

export type Layout = "unified" | "split";

/** Kept while the window lives, so that another tab and back costs no new look. */
export class Reviewing {
  changes = $state.raw<Changes | null>(null);
  lookedAt = $state(0);
  whileRunning = $state(false);
  looking = $state(false);
  deciding = $state(false);
  stale = $state(false);
  error = $state.raw<AppError | null>(null);
  text = $state("");
  onlyMarked = $state(false);
  layout = $state<Layout>("unified");
  open = $state<string | null>(null);
  diff = $state.raw<FileDiff | null>(null);
  applied = $state.raw<Applied | null>(null);
  #client: Client;
  #task: string;

  constructor(client: Client, task: string) {
    this.#client = client;
    this.#task = task;
  }

  decision = $derived.by(() => {
    const map = new Map<string, { decision: FileDecision; changedSince: boolean }>();
    for (const f of this.changes?.review.files ?? []) map.set(f.path, f);
    return map;
  });

  /** Files that the filter leaves, in the tree's order. */
  shown = $derived.by(() => {
    const words = this.text.toLowerCase();
    return inOrder(this.changes?.files ?? []).filter((f) => (words === "" || f.path.toLowerCase().includes(words)) && (!this.onlyMarked || risky(f)));
  });

  total = $derived(this.changes?.files.length ?? 0);
  accepted = $derived([...this.decision.values()].filter((d) => d.decision === "accepted").length);
  rejected = $derived([...this.decision.values()].filter((d) => d.decision === "rejected").length);
  decided = $derived(this.accepted + this.rejected);
  changedSince = $derived([...this.decision.values()].filter((d) => d.changedSince).length);
  marked = $derived((this.changes?.files ?? []).filter(risky).length);

  /** Why nothing can be applied now, in words; empty where it can. */
  whyNot = $derived.by(() => {
    if (!this.changes || this.total === 0) return "nothing changed.";
    if (this.stale) return "the workspace changed since you looked.";
    if (!this.changes.still) return "this was taken while something ran. Stop the run, then look again.";
    const open = this.total - this.decided;
    if (open > 0) return `${open} ${open === 1 ? "file isn’t" : "files aren’t"} decided.`;
    if (this.accepted === 0) return "every file is rejected.";
    return "";
  });

  /** Freezes the workspace and shows what changed. */
  async look(running: boolean): Promise<void> {
    if (this.looking) return;
    this.looking = true;
    this.error = null;
    try {
      const changes = await this.#client.look(this.#task);
      this.changes = changes;
      this.stale = false;
      this.whileRunning = running;
      this.lookedAt = Date.now();
      const still = this.open !== null && changes.files.some((f) => f.path === this.open);
      this.open = still ? this.open : (inOrder(changes.files)[0]?.path ?? null);
      await this.#load();
    } catch (e) {
      this.error = asAppError(e);
    } finally {
      this.looking = false;
    }
  }

  async show(path: string): Promise<void> {
    if (this.open === path && this.diff) return;
    this.open = path;
    await this.#load();
  }

  async #load(): Promise<void> {
    const path = this.open;
    const tree = this.changes?.tree;
    if (path === null || tree === undefined) {
      this.diff = null;
      return;
    }
    try {
      const diff = await this.#client.fileDiff(this.#task, tree, path);
      if (this.open === path && this.changes?.tree === tree) this.diff = diff;
    } catch (e) {
      if (this.open === path) this.diff = null;
      this.#fail(e);
    }
  }

  #fail(e: unknown): void {
    const error = asAppError(e);
    if (error.code === "stale") this.stale = true;
    else this.error = error;
  }

  /** Decides files, then moves on to the next open one. */
  async decide(accept: string[], reject: string[]): Promise<void> {
    if (!this.changes || this.deciding) return;
    this.deciding = true;
    this.error = null;
    try {
      const review = await this.#client.decide(this.#task, this.changes.tree, accept, reject);
      this.changes = { ...this.changes, review };
      const next = this.#nextOpen();
      if (next !== null && accept.length + reject.length === 1) await this.show(next);
    } catch (e) {
      this.#fail(e);
    } finally {
      this.deciding = false;
    }
  }

  #nextOpen(): string | null {
    const files = this.shown;
    const at = files.findIndex((f) => f.path === this.open);
    for (let i = 1; i <= files.length; i++) {
      const f = files[(at + i) % files.length];
      if (f && this.decision.get(f.path)?.decision === "open") return f.path;
    }
    return null;
  }

  step(by: 1 | -1): void {
    const at = this.shown.findIndex((f) => f.path === this.open);
    const next = this.shown[Math.max(0, Math.min(this.shown.length - 1, at + by))];
    if (next) void this.show(next.path);
  }

  async apply(onto: string, message: string): Promise<void> {
    if (!this.changes) return;
    try {
      this.applied = await this.#client.apply(this.#task, this.changes.tree, this.changes.review.result, onto, message);
      this.error = null;
    } catch (e) {
      const error = asAppError(e);
      if (error.code === "stale") this.stale = true;
      throw error;
    }
  }

  async undo(): Promise<void> {
    try {
      await this.#client.undo(this.#task);
      this.applied = null;
      this.error = null;
    } catch (e) {
      this.#fail(e);
    }
  }
}

/** Whether a file has a mark that asks for a look first. */
export function risky(f: ChangedFile): boolean {
  return f.marks.some((m) => markOf(m).risk);
}

const kept = new WeakMap<Client, Map<string, Reviewing>>();

/** The review of a task, made once. */
export function reviewing(client: Client, task: string): Reviewing {
  const all = kept.get(client) ?? new Map<string, Reviewing>();
  kept.set(client, all);
  const known = all.get(task) ?? new Reviewing(client, task);
  all.set(task, known);
  return known;
}
