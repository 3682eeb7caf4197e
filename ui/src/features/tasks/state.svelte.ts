// Repositories and tasks as the rail shows them.
import { asAppError, type AppError, type Client, type Repo, type Task } from "../../ipc/client";

/** The rail's data, refreshed when the Rust side says that it changed. */
export class Tasks {
  repos = $state.raw<Repo[]>([]);
  tasks = $state.raw<Task[]>([]);
  loaded = $state(false);
  error = $state.raw<AppError | null>(null);
  selected = $state<string | null>(null);
  #client: Client;
  #turn = 0;

  constructor(client: Client) {
    this.#client = client;
  }

  /** The task on screen. */
  get current(): Task | null {
    return this.tasks.find((t) => t.id === this.selected) ?? null;
  }

  /** Tasks in the order of the rail. */
  get inOrder(): Task[] {
    return this.repos.flatMap((r) => this.of(r.id));
  }

  /** Tasks of one repository, newest first. */
  of(repo: string): Task[] {
    return this.tasks.filter((t) => t.repo === repo).sort((a, b) => b.created - a.created || (a.id < b.id ? -1 : 1));
  }

  /** Reads everything again; an older answer never replaces a newer one. */
  async refresh(): Promise<void> {
    const turn = ++this.#turn;
    try {
      const { repos, tasks } = await this.#client.overview();
      if (turn !== this.#turn) return;
      this.repos = repos;
      this.tasks = tasks;
      this.error = null;
      this.loaded = true;
    } catch (e) {
      if (turn === this.#turn) this.error = asAppError(e);
    }
  }

  /** Moves the selection by one task. */
  step(by: 1 | -1): void {
    const all = this.inOrder;
    if (all.length === 0) return;
    const at = all.findIndex((t) => t.id === this.selected);
    const next = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + by))];
    if (next) this.selected = next.id;
  }
}
